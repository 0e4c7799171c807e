"""What the whet.toml of a repository says about `whet sleep`, under `[sleep]`, over the user's own settings.

A repository may be somebody else's text. So its table can only ask for less than the user allows: mask more, read less,
wait for more sessions. It names no file outside of the repository, no model and no budget.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from whet.errors import UserError
from whet.runs.config import FILE, find_config, read_config
from whet.sleep.options import USER_FILE, MarkdownFiles, Names, Patterns, SleepOptions, SleepSettings, read_table
from whet.sleep.places import matches

MOST_BYTES = 1 << 20
"""A whet.toml that is larger is not read."""


class RepositoryTable(BaseModel):
    """What the table `[sleep]` of a repository may say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exclude: Names = ()
    """Folders of the repository whose sessions are not read. They add to those of the user."""
    redact_extra: Patterns = ()
    """Regular expressions of what else to mask. They add to those of the user."""
    min_support: int = Field(default=1, ge=1)
    """Sessions that must support a rule. The larger number of the user's and this one counts."""
    targets: MarkdownFiles = ()
    """Memory files of the repository to improve, in place of the user's."""
    agent: str | None = None
    """Agent that replays the tasks, in place of the user's. The user's own settings declare it and its model."""
    preferences: str = ""
    """House rules: a text, or the name of a file of the repository. They add to those of the user."""
    auto: bool = False
    """Adopt certified proposals without asking, if `allow_auto` of the user names the repository."""


@dataclass(frozen=True, slots=True)
class RepositorySettings:
    """How one repository is handled."""

    file: Path
    """Its whet.toml, which need not exist."""
    targets: tuple[str, ...]
    min_support: int
    agent: str | None
    """The agent that its table names, unless the caller named one."""
    redact_extra: tuple[str, ...]
    """Those of the user and of the repository."""
    own_patterns: tuple[str, ...]
    """Those of the repository alone."""
    exclude: tuple[str, ...]
    """Those of the repository alone."""
    preferences: str
    """The text of the repository alone."""
    auto: bool
    """Whether the repository asks for adoption without a person."""
    auto_allowed: bool
    """Whether the user allows that here."""

    def excludes(self, cwd: str | None) -> bool:
        """Whether the repository does not want sessions of this folder to be read."""
        places = [self.file.parent, *([Path(cwd)] if cwd else [])]
        return any(matches(place, pattern, self.file.parent) for place in places for pattern in self.exclude)


@dataclass(frozen=True, slots=True)
class AllSettings:
    """The settings of all repositories of one harvest or night. Each file is read once."""

    options: SleepOptions
    """Complete."""
    _known: dict[Path, RepositorySettings | UserError] = field(default_factory=dict)

    def of(self, repository: Path) -> RepositorySettings:
        """How a repository is handled. UserError if its whet.toml cannot be read or is wrong."""
        if repository not in self._known:
            try:
                self._known[repository] = read_settings(repository, self.options)
            except UserError as error:
                self._known[repository] = error
        found = self._known[repository]
        if isinstance(found, UserError):
            raise found
        return found


def read_settings(repository: Path, options: SleepOptions) -> RepositorySettings:
    """How a repository is handled: what the caller set, then its own table, then the user's file."""
    file = repository / FILE
    table = _read_file(file)
    fewest = options.min_support
    return RepositorySettings(
        file=file,
        targets=options.targets if options.is_given("targets") else table.targets or options.targets,
        min_support=fewest if options.is_given("min_support") else max(fewest, table.min_support),
        agent=None if options.is_given("agent") else table.agent,
        redact_extra=tuple(dict.fromkeys((*options.redact_extra, *table.redact_extra))),
        own_patterns=table.redact_extra,
        exclude=table.exclude,
        preferences=_read_preferences(table.preferences, file),
        auto=table.auto,
        auto_allowed=any(matches(repository, pattern) for pattern in options.allow_auto),
    )


def refuse_wrong_table(folder: Path, *, scheduled: bool = False) -> None:
    """UserError if the whet.toml of this folder, or the nearest one above, has a table `[sleep]` that is wrong or has
    no effect. A scheduled night leaves out a repository with a wrong table instead."""
    path = find_config(folder)
    if path is None:
        return
    if os.path.lexists(path.parent / ".git"):
        if not scheduled:
            _read_file(path)
    elif read_config(path).sleep:
        raise UserError(
            f"{path}: [sleep] has no effect, because {path.parent} is not the top folder of a git repository; "
            f"settings for all repositories belong in ~/.config/whet/{USER_FILE}"
        )


def _read_file(file: Path) -> RepositoryTable:
    if not os.path.lexists(file):
        return RepositoryTable()
    try:
        if not file.is_file() or file.stat().st_size > MOST_BYTES:
            raise UserError(f"{file}: expected a file of at most {MOST_BYTES >> 20} MB")
        # Only this table is read. The models and agents that the file declares are not those of the user.
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("sleep", {})
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{file}: not TOML: {error}") from error
    if not isinstance(table, dict):
        raise UserError(f"{file}: key 'sleep' is {table!r}; expected a table, [sleep]")
    _refuse_user_keys(table, file)
    found = RepositoryTable(**read_table(table, f"{file}: [sleep]", RepositoryTable))
    for name in found.targets:
        _refuse_outside(name, "targets", file)
    return found


def _refuse_user_keys(table: Mapping[str, object], file: Path) -> None:
    """UserError on a key that has no effect in a repository."""
    for key in table:
        if key in SleepSettings.model_fields and key not in RepositoryTable.model_fields:
            raise UserError(
                f"{file}: [sleep]: key '{key}' has no effect in a repository; it belongs in ~/.config/whet/{USER_FILE}"
            )


def _read_preferences(given: str, file: Path) -> str:
    """The text, or that of a file. Unlike the user's own, the file must be in the repository."""
    if not given or len(given.split()) > 1 or Path(given).suffix not in {".md", ".txt"}:
        return given
    _refuse_outside(given, "preferences", file)
    try:
        return (file.parent / given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: [sleep]: key 'preferences' is '{given}', which cannot be read: {error}") from error


def _refuse_outside(name: str, key: str, file: Path) -> None:
    """UserError if a name leads out of the repository, also through a link."""
    top = file.parent
    if not (top / name).resolve().is_relative_to(top.resolve()):
        raise UserError(f"{file}: [sleep]: key '{key}' has '{name}'; expected a file inside the repository")
