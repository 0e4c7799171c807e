"""The verdict of `whet certify` in Markdown, for a comment on a pull request."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import fsum
from pathlib import Path

from whet.errors import UserError
from whet.skills.certificates.certificate import CERTIFICATE, Certificate, ExamRecord
from whet.skills.certificates.guard_text import format_both_scores, format_guard, format_margin
from whet.skills.certificates.text import format_models, format_verdict
from whet.skills.gate.exam import PAIR
from whet.skills.gate.power import enough_pairs
from whet.skills.measurement import Verdict
from whet.skills.report.markdown import escape_cell

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""Variable of GitHub Actions: the file whose Markdown the page of a job shows."""
MOST_TASKS = 10
"""The most tasks that are listed."""


def write_summary(certificate: Certificate, folder: Path, file: Path | None, env: Mapping[str, str]) -> None:
    """Write the summary to a file, and append it to the summary of the job in GitHub Actions."""
    text = format_summary(certificate, folder)
    try:
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        if env.get(STEP_SUMMARY):
            with Path(env[STEP_SUMMARY]).open("a", encoding="utf-8") as shown:
                shown.write(text)
    except OSError as error:
        raise UserError(f"`summary`: {error.filename}: cannot be written: {error.strerror}") from error


def format_summary(certificate: Certificate, folder: Path) -> str:
    """The verdict, what it rests on, and the tasks that got worse."""
    (record,) = certificate.records
    return "\n".join(
        [*_verdict(record, certificate), *_facts(record, certificate), *_worse_tasks(record), *_check(folder)]
    )


def _verdict(record: ExamRecord, certificate: Certificate) -> Iterator[str]:
    told = f"{format_verdict(record, len(certificate.tasks))}. {advise(record)}".rstrip()
    yield from (f"### {headline(record)}", "", f"{told[0].upper()}{told[1:]}", "")


def headline(record: ExamRecord) -> str:
    """The verdict in one line."""
    margin = f"{record.terms.margin * 100:g} points"
    if record.terms.guard is not None:
        if record.findings.verdict is Verdict.CERTIFIED:
            return f"The new skill is better, and {format_margin(record.terms.guard)}"
        return f"Not shown: the new skill is better, and {format_margin(record.terms.guard)}"
    if not record.terms.margin:
        return (
            f"The new skill is {'better' if record.findings.verdict is Verdict.CERTIFIED else 'not shown to be better'}"
        )
    match record.findings.verdict:
        case Verdict.CERTIFIED:
            return f"No harm: the new skill is not worse by more than {margin}"
        case Verdict.FUTILE:
            return "Harm: the new skill is worse"
    return f"Not shown: the new skill may be worse by more than {margin}"


def advise(record: ExamRecord) -> str:
    """What would be enough if it could not be shown that a skill is not worse; empty otherwise."""
    squares = [(new - old) ** 2 for _, old, new in _list_measured(record)]
    if not record.terms.margin or record.findings.verdict is not Verdict.UNDECIDED or not squares:
        return ""
    # Half of the mean square of the differences is the variance of one score, if the skills are equally good.
    pairs = enough_pairs(0.0, fsum(squares) / len(squares) / 2, record.terms)
    if pairs is None:
        return "With scores this noisy, only a larger margin can be shown."
    rollouts = f"about {PAIR * pairs} rollouts"
    return f"With scores this noisy, {rollouts} show in 80 % of cases that a change without effect is not worse."


def _list_measured(record: ExamRecord) -> Iterator[tuple[str, float, float]]:
    """The task and both scores of each pair that has both."""
    for one in record.positions:
        if isinstance(one.incumbent, float) and isinstance(one.candidate, float):
            yield one.task, one.incumbent, one.candidate


def _facts(record: ExamRecord, certificate: Certificate) -> Iterator[str]:
    found, made = record.findings, certificate.made_with
    pairs, tasks = len(record.positions), len(certificate.tasks)
    yield from ("| | |", "|---|---|")
    yield f"| skills | `{record.incumbent[:8]}` → `{record.candidate[:8]}` |"
    yield f"| agent and model | {_name(made.get('agent'))} on {_name(made.get('model'))} |"
    yield f"| change of the mean score | {found.at_least * 100:+.1f} to {found.at_most * 100:+.1f} points |"
    if record.terms.guard is not None:
        yield f"| guard | {escape_cell(format_guard(record))} |"
        yield f"| old → new | {escape_cell(format_both_scores(record))} |"
    yield f"| measured | {PAIR * pairs} rollouts: {pairs} pairs on {tasks} tasks |"
    yield f"| error | at most {record.terms.level:g} |"
    yield ""
    if models := format_models(record.reported):
        yield from (models, "")


def _worse_tasks(record: ExamRecord) -> Iterator[str]:
    """Where to look first. One pair says little about a task, so the number of pairs is shown."""
    changes: defaultdict[str, list[float]] = defaultdict(list)
    for task, old, new in _list_measured(record):
        changes[task].append(new - old)
    means = {task: fsum(some) / len(some) for task, some in changes.items()}
    worse = sorted((task for task in means if means[task] < 0), key=lambda task: (means[task], task))
    if not worse:
        return
    yield from ("| task that scored lower | change, points | pairs |", "|---|---|---|")
    for task in worse[:MOST_TASKS]:
        yield f"| {escape_cell(task)} | {means[task] * 100:+.0f} | {len(changes[task])} |"
    if len(worse) > MOST_TASKS:
        yield f"| and {len(worse) - MOST_TASKS} more | | |"
    yield from ("", "Single tasks vary by chance; only the verdict above is a result.", "")


def _check(folder: Path) -> Iterator[str]:
    yield from (f"Evidence: `{folder / CERTIFICATE}`. Check it with `whet certify --check {folder}`.", "")


def _name(of: object) -> str:
    return escape_cell(str(of.get("name")) if isinstance(of, dict) else str(of))
