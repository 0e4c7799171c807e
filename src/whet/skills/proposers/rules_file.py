"""`rules:FILE`: a proposer that proposes the rules of a list, one after the other."""

from pathlib import Path

from whet.errors import UserError
from whet.skills.documents.edits import Edit, Op
from whet.skills.proposers.base import Proposal, ProposalContext


class RulesFile:
    """Adds the first rule of its list that was not proposed yet."""

    def __init__(self, rules: tuple[str, ...]) -> None:
        self._rules = rules

    async def propose(self, context: ProposalContext) -> Proposal:
        proposed = {edit.text for past in context.past for edit in (*past.edits, *(one.edit for one in past.refused))}
        rest = [rule for rule in self._rules if rule not in proposed]
        if not rest:
            return Proposal((), f"all {len(self._rules)} rules of the file were proposed", exhausted=True)
        return Proposal((Edit(op=Op.ADD, text=rest[0]),))


def read_rules(path: Path) -> RulesFile:
    """Read the rules in a text file, one per line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a list of rules: {error}") from error
    rules = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not rules:
        raise UserError(f"{path}: has no rules; expected one rule per line")
    return RulesFile(rules)
