"""A certificate as Markdown: the claim, the evidence, and the limits of the claim."""

from collections.abc import Iterator, Mapping, Sequence
from math import exp
from pathlib import Path
from typing import Any

from whet.skills.certificates.certificate import CERTIFICATE, Certificate, ExamRecord
from whet.skills.certificates.guard_text import (
    EXPLAINED,
    format_both_scores,
    format_guard,
    format_guard_failure,
    format_margin,
)
from whet.skills.gate.exam import PAIR
from whet.skills.gate.kinds import GateKind
from whet.skills.gate.sequential_test import ExamTerms
from whet.skills.measurement import Verdict

READABLE = "certificate.md"
SCOPE = (
    "This certificate is about the mean score on these tasks, with this agent, model, sandbox and these judges. It "
    "says nothing about what the judges do not measure."
)
TROUBLES = (
    "An exam does not retry a failed rollout. Its missing score counts against the new skill when the exam certifies, "
    "and for the new skill when the exam gives up. whet restarts a rollout only if whet itself was stopped, or if the "
    "model was down for both skills. Stopping a run while a rollout goes badly could bias the result, so restarts are "
    "counted. If the two skills differ in one of these columns by more than chance explains (Fisher's exact test, "
    "5 %), the verdict is withheld."
)
E_VALUES = (
    "An e-value measures the evidence that the new skill is better. If it is not better, the e-value ever reaches 20 "
    "in at most one exam of 20, and 80 in at most one of 80, however often one looks. A pair is one task, done once "
    "with each skill. The bounds of the lift hold at the level of the exam, at all times."
)
E_VALUES_WITH_MARGIN = (
    "An e-value measures the evidence that the new skill is not worse than the margin allows. If it is worse than "
    "that, the e-value ever reaches 20 in at most one exam of 20, however often one looks. A pair is one task, done "
    "once with each skill. The bounds of the lift hold at the level of the exam, at all times."
)
HEAD = "| exam | old skill | new skill | verdict | lift, points | e-value | needed | level | pairs | measured |"
RULE = "|---|---|---|---|---|---|---|---|---|---|"


