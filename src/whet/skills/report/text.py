"""The report of a sharpen run in words: one paragraph, and a document in Markdown with tables and plots."""

from collections.abc import Iterator, Mapping, Sequence
from math import fsum

from whet.runs.stats.paired import difference_interval
from whet.skills.certificates.certificate import make_record, make_shortening
from whet.skills.certificates.guard_text import format_both_scores, format_guard
from whet.skills.certificates.text import (
    HEAD,
    READABLE,
    RULE,
    format_models,
    format_removal,
    format_row,
    format_verdict,
)
from whet.skills.gate.exam import PAIR
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.guard import FEWEST_PAIRS
from whet.skills.gate.heuristics import RULES, false_accepts
from whet.skills.gate.kinds import GateKind
from whet.skills.report import plots
from whet.skills.report.criteria import CheckRate
from whet.skills.report.data import Cost, Effect, MeasuredProposal, ReportData
from whet.skills.report.evidence import by_task, trace_evidence
from whet.skills.report.markdown import escape_cell, fence
from whet.skills.report.plots import Plot
from whet.skills.report.verdict import GLOSSARY, count_changes, list_changes, verdict_sentence
from whet.skills.results import SharpenResult
from whet.skills.rollouts.final_test import FinalTest
from whet.skills.search.shorten import Removal

NEEDS_MORE = "an exam needs more to certify anything"
PLOTS = "plots"
"""Folder of the plots that the report in Markdown shows."""


def in_plain_words(outcome: SharpenResult) -> str:
    """The result of a run in one paragraph."""
    done = outcome.done
    number = len(done.steps)
    measured = f"The run measured {number} {'proposal' if number == 1 else 'proposals'} with {outcome.spending}."
    if outcome.accepted is not None:
        return f"{_describe_accepted(outcome)} {measured}"
    if outcome.certified:
        certified = _describe_certified(outcome, outcome.certified[-1])
        return f"{certified}{_describe_test(outcome)}{_describe_shorter(outcome)} {measured}"
    if outcome.leader.digest == outcome.start.digest:
        return f"No better skill was found. {_describe_no_leader(outcome)}{measured}"
    return f"No better skill was certified. {_describe_failure(outcome)} {measured}"


def _describe_no_leader(outcome: SharpenResult) -> str:
    if not outcome.solved_nothing:
        return ""
    return (
        "Look at a rollout with `whet show`: the tasks may be too hard for this model, or the agent, the set-up or the "
        "judges may not work. A search needs tasks of which some are solved. "
    )


def _describe_accepted(outcome: SharpenResult) -> str:
    """What a classic rule accepted, and how far that can be trusted."""
    compared, rule = outcome.done.comparisons, outcome.done.plan.gate
    taken = sum(one.accepted for one in compared)
    return (
        f"The rule '{rule}', which certifies nothing, accepted {taken} of {len(compared)} skills."
        f"{_describe_test(outcome)} {describe_classic_rules(outcome)}"
    )


def _describe_test(outcome: SharpenResult) -> str:
    test = outcome.certificate.test
    return f" Held-out test, against the start: {test}.{explain_interval(test)}" if test else ""


def explain_interval(test: FinalTest) -> str:
    """Why an interval can include a loss although no task got worse, where that is so; else empty."""
    found, differences = difference_interval(test.differences), test.differences
    if found is None or found.low >= 0 or min(differences) < 0 or max(differences) <= 0:
        return ""
    return (
        f" No task got worse, but {found.tasks} tasks are few: the interval is about all tasks of this kind, and "
        "allows for one that was not drawn and differs by 100 points. More test tasks make it narrower."
    )


def describe_classic_rules(outcome: SharpenResult) -> str:
    """How often a rule that looks once at the validation tasks would be wrong."""
    tasks, twice = len(outcome.certificate.tasks), outcome.audit.twice
    shares = {rule: false_accepts(rule, twice, tasks) for rule in RULES if rule is not GateKind.SOFT}
    strict = shares.pop(GateKind.STRICT)
    others = ", ".join(f"{rule} {share:.0%}" for rule, share in shares.items())
    return (
        f"With the measured noise, the strict rule would accept {strict:.0%} of proposals that change nothing on these "
        f"{tasks} validation tasks ({others})."
    )


def _describe_certified(outcome: SharpenResult, last: ExamResult) -> str:
    attempt, tasks = last.test, len(outcome.certificate.tasks)
    steps = "" if len(outcome.certified) == 1 else f" (the last of {len(outcome.certified)} certified steps)"
    lift = f"at least {attempt.at_least() * 100:.1f} points"
    guarded = attempt.guard is not None
    estimate = attempt.estimate()
    measured = "" if estimate is None else f" (measured after the verdict: {estimate * 100:+.1f})"
    return (
        f"A better skill was certified{steps}: on these {tasks} validation tasks its mean score is {lift} above that "
        f"of the skill before it, at level {last.level:g}{measured}. {_describe_guard(last)}"
        f"The chance that a run certifies a skill that is not better{', or worse in its guard,' * guarded} is "
        f"at most {outcome.done.plan.alpha:.0%}.{_describe_models(last)}"
    )


