"""What a run of sharpening is told as: one paragraph in plain words, and a report with plots."""

from collections.abc import Iterator, Sequence
from math import fsum
from pathlib import Path

from whet.skills.certificates.certificate import make_record
from whet.skills.certificates.text import (
    HEAD,
    READABLE,
    RULE,
    format_models,
    format_removal,
    format_row,
    format_verdict,
)
from whet.skills.gate.gate import ExamResult
from whet.skills.gate.heuristics import RULES, false_accepts
from whet.skills.gate.kinds import GateKind
from whet.skills.report import charts
from whet.skills.report.charts import Plot
from whet.skills.report.criteria import CheckRate
from whet.skills.report.data import Cost, Effect, MeasuredProposal, ReportData, by_task, read_report_data
from whet.skills.report.html import page, plain
from whet.skills.results import SharpenResult
from whet.skills.search.shorten import Removal

REPORT, PAGE, PLOTS = "report.md", "report.html", "plots"


def write_report(outcome: SharpenResult) -> None:
    """Write the report as Markdown with its plots beside it, and as one page for a browser."""
    folder = outcome.folder
    text, shown = report(outcome, read_report_data(folder, outcome.done))
    (folder / PLOTS).mkdir(exist_ok=True)
    for plot in shown:
        (folder / _address(plot)).write_text(plot.svg, encoding="utf-8")
    (folder / REPORT).write_text(text, encoding="utf-8")
    (folder / PAGE).write_text(page(text, {_address(plot): plot.svg for plot in shown}), encoding="utf-8")


def in_plain_words(outcome: SharpenResult) -> str:
    """What was found, what it rests on, and what is not known."""
    done = outcome.done
    number = len(done.steps)
    tried = f"{number} {'proposal was' if number == 1 else 'proposals were'} tried with {outcome.spending}."
    if outcome.accepted is not None:
        return f"{_by_rule(outcome)} {tried}"
    if outcome.certified:
        return f"{_certified(outcome, outcome.certified[-1])}{_sealed(outcome)}{_shorter(outcome)} {tried}"
    if outcome.leader.digest == outcome.start.digest:
        return f"No better skill was found: no proposal did better on the training tasks. {tried}"
    return f"No better skill was certified. {_why(outcome)} {tried}"


def _by_rule(outcome: SharpenResult) -> str:
    """What a classic rule decided, and what that is worth."""
    compared, rule = outcome.done.comparisons, outcome.done.plan.gate
    taken = sum(one.accepted for one in compared)
    return (
        f"Accepted by the rule '{rule}', which certifies nothing: {taken} of {len(compared)} skills that were shown to "
        f"it.{_sealed(outcome)} {_classic_rules(outcome)}"
    )


def _sealed(outcome: SharpenResult) -> str:
    test = outcome.certificate.test
    return f" On the sealed test tasks, against the start: {test}." if test else ""


def _classic_rules(outcome: SharpenResult) -> str:
    """What one pass over the validation tasks would be worth."""
    tasks, twice = len(outcome.certificate.tasks), outcome.audit.twice
    shares = {rule: false_accepts(rule, twice, tasks) for rule in RULES if rule is not GateKind.SOFT}
    strict = shares.pop(GateKind.STRICT)
    others = ", ".join(f"{rule} {share:.0%}" for rule, share in shares.items())
    return (
        f"The strict rule would take {strict:.0%} of proposals that do nothing on these {tasks} validation tasks with "
        f"the noise that was measured ({others})."
    )


def _certified(outcome: SharpenResult, last: ExamResult) -> str:
    attempt, tasks = last.test, len(outcome.certificate.tasks)
    steps = "" if len(outcome.certified) == 1 else f" (the last of {len(outcome.certified)} certified steps)"
    lift = f"at least {attempt.at_least() * 100:.1f} points"
    estimate = attempt.estimate()
    measured = "" if estimate is None else f" (measured after the verdict: {estimate * 100:+.1f})"
    return (
        f"A better skill was certified{steps}: on these {tasks} validation tasks its mean score is {lift} above the "
        f"one before, at level {last.level:g}{measured}. The chance that a run certifies anything that is no better is "
        f"at most {outcome.done.plan.alpha:.0%}.{_changed(last)}"
    )


def _changed(held: ExamResult) -> str:
    """What replies said of the model, where it was not the same all the time."""
    told = format_models(held.test.reported_models)
    return f" {told}" if told else ""


def _shorter(outcome: SharpenResult) -> str:
    removal = outcome.done.removal
    if removal is None or not removal.accepted:
        return ""
    result = removal.exam_result
    return f" {format_removal(removal.units, result.test.at_least(), result.level, outcome.certificate)}"


def _why(outcome: SharpenResult) -> str:
    if not outcome.done.exam_results:
        left = f"{outcome.done.left} rollouts were left, and an exam needs more to certify anything"
        return f"The best candidate was not held before an exam: {left}; the leader is not proved."
    last = outcome.done.exam_results[-1]
    return f"{format_verdict(make_record(last), len(outcome.certificate.tasks))}.{_changed(last)}"


