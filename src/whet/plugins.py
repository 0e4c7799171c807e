"""The user's own Python objects: modules beside whet.toml, and plug-ins, which installed packages declare as entry
points. Nothing is imported before it is used."""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from whet.errors import UserError

AGENTS, JUDGES, PROPOSERS = "whet.agents", "whet.judges", "whet.proposers"
"""The groups of entry points that whet reads."""
REFERENCE = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
"""The form of `module:name`."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An agent, judge or proposer of an installed package."""

    name: str
    entry: EntryPoint

    @property
    def package(self) -> str:
        """Name and version of the package.

        >>> Plugin("tidy", EntryPoint("tidy", "tidy:Tidy", AGENTS)).package
        'unknown package'
        """
        return f"{self.entry.dist.name} {self.entry.dist.version}" if self.entry.dist else "unknown package"

    def load(self) -> Any:
        """Import the object. UserError, in a line, if that fails."""
        try:
            return self.entry.load()
        except Exception as error:
            raise UserError(f"plug-in '{self.name}' of {self.package} does not load: {_name(error)}") from error


def find_plugins(group: str) -> dict[str, Plugin]:
    """The plug-ins of a group, by name."""
    return {entry.name: Plugin(entry.name, entry) for entry in entry_points(group=group)}


def load_beside(reference: str, folder: Path) -> Any:
    """Import `module:name` from a folder, or from the installed packages. UserError, in a line, if that fails."""
    module, _, name = reference.partition(":")
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)  # for good: its functions may import their neighbours when they are called
    importlib.invalidate_caches()
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        raise UserError(f"'{reference}' cannot be imported from {place}: {_name(error)}") from error


def make_object(found: Any, settings: Mapping[str, Any]) -> Any:
    """What a plug-in stands for: an instance if it is a class, otherwise itself. UserError for wrong settings."""
    if isinstance(found, type):
        try:
            return found(**settings)
        except TypeError as error:
            raise UserError(f"{found.__name__} cannot be made with these keys: {error}") from error
    if settings:
        raise UserError(f"has the key '{next(iter(settings))}', but {_describe(found)} takes no settings")
    return found


def _describe(found: Any) -> str:
    return f"'{getattr(found, '__name__', type(found).__name__)}'"


def _name(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
