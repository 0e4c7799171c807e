"""Reads an unmodified Harbor task folder. Features that whet cannot run are listed in the task's `unsupported`."""

import posixpath
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from whet.errors import UserError
from whet.tasks.folder import FolderEntry, find_ignored_entries, folder_digest, list_entries
from whet.tasks.judges import locate_modules
from whet.tasks.manifest import TaskManifest, VerifierTable, WhetTable, unknown_keys
from whet.tasks.task import WORKDIR, Split, Task, TaskLimits
from whet.validation_errors import explain, user_error

_KNOWN_VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
_CANARY = re.compile(r"<!--.*canary.*-->|#.*canary.*", re.IGNORECASE)
_CANARY_MARK = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_CANARY_FILE = 1 << 20
"""Larger files are not searched for canaries."""


@dataclass(frozen=True, slots=True)
class _Folder:
    path: Path
    manifest: TaskManifest
    entries: list[FolderEntry]

    def has(self, name: str) -> bool:
        return any(entry.path == name for entry in self.entries)

    def holds_files(self, part: str) -> bool:
        return any(entry.path.startswith(f"{part}/") for entry in self.entries)


def read_harbor(path: Path) -> Task:
    """Read the task in a folder with a task.toml."""
    everything = list_entries(path)
    ignored = find_ignored_entries(path, everything, {"tests", "solution"})
    entries = [entry for entry in everything if entry not in ignored]
    folder = _Folder(path, _manifest(path / "task.toml"), entries)
    _check_scripts(folder)
    manifest, environment = folder.manifest, folder.manifest.environment
    root = path.resolve()
    workspace, whet = _workspace(folder), _whet(folder)
    try:
        return Task(
            id=manifest.task.name if manifest.task else root.name,
            instruction=_instruction(folder),
            origin=str(path),
            digest=folder_digest(root, entries),
            workdir=_workdir(folder) or WORKDIR,
            workspace=root / workspace if workspace else None,
            env=environment.env,
            tests=root / "tests" if folder.has("tests/test.sh") else None,
            omitted=tuple(sorted(entry.path for entry in ignored)),
            verify_env=manifest.verifier.env,
            solution=root / "solution" if folder.has("solution/solve.sh") else None,
            solution_env=manifest.solution.env,
            needs_image=_needs_image(folder) if whet.needs_image else None,
            unsupported="; ".join(_find_unsupported(folder)) or None,
            warnings=tuple(f"{path / 'task.toml'}: {warning}" for warning in _warnings(manifest)),
            split=_split(manifest),
            tags=_tags(manifest),
            metadata=manifest.metadata,
            limits=_limits(manifest, whet),
            allow=whet.allow,
            agent_logs=whet.agent_logs,
            system=whet.system,
            read_only=whet.read_only,
            answer=whet.answer,
            answer_schema=whet.answer_schema,
            judge=locate_modules(whet.judge, root),
            canary=whet.canary or _canaries(folder, workspace),
        )
    except ValidationError as error:
        raise user_error(explain(error, str(path), Task)) from error


def _manifest(file: Path) -> TaskManifest:
    try:
        return TaskManifest.model_validate(tomllib.loads(_text(file)))
    except ValidationError as error:
        raise user_error(explain(error, str(file), TaskManifest)) from error
    except ValueError as error:
        raise UserError(f"{file}: {error}; expected TOML") from error
    except RecursionError as error:
        raise UserError(f"{file}: is nested too deeply; expected a task.toml") from error


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: byte {error.start} is not UTF-8; expected UTF-8 text") from error


def _check_scripts(folder: _Folder) -> None:
    """Every pass of the verifier needs a script, every step its folder."""
    script = "test.bat" if folder.manifest.environment.os == "windows" else "test.sh"
    steps = [(f"steps/{step.name}", step.verifier) for step in folder.manifest.steps]
    for place, _ in steps:
        if not folder.has(f"{place}/instruction.md"):
            raise UserError(f"{folder.path / place}: has no instruction.md; expected one for every step of task.toml")
    for place, verifier in steps or [("", folder.manifest.verifier)]:
        own = posixpath.join(place, "tests")
        images = ((own, verifier), ("tests", folder.manifest.verifier))
        in_image = any(_has_verifier_image(folder, tests, table) for tests, table in images)
        if not (in_image or folder.has(f"{own}/{script}") or folder.has(f"tests/{script}")):
            raise UserError(f"{folder.path}: has no {own}/{script}; expected a script that writes the reward")


def _has_verifier_image(folder: _Folder, tests: str, verifier: VerifierTable) -> bool:
    named = verifier.environment is not None and bool(verifier.environment.docker_image)
    return named or folder.has(f"{tests}/Dockerfile") or folder.has(f"{tests}/docker-compose.yaml")


def _instruction(folder: _Folder) -> str:
    steps = folder.manifest.steps
    file = folder.path / (f"steps/{steps[0].name}/instruction.md" if steps else "instruction.md")
    if not file.is_file():
        raise UserError(f"{folder.path}: has no instruction.md; expected one beside task.toml")
    text = _without_canary(_text(file))
    if not text.strip():
        raise UserError(f"{file}: is empty; expected the instruction for the agent")
    return text


def _without_canary(text: str) -> str:
    lines = text.split("\n")
    rest = list(dropwhile(lambda line: _CANARY.fullmatch(line.strip()), lines))
    return text if len(rest) == len(lines) else "\n".join(dropwhile(lambda line: not line.strip(), rest))