def report(outcome: SharpenResult, figures: ReportData) -> tuple[str, list[Plot]]:
    """All that a run did, in Markdown, and the plots that it shows."""
    parts = [
        *_search(figures),
        *_edits(figures.effects),
        *_exams(outcome),
        *_left_out(outcome.done.removal),
        *_test(outcome, figures.asked),
        *_spent(outcome, figures.costs),
    ]
    lines: list[str] = [f"# Sharpening {outcome.start.name}", "", in_plain_words(outcome), ""]
    for part in parts:
        lines += [f"![{part.words}]({_address(part)})", ""] if isinstance(part, Plot) else [part]
    return "\n".join(lines), [part for part in parts if isinstance(part, Plot)]


def _search(figures: ReportData) -> Iterator[str | Plot]:
    yield from ("## The search, on training tasks", "")
    if not figures.tried:
        yield from ("Nothing was proposed that could be tried.", "")
        return
    yield charts.learning_curve(figures)
    yield from ("| | candidate | mean [95 %] | to beat | |", "|---|---|---|---|---|")
    if figures.start is not None:
        yield f"| 0 | start | {figures.start} | | |"
    yield from (_tried_row(number, tried) for number, tried in enumerate(figures.tried, 1))
    yield from ("", "Means of winners are too high: they were picked for it.", "")


def _tried_row(number: int, tried: MeasuredProposal) -> str:
    step = tried.step
    taken = "leads" if step.accepted else "fell behind" if step.dropped else "not taken"
    mean = tried.interval or f"{step.mean:.1%}"
    return f"| {number} | `{step.candidate[:8]}` | {mean} | {step.bar:.1%} | {taken} |"


def _edits(effects: Sequence[Effect]) -> Iterator[str | Plot]:
    if not effects:
        return
    yield from ("## What each accepted edit did", "")
    yield charts.effects(effects)
    yield from ("| version | edits | change on training tasks, points [95 %] |", "|---|---|---|")
    for effect in effects:
        found = effect.difference
        told = f"{found.mean * 100:+.1f} [{found.low * 100:+.1f}, {found.high * 100:+.1f}]" if found else "not measured"
        yield f"| `{effect.version[:8]}` | {'; '.join(map(plain, effect.edits)) or '-'} | {told} |"
    yield from (
        "",
        "Each is held against the version before it. What was taken for its high mean looks too good.",
        "",
    )


def _exams(outcome: SharpenResult) -> Iterator[str | Plot]:
    held = outcome.done.exam_results
    yield from ("## The exams, on validation tasks", "", _classic_rules(outcome), "")
    if not held:
        yield from ("None was held.", "")
        return
    yield from (HEAD, RULE, *map(format_row, outcome.certificate.records), "")
    yield from (charts.wealth(number, one) for number, one in enumerate(held, 1))
    yield from ("## The last exam, task by task", "")
    yield charts.tasks(held[-1])
    yield from ("| task | positions | mean difference, points |", "|---|---|---|")
    for task, found in by_task(held[-1]).items():
        yield f"| {plain(task)} | {len(found)} | {fsum(found) / len(found) * 100:+.0f} |"
    yield ""


def _left_out(removal: Removal | None) -> Iterator[str | Plot]:
    if removal is None:
        return
    yield from ("## What can be left out", "")
    yield charts.removal(removal)
    test, level = removal.exam_result.test, removal.exam_result.level
    between = f"{test.at_least() * 100:+.1f} to {test.at_most() * 100:+.1f} points, at level {level:g}"
    outcome = "left out" if removal.accepted else "kept"
    yield from (f"Without all of these together the score changes by {between}: {outcome}.", "")
    yield from (f"- {plain(unit)}" for unit in removal.units)
    yield ""


def _test(outcome: SharpenResult, asked: Sequence[CheckRate]) -> Iterator[str]:
    tested = outcome.certificate.test
    yield from ("## The sealed test", "")
    if tested is None:
        untested = "there are no test tasks, no budget was left, or another skill was tested on them before"
        why = untested if outcome.certified else "there is nothing new to test"
        yield from (f"It was not taken: {why}.", "")
        return
    yield from (*tested.table(), "", f"Difference: {tested}.", "")
    if asked:
        yield from ("| what is asked | before | after |", "|---|---|---|")
        yield from (f"| {plain(one.words)} | {one.before} | {one.after} |" for one in asked)
        yield ""


def _spent(outcome: SharpenResult, costs: Sequence[Cost]) -> Iterator[str | Plot]:
    yield from ("## What was spent", "")
    yield charts.costs(costs)
    yield from ("| | rollouts | tokens | dollars |", "|---|---|---|---|")
    for cost in costs:
        tokens = "unknown" if cost.tokens is None else f"{cost.tokens:,}"
        dollars = "unknown" if cost.dollars is None else f"{cost.dollars:.4f}"
        yield f"| {cost.part} | {cost.rollouts:,} | {tokens} | {dollars} |"
    yield from ("", "Calls of attempts that were broken off, because whet was killed, are not counted here.", "")
    if (used := outcome.certificate.used) is not None:
        yield from (f"Error budget: {used}, with this run.", "")
    yield f"All versions are in `skills/` (`whet skill log`), what was proposed in `drafts/`, verdicts in `{READABLE}`."
    yield ""


def _address(plot: Plot) -> str:
    return str(Path(PLOTS, f"{plot.name}.svg"))
