"""`criteria`: a proposer without a model. It turns the check that fails most often into a rule with examples."""

from collections.abc import Iterator

from whet.skills.documents.document import Document
from whet.skills.documents.edits import Edit, Op
from whet.skills.proposers.base import Proposal, ProposalContext
from whet.skills.proposers.criteria.checks import Criterion, FailingCheck, checks_of, count_failing
from whet.skills.proposers.criteria.examples import example, examples_in, samples_for
from whet.skills.proposers.criteria.wording import describe_check
from whet.skills.proposers.leak_check import check_edits


class CriteriaProposer:
    """Proposes rules for the checks that fail most often; the same context always gives the same rule.

    It proposes one rule at a time, so that the search measures each of them. All examples are at the end of the
    document and follow all of its rules: a small model learns nothing from examples that differ in form.
    """

    async def propose(self, context: ProposalContext) -> Proposal:
        """Propose a rule that is not in the document and was not rejected before."""
        worth = [one for one in count_failing(context.rollouts) if _is_worth_proposing(one, context)]
        proposed = [edit for one in worth if (edit := _edit(one, context)) is not None]
        kept, refused = check_edits(proposed, context)
        chosen = kept[: 1 if context.max_edits is None else min(1, context.max_edits)]
        reason = "; ".join(edit.reason for edit in chosen) or "no failing check gives a new rule"
        return Proposal(tuple(chosen), reason, refused=tuple(refused), exhausted=not proposed)


def _is_worth_proposing(one: FailingCheck, context: ProposalContext) -> bool:
    rule = describe_check(one.criterion).rule
    # A rule applies to every task. What only a few tasks check is not a rule, and may be their common answer.
    is_common = one.is_form or 2 * one.tasks > len({rollout.task for rollout in context.rollouts})
    is_new = not _has_rule(context.document, rule) and not _is_rejected(rule, context)
    return bool(rule) and one.shared and is_common and is_new


def _is_rejected(rule: str, context: ProposalContext) -> bool:
    """Whether the search rejected a rule, or it was refused as an edit."""
    edits = [edit for past in context.past if not past.accepted for edit in past.edits]
    edits += [refused.edit for past in context.past for refused in past.refused]
    # A rule stands in the first line of its edit, or at the end of a description.
    return any(edit.text.strip().split("\n")[0].endswith(rule) for edit in edits)


def _edit(one: FailingCheck, context: ProposalContext) -> Edit | None:
    """Add a rule after the other rules, and rewrite the examples after it so that they follow it. None when the rule
    belongs into a description and the document has none."""
    words = describe_check(one.criterion)
    reason = f"{words.requirement} Failed in {one.failed} of {one.rollouts} rollouts [{one.criterion.short}]."
    if one.criterion.op in {"skill_read", "skill_not_read"}:
        return _extend_description(words.rule, reason, context)
    rule = f"- {words.rule}" + (f"\n  Example: {words.steps}" if words.steps else "")
    examples = _examples(one.criterion, context)
    there = examples_in(context.document)
    if there is None:
        return _add_lines("\n\n".join([rule, *examples]), reason, context)
    old = context.document[there.start : there.end]
    # Replace the empty line above as well, so that the rule joins the others.
    gap = "\n" if context.document[: there.start].endswith("\n\n") else ""
    return Edit(op=Op.REPLACE, anchor=f"{gap}{old}", text="\n\n".join([rule, *(examples or [old])]), reason=reason)


def _extend_description(rule: str, reason: str, context: ProposalContext) -> Edit | None:
    """A rule about reading the skill stands in its description: the body is read too late."""
    span = Document(context.document).description
    if span is None:
        return None
    value = context.document[span.start : span.end]
    inside = value[1:-1] if value[0] in "\"'" else value
    return Edit(op=Op.REPLACE, anchor=inside, text=f"{inside.rstrip(' .')}. {rule}", reason=reason)


def _examples(criterion: Criterion, context: ProposalContext) -> list[str]:
    """Questions with answers that follow the new rule and the rules that the document already has."""
    if describe_check(criterion).steps or criterion.op in {"rubric", "json_key", "changed"}:
        return []
    existing = list(_find_existing(context))
    made = (example(criterion, existing, sample) for sample in samples_for(criterion, context.rollouts))
    return [one for one in made if one is not None]


def _find_existing(context: ProposalContext) -> Iterator[Criterion]:
    """The checks whose rules the document already has."""
    checks = {
        Criterion.of(check)
        for rollout in context.rollouts
        for one in rollout.judgements.values()
        for check in checks_of(one)
    }
    for criterion in sorted(checks, key=lambda one: one.short):
        rule = describe_check(criterion).rule
        if rule and _has_rule(context.document, rule):
            yield criterion


def _add_lines(text: str, reason: str, context: ProposalContext) -> Edit:
    """An edit that adds lines where the policy allows it."""
    document = Document(context.document)
    wanted = {title.casefold() for title in context.policy.sections}
    opened = [section for section in document.sections if section.title.casefold() in wanted]
    if context.policy.opens != "sections" or not opened:
        return Edit(op=Op.ADD, text=text, reason=reason)
    inside = document.text[opened[-1].span.start : opened[-1].span.end].rstrip()
    return Edit(op=Op.INSERT_AFTER, anchor=inside.rsplit("\n", 1)[-1], text=text, reason=reason)


def _has_rule(document: str, rule: str) -> bool:
    return " ".join(rule.casefold().split()) in " ".join(document.casefold().split())
