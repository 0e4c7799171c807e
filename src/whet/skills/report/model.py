"""The report of a run as data: what the page shows besides the certificate. It lies in the run folder, so that the
report can be shown again without the run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from whet.errors import UserError
from whet.runs.stats.means import Interval
from whet.runs.stats.paired import Difference
from whet.skill import Skill
from whet.skills.certificates.certificate import Certificate
from whet.skills.certificates.text import format_alpha, format_models, format_verdict
from whet.skills.documents.history import Versions
from whet.skills.documents.rule_diff import RuleChange, compare_rules
from whet.skills.documents.store import SkillStore, differences, editable
from whet.skills.report.criteria import CheckRate
from whet.skills.report.data import Cost, ReportData
from whet.skills.report.exams import Tone, tone_of
from whet.skills.report.summary import advise, headline
from whet.skills.report.text import describe_classic_rules, describe_reads, in_plain_words
from whet.skills.report.verdict import GLOSSARY, new_skill, verdict_sentence
from whet.skills.results import SharpenResult
from whet.validation_errors import explain
from whet.version import __version__

DATA = "report.json"


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RuleRow(_Stored):
    """What became of one rule of the skill."""

    document: str
    change: RuleChange
    old: str
    new: str


class ProposalRow(_Stored):
    """One proposal of the search."""

    version: str
    edits: tuple[str, ...]
    mean: float
    interval: Interval | None
    bar: float
    """The mean that it had to exceed."""
    result: str
    """What the search decided, in a word."""
    accepted: bool
    effect: Difference | None = None
    """The change against the version before; only of accepted ones."""


class Report(_Stored):
    """What the page of a report shows besides the certificate."""

    kind: Literal["whet report"] = "whet report"
    whet: str = __version__
    title: str
    tone: Tone
    word: str
    """The verdict in two or three words."""
    verdict: str
    """The verdict in a sentence."""
    paragraph: str
    """The result in plain words."""
    versions: dict[str, str]
    """What people call each version, by its digest."""
    rules: tuple[RuleRow, ...]
    diff: tuple[str, ...]
    """The lines that differ."""
    adopt: str
    """The command that adopts the new skill; empty when nothing is proved."""
    search: bool
    """Whether there was a search."""
    start: Interval | None = None
    """The first version on the training tasks."""
    proposals: tuple[ProposalRow, ...] = ()
    classic: str = ""
    """How often a rule that looks once would be wrong."""
    reads: str = ""
    """How often agents read the skills of the last exam."""
    check_rates: tuple[CheckRate, ...] = ()
    costs: tuple[Cost, ...]
    glossary: dict[str, str] = GLOSSARY


def read_report(folder: Path) -> Report | None:
    """The report of a run; None when it has none, or was written before reports were kept as data."""
    file = folder / DATA
    if not file.is_file():
        return None
    try:
        return Report.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise UserError(f"{file}: expected a report: {explain(error, str(file), Report)[0]}") from None


def describe_sharpening(outcome: SharpenResult, figures: ReportData) -> Report:
    """The report of a sharpen run."""
    held, found = outcome.done.exam_results, new_skill(outcome)
    certified = bool(outcome.certified) and outcome.accepted is None
    return Report(
        title=f"Sharpening {outcome.start.name}",
        tone="holds" if certified else "undecided",
        word="certified" if certified else "not certified",
        verdict=verdict_sentence(outcome),
        paragraph=in_plain_words(outcome),
        versions=Versions(outcome.folder).numbers,
        rules=tuple(_compare(outcome.start, found)) if found else (),
        diff=tuple(differences(outcome.start, found)) if found else (),
        adopt=f"whet adopt {outcome.folder}" if certified else "",
        search=True,
        start=figures.start,
        proposals=tuple(_rows(figures)),
        classic=describe_classic_rules(outcome),
        reads=describe_reads(held[-1], figures.skill_reads) if held else "",
        check_rates=figures.check_rates,
        costs=figures.costs,
    )


def describe_certification(certificate: Certificate, folder: Path, costs: tuple[Cost, ...]) -> Report:
    """The report of a certify run."""
    (record,) = certificate.records
    skills = SkillStore(folder / "skills")
    old, new = skills.get(record.incumbent), skills.get(record.candidate)
    told = f"{format_verdict(record, len(certificate.tasks))}."
    words = (told[0].upper() + told[1:], format_alpha(certificate, record.terms), advise(record))
    return Report(
        title=f"Certifying {new.name}",
        tone=tone_of(record),
        word=str(record.findings.verdict),
        verdict=f"{headline(record)}.",
        paragraph=" ".join(one for one in (*words, format_models(record.reported)) if one),
        versions={record.incumbent: "old", record.candidate: "new"},
        rules=tuple(_compare(old, new)),
        diff=tuple(differences(old, new)),
        adopt="",
        search=False,
        costs=costs,
    )


def _compare(old: Skill, new: Skill) -> Iterator[RuleRow]:
    """What became of the rules of all documents of a skill. Rules that stayed are left out."""
    before, after = editable(old), editable(new)
    for name in dict.fromkeys([*before, *after]):
        for one in compare_rules(before.get(name, ""), after.get(name, "")):
            if one.change is not RuleChange.KEPT:
                yield RuleRow(document=name, change=one.change, old=one.old, new=one.new)


def _rows(figures: ReportData) -> Iterator[ProposalRow]:
    effects = {one.version: one.difference for one in figures.effects}
    for one in figures.proposals:
        step = one.step
        result = "accepted" if step.accepted else "dropped" if step.dropped else "not taken"
        yield ProposalRow(
            version=step.candidate,
            edits=one.edits,
            mean=step.mean,
            interval=one.interval,
            bar=step.bar,
            result="guard fell too far" if step.harmful else result,
            accepted=step.accepted,
            effect=effects.get(step.candidate),
        )
