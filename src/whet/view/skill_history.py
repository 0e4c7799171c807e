"""The versions of a skill in a run of sharpening or certifying: what became of each, and what each rule is worth."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from whet.errors import UserError
from whet.look.numbers import percent
from whet.runs.stats.means import Interval
from whet.runs.stats.paired import Difference
from whet.skill import Skill
from whet.skills.certificates.certificate import CERTIFICATE, Certificate, ExamRecord, read_certificate
from whet.skills.documents.history import BEST, LEADER, SKILLS, START, ExamSummary, Version, Versions
from whet.skills.documents.store import SkillStore, editable
from whet.skills.documents.units import units
from whet.skills.measurement import RunPart, Verdict
from whet.skills.report.data import Scores, first_mean, group_scores, measure_effect
from whet.skills.rollouts.terms import CERTIFY_TERMS
from whet.skills.run_folders import RunKind
from whet.view.library import Library, RunEntry

OLD, NEW = "old", "new"
"""What the two skills of a certify run are called."""


class VersionState(StrEnum):
    """What became of a version. The words are classes of the lineage."""

    START = "start"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    CERTIFIED = "certified"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class SkillVersion:
    """One version, and what is known of it."""

    version: Version
    name: str
    """v0, v1 and so on; of a certify run, old and new."""
    labels: tuple[str, ...]
    """What the run calls it: start, best, leader, shortened, accepted."""
    mean: Interval | None
    """Its first measurement on the training tasks."""
    effect: Difference | None
    """Against its parent, on the training tasks."""

    @property
    def digest(self) -> str:
        return self.version.digest

    @property
    def called(self) -> str:
        """Its name in a sentence."""
        return f"the {self.name} skill" if self.name in (OLD, NEW) else self.name

    @property
    def state(self) -> VersionState:
        """An exam says more than the search."""
        exams, measured = self.version.exams, self.version.measured
        if any(one.verdict is Verdict.CERTIFIED for one in exams):
            return VersionState.CERTIFIED
        if any(one.verdict in (Verdict.UNDECIDED, Verdict.WITHHELD) for one in exams):
            return VersionState.UNDECIDED
        if self.version.parent is None:
            return VersionState.START
        accepted = bool(exams) or (measured is not None and measured.accepted)
        return VersionState.ACCEPTED if accepted else VersionState.REJECTED

    @property
    def said(self) -> str:
        """What became of it, in words."""
        if self.version.parent is None:
            return START
        if self.version.exams:
            return "; ".join(describe_exam(one) for one in self.version.exams)
        if (measured := self.version.measured) is None:
            return "not measured"
        if measured.accepted:
            return f"accepted ({percent(measured.mean)} > {percent(measured.bar)})"
        if measured.mean <= measured.bar:
            return f"not taken ({percent(measured.mean)} ≤ {percent(measured.bar)})"
        return "not taken: it was dropped from a race, or its guard fell too far"


def describe_exam(exam: ExamSummary) -> str:
    """The verdict of an exam, in words.

    >>> describe_exam(ExamSummary(exam="e", number=2, incumbent="i", level=0.05, verdict=Verdict.FUTILE, positions=9,
    ...                           at_least=-0.1, at_most=0.02))
    'futile (exam 2)'
    """
    words = {Verdict.CERTIFIED: "certified not to be worse", Verdict.FUTILE: "worse"}
    return words.get(exam.verdict, str(exam.verdict)) if exam.margin else f"{exam.verdict} (exam {exam.number})"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a version."""

    document: str
    text: str
    since: str
    """The digest of the version in which it came."""
    others: int
    """How many other rules that version changed: then its effect is not of this rule alone."""
    removal: ExamRecord | None
    """The exam of the skill without it."""

    @property
    def removed_words(self) -> str:
        """What the exam of the skill without it says."""
        assert self.removal is not None
        verdict = self.removal.findings.verdict
        return {Verdict.CERTIFIED: "not needed", Verdict.FUTILE: "needed"}.get(verdict, str(verdict))