def _describe_guard(held: ExamResult) -> str:
    """What the exam showed about its guard; empty without one."""
    if held.test.guard is None:
        return ""
    record = make_record(held)
    return f"Guard: {format_guard(record)}; {format_both_scores(record)}. "


def _describe_models(held: ExamResult) -> str:
    """Whether the model changed during the exam, as its replies report."""
    told = format_models(held.test.reported_models)
    return f" {told}" if told else ""


def _describe_shorter(outcome: SharpenResult) -> str:
    removal = outcome.done.removal
    if removal is None or not removal.accepted:
        return ""
    result = removal.exam_result
    return f" {format_removal(removal.units, result.test.at_least(), result.level, outcome.certificate)}"


def _describe_failure(outcome: SharpenResult) -> str:
    """Why nothing was certified."""
    if not outcome.done.exam_results:
        needs = f"an exam with a guard needs at least {PAIR * FEWEST_PAIRS}" if outcome.done.plan.guard else NEEDS_MORE
        left = f"{outcome.done.left} rollouts were left, and {needs}"
        return f"There was no exam: {left}. It is not proved that the leader is better."
    last = outcome.done.exam_results[-1]
    return f"{format_verdict(make_record(last), len(outcome.certificate.tasks))}.{_describe_models(last)}"


def report(outcome: SharpenResult, figures: ReportData) -> tuple[str, list[Plot]]:
    """The whole report in Markdown, and the plots that it shows."""
    parts = [
        *_search(figures),
        *_edits(figures.effects),
        *_exams(outcome, figures.skill_reads),
        *_removal(outcome.done.removal),
        *_test(outcome, figures.check_rates),
        *_costs(outcome, figures.costs),
    ]
    lines: list[str] = [f"# Sharpening {outcome.start.name}", "", f"**{verdict_sentence(outcome)}**", ""]
    lines += [in_plain_words(outcome), "", *_changes(outcome), *_glossary()]
    for part in parts:
        lines += [f"![{part.words}]({_address(part)})", ""] if isinstance(part, Plot) else [part]
    return "\n".join(lines), [part for part in parts if isinstance(part, Plot)]


def _changes(outcome: SharpenResult) -> Iterator[str]:
    lines = list_changes(outcome)
    if not lines:
        return
    yield from ("## What changes in the skill", "", f"{count_changes(lines)}:", "", *fence(lines), "")
    if outcome.certified:
        yield from (f"`whet adopt {outcome.folder}` writes it over the original; `--undo` takes it back.", "")
    else:
        yield from ("This version is not proved to be better.", "")


def _glossary() -> Iterator[str]:
    yield from ("## Five words", "")
    yield from (f"- **{word}**: {meaning}." for word, meaning in GLOSSARY.items())
    yield ""


def _search(figures: ReportData) -> Iterator[str | Plot]:
    yield from ("## The search on training tasks", "")
    if not figures.proposals:
        yield from ("No proposal could be measured.", "")
        return
    yield plots.draw_search(figures)
    yield from ("| | candidate | mean score [95 %] | to beat | |", "|---|---|---|---|---|")
    if figures.start is not None:
        yield f"| 0 | start | {figures.start} | | |"
    yield from (_proposal_row(number, one) for number, one in enumerate(figures.proposals, 1))
    yield from (
        "",
        "Means of accepted candidates are too high on average, because they were chosen for a high mean.",
        "",
    )


def _proposal_row(number: int, proposal: MeasuredProposal) -> str:
    step = proposal.step
    taken = "accepted" if step.accepted else "dropped" if step.dropped else "rejected"
    taken = f"{taken}: its guard fell too far" if step.harmful else taken
    mean = proposal.interval or f"{step.mean:.1%}"
    return f"| {number} | `{step.candidate[:8]}` | {mean} | {step.bar:.1%} | {taken} |"


def _edits(effects: Sequence[Effect]) -> Iterator[str | Plot]:
    if not effects:
        return
    yield from ("## What each accepted edit did", "")
    yield plots.draw_effects(effects)
    yield from ("| version | edits | change on training tasks, points [95 %] |", "|---|---|---|")
    for effect in effects:
        found = effect.difference
        change = (
            f"{found.mean * 100:+.1f} [{found.low * 100:+.1f}, {found.high * 100:+.1f}]" if found else "not measured"
        )
        yield f"| `{effect.version[:8]}` | {'; '.join(map(escape_cell, effect.edits)) or '-'} | {change} |"
    yield from (
        "",
        "Each version is compared with the one before it. These changes are too high on average, for the same reason.",
        "",
    )


