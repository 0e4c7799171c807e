"""The options of the verbs that make and read runs. The command line and the Python API build the same objects.

An option's docstring is also its help on the command line. Errors name an option in backquotes, such as `out`; the
command line prints its flag instead.
"""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from whet.errors import UserError
from whet.gateway import Limits
from whet.ids import new_name
from whet.runs.config import Config
from whet.runs.store.reply_cache import CacheUse
from whet.sandbox import DEFAULT
from whet.skill import SKILL_FILE
from whet.tasks import Split, Task, read_readable_tasks, read_tasks, select_tasks
from whet.validation_errors import explain_options, user_error

MODEL_FREE = frozenset({"oracle", "nop"})
"""Kinds of agents that never call a model."""


def new_folder() -> Path:
    """The folder of a run for which the user names none."""
    return Path("runs", f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{new_name()[:4]}")


class Options(BaseModel):
    """What all options models share. A wrong option is a UserError that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    if not TYPE_CHECKING:

        def __init__(self, **given: Any) -> None:
            try:
                super().__init__(**given)
            except ValidationError as error:
                raise user_error(explain_options(error, type(self))) from error

    def given(self) -> dict[str, Any]:
        """The options that were set, by their names."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


def as_tuple(given: Any) -> Any:
    return (given,) if isinstance(given, Path | str) else given


def _as_folder(path: Path) -> Path:
    """The folder of a skill whose SKILL.md is named."""
    return path.parent if path.name == SKILL_FILE and path.is_file() else path


SkillPath = Annotated[Path, AfterValidator(_as_folder)]
"""A skill folder or its SKILL.md, or another Markdown file."""


class TaskOptions(Options):
    """Which tasks to read, and which of them to use."""

    tasks: Annotated[tuple[Path, ...] | tuple[Task, ...], BeforeValidator(as_tuple)] = ()
    """Task folder, file of tasks (.jsonl, .parquet, .csv, .tasks.toml), or a folder of these; or several."""
    task: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Only tasks with this id, or with ids that match a pattern such as 'fix-*'. Several: a,b."""
    split: Split | None = None
    """Only tasks of this split: train, val or test."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first N of these tasks."""

    @property
    def task_paths(self) -> list[str]:
        """Where the tasks lie; empty for tasks that were made in Python."""
        return [str(one.resolve()) for one in self.tasks if isinstance(one, Path)]

    def read_tasks(self) -> list[Task]:
        """The selected tasks."""
        return self._select(read_tasks(self.tasks))

    def read_readable_tasks(self) -> tuple[list[Task], list[str]]:
        """The selected tasks that can be read, and a line for each problem with the others."""
        tasks, problems = read_readable_tasks(self.tasks)
        return self._select(tasks) if tasks else [], problems

    def _select(self, tasks: list[Task]) -> list[Task]:
        return select_tasks(tasks, self.task, self.split, self.limit)


class RolloutOptions(TaskOptions):
    """The options of every verb that runs agents."""

    concurrency: int = Field(default=4, ge=1)
    """Rollouts that run at the same time."""
    sandbox: str = DEFAULT
    """bubblewrap, or local (no isolation)."""
    judge_model: str | None = None
    """Model that judges call if the task names none. Do not use the model under test."""
    out: Path = Field(default_factory=new_folder)
    """Run folder (default: a new folder under runs/)."""
    resume: bool = False
    """Continue the run in `out`. Finished rollouts are not repeated."""
    login: bool = False
    """Agents use your own login (Claude Code, Codex, Copilot, Gemini ...) and no key, without your other settings."""
    limits: Limits = Limits()
    """Limits of the whole run. A limit that is None here is as whet.toml says."""

    @model_validator(mode="after")
    def _resume_needs_out(self) -> Self:
        if self.resume and "out" not in self.model_fields_set:
            raise ValueError("`resume` needs `out`: the folder of the run to continue")
        return self

    def complete(self, config: Config) -> Self:
        """The same options, with the defaults of whet.toml where an option is not set, and a run folder for good."""
        found = {name: getattr(config.defaults, name) for name in ("concurrency", "sandbox")}
        return self.fill({**found, "out": self.out})

    def fill(self, defaults: dict[str, Any]) -> Self:
        """The same options, with these values where an option is not set. None leaves an option as it is."""
        found = {name: value for name, value in defaults.items() if value is not None}
        return self.model_copy(update={**found, **self.given()})


class Retry(StrEnum):
    """Which rollouts of a run that is resumed are run again."""

    MISSING = "missing"
    """Those without a score."""
    FAILED = "failed"
    """Those, and the ones that did not pass."""
    ALL = "all"


class RunOptions(RolloutOptions):
    """Which agents, models and skills to run on which tasks, and how."""

    agents: tuple[str, ...] = ()
    """Agent, or several: a,b. 'command:ARGV' runs any program."""
    models: tuple[str, ...] = ()
    """Model of whet.toml, or several: a,b. 'local/NAME' serves a local model."""
    skills: tuple[SkillPath | None, ...] = (None,)
    """Skill folder, or several: a,b. 'none' is an arm without a skill."""
    samples: int = Field(default=1, ge=1)
    """Rollouts per task."""
    pilot: int | None = Field(default=None, ge=0)
    """Rollouts to run first, as a part of the run, to estimate what all of it will use; 0 for none (default: 4 on the
    command line, none in Python)."""
    cache: CacheUse = CacheUse.OFF
    """Recorded replies: off, read, write (read and add), or replay-only (no network)."""
    record: bool = True
    """Record every model call. False: agents call the model that they are logged in to."""
    user_config: bool | None = None
    """Start agents with a copy of your own settings (default: with none)."""
    retry: Retry = Retry.MISSING
    """With `resume`: which rollouts to run again: missing (no score), failed (no score, or below 1), or all."""
    by_task: bool = False
    """Run all samples of a task before those of the next one (default: every task once, then again)."""
    weight_version: str | None = None
    """Version of the model's weights, such as the training step; training rows have it where the engine reports
    none."""

    @model_validator(mode="after")
    def _retry_needs_resume(self) -> Self:
        if self.retry is not Retry.MISSING and not self.resume:
            raise ValueError(f"`retry` is '{self.retry}' and needs `resume`: it runs rollouts of an earlier run again")
        return self

    def complete(self, config: Config) -> Self:
        defaults = config.defaults
        agents = self.agents or _required("agent", defaults.agent)
        kinds = {getattr(config.agents.get(name), "kind", name) for name in agents}
        calls_model = self.record and not kinds <= MODEL_FREE
        models = self.models or (_required("model", defaults.model) if calls_model else ())
        whole = super().complete(config).fill({"samples": defaults.samples})
        return whole.model_copy(update={"agents": agents, "models": models})


class CheckTasksOptions(TaskOptions):
    """Which tasks to check, and where."""

    sandbox: str = DEFAULT
    """bubblewrap, or local (no isolation)."""
    judge_model: str | None = None
    """Model that judges call if the task names none."""


class ForkOptions(RolloutOptions):
    """Which rollout to repeat, up to which call, and what is different from there on."""

    run: Path
    """Run folder."""
    rollout: str
    """Rollout: the start of its id, or its task if the task has one rollout."""
    at: int
    """First call to make anew, as numbered by `whet show RUN ROLLOUT`."""
    model: str | None = None
    """Model from that call on (default: the original model)."""
    skill: SkillPath | None = None
    """Skill folder for the agent, or 'none'. Required if the rollout had a skill."""
    samples: int = Field(default=1, ge=1)
    """How many times to continue from that call."""
    live_if_diverged: bool = False
    """If the agent does something else than was recorded, continue with the live model. By default the score is then
    missing."""


class RejudgeOptions(Options):
    """Which run to judge again, and with which judges."""

    run: Path
    """Run folder."""
    judge: Path | None = None
    """TOML or JSON file with [[judge]], [[rank]] and [[human]] (default: the tasks' own judges)."""
    tasks: Annotated[tuple[Path, ...] | tuple[Task, ...], BeforeValidator(as_tuple)] = ()
    """Where the tasks are now (default: where the run read them)."""
    judge_model: str | None = None
    """Model that judges call if they name none."""
    cache: CacheUse = CacheUse.OFF
    """Recorded replies: off, read, write (read and add), or replay-only (no network)."""
    sandbox: str | None = None
    """Where judges run that need a sandbox (default: the sandbox of the run)."""
    limits: Limits = Limits()
    """Limits of the judges' model calls."""


class RecordOptions(Options):
    """Which rollouts to turn into records, and into which."""

    format: str
    """Format; docs/export.md lists them."""
    filter: tuple[str, ...] = ()
    """Only rollouts with score>=0.5, agent=NAME, tag=NAME, and so on. Several conditions must all hold."""
    subagents: float = Field(default=1.0, ge=0)
    """Weight of rows from sub-agents; 0 leaves them out."""
    compaction: bool = False
    """Train on the calls that write summaries, too."""
    sampling: Literal["strict", "any"] = "strict"
    """strict: only calls sampled at a known temperature and without constraints; any: all calls."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Longest row that the trainer takes."""
    truncated: bool = False
    """Write truncated rows with the others, not to a file of their own."""
    discount: float = Field(default=1.0, ge=0, le=1)
    """areal-individual: factor on the reward for each call before the last."""
    per_task: int | None = Field(default=None, ge=1)
    """At most N rollouts per task, the best ones."""
    skip_equal: bool = False
    """Leave out groups whose rollouts all have the same reward, which have no advantage."""
    distinct: bool = False
    """chat: leave out conversations that an earlier line has already."""


class ExportOptions(RecordOptions):
    """Which rollouts of a run to export, in which format."""

    run: Path
    """Run folder."""
    out: Path | None = None
    """New file or folder."""
    rollout: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    """Only rollouts whose ids begin like this. Several: a,b."""
    labels: bool = False
    """Add the labels and notes that people set with `whet view`: rows, chat, atif, parquet."""
    dry_run: bool = False
    """Write nothing; print what the export would hold."""

    @model_validator(mode="after")
    def _needs_a_place(self) -> Self:
        if self.out is None and not self.dry_run:
            raise ValueError("`out` is missing; expected a new file or folder")
        return self


def _required(option: str, default: str | None) -> tuple[str, ...]:
    if not default:
        raise UserError(f"`{option}` is missing; expected it here, or '{option}' under [defaults] in whet.toml")
    return (default,)
