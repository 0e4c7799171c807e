"""A certificate as people read it: what is claimed, what it rests on, and what it does not say."""

from collections.abc import Iterator
from math import exp
from pathlib import Path
from typing import Any

from whet.skills.attempt import Verdict
from whet.skills.certificate import CERTIFICATE, Certificate, Record
from whet.skills.kinds import GateKind

READABLE = "certificate.md"
SCOPE = (
    "It speaks of these tasks, with this agent, model and sandbox and these judges, and of the score alone: what the "
    "judges do not see, it does not either."
)
E_VALUES = (
    "An e-value is what became of 1 that was bet on the new skill. Were it no better, this would reach 80 in at most "
    "one exam of 80, 20 in one of 20, however often one looks. A position is a task of the exam, done with both "
    "skills. The bounds of the lift hold at the level of the exam, at all times at once."
)
HEAD = "| exam | old skill | new skill | verdict | lift, points | e-value | needed | level | positions | measured |"
RULE = "|---|---|---|---|---|---|---|---|---|---|"


def write_certificate(certificate: Certificate, folder: Path) -> None:
    """Write it for programs and for people."""
    (folder / CERTIFICATE).write_text(certificate.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (folder / READABLE).write_text(readable(certificate), encoding="utf-8")


def readable(certificate: Certificate) -> str:
    """A certificate in Markdown."""
    parts = (_claim, _exams, _shorter, _test, _made_with)
    return "\n".join(["# Certificate", "", *(line for part in parts for line in part(certificate))])


def _claim(certificate: Certificate) -> Iterator[str]:
    last = certificate.last_certified
    if certificate.gate is not GateKind.CERTIFY:
        yield f"**There is no certificate:** the rule '{certificate.gate}' decided in this run, and it proves nothing."
        yield ""
        return
    if last is None:
        yield from ("**Nothing was certified.** The skill that the run began with stays.", "")
        return
    found, level = last.findings, last.terms.level
    yield (
        f"**Skill `{last.candidate[:8]}` is better than skill `{last.incumbent[:8]}`: on the validation tasks its mean "
        f"score is higher by at least {found.at_least * 100:.1f} points.**"
    )
    yield f"The chance that a run like this certifies anything that is no better is at most {certificate.alpha:.0%}."
    yield from ("", "| | |", "|---|---|")
    yield f"| lift | {found.at_least * 100:+.1f} to {found.at_most * 100:+.1f} points |"
    yield f"| measured after the verdict | {_estimate(found.estimate)} |"
    yield f"| e-value | {_number(exp(min(found.log_evidence, 700)))}, and {_number(1 / level)} was needed |"
    positions, repeats = len(last.positions), last.terms.repeats
    yield f"| positions | {positions}; the verdict fell after {found.decided_at} |"
    yield f"| rollouts | {positions * (1 + repeats)}: {repeats} of the old skill and 1 of the new at each position |"
    yield f"| measured | {found.coverage:.0%} of the positions have all their scores |"
    yield ""


def _estimate(estimate: float | None) -> str:
    """The mean up to the verdict is not told: an exam ends when it is high."""
    return "nothing" if estimate is None else f"{estimate * 100:+.1f} points"


def _exams(certificate: Certificate) -> Iterator[str]:
    yield from ("## Every exam that was held", "")
    if not certificate.records:
        yield from ("None.", "")
        return
    yield from (HEAD, RULE, *map(row, certificate.records), "", E_VALUES, "")


def row(record: Record) -> str:
    """An attempt as a row below HEAD."""
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


def _shorter(certificate: Certificate) -> Iterator[str]:
    if (found := certificate.shortening) is None:
        return
    dropped = sum(record.findings.verdict is Verdict.CERTIFIED for record in found.records)
    yield from ("## What can be left out of it", "")
    yield f"{len(found.records)} parts of what it has learned were tried to be left out, of which {dropped} can go."
    if dropped:
        yield (
            f"What is left, `{found.skill}`, is worse than the certified skill by no more than "
            f"{found.margin * 100:.0f} points, but for a chance of {found.alpha:.0%}."
        )
    yield from ("", HEAD, RULE, *map(row, found.records), "")


def _test(certificate: Certificate) -> Iterator[str]:
    if certificate.test is not None:
        yield from ("## On tasks that have chosen nothing", "", *certificate.test.table(), "")
        yield from (f"Difference: {certificate.test}.", "")


def _made_with(certificate: Certificate) -> Iterator[str]:
    yield from ("## What it was made with", "")
    yield from (f"- {key.replace('_', ' ')}: {_brief(value)}" for key, value in certificate.made_with.items() if value)
    yield f"- whet {certificate.whet}, seed {certificate.seed}; score: {certificate.metric}"
    yield f"- skill at the start: `{certificate.start}`"
    yield f"- skill that is certified: {_certified(certificate)}"
    yield f"- {len(certificate.tasks)} validation tasks: `{certificate.tasks_digest}`"
    if certificate.used is not None:
        yield f"- {certificate.used}, with this one; each may be wrong with a chance of its alpha"
    yield from ("", f"{SCOPE} `whet certify --check {CERTIFICATE}` computes it again.", "")


def _certified(certificate: Certificate) -> str:
    return "none" if certificate.last_certified is None else f"`{certificate.certified}`"


def _brief(value: Any) -> str:
    """What something is called, and its version if it has one that was chosen."""
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