class SkillHistory:
    """The versions of a skill in one run. UserError when the run has none, or they cannot be read."""

    def __init__(self, library: Library, entry: RunEntry) -> None:
        self.entry = entry
        self._library, self._store = library, SkillStore(entry.path / SKILLS)
        file = entry.path / CERTIFICATE
        self.is_open = not file.is_file() or library.is_running(entry)
        """Whether it has not ended. Then nobody may see what its exams showed."""
        self.certificate: Certificate | None = None if self.is_open else read_certificate(file)
        if entry.kind is RunKind.SHARPEN:
            found = Versions(entry.path)
            self.start, self._named = found.start, found.names
            # A run that has just begun has recorded no version yet.
            self._versions = found.all or {self.start: Version(digest=self.start)}
            self.numbers = found.numbers or {self.start: "v0"}
        else:
            self.start, new = _read_certified(entry.path)
            self._versions = {self.start: Version(digest=self.start), new: self._certified_version(new)}
            self.numbers = {self.start: OLD, new: NEW}
            self._named = {}

    def _certified_version(self, digest: str) -> Version:
        records = self.certificate.records if self.certificate else ()
        return Version(digest=digest, parent=self.start, exams=tuple(map(_summarise, records)))

    @cached_property
    def versions(self) -> Mapping[str, SkillVersion]:
        """All versions by their digests, in the order in which they were measured."""
        return {digest: self._describe(version) for digest, version in self._versions.items()}

    def _describe(self, version: Version) -> SkillVersion:
        after = self.scores.get(version.digest, {})
        before = self.scores.get(version.parent, {}) if version.parent else {}
        labels = tuple(name for name, digest in self._named.items() if digest == version.digest)
        name = self.numbers[version.digest]
        return SkillVersion(version, name, labels, first_mean(after), measure_effect(before, after))

    def find(self, name: str) -> SkillVersion:
        """The version with this name or beginning of a digest. UserError when there is not exactly one."""
        named = {**self._named, **{number: digest for digest, number in self.numbers.items()}}
        found = [named[name]] if name in named else [digest for digest in self._versions if digest.startswith(name)]
        if not name or len(found) != 1:
            raise UserError(f"{self.entry.name}: has no version '{name[:40]}'; expected one of {', '.join(named)}")
        return self.versions[found[0]]

    @cached_property
    def scores(self) -> Mapping[str, Scores]:
        """The scores of each version on each training task."""
        search = f"{self.entry.name}/{RunPart.SEARCH}"
        if search not in self.entry.parts:
            return {}
        return group_scores((row.rollout, row.value) for row in self._library.snapshot(search).rows)

    @property
    def chosen(self) -> SkillVersion:
        """The version that the run is about: the certified one, else the best of the search, else the last."""
        if self.certificate is not None and self.certificate.certified != self.start:
            return self.versions[self.certificate.certified]
        named = self._named.get(LEADER) or self._named.get(BEST)
        if named is not None:
            return self.versions[named]
        accepted = [one for one in self.versions.values() if one.state is not VersionState.REJECTED]
        return accepted[-1]

    def skill(self, digest: str) -> Skill:
        """The documents of a version. UserError when they are gone."""
        try:
            return self._store.get(digest)
        except (OSError, ValueError):
            raise UserError(f"{self.entry.path / SKILLS / digest}: cannot be read; expected a version") from None

    def rules(self, one: SkillVersion) -> list[Rule]:
        """The rules of a version, with the version in which each came."""
        chain = [self._units(version.digest) for version in self.ancestors(one)]
        digests = [version.digest for version in self.ancestors(one)]
        shortening = self.certificate.shortening if self.certificate else None
        found = []
        for document, text in chain[-1]:
            place = _find_since(chain, (document, text))
            others = len(set(chain[place]) ^ set(chain[place - 1])) - 1 if place else 0
            removal = shortening.record if shortening and text in shortening.units else None
            found.append(Rule(document, text, digests[place], others, removal))
        return found

    def ancestors(self, one: SkillVersion) -> list[SkillVersion]:
        """The versions from the first one to this one."""
        chain = [one]
        while (parent := self.versions.get(chain[0].version.parent or "")) is not None and parent not in chain:
            chain.insert(0, parent)
        return chain

    def _units(self, digest: str) -> list[tuple[str, str]]:
        return [(name, unit) for name, text in editable(self.skill(digest)).items() for unit in units(text)]


def _find_since(chain: Sequence[Sequence[tuple[str, str]]], rule: tuple[str, str]) -> int:
    """The place from which on all versions have a rule."""
    place = len(chain) - 1
    while place and rule in chain[place - 1]:
        place -= 1
    return place


def _read_certified(folder: Path) -> tuple[str, str]:
    """The digests of the two skills of a certify run."""
    file = folder / CERTIFY_TERMS
    try:
        terms = json.loads(file.read_bytes())
        return str(terms["old"]), str(terms["new"])
    except (OSError, ValueError, KeyError):
        raise UserError(f"{file}: cannot be read; expected the terms of a run of whet certify") from None


def _summarise(record: ExamRecord) -> ExamSummary:
    found = record.findings
    return ExamSummary(
        exam=record.exam,
        number=record.number,
        incumbent=record.incumbent,
        level=record.terms.level,
        verdict=found.verdict,
        positions=found.decided_at,
        at_least=found.at_least,
        at_most=found.at_most,
        margin=record.terms.margin,
    )