def write_certificate(certificate: Certificate, folder: Path) -> None:
    """Write a certificate as JSON and as Markdown."""
    (folder / CERTIFICATE).write_text(certificate.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (folder / READABLE).write_text(format_certificate(certificate), encoding="utf-8")


def format_certificate(certificate: Certificate) -> str:
    """Format a certificate in Markdown."""
    parts = (_claim, _exams, _troubles, _shorter, _test, _setup)
    return "\n".join(["# Certificate", "", *(line for part in parts for line in part(certificate))])


def _claim(certificate: Certificate) -> Iterator[str]:
    last = certificate.last_certified
    if certificate.gate is not GateKind.CERTIFY:
        yield f"**There is no certificate:** the rule '{certificate.gate}' decided in this run, and it proves nothing."
        yield ""
        return
    if last is None:
        yield from ("**Nothing was certified.** The run keeps the skill that it started with.", "")
        return
    found, level = last.findings, last.terms.level
    yield f"**{_claim_of(last, len(certificate.tasks))}, at level {level:g}.**"
    yield format_alpha(certificate, last.terms)
    if models := format_models(last.reported):
        yield models
    yield from ("", "| | |", "|---|---|")
    yield f"| lift | {found.at_least * 100:+.1f} to {found.at_most * 100:+.1f} points |"
    yield f"| measured after the verdict | {_estimate(found.estimate)} |"
    yield f"| e-value | {_number(exp(min(found.log_evidence, 700)))}, and {_number(1 / level)} was needed |"
    if last.terms.guard is not None:
        yield f"| guard | {format_guard(last)} |"
        yield f"| old → new | {format_both_scores(last)} |"
    pairs = len(last.positions)
    yield f"| pairs | {pairs}; verdict after {found.decided_at} |"
    yield f"| rollouts | {PAIR * pairs}: one of each skill per pair |"
    yield f"| measured | {found.coverage:.0%} of the pairs have both scores |"
    yield ""


def _claim_of(record: ExamRecord, tasks: int) -> str:
    new, old = f"Skill `{record.candidate[:8]}`", f"skill `{record.incumbent[:8]}`"
    at_least, margin = record.findings.at_least, record.terms.margin
    where = f"on these {tasks} validation tasks: its mean score there is"
    if not margin:
        guarded = f", and judge {format_margin(record.terms.guard)}" if record.terms.guard else ""
        return f"{new} is better than {old} {where} higher by at least {at_least * 100:.1f} points{guarded}"
    return f"{new} is not worse than {old} by more than {margin * 100:g} points {where} {format_loss(at_least)}"


def format_loss(at_least: float) -> str:
    """
    >>> format_loss(-0.031), format_loss(0.02)
    ('lower by at most 3.1 points', 'higher by at least 2.0 points')
    """
    if at_least < 0:
        return f"lower by at most {-at_least * 100:.1f} points"
    return f"higher by at least {at_least * 100:.1f} points"


def format_alpha(certificate: Certificate, terms: ExamTerms) -> str:
    """Say how often such a certificate is wrong."""
    what = "An exam" if certificate.single else "A run"
    wrong = f"worse by more than {terms.margin * 100:g} points" if terms.margin else "not better"
    if terms.guard is not None:
        wrong += f", or whose judge '{terms.guard.judge}' is worse by more than {terms.guard.margin * 100:g} points,"
    return f"{what} like this certifies a skill that is {wrong} with a chance of at most {certificate.alpha:.0%}."


def format_verdict(record: ExamRecord, tasks: int) -> str:
    """Format a verdict as a sentence, with its tasks and its error rate."""
    if record.terms.guard is None:
        return _format_verdict(record, tasks)
    told = format_guard_failure(record, tasks)
    if told is None:
        shown = record.findings.verdict is Verdict.CERTIFIED
        told = _format_verdict(record, tasks) + (f"; {format_margin(record.terms.guard)}" if shown else "")
    return f"{told}; {format_both_scores(record)}"


def _format_verdict(record: ExamRecord, tasks: int) -> str:
    """The verdict about the score."""
    found, terms = record.findings, record.terms
    if terms.margin and found.verdict is not Verdict.WITHHELD and found.coverage >= terms.coverage:
        return _format_margin_verdict(record, tasks)
    on, between = f"on these {tasks} tasks", f"{found.at_least * 100:+.1f} and {found.at_most * 100:+.1f} points"
    match found.verdict:
        case Verdict.CERTIFIED:
            return (
                f"certified: {on} the new skill is better, by at least {found.at_least * 100:.1f} points "
                f"(error at most {terms.level:.3g})"
            )
        case Verdict.FUTILE:
            return (
                f"futile: {on} a lift of {terms.minimum_effect * 100:.0f} points or more is unlikely; "
                f"if there is one, at most {terms.beta:.0%} of exams miss it"
            )
        case Verdict.WITHHELD:
            return f"withheld: {'; '.join(found.withheld)}; the missing or repeated rollouts may explain the difference"
        case Verdict.UNDECIDED if found.coverage < terms.coverage:
            return f"undecided: {found.coverage:.0%} of the pairs have both scores; {terms.coverage:.0%} are needed"
        case Verdict.UNDECIDED:
            return f"undecided: {on} the lift is between {between}, each bound at level {terms.level:g}"


def _format_margin_verdict(record: ExamRecord, tasks: int) -> str:
    """The verdict of an exam that a skill passes if it is not worse than the margin allows."""
    found, terms = record.findings, record.terms
    on, margin = f"on these {tasks} tasks", f"{terms.margin * 100:g} points"
    match found.verdict:
        case Verdict.CERTIFIED:
            mean = format_loss(found.at_least)
            return f"not worse: {on} the mean score is {mean}; {margin} were allowed (error at most {terms.level:.3g})"
        case Verdict.FUTILE:
            least = f", by at least {-found.at_most * 100:.1f} points" if found.at_most < 0 else ""
            return f"worse: {on} the mean score is lower{least} (error at most {terms.beta:.3g})"
    between = f"{found.at_least * 100:+.1f} and {found.at_most * 100:+.1f} points"
    return (
        f"not shown: {on} the change of the mean score is between {between}, each bound at level {terms.level:g}; it "
        f"may be lower by more than {margin}"
    )


def format_models(reported: Mapping[str, tuple[int, int]]) -> str:
    """Format how the model changed during an exam, as its replies report; empty when it did not change."""
    if len(reported) < 2:
        return ""
    each = ", ".join(
        f"{name} in {old} rollouts of the old skill and {new} of the new" for name, (old, new) in reported.items()
    )
    return f"The model reported {len(reported)} names or fingerprints during this exam: {each}."


def format_removal(units: Sequence[str], at_least: float, level: float, certificate: Certificate) -> str:
    """Format the result of a shorter skill that passed its exam."""
    rules = "this rule" if len(units) == 1 else f"these {len(units)} rules"
    worst = max(0.0, -at_least) * 100
    return (
        f"Without {rules} the skill scores at most {worst:.1f} points lower on these {len(certificate.tasks)} tasks, "
        f"at level {level:g}."
    )


def _estimate(estimate: float | None) -> str:
    """The mean up to the verdict is not shown: an exam stops when it is high."""
    return "nothing" if estimate is None else f"{estimate * 100:+.1f} points"


def _exams(certificate: Certificate) -> Iterator[str]:
    yield from ("## All exams", "")
    if not certificate.records:
        yield from ("None.", "")
        return
    explained = E_VALUES_WITH_MARGIN if certificate.records[0].terms.margin else E_VALUES
    yield from (HEAD, RULE, *map(format_row, certificate.records), "", explained, "")
    if certificate.guard is not None:
        yield from (EXPLAINED, "")
    for record in certificate.records:
        if record.findings.verdict is not Verdict.CERTIFIED:
            yield from (f"Exam {record.number}: {format_verdict(record, len(certificate.tasks))}.", "")


def format_row(record: ExamRecord) -> str:
    """Format an exam as a table row below HEAD."""
    found, level = record.findings, record.terms.level
    cells = (
        str(record.number),
        f"`{record.incumbent[:8]}`",
        f"`{record.candidate[:8]}`",
        str(found.verdict),
        f"{found.at_least * 100:+.1f} to {found.at_most * 100:+.1f}",
        _number(exp(min(found.log_evidence, 700))),
        _number(1 / level),
        f"{level:g}",
        f"{found.decided_at} of {len(record.positions)}",
        f"{found.coverage:.0%}",
    )
    return f"| {' | '.join(cells)} |"


def _troubles(certificate: Certificate) -> Iterator[str]:
    """Failed and repeated rollouts of both skills."""
    rows = [line for record in certificate.all_records for line in _arms(record)]
    yield from ("## Failed and repeated rollouts", "")
    if not rows:
        yield from ("None: every rollout has a score from its first try, and no model call was sent twice.", "")
        return
    yield from (
        "| exam | skill | rollouts | missing score | restarted | with re-sent calls |",
        "|---|---|---|---|---|---|",
    )
    yield from (*rows, "", TROUBLES, "")


def _arms(record: ExamRecord) -> Iterator[str]:
    found = record.findings
    for name, arm in (("old", found.incumbent), ("new", found.candidate)):
        if arm.lost or arm.redone or arm.resent:
            lost = ", ".join(f"{cause} {count}" for cause, count in arm.lost.items()) or "0"
            yield f"| {record.number} | {name} | {arm.rollouts} | {lost} | {arm.redone} | {arm.resent} |"


def _shorter(certificate: Certificate) -> Iterator[str]:
    if (found := certificate.shortening) is None:
        return
    record = found.record
    yield from ("## A shorter version", "")
    if record.findings.verdict is Verdict.CERTIFIED:
        shown = format_removal(found.units, record.findings.at_least, record.terms.level, certificate)
        yield f"`{record.candidate}`: {shown}"
    else:
        yield f"The exam did not show that {len(found.units)} of its rules can be removed: {record.findings.verdict}."
    yield from ("", *(f"- {unit.splitlines()[0]}" for unit in found.units), "", HEAD, RULE, format_row(record), "")


def _test(certificate: Certificate) -> Iterator[str]:
    if certificate.test is not None:
        yield from ("## Held-out test", "", *certificate.test.table(), "")
        yield from (f"Difference: {certificate.test}.", "")


def describe_setup(certificate: Certificate) -> list[tuple[str, str]]:
    """What a certificate was made with: names and values."""
    return [(key.replace("_", " "), _brief(value)) for key, value in certificate.made_with.items() if value]


def _setup(certificate: Certificate) -> Iterator[str]:
    yield from ("## Setup", "")
    yield from (f"- {name}: {value}" for name, value in describe_setup(certificate))
    yield f"- whet {certificate.whet}; score: {certificate.metric}"
    seed = certificate.seed.origin
    yield f"- order of tasks: seed {seed}; committed before the first exam: `{certificate.commitment}`"
    yield f"- skill at the start: `{certificate.start}`"
    yield f"- certified skill: {_format_certified(certificate)}"
    yield f"- {len(certificate.tasks)} validation tasks: `{certificate.tasks_digest}`"
    if certificate.used is not None:
        yield f"- {certificate.used}, including this run; each run may be wrong with a chance of its alpha"
    yield from ("", f"{SCOPE} `whet certify --check {CERTIFICATE}` checks it.", "")


def _format_certified(certificate: Certificate) -> str:
    return "none" if certificate.last_certified is None else f"`{certificate.certified}`"


def _brief(value: Any) -> str:
    """The name of something, and its version if one was chosen."""
    if not isinstance(value, dict):
        return str(value)
    version = value.get("program", {}).get("version")
    return f"{value['name']} {version}" if version else str(value["name"])


def _number(value: float) -> str:
    """
    >>> _number(80.0), _number(262345.6), _number(0.03125)
    ('80', '2.62e+05', '0.0312')
    """
    return f"{value:.3g}"
