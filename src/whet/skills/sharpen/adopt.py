"""The flow of `whet adopt`: write a certified skill over the one that a run started with, and undo it.

Everything that is replaced is first copied into the run folder, with a record of what was where.
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
from whet.skills.certificates.certificate import CERTIFICATE, read_certificate
from whet.skills.certificates.checks.arithmetic import problems
from whet.skills.documents.history import BEST, LEADER, START, Version, Versions
from whet.skills.documents.store import main_document
from whet.skills.measurement import Verdict

ORIGIN = "origin.json"
"""File in a run folder that says where the skill lay that the run started with."""
ADOPTED = "adopted"
"""Folder in a run folder with a copy of every replaced document, and the record."""
RECORD = "record.json"


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
    skill, memory_file = _find_original(run, to)
    new = versions.skill(chosen)
    _refuse_changed(run, read_skill(skill, memory_file), versions, new, skill)
    wanted = dict(_new_contents(skill, memory_file, new))
    files = tuple(_compare(place, content) for place, content in wanted.items() if place.read_bytes() != content)
    adoption = Adoption(version=chosen.digest, certified=is_certified, files=files)
    _keep_originals(run / ADOPTED, adoption)
    for one in adoption.files:
        _write(one.path, wanted[one.path])
    return adoption


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


def _new_contents(skill: Path, memory_file: Path | None, new: Skill) -> Iterator[tuple[Path, bytes]]:
    """Where the documents of a version belong, and what they will hold. Edits change no other file of a skill."""
    yield _with_line_ends(main_document(skill).resolve(), new.text)
    if new.memory is not None:
        yield _with_line_ends((memory_file or skill / new.memory.name).resolve(), new.memory.text)


def _with_line_ends(place: Path, text: str) -> tuple[Path, bytes]:
    """Texts of a run end their lines with a line feed; the document may use those of Windows."""
    return place, (text.replace("\n", "\r\n") if b"\r\n" in place.read_bytes() else text).encode()


def _compare(place: Path, content: bytes) -> Replaced:
    before = place.read_bytes()
    lines = before.decode().splitlines(), content.decode().splitlines()
    diff = difflib.unified_diff(*lines, f"a/{place.name}", f"b/{place.name}", lineterm="")
    return Replaced(path=place, before=digest(before), after=digest(content), diff=tuple(diff))


def _keep_originals(folder: Path, adoption: Adoption) -> None:
    """Copy what will be replaced, and only then write the record that `undo` needs."""
    if (folder / RECORD).is_file():
        raise UserError(f"{folder}: a version of this run was adopted before; undo that first with `undo`")
    folder.mkdir(exist_ok=True)
    for number, one in enumerate(adoption.files):
        write_atomic(folder / f"{number}-{one.path.name}", one.path.read_bytes())
    write_atomic(folder / RECORD, adoption.model_dump_json(indent=1) + "\n")


def undo(run: Path) -> Adoption:
    """Restore what was there before a version of the run was adopted."""
    folder = run / ADOPTED
    if not (folder / RECORD).is_file():
        raise UserError(f"{run}: no version of this run was adopted, so there is nothing to undo")
    adoption = Adoption.model_validate_json((folder / RECORD).read_bytes())
    for one in adoption.files:
        now = digest(one.path.read_bytes()) if one.path.is_file() else None
        if now not in (one.before, one.after):
            raise UserError(f"{one.path}: has changed since it was adopted; the original is in {folder}")
    for number, one in enumerate(adoption.files):
        _write(one.path, (folder / f"{number}-{one.path.name}").read_bytes())
    (folder / RECORD).unlink()
    return adoption


def _write(file: Path, content: bytes) -> None:
    """Replace a file in one step. Its mode stays."""
    mode = file.stat().st_mode
    try:
        write_atomic(file, content)
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}") from error
    file.chmod(mode)
