"""The history of a skill: of every version its parent, its edits and what was found of it, in a file beside it.

A run that is resumed tells all of it again in the same order, so the files come out the same.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from whet.errors import UserError, did_you_mean
from whet.files import write_atomic
from whet.skill import Skill, read_skill
from whet.skills.documents.edits import Edit
from whet.skills.documents.store import SkillStore
from whet.skills.measurement import Verdict
from whet.validation_errors import explain

SKILLS, TERMS = "skills", "sharpen.json"
"""Where a run folder holds all versions, and what was fixed before the first rollout."""
HANDED_OUT = BEST, LEADER, SHORTENED, ACCEPTED = "best", "leader", "shortened", "accepted"
START = "start"
SHORT = 8
"""So many digits of a digest name a version where people read it."""


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Measured(_Stored):
    """A version on the training tasks."""

    number: int
    """Of the proposal: 1 is the first that was measured."""
    mean: float
    bar: float
    """What it had to be above."""
    accepted: bool


class Examined(_Stored):
    """A version before an exam."""

    exam: str
    number: int
    """Of the exam in its run."""
    incumbent: str
    level: float
    verdict: Verdict
    positions: int
    """Up to the verdict."""
    at_least: float
    at_most: float
    """Bounds of the lift."""
    margin: float = 0.0
    """By how much it might have been worse and still pass: more than nothing where something was left out of it."""


class Version(_Stored):
    """One version of a skill."""

    digest: str
    parent: str | None = None
    """None for the one that the run began with."""
    proposer: str = ""
    reason: str = ""
    edits: tuple[Edit, ...] = ()
    """What was done to the parent."""
    measured: Measured | None = None
    """None when it never was: then there was no money left."""
    exams: tuple[Examined, ...] = ()


class History:
    """Writes down what becomes of versions, as it is told."""

    def __init__(self, run: Path, start: str, proposer: str) -> None:
        self._folder, self._proposer = run / SKILLS, proposer
        self._versions: dict[str, Version] = {}
        self._measured = 0
        self._keep(Version(digest=start))

    def record_version(self, digest: str, parent: str, edits: tuple[Edit, ...], reason: str) -> None:
        """Record a new version. A version that is proposed twice keeps its first author."""
        if digest not in self._versions:
            self._keep(Version(digest=digest, parent=parent, proposer=self._proposer, reason=reason, edits=edits))

    def record_measurement(self, candidate: str, parent: str, *, mean: float, bar: float, accepted: bool) -> None:
        """Record how a version did on the training tasks."""
        known = self._known(candidate)
        self._measured += 1
        found = Measured(number=self._measured, mean=mean, bar=bar, accepted=accepted)
        self._keep(known.model_copy(update={"parent": known.parent or parent, "measured": found}))

    def record_exam(self, candidate: str, result: Examined) -> None:
        """Record an exam of a version. An exam that was recorded before and continued since is replaced."""
        known = self._known(candidate)
        exams = {one.exam: one for one in (*known.exams, result)}
        self._keep(known.model_copy(update={"exams": tuple(exams.values())}))

    def _known(self, candidate: str) -> Version:
        return self._versions.get(candidate) or Version(digest=candidate)

    def _keep(self, version: Version) -> None:
        self._versions[version.digest] = version
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self._folder / f"{version.digest}.json", version.model_dump_json(indent=1) + "\n")


class Versions:
    """The versions of a run of sharpening, finished or not."""

    def __init__(self, run: Path) -> None:
        """UserError when the folder is no such run."""
        self._run, self._shelf = run, SkillStore(run / SKILLS)
        try:
            self.start: str = json.loads((run / TERMS).read_bytes())["skill"]
        except (OSError, ValueError, KeyError):
            raise UserError(f"{run}: not a run of whet sharpen; expected a file {TERMS} in it") from None
        found = [_read(file) for file in sorted((run / SKILLS).glob("*.json"))]
        self.all: dict[str, Version] = {version.digest: version for version in sorted(found, key=self._order)}

    def _order(self, version: Version) -> tuple[float, str]:
        """As they were measured: the start first, what was never measured last."""
        last = 0 if version.digest == self.start else float("inf")
        return version.measured.number if version.measured else last, version.digest

    def __getitem__(self, name: str) -> Version:
        """The version that is called so, or whose digest begins so. UserError when there is not just one."""
        named = self.names
        if name in named:
            return self.all[named[name]]
        if name in HANDED_OUT:
            raise UserError(f"{self._run}: has no version that is called {name}; expected a run that came to one")
        found = [version for digest, version in self.all.items() if name and digest.startswith(name)]
        if len(found) != 1:
            known = (START, *HANDED_OUT, *(digest[:SHORT] for digest in self.all))
            told = f"{len(found)} of them do" if found else did_you_mean(name, known)
            raise UserError(f"{self._run}: expected one version whose digest begins with '{name}'; {told}")
        return found[0]

    def skill(self, version: Version) -> Skill:
        """The skill itself."""
        return self._shelf.get(version.digest)

    @property
    def names(self) -> dict[str, str]:
        """What is called start, best, leader and shortened, as far as it is known."""
        return {START: self.start, **dict(self._handed_out())}

    def _handed_out(self) -> Iterator[tuple[str, str]]:
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
