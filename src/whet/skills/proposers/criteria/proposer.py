"""`criteria`: a writer without a model. What judges ask for most often in vain becomes a rule with a worked example."""

from collections.abc import Iterator

from whet.skills.documents.document import Document
from whet.skills.documents.edits import Edit, Op
from whet.skills.proposers.base import Proposal, ProposalContext
from whet.skills.proposers.criteria.checks import Criterion, Failing, checks_of, failing
from whet.skills.proposers.criteria.examples import example, examples_in, samples_for
from whet.skills.proposers.criteria.wording import wording
from whet.skills.proposers.leak_check import check_edits


class CriteriaProposer:
    """Proposes rules for the criteria that fail most; always the same ones for the same brief.

    One rule at a time, so that the search tells which of them help. All examples are kept at the end of the document
    and show all of its rules: examples that differ in form teach a small model none.
    """

    async def propose(self, context: ProposalContext) -> Proposal:
        """A rule that is not in the document and was not turned down before; none when there is no other."""
        proposed = [_edit(one, context) for one in failing(context.rollouts) if _worth_saying(one, context)]
        kept, refused = check_edits(proposed, context)
        chosen = kept[: 1 if context.max_edits is None else min(1, context.max_edits)]
        reason = "; ".join(edit.reason for edit in chosen) or "no failing check makes a rule that is new"
        return Proposal(tuple(chosen), reason, refused=tuple(refused))


def _worth_saying(one: Failing, context: ProposalContext) -> bool:
    rule = wording(one.criterion).rule
    # A rule speaks of every task; what few of them ask for is no rule, and may be the answer that these have in common.
    asked_by_most = one.is_form or 2 * one.tasks > len({rollout.task for rollout in context.rollouts})
    wanted = one.shared and asked_by_most
    return bool(rule) and wanted and not _says(context.document, rule) and rule not in _not_taken(context)


def _not_taken(context: ProposalContext) -> set[str]:
    """The rules that were tried and that the search did not take, or that were refused."""
    edits = [edit for past in context.past if not past.accepted for edit in past.edits]
    edits += [refused.edit for past in context.past for refused in past.refused]
    return {edit.text.strip().split("\n")[0].removeprefix("- ") for edit in edits}


def _edit(one: Failing, context: ProposalContext) -> Edit:
    """A rule at the end of the rules, with the examples of the document after it, as the rule wants them."""
    words = wording(one.criterion)
    reason = f"{words.asked} Not met in {one.failed} of {one.rollouts} trials [{one.criterion.short}]."
    rule = f"- {words.rule}" + (f"\n  Example: {words.how}" if words.how else "")
    examples = _examples(one.criterion, context)
    there = examples_in(context.document)
    if there is None:
        return _added("\n\n".join([rule, *examples]), reason, context)
    old = context.document[there.start : there.end]
    # With the empty line above, so that the rule joins the others.
    gap = "\n" if context.document[: there.start].endswith("\n\n") else ""
    return Edit(op=Op.REPLACE, anchor=f"{gap}{old}", text="\n\n".join([rule, *(examples or [old])]), reason=reason)


def _examples(criterion: Criterion, context: ProposalContext) -> list[str]:
    """Questions and answers as the rule wants them, and as the rules want them that the document has already."""
    if wording(criterion).how or criterion.op in {"rubric", "json_key", "changed"}:
        return []
    said = list(_said_already(context))
    made = (example(criterion, said, sample) for sample in samples_for(criterion, context.rollouts))
    return [one for one in made if one is not None]


def _said_already(context: ProposalContext) -> Iterator[Criterion]:
    """The criteria whose rules are in the document."""
    asked = {
        Criterion.of(check)
        for rollout in context.rollouts
        for one in rollout.judgements.values()
        for check in checks_of(one)
    }
    for criterion in sorted(asked, key=lambda one: one.short):
        rule = wording(criterion).rule
        if rule and _says(context.document, rule):
            yield criterion


def _added(text: str, reason: str, context: ProposalContext) -> Edit:
    """An edit that adds lines where the policy lets them be added."""
    document = Document(context.document)
    wanted = {title.casefold() for title in context.policy.sections}
    opened = [section for section in document.sections if section.title.casefold() in wanted]
    if context.policy.opens != "sections" or not opened:
        return Edit(op=Op.ADD, text=text, reason=reason)
    inside = document.text[opened[-1].span.start : opened[-1].span.end].rstrip()
    return Edit(op=Op.INSERT_AFTER, anchor=inside.rsplit("\n", 1)[-1], text=text, reason=reason)


def _says(document: str, rule: str) -> bool:
    return " ".join(rule.casefold().split()) in " ".join(document.casefold().split())
