"""Packages that the tests of a project import and that are not in it: found in an installed Python, and copied."""

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from typing import Any

from whet.errors import UserError
from whet.sleep.mining.proof import LONGEST, Loss
from whet.sleep.mining.suite import PACKAGES
from whet.tasks.git import Tree, TreeFile

LARGEST = 50_000_000
"""Bytes of packages that are copied into a task."""
_NEEDS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NOT_NEEDED = frozenset({"pygments", "colorama"})
"""What pytest requires for colours only, and tests run without."""
_ASK = "import sys; print([place for place in sys.path if place.endswith(('site-packages', 'dist-packages'))])"


class Dropped(Exception):  # noqa: N818 - an outcome of a candidate, no failure
    """A candidate does not become a task."""

    def __init__(self, cause: Loss, detail: str = "") -> None:
        super().__init__(f"{cause}: {detail}" if detail else cause)
        self.cause, self.detail = cause, detail[:LONGEST]

    def as_fields(self) -> dict[str, Any]:
        return {"cause": self.cause, "detail": self.detail}


class Packages:
    """The packages of one installed Python, by the names that programs import them with."""

    def __init__(self, places: Iterable[str], offered: Collection[str] | None = None) -> None:
        """Args: offered: The only import names that projects may use; None is all."""
        self._offered = offered
        self._installed = {_normalize(one.name): one for one in distributions(path=[*dict.fromkeys(places)])}

    @cached_property
    def _owners(self) -> dict[str, str]:
        """Packages by the names that they are imported with. Most have one name for both."""
        return {name: key for key, one in self._installed.items() for name in _list_imports(one)}

    def _find_owner(self, name: str) -> str | None:
        return key if (key := _normalize(name)) in self._installed else self._owners.get(name)

    def collect(self, names: Iterable[str], own: Iterable[str] = ()) -> Tree:
        """The files of the packages with these import names, and of all that they require.

        Of the project's own packages only what is known about them: many ask for their own version.
        """
        allowed = (name for name in names if self._offered is None or name in self._offered)
        wanted = {owner for name in allowed if (owner := self._find_owner(name)) is not None}
        found: dict[str, TreeFile] = {}
        for key in sorted(self._close(wanted)):
            for path, file in _list_files(self._installed[key]):
                found[f"{PACKAGES}/{path}"] = TreeFile(file.read_bytes())
        for key in {_normalize(name) for name in own} & self._installed.keys():
            for path, file in _list_files(self._installed[key]):
                if path.endswith(".dist-info/METADATA"):
                    found[f"{PACKAGES}/{path}"] = TreeFile(file.read_bytes())
        if sum(len(file.content) for file in found.values()) > LARGEST:
            raise Dropped(Loss.ENVIRONMENT, f"packages over {LARGEST / 1e6:.0f} MB: {', '.join(sorted(wanted))}")
        return found

    def _close(self, keys: set[str]) -> set[str]:
        """These packages with all that they require, as far as it is installed."""
        found: set[str] = set()
        while keys:
            found |= keys
            required = (need for key in keys for need in _list_required(self._installed[key]))
            keys = {need for need in required if need in self._installed} - found
        return found


def open_packages(repository: Path, python: Path | None) -> Packages:
    """The packages of the named Python, by default of the repository's .venv or venv. Without one, pytest of whet's own
    Python: other packages there are not the project's."""
    named = [python] if python is not None else [repository / name / "bin" / "python" for name in (".venv", "venv")]
    chosen = next((one for one in named if one.exists()), None)
    if python is not None and chosen is None:
        raise UserError(f"`python` is {python}; expected a Python interpreter, such as .venv/bin/python")
    done = subprocess.run([str(chosen or sys.executable), "-I", "-B", "-c", _ASK], capture_output=True, check=False)
    if done.returncode:
        raise UserError(f"{chosen} did not start: {done.stderr.decode(errors='replace').strip()[-200:]}")
    places: list[str] = ast.literal_eval(done.stdout.decode())
    return Packages(places, None if chosen else {"pytest"})


def list_foreign_imports(tree: Tree) -> set[str]:
    """What the Python files of a project import and that is neither in it nor in Python itself."""
    imported: set[str] = set()
    for name, file in tree.items():
        if name.endswith(".py"):
            imported |= _list_names(file.content)
    return imported - list_own_modules(tree) - sys.stdlib_module_names


def list_own_modules(tree: Tree) -> set[str]:
    """The names of the modules and packages of a project."""
    return {part.removesuffix(".py") for name in tree if name.endswith(".py") for part in PurePosixPath(name).parts}


def _list_names(source: bytes) -> set[str]:
    try:
        nodes = ast.walk(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _list_imports(package: Distribution) -> set[str]:
    """The names with which a package is imported."""
    tops = {path.parts[0] for path in package.files or () if path.suffix in {".py", ".so"}}
    return {top.partition(".")[0] for top in tops}


def _list_files(package: Distribution) -> Iterator[tuple[str, Path]]:
    """The installed files of a package by their paths, without programs and compiled copies."""
    for path in package.files or ():
        file = Path(str(package.locate_file(path)))
        if ".." not in path.parts and "__pycache__" not in path.parts and file.is_file():
            yield path.as_posix(), file


def _list_required(package: Distribution) -> Iterator[str]:
    """The packages that a package requires, without those of its extras."""
    for need in package.requires or ():
        name = _NEEDS.match(need)
        if name and "extra ==" not in need and (key := _normalize(name[0])) not in _NOT_NEEDED:
            yield key


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