def describe_reads(last: ExamResult, reads: Mapping[str, str]) -> str:
    """How often agents read both skills of the last exam; empty when it is not known. One that is not read does
    nothing."""
    sides = (("old", last.exam.incumbent), ("new", last.candidate))
    told = [f"with the {name} skill the agent {said}" for name, skill in sides if (said := reads.get(skill))]
    sentence = "; ".join(told)
    return f"{sentence[0].upper()}{sentence[1:]}." if told else ""


def _exams(outcome: SharpenResult, reads: Mapping[str, str]) -> Iterator[str | Plot]:
    held = outcome.done.exam_results
    yield from ("## The exams on validation tasks", "", describe_classic_rules(outcome), "")
    if not held:
        yield from ("There was no exam.", "")
        return
    yield from (HEAD, RULE, *map(format_row, outcome.certificate.records), "")
    for record in outcome.certificate.records:
        if record.terms.guard is not None:
            yield from (f"Guard of exam {record.number}: {format_guard(record)}; {format_both_scores(record)}.", "")
    if told := describe_reads(held[-1], reads):
        yield from (told, "")
    tasks = len(outcome.certificate.tasks)
    yield from (_draw_exam(number, one, tasks) for number, one in enumerate(held, 1))
    yield from ("## The last exam, task by task", "")
    last = make_record(held[-1])
    yield plots.draw_tasks(last)
    yield from ("| task | pairs | mean difference, points |", "|---|---|---|")
    for task, found in by_task(last).items():
        yield f"| {escape_cell(task)} | {len(found)} | {fsum(found) / len(found) * 100:+.0f} |"
    yield ""


def _draw_exam(number: int, held: ExamResult, tasks: int) -> Plot:
    record, evidence = make_record(held), trace_evidence(held.test.terms, held.test.pairs)
    new, old = record.candidate[:8], record.incumbent[:8]
    title = f"Exam {record.number}: {new} against {old}: {record.findings.verdict}"
    words = f"evidence of the exam of {new}, pair by pair, and the thresholds of both verdicts"
    return Plot(f"exam-{number}", words, plots.draw_exam(record, evidence, title, tasks).wide)


def _removal(removal: Removal | None) -> Iterator[str | Plot]:
    shortening = make_shortening(removal)
    if removal is None or shortening is None:
        return
    yield from ("## Rules that can be removed", "")
    yield plots.draw_removal(shortening)
    test, level = removal.exam_result.test, removal.exam_result.level
    between = f"{test.at_least() * 100:+.1f} to {test.at_most() * 100:+.1f} points, at level {level:g}"
    outcome = "removed" if removal.accepted else "kept"
    yield from (f"Without all of these rules the score changes by {between}: {outcome}.", "")
    yield from (f"- {escape_cell(unit)}" for unit in removal.units)
    yield ""


def _test(outcome: SharpenResult, rates: Sequence[CheckRate]) -> Iterator[str]:
    tested = outcome.certificate.test
    yield from ("## The held-out test", "")
    if tested is None:
        untested = "there are no test tasks, no budget was left, or they were used to test another skill before"
        why = untested if outcome.certified else "there is nothing new to test"
        yield from (f"There was no held-out test: {why}.", "")
        return
    yield from (*tested.table(), "", f"Difference: {tested}.{explain_interval(tested)}", "")
    if rates:
        yield from ("| check | before | after |", "|---|---|---|")
        yield from (f"| {escape_cell(one.words)} | {one.before} | {one.after} |" for one in rates)
        yield ""


def _costs(outcome: SharpenResult, costs: Sequence[Cost]) -> Iterator[str | Plot]:
    yield from ("## What was spent", "")
    yield plots.draw_costs(costs)
    yield from ("| | rollouts | tokens | dollars |", "|---|---|---|---|")
    for cost in costs:
        tokens = "unknown" if cost.tokens is None else f"{cost.tokens:,}"
        dollars = "unknown" if cost.dollars is None else f"{cost.dollars:.4f}"
        yield f"| {cost.part} | {cost.rollouts:,} | {tokens} | {dollars} |"
    yield from ("", "Calls of attempts that were interrupted because whet was killed are not counted here.", "")
    if (used := outcome.certificate.used) is not None:
        yield from (f"Error budget: {used}, with this run.", "")
    yield f"All versions are in `skills/` (`whet skill log`), the proposals in `drafts/`, the verdicts in `{READABLE}`."
    yield ""


def _address(plot: Plot) -> str:
    return f"{PLOTS}/{plot.name}.svg"
