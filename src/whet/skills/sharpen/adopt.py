"""The flow of `whet adopt`: write a certified skill over the one that a run started with, and undo it.

What is replaced is kept in the run folder, with a journal of what was where.
"""

import difflib
import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from whet.errors import UserError
from whet.ids import digest
from whet.paths import write_atomic
from whet.skill import Skill, read_skill
from whet.skills.adoption.files import ChangedFileError, find_place, read_place
from whet.skills.adoption.transaction import Adoptions, Change
from whet.skills.certificates.certificate import CERTIFICATE, read_certificate
from whet.skills.certificates.checks.arithmetic import problems
from whet.skills.documents.history import BEST, LEADER, START, Version, Versions
from whet.skills.documents.store import main_document
from whet.skills.documents.three_way import carry_text
from whet.skills.measurement import Verdict

ORIGIN = "origin.json"
"""File in a run folder that says where the skill lay that the run started with."""
ADOPTED = "adopted"
"""Folder in a run folder with the journal and a copy of every replaced document."""


class Replaced(BaseModel):
    """One document that was replaced."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    before: str
    after: str
    """Digests of its content."""
    diff: tuple[str, ...]
    """The lines of a unified diff."""


class Adoption(BaseModel):
    """What was written over what."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    """Digest of the adopted version."""
    certified: bool
    files: tuple[Replaced, ...]


def write_origin(run: Path, skill: Path, memory_file: Path | None) -> None:
    """Record where the skill of a run lies."""
    places = {"skill": str(skill.resolve()), "memory_file": str(memory_file.resolve()) if memory_file else None}
    write_atomic(run / ORIGIN, json.dumps(places, indent=1) + "\n")


def adopt(run: Path, version: str | None = None, to: Path | None = None, *, uncertified: bool = False) -> Adoption:
    """Replace the skill that a run started with, or the skill at `to`, by a version of the run: the certified one if no
    other is named."""
    versions = Versions(run)
    chosen = _choose(run, versions, uncertified=uncertified) if version is None else versions[version]
    is_certified = _is_certified(run, chosen)
    if not is_certified and not uncertified:
        raise UserError(
            f"{run}: version {chosen.digest[:8]} is not certified: nothing shows that it is better; "
            "expected a certified version, or `uncertified`"
        )
    adoptions = Adoptions(run / ADOPTED)
    adoptions.stop_if_interrupted()
    skill, memory_file = _find_original(run, to)
    new = versions.skill(chosen)
    _refuse_changed(run, read_skill(skill, memory_file), versions, new, skill)
    changes = [one for one in _find_changes(skill, memory_file, new) if one.before != one.after]
    if adoptions.adopted():
        raise UserError(f"{run}: a version of this run was adopted before; undo that first with `undo`")
    adoptions.adopt(chosen.digest, changes, str(run / CERTIFICATE) if is_certified else None)
    return Adoption(version=chosen.digest, certified=is_certified, files=tuple(map(_compare, changes)))


def undo(run: Path) -> Adoption:
    """Restore what was there before a version of the run was adopted."""
    adoptions = Adoptions(run / ADOPTED)
    adoptions.stop_if_interrupted()
    if not (adopted := adoptions.adopted()):
        raise UserError(f"{run}: no version of this run was adopted, so there is nothing to undo")
    ((version, entry),) = adopted.items()
    try:
        adoptions.undo(version)
    except ChangedFileError as error:
        kept = next(one.before for one in entry.files if one.named == error.path)
        place = adoptions.backups.folder / str(kept)
        raise UserError(f"{error.path}: has changed since it was adopted; the original is in {place}") from error
    files = tuple(_compare(adoptions.read_change(one)) for one in entry.files)
    return Adoption(version=version, certified=entry.certificate is not None, files=files)


def _choose(run: Path, versions: Versions, *, uncertified: bool) -> Version:
    """The certified version; the best candidate of the search if nothing was certified and that is allowed."""
    if BEST not in versions.names:
        raise UserError(f"{run}: the run has not ended; continue it with `whet sharpen --resume`")
    if versions.names[BEST] != versions.start:
        return versions[BEST]
    if not uncertified:
        raise UserError(
            f"{run}: nothing was certified, so there is nothing to adopt; `uncertified` takes the best candidate of "
            "the search, which is not proved to be better"
        )
    if versions.names[LEADER] == versions.start:
        raise UserError(f"{run}: the search found nothing better than the skill that it started with")
    return versions[LEADER]


def _is_certified(run: Path, version: Version) -> bool:
    certificate = read_certificate(run / CERTIFICATE)
    if wrong := problems(certificate):
        raise UserError(f"{run / CERTIFICATE}: does not hold: {wrong[0]}; see `whet certify --check {run}`")
    certified = {one.candidate for one in certificate.all_records if one.findings.verdict is Verdict.CERTIFIED}
    return version.digest in certified


def _find_original(run: Path, to: Path | None) -> tuple[Path, Path | None]:
    """The skill to replace, and the memory file that lies elsewhere, if there is one."""
    file = run / ORIGIN
    places = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    skill = to or (Path(places["skill"]) if places else None)
    if skill is None:
        raise UserError(f"{run}: does not say where its skill lies; expected `to`: the skill to replace")
    if not skill.exists():
        raise UserError(f"{skill}: is not there any more; expected `to`: where the skill lies now")
    memory_file = places.get("memory_file")
    return skill.resolve(), Path(memory_file) if memory_file else None


def _refuse_changed(run: Path, now: Skill, versions: Versions, new: Skill, place: Path) -> None:
    """UserError when the skill is not the one that the run started with: its changes would be lost."""
    if now.digest == new.digest:
        raise UserError(f"{place}: is this version already")
    if now.digest == versions.start:
        return
    old = versions.skill(versions[START])
    documents = (main_document(place), main_document(old.folder), main_document(new.folder))
    raise UserError(
        f"{place}: has changed since the run started (now {now.digest[:8]}, then {versions.start[:8]}). "
        f"See what the run changed with:\n  whet skill diff {run} {START} {new.digest[:8]}\n"
        f"Merge it into yours with:\n  git merge-file {' '.join(map(str, documents))}"
    )


def _find_changes(skill: Path, memory_file: Path | None, new: Skill) -> Iterator[Change]:
    """What the documents of a version change. Edits change no other file of a skill."""
    yield _find_change(main_document(skill), new.text)
    if new.memory is not None:
        yield _find_change(memory_file or skill / new.memory.name, new.memory.text)


def _find_change(file: Path, text: str) -> Change:
    """The text of a run, with the line ends of the document. The run read the document, so it leads out of no folder
    that its user did not name."""
    place = find_place(file, [Path(file.anchor)])
    before = read_place(place)
    if before is None:
        raise UserError(f"{file}: is not there any more")
    return Change(place, before, carry_text(before.decode(), text).encode())


def _compare(change: Change) -> Replaced:
    before, after = change.before or b"", change.after or b""
    name, lines = change.place.real.name, (before.decode().splitlines(), after.decode().splitlines())
    diff = difflib.unified_diff(*lines, f"a/{name}", f"b/{name}", lineterm="")
    return Replaced(path=change.place.real, before=digest(before), after=digest(after), diff=tuple(diff))