def _canaries(folder: _Folder, workspace: str | None) -> tuple[str, ...]:
    """The canaries of the hidden files that do not occur in the agent's own files."""
    hidden = _marks(folder, {"tests", "solution"})
    return tuple(sorted(hidden - _marks(folder, {"instruction.md", workspace or ""}))) if hidden else ()


def _marks(folder: _Folder, parts: set[str]) -> set[str]:
    marks: set[str] = set()
    for entry in folder.entries:
        file = folder.path / entry.path
        if entry.part in parts and entry.target is None and file.stat().st_size <= _CANARY_FILE:
            for line in file.read_bytes().splitlines():
                if b"canary" in line.lower():
                    marks.update(mark.decode() for mark in _CANARY_MARK.findall(line))
    return marks


def _workdir(folder: _Folder) -> str | None:
    """The normalised working directory; None if task.toml names none that whet can provide."""
    given = folder.manifest.environment.workdir
    workdir = "/" + posixpath.normpath(given).lstrip("/") if given else "/"
    return None if workdir == "/" else workdir


def _workspace(folder: _Folder) -> str | None:
    """The folder with the initial files of the working directory: whet's, or Harbor's if it has no image recipe."""
    if folder.holds_files("workspace"):
        return "workspace"
    return "environment" if _has_loose_files(folder) else None


def _has_loose_files(folder: _Folder) -> bool:
    recipe = folder.has("environment/Dockerfile") or folder.has("environment/docker-compose.yaml")
    return folder.holds_files("environment") and not recipe


def _needs_image(folder: _Folder) -> str | None:
    if image := folder.manifest.environment.docker_image:
        return f"image '{image}' from task.toml [environment].docker_image"
    if folder.has("environment/Dockerfile"):
        return "a build of environment/Dockerfile"
    if folder.has("environment/docker-compose.yaml"):
        return "the services of environment/docker-compose.yaml"
    return None


def _find_unsupported(folder: _Folder) -> Iterator[str]:
    """One phrase for each feature that whet would otherwise silently run wrong."""
    manifest, environment, verifier = folder.manifest, folder.manifest.environment, folder.manifest.verifier
    if manifest.steps:
        yield "multi-step tasks"
    if environment.os == "windows":
        yield "[environment].os 'windows'"
    if environment.gpus:
        yield f"[environment].gpus {environment.gpus}"
    if environment.tpu:
        yield "[environment.tpu]"
    if environment.mcp_servers:
        yield "[[environment.mcp_servers]]"
    if environment.healthcheck:
        yield "[environment.healthcheck]"
    if environment.workdir and not _workdir(folder):
        yield f"[environment].workdir '{environment.workdir}'"
    for table, settings in (("environment", environment), ("agent", manifest.agent), ("verifier", verifier)):
        if settings.network_mode == "allowlist":
            yield f"[{table}].network_mode 'allowlist'"
    if manifest.agent.user is not None:
        yield "[agent].user"
    if verifier.user is not None:
        yield "[verifier].user"
    if verifier.environment is not None or verifier.environment_mode == "separate":
        yield "a separate verifier ([verifier].environment_mode)"
    if verifier.collect:
        yield "[[verifier.collect]]"
    for name in ("environment/docker-compose.yaml", "tests/Dockerfile", "tests/docker-compose.yaml", "trajectory.json"):
        if folder.has(name):
            yield name
    yield from _find_unsupported_entries(folder)


def _find_unsupported_entries(folder: _Folder) -> Iterator[str]:
    workspace = _workspace(folder)
    if workspace == "workspace" and _has_loose_files(folder):
        yield "files for the working directory in both environment/ and workspace/"
    for entry in folder.entries:
        if entry.part in {"tests", "solution", workspace} and entry.leaves_its_part:
            yield f"the link {entry.path} to {entry.target}"


def _warnings(manifest: TaskManifest) -> Iterator[str]:
    version = manifest.schema_version or manifest.version
    if version is not None and version not in _KNOWN_VERSIONS:
        yield f"key 'schema_version' is '{version}'; known: {', '.join(_KNOWN_VERSIONS)}"
    yield from unknown_keys(manifest)


def _split(manifest: TaskManifest) -> Split | None:
    given = manifest.metadata.get("split")
    split: Split | None = given if given in get_args(Split) else None
    return split


def _tags(manifest: TaskManifest) -> tuple[str, ...]:
    tags = manifest.metadata.get("tags")
    listed = tags if isinstance(tags, list) and all(isinstance(tag, str) for tag in tags) else []
    keywords = manifest.task.keywords if manifest.task else ()
    return tuple(dict.fromkeys([*keywords, *listed]))


def _whet(folder: _Folder) -> WhetTable:
    try:
        return WhetTable.model_validate(folder.manifest.metadata.get("whet", {}))
    except ValidationError as error:
        raise user_error(explain(error, f"{folder.path / 'task.toml'}: [metadata.whet]", WhetTable)) from error


def _limits(manifest: TaskManifest, whet: WhetTable) -> TaskLimits:
    environment = manifest.environment
    limits_given = {
        "agent_sec": manifest.agent.timeout_sec,
        "verify_sec": manifest.verifier.timeout_sec,
        "memory_mb": environment.memory_mb or environment.memory,
        "storage_mb": environment.storage_mb or environment.storage,
    }
    given = {name: value for name, value in limits_given.items() if value is not None}
    return TaskLimits.model_validate(given | whet.limits.model_dump(exclude_unset=True))
