"""The history of a skill: a file for every version, with its parent, its edits and its results.

A resumed run records everything again in the same order, so the files come out the same.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from whet.errors import UserError, did_you_mean
from whet.paths import write_atomic
from whet.skill import Skill, read_skill
from whet.skills.documents.edits import Edit
from whet.skills.documents.store import SkillStore
from whet.skills.measurement import Verdict
from whet.validation_errors import explain

SKILLS, TERMS = "skills", "sharpen.json"
"""In a run folder: the folder of all versions, and the file of the terms."""
HANDED_OUT = BEST, LEADER, SHORTENED, ACCEPTED = "best", "leader", "shortened", "accepted"
START = "start"
SHORT = 8
"""Digits of a digest that people see."""


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TrainResult(_Stored):
    """Result of a version on the training tasks."""

    number: int
    """Order of measurement, from 1."""
    mean: float
    bar: float
    """The mean that it had to exceed."""
    accepted: bool


class ExamSummary(_Stored):
    """Result of a version in an exam."""

    exam: str
    number: int
    """Number of the exam in its run."""
    incumbent: str
    level: float
    verdict: Verdict
    positions: int
    """Pairs up to the verdict."""
    at_least: float
    at_most: float
    """Bounds of the lift."""
    margin: float = 0.0
    """How much worse it may be and still pass. Above 0 only for a shortened version."""


class Version(_Stored):
    """One version of a skill."""

    digest: str
    parent: str | None = None
    """None for the first version of the run."""
    proposer: str = ""
    reason: str = ""
    edits: tuple[Edit, ...] = ()
    """Edits of the parent."""
    measured: TrainResult | None = None
    """None when it was not measured because the budget ended."""
    exams: tuple[ExamSummary, ...] = ()


class History:
    """Records versions and their results in a run folder."""

    def __init__(self, run: Path, start: str, proposer: str) -> None:
        self._folder, self._proposer = run / SKILLS, proposer
        self._versions: dict[str, Version] = {}
        self._measured = 0
        self._keep(Version(digest=start))

    def record_version(self, digest: str, parent: str, edits: tuple[Edit, ...], reason: str) -> None:
        """Record a new version. A version that is proposed twice keeps its first entry."""
        if digest not in self._versions:
            self._keep(Version(digest=digest, parent=parent, proposer=self._proposer, reason=reason, edits=edits))

    def record_measurement(self, candidate: str, parent: str, *, mean: float, bar: float, accepted: bool) -> None:
        """Record the result of a version on the training tasks."""
        known = self._get(candidate)
        self._measured += 1
        found = TrainResult(number=self._measured, mean=mean, bar=bar, accepted=accepted)
        self._keep(known.model_copy(update={"parent": known.parent or parent, "measured": found}))

    def record_exam(self, candidate: str, result: ExamSummary) -> None:
        """Record an exam of a version. It replaces an earlier record of the same exam."""
        known = self._get(candidate)
        exams = {one.exam: one for one in (*known.exams, result)}
        self._keep(known.model_copy(update={"exams": tuple(exams.values())}))

    def _get(self, candidate: str) -> Version:
        return self._versions.get(candidate) or Version(digest=candidate)

    def _keep(self, version: Version) -> None:
        self._versions[version.digest] = version
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self._folder / f"{version.digest}.json", version.model_dump_json(indent=1) + "\n")


class Versions:
    """The versions of a sharpen run, finished or not."""

    def __init__(self, run: Path) -> None:
        """UserError when the folder is not a sharpen run."""
        self._run, self._store = run, SkillStore(run / SKILLS)
        try:
            self.start: str = json.loads((run / TERMS).read_bytes())["skill"]
        except (OSError, ValueError, KeyError):
            raise UserError(f"{run}: not a run of whet sharpen; expected a file {TERMS} in it") from None
        found = [_read(file) for file in sorted((run / SKILLS).glob("*.json"))]
        self.all: dict[str, Version] = {version.digest: version for version in sorted(found, key=self._order)}

    def _order(self, version: Version) -> tuple[float, str]:
        """In order of measurement: the start first, versions without a measurement last."""
        last = 0 if version.digest == self.start else float("inf")
        return version.measured.number if version.measured else last, version.digest

    def __getitem__(self, name: str) -> Version:
        """The version with this name or digest prefix. UserError when there is not exactly one."""
        named = self.names
        if name in named:
            return self.all[named[name]]
        if name in HANDED_OUT:
            raise UserError(f"{self._run}: no version named '{name}': this run did not produce one")
        found = [version for digest, version in self.all.items() if name and digest.startswith(name)]
        if len(found) != 1:
            known = (START, *HANDED_OUT, *(digest[:SHORT] for digest in self.all))
            hint = f"{len(found)} match" if found else did_you_mean(name, known)
            raise UserError(f"{self._run}: expected one version whose digest begins with '{name}'; {hint}")
        return found[0]

    @property
    def numbers(self) -> dict[str, str]:
        """What people call each version, by its digest: v0, v1 and so on, in the order of `all`."""
        return {digest: f"v{number}" for number, digest in enumerate(self.all)}

    def skill(self, version: Version) -> Skill:
        return self._store.get(version.digest)

    @property
    def names(self) -> dict[str, str]:
        """Digests of the named versions that the run has: start, best, leader, shortened, accepted."""
        return {START: self.start, **dict(self._find_named())}

    def _find_named(self) -> Iterator[tuple[str, str]]:
        for name in HANDED_OUT:
            for place in (self._run / name).glob("*"):
                digest = read_skill(place).digest
                if digest in self.all:
                    yield name, digest


def _read(file: Path) -> Version:
    try:
        return Version.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise UserError(f"{file}: expected a version: {explain(error, str(file), Version)[0]}") from None
