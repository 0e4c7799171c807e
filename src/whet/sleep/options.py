"""The options of `whet sleep`: as given, then the user's own file. What a repository may say is in
`repository_settings`."""

import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from whet.errors import UserError
from whet.paths import user_config
from whet.runs.options import Options
from whet.skills.rollouts.budget import Budget, read_budget
from whet.validation_errors import explain, user_error

USER_FILE = "sleep.toml"
DENY_LISTS = ("exclude", "redact_extra")
"""Options to which every file adds, so that none takes away what another forbids."""


def _as_tuple(given: Any) -> Any:
    return (given,) if isinstance(given, str) else given


def _check_budget(text: str) -> str:
    try:
        read_budget(text)
    except UserError as error:
        raise ValueError("expected rollouts (400), '2M tokens', '$5', '3h' or '45min'") from error
    return text


def _check_lookback(text: str) -> str:
    try:
        _read_lookback(text)
    except (ValueError, OverflowError) as error:
        raise ValueError("expected a number of days, or a date such as 2026-11-01") from error
    return text


def _read_lookback(text: str) -> timedelta | date:
    days = re.fullmatch(r"([1-9]\d{0,5})( ?d(ays?)?)?", text.strip())
    return timedelta(days=int(days[1])) if days else date.fromisoformat(text.strip())


def _check_window(text: str) -> str:
    try:
        _read_window(text)
    except ValueError as error:
        raise ValueError("expected two times of day, such as 02:00-06:00") from error
    return text


def _read_window(text: str) -> tuple[time, time]:
    found = re.fullmatch(r"\s*(\d\d:\d\d)\s*-\s*(\d\d:\d\d)\s*", text)
    if found is None or found[1] == found[2]:
        raise ValueError(text)
    return time.fromisoformat(found[1]), time.fromisoformat(found[2])


def _check_time(text: str) -> str:
    try:
        time.fromisoformat(text)
    except ValueError as error:
        raise ValueError("expected a time of day, such as 02:30") from error
    return text


def _check_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from error
    return text


def _check_markdown(name: str) -> str:
    if Path(name).suffix.lower() != ".md":
        raise ValueError("expected a Markdown file, such as AGENTS.md")
    return name


Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
Budgets = Annotated[tuple[Annotated[str, AfterValidator(_check_budget)], ...], BeforeValidator(_as_tuple)]
Patterns = Annotated[tuple[Annotated[str, AfterValidator(_check_pattern)], ...], BeforeValidator(_as_tuple)]


MarkdownFiles = Annotated[tuple[Annotated[str, AfterValidator(_check_markdown)], ...], BeforeValidator(_as_tuple)]


class SleepSettings(BaseModel):
    """What the user's own file may say about `whet sleep`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    clis: Names = ()
    """Read sessions of these agents only (default: all that whet knows). Several: a,b."""
    include: Names = ()
    """Only repositories with this path, or with paths that match a pattern such as '~/projects/*' (default: all)."""
    exclude: Names = ()
    """No repositories with this path, or with paths that match a pattern. Files add to each other here."""
    lookback: Annotated[str, BeforeValidator(str), AfterValidator(_check_lookback)] = "30"
    """Only sessions of the last N days, or since a date such as 2026-11-01."""
    all_origins: bool = False
    """Also keep sessions that a script or another agent started."""
    quiet_minutes: int = Field(default=30, ge=0)
    """Leave a session alone until its file was not written for N minutes, or has a mark of its end."""
    redact_extra: Patterns = ()
    """Regular expressions of what else to mask. Files add to each other here."""
    targets: MarkdownFiles = ()
    """Memory files to improve, such as CLAUDE.md or AGENTS.md (default: those in the repository)."""
    agent: str | None = None
    """Agent that replays the tasks (default: the one with the most sessions)."""
    model: str | None = None
    """Model that the agent calls."""
    login: bool = False
    """The agent uses your own login and no key, without your other settings."""
    proposer_model: str | None = None
    """Model that writes the rules, and reads corrections that whet does not understand (default: none; a rule is in
    your own words)."""
    preferences: str = ""
    """House rules that every proposal must respect, for a model that suggests edits: a text, or the name of a file."""
    budget: Budgets = ("120 rollouts", "2M tokens", "90min")
    """What one night may use: rollouts (120), '2M tokens', '$5', '3h' or '45min'. Several: a,b."""
    monthly_budget: Budgets = ()
    """What all nights of a month may use together, likewise (default: no limit)."""
    window: Annotated[str, AfterValidator(_check_window)] = "02:00-06:00"
    """Time of day in which a scheduled night may work."""
    min_support: int = Field(default=2, ge=1)
    """Sessions that must support a rule before it is considered."""
    allow_auto: Names = ()
    """Repositories that may adopt certified proposals without asking, if their own whet.toml has `auto = true`; by
    path or pattern."""


class SleepOptions(Options, SleepSettings):
    """What to read, what to learn, and what a night may use."""

    def complete(self, env: Mapping[str, str]) -> Self:
        """The same options, with what the user's own file says where an option is not set."""
        user, given = _user_settings(env), self.given()
        whole = {**user, **given}
        for name in DENY_LISTS:
            whole[name] = tuple(dict.fromkeys(one for table in (user, given) for one in table.get(name, ())))
        completed = self.model_copy(update=whole)
        completed.model_fields_set.intersection_update(given)
        return completed

    def is_given(self, name: str) -> bool:
        """Whether the caller set an option, rather than a file."""
        return name in self.model_fields_set

    def since(self, now: datetime) -> datetime:
        """The time before which sessions are too old."""
        found = _read_lookback(self.lookback)
        return now - found if isinstance(found, timedelta) else datetime.combine(found, time(), now.tzinfo)

    def night_budgets(self) -> tuple[Budget, ...]:
        """What one night may use, each in its unit."""
        return tuple(map(read_budget, self.budget))

    def month_budgets(self) -> tuple[Budget, ...]:
        """What all nights of a month may use together, each in its unit."""
        return tuple(map(read_budget, self.monthly_budget))

    def window_times(self) -> tuple[time, time]:
        """When a scheduled night may begin, and when it must end."""
        return _read_window(self.window)


class BackendName(StrEnum):
    """Who starts a night."""

    SYSTEMD = "systemd"
    CRON = "cron"
    LAUNCHD = "launchd"
    PRINT = "print"
    """Nobody: the user places the lines that are printed."""


class SleepScheduleOptions(Options):
    """When a night starts by itself, and who starts it."""

    at: Annotated[str, AfterValidator(_check_time)] = "02:30"
    """Time of day, within the window of the settings."""
    backend: BackendName | None = None
    """systemd, cron, launchd, or print: show the lines, and change nothing (default: the first that works here)."""
    remove: bool = False
    """Remove the schedule."""
    check: bool = False
    """Start the scheduled command with `--dry-run` in an empty environment, as the schedule does."""


def _user_settings(env: Mapping[str, str]) -> dict[str, Any]:
    path = user_config(env) / USER_FILE
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not TOML: {error}") from error
    if "auto" in table:
        raise UserError(
            f"{path}: unknown key 'auto'; only the whet.toml of a repository can have it, under [sleep], and "
            "`allow_auto` here names the repositories that may"
        )
    return read_table(table, str(path), SleepSettings)


def read_table(table: Mapping[str, Any], where: str, model: type[BaseModel]) -> dict[str, Any]:
    """The settings that a table gives, as values of the options."""
    try:
        found = model.model_validate(table)
    except ValidationError as error:
        raise user_error(explain(error, where, model)) from error
    return {name: getattr(found, name) for name in found.model_fields_set}
