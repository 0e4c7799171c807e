"""Writers, policies and preferences as users name them."""

import re
from pathlib import Path

from whet.errors import UserError, did_you_mean
from whet.skill import Skill
from whet.skills.documents.document import Document, Policy
from whet.skills.proposers.base import Proposer
from whet.skills.proposers.chain import ProposerChain
from whet.skills.proposers.criteria.proposer import CriteriaProposer
from whet.skills.proposers.rules_file import read_rules
from whet.skills.sharpen.proposer_runtime import ProposerSpec

_IN_TURN = re.compile(r"\+(?=criteria|rules:)")
"""Where the names of writers are joined; a path may have a plus in it too."""

_POLICIES = {"anything": Policy(), "only-learned-block": Policy(opens="learned")}


def read_proposer(name: str, model: str | None = None, agent: str | None = None) -> Proposer | ProposerSpec:
    """The writer of this name, with the model and the agent that it is to use, where not those under test.

    >>> read_proposer("agent", agent="opencode")
    Hired(kind='agent', model=None, agent='opencode')
    """
    if agent is not None and name != "agent":
        raise UserError(f"`proposer_agent` is '{agent}'; expected it with the proposer 'agent', not '{name}'")
    if model is None and len(names := _IN_TURN.split(name)) > 1:
        return ProposerChain(tuple(map(_own, names)))
    if name in {"llm", "agent"}:
        return ProposerSpec("llm" if name == "llm" else "agent", model, agent)
    if model is not None:
        raise UserError(f"`proposer_model` is '{model}'; expected it with the proposer 'llm' or 'agent', not '{name}'")
    return _own(name)


def _own(name: str) -> Proposer:
    """A writer that needs neither model nor agent."""
    kind, _, rest = name.partition(":")
    if kind == "rules" and rest:
        return read_rules(Path(rest))
    if name != "criteria":
        raise UserError(
            f"--proposer is '{name}'; expected criteria, llm, agent, or rules:FILE with a rule on each line; "
            "criteria+rules:FILE takes one after the other"
        )
    return CriteriaProposer()


def read_policy(name: str) -> Policy:
    """What may be changed.

    >>> read_policy("sections=Answers,Style").sections
    ('Answers', 'Style')
    """
    kind, equals, rest = name.partition("=")
    titles = tuple(title.strip() for title in rest.split(",") if title.strip())
    if kind == "sections" and titles:
        return Policy(opens="sections", sections=titles)
    if equals or kind not in _POLICIES:
        raise UserError(f"--policy is '{name}'; expected {', '.join(_POLICIES)}, or sections=TITLE,TITLE")
    return _POLICIES[kind]


def refuse_unknown_sections(policy: Policy, skill: Skill) -> None:
    """UserError when the policy opens a section that the skill does not have."""
    titles = [section.title for section in Document(skill.text).sections if section.title]
    known = {title.casefold() for title in titles}
    unknown = next((title for title in policy.sections if title.casefold() not in known), None)
    if unknown is not None:
        raise UserError(
            f"--policy names section '{unknown}', which is not in {skill.name}; {did_you_mean(unknown, titles)}"
        )


def read_preferences(given: str) -> str:
    """House rules: the text of a file, or else what is given itself."""
    path = Path(given)
    is_name = len(given.split()) == 1 and path.suffix in {".md", ".txt"}
    try:
        return path.read_text(encoding="utf-8") if is_name or (given and path.is_file()) else given
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--preferences is '{given}', which cannot be read: {error}") from error
