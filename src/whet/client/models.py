"""What goes over the wire between `whet serve` and its clients. The server's OpenAPI is made of these models."""

import json
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from whet.tasks.judges import Judges
from whet.tasks.task import Content, ProcessText, Split, TaskLimits, TaskTool

Name = Annotated[str, Field(min_length=1, max_length=200)]
Command = Annotated[ProcessText, Field(min_length=1, max_length=100_000)]
MAX_JUDGE_CHARACTERS = 20_000
"""Of all judges of a request, as JSON. To check a schema takes long."""
MAX_SAMPLES = 256
"""The most rollouts of one request."""


def _small(judges: Any) -> Any:
    if isinstance(judges, dict | list | tuple):
        try:
            size = len(json.dumps(judges, default=str))
        except (ValueError, RecursionError):
            size = MAX_JUDGE_CHARACTERS + 1
        if size > MAX_JUDGE_CHARACTERS:
            raise ValueError(f"is larger than {MAX_JUDGE_CHARACTERS} characters")
    return judges


class Wire(BaseModel):
    """What all of these share. Unknown keys are errors in a request."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Reply(BaseModel):
    """What all replies share. Clients ignore keys that they do not know, so a server may be newer than its clients."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class OnFailure(StrEnum):
    """What a group does with a rollout that has no score. It is never turned into a zero unless that is asked for."""

    DROP = "drop"
    """It is left out of the group's rollouts and rows, and counted."""
    NULL = "null"
    """It stays in the group with the reward null, and has no rows."""
    ZERO = "zero"
    """It stays in the group with the reward 0, marked `substituted`. The store keeps it as missing."""
    RETRY = "retry"
    """It is tried again, at most `retries` times more; then it is left out."""


class OnStraddle(StrEnum):
    """What becomes of a rollout whose calls were sampled by more than one version of the weights."""

    MARK = "mark"
    """It counts, with `straddled` set."""
    REFUSE = "refuse"
    """Its outcome is `stale`, and it has no reward and no rows."""


class Endpoint(Wire):
    """A model that the request brings along. The server must allow its address."""

    base_url: str = Field(pattern=r"^https?://[^/]", max_length=2000)
    model: Name
    """The model's name there."""
    api_key: SecretStr | None = Field(default=None, max_length=10_000)
    """It stays in the server's memory for as long as the rollout lasts, and is written nowhere."""
    dialect: Literal["chat", "responses", "messages", "gemini"] = "chat"
    capture: Literal["none", "vllm", "sglang", "llamacpp", "openai"] = "none"
    """Which kind of server is asked for token ids and log-probabilities."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Fields of every model request, and what replaces the agent's values."""
    max_tokens: int | None = Field(default=None, gt=0)
    """The most that a call may sample."""


class RolloutRequest(Wire):
    """One task for an agent, once or several times. The task is one of the served set, or described here."""

    task: Name | None = None
    """Id of a task of the served set."""
    instruction: ProcessText | None = Field(default=None, min_length=1, max_length=1_000_000)
    """What the agent is to do, if `task` names none."""
    setup: tuple[Command, ...] = ()
    """Shell commands before the agent, one by one. The first that fails ends the rollout."""
    verify: tuple[Command, ...] = ()
    """Shell commands after the agent, in a sealed box. The score is the share that exits with 0, or the number that
    they write into /logs/verifier/reward.txt."""
    files: dict[str, Content] = Field(default_factory=dict)
    """Files of the working directory before the agent starts: text, or {"base64": ...}."""
    answer: str | None = None
    """The expected final answer."""
    judge: Annotated[Judges, BeforeValidator(_small)] = ()
    """Judges in addition to `verify` and `answer`. Judges that run Python or read files of the server are refused."""
    workdir: str | None = Field(default=None, pattern=r"^(/[^/\x00]+)+$")
    tools: tuple[TaskTool, ...] = ()
    """Programs that the agent finds on its PATH."""
    keep: Literal["changes", "files"] = "changes"
    """Which small files of the working directory are kept: those that the agent added or changed, or also others that
    are at most one folder deep."""
    limits: TaskLimits | None = None
    """Limits of each rollout. With `task`, only those that are set replace the task's own."""
    task_id: str = Field(default="", max_length=200)
    """Echoed; names a task that is described here."""

    agent: Name | None = None
    """An agent that the server offers (default: the server's)."""
    model: Name | None = None
    """A model that the server offers (default: the server's)."""
    endpoint: Endpoint | None = None
    """A model of the caller's, in place of `model`."""
    skill: Name | None = None
    """A skill that the server offers, by name; 'none' for none (default: the server's)."""

    samples: int = Field(default=1, ge=1, le=MAX_SAMPLES)
    """Rollouts of this task: a group."""
    seed: int | None = Field(default=None, ge=0)
    """Sent to the model with every call, plus the number of the sample, if its API has a seed."""
    priority: int = Field(default=0, ge=-100, le=100)
    """Queued rollouts with a higher priority start first."""
    metadata: dict[str, str] = Field(default_factory=dict, max_length=32)
    """Echoed."""

    on_failure: OnFailure = OnFailure.DROP
    retries: int = Field(default=2, ge=0, le=10)
    """For `on_failure` retry: tries beyond those that `whet run` makes."""
    min_group: int = Field(default=1, ge=1)
    """With fewer scored rollouts than this, the group has no rows."""
    max_staleness: int | None = Field(default=None, ge=0)
    """How many updates of the model's weights a rollout may be behind when it ends. One that is further behind is
    `stale`; one that is still queued is not started with old weights."""
    on_straddle: OnStraddle = OnStraddle.MARK

    @model_validator(mode="after")
    def _one_task(self) -> Self:
        if (self.task is None) == (self.instruction is None):
            raise ValueError("has both or neither of 'task' and 'instruction'; expected exactly one of them")
        described = ("setup", "verify", "files", "answer", "judge", "workdir", "tools", "task_id")
        if self.task is not None and (given := [name for name in described if getattr(self, name)]):
            raise ValueError(f"has 'task' and '{given[0]}'; expected the task as it is served, or an instruction")
        return self

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if self.model is not None and self.endpoint is not None:
            raise ValueError("has 'model' and 'endpoint'; expected one of them")
        return self


class Status(StrEnum):
    """How far a rollout is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"


class Outcome(StrEnum):
    """What came of a rollout."""

    SCORED = "scored"
    """It has a reward. An agent that ran out of time or budget is scored too."""
    UNSCORED = "unscored"
    """It ended as it should, but nothing could judge it: there was no verify command, answer or judge."""
    FAILED = "failed"
    """The machinery failed; `cause` says where. The reward is null, never 0."""
    CANCELLED = "cancelled"
    """The caller, or the operator, ended it."""
    STALE = "stale"
    """It was sampled by weights that are too old, or by more than one version, and the request refuses that."""


class Phase(StrEnum):
    """What a running rollout is doing."""

    SETUP = "setup"
    AGENT = "agent"
    JUDGE = "judge"


class CommandView(Reply):
    """A command of `setup` or `verify` that was run."""

    command: str
    exit_code: int | None
    stdout: str = ""
    """The last 2,000 characters."""
    stderr: str = ""
    seconds: float = 0.0
    timed_out: bool = False


class Usage(Reply):
    """What the model calls of a rollout came to."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """Dollars; null when it is not known."""


class RolloutView(Reply):
    """A rollout, at any time of its life. Large parts are fetched apart: /trace, /rows, /files."""

    id: str
    group: str
    """The request that it belongs to."""
    sample: int
    """Its place in the group, from 0."""
    task: str
    task_id: str = ""
    """As the request named it."""
    agent: str
    model: str
    skill: str | None = None
    status: Status
    phase: Phase | None = None
    """While it runs."""
    place: int | None = None
    """While it is queued: how many rollouts start before it."""
    outcome: Outcome | None = None
    """When it is done."""
    reward: float | None = None
    reward_source: Literal["verifier", "exit_codes", "judges"] | None = None
    """A reward file that a verify command wrote; the share of verify commands that passed; or judges."""
    rewards: dict[str, float | None] = Field(default_factory=dict)
    """By judge."""
    substituted: bool = False
    """The reward is a 0 that the request asked for in place of a missing one."""
    cause: str | None = None
    """Why there is no reward: sandbox, setup, agent, model, auth, judge, unjudged, interrupted, internal ..."""
    reason: str = ""
    """One line for people."""
    stop: str | None = None
    """How the agent's part ended: finished, timeout, limit, crashed ..."""
    limit: str | None = None
    """The limit that ended the agent's work."""
    exit_code: int | None = None
    """Of the agent's program; null if it was killed or has none."""
    answer: str = ""
    """The agent's final answer, at most 4,000 characters."""
    setup: tuple[CommandView, ...] = ()
    verify: tuple[CommandView, ...] = ()
    changed: tuple[str, ...] = ()
    """Paths that the agent changed, at most 100."""
    flags: tuple[str, ...] = ()
    usage: Usage = Usage()
    attempts: int = 0
    seconds: dict[str, float] = Field(default_factory=dict)
    """Wall time by phase."""
    created: float
    """Seconds since the epoch, as all times here."""
    started: float | None = None
    ended: float | None = None
    weight_versions: tuple[str, ...] = ()
    """The versions of the weights that its calls were sampled by, oldest first."""
    straddled: bool = False
    """The weights changed while it ran."""
    staleness: int | None = None
    """How many updates its oldest weights were behind when it ended; null if the model has no versions."""
    metadata: dict[str, str] = Field(default_factory=dict)


class GroupView(Reply):
    """The rollouts of one request."""

    id: str
    status: Status
    """Done when every rollout is."""
    rollouts: tuple[RolloutView, ...]
    """After `on_failure`."""
    dropped: dict[str, int] = Field(default_factory=dict)
    """How many rollouts were left out, by outcome and cause."""
    scored: int = 0
    complete: bool = False
    """It is done and has at least `min_group` scored rollouts."""
    created: float
    on_failure: OnFailure = OnFailure.DROP


class RowsView(Reply):
    """Training rows, or the records of another export format."""

    format: str
    rows: list[Any]
    apart: list[Any] = Field(default_factory=list)
    """Truncated rows, each with the reason."""
    manifest: dict[str, Any] = Field(default_factory=dict)
    """What the rows hold, and what was left out and why."""


class ConversationView(Reply):
    """A stretch of one conversation of a rollout, as the model saw it in its last call, and the reply."""

    thread: str
    kind: str
    """main, subagent or utility."""
    name: str = ""
    parent: str | None = None
    """The thread that began this one."""
    began: str | None = None
    """Why it does not continue the stretch before: compaction, edited, restarted."""
    calls: tuple[int, ...]
    """Numbers of its model calls."""
    messages: list[dict[str, Any]]
    """In the form of chat completions."""
    tools: list[dict[str, Any]] = Field(default_factory=list)


class TraceView(Reply):
    """The conversations of a rollout."""

    rollout: str
    conversations: tuple[ConversationView, ...]
    unanswered: dict[int, str] = Field(default_factory=dict)
    """Calls without an answer, by their numbers, and why."""
    unread: dict[int, str] = Field(default_factory=dict)
    """Calls whose request cannot be read, and why."""


class FileView(Reply):
    """A file that the agent left in the working directory."""

    path: str
    bytes: int


class TaskView(Reply):
    """A task of the served set. Nothing that judges it is shown."""

    id: str
    instruction: str
    split: Split | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = Field(default_factory=dict)


class AgentView(Reply):
    """An agent that the server offers."""

    name: str
    default: bool = False
    """It is used if a request names none."""


class SkillView(Reply):
    """A skill that the server offers."""

    name: str
    digest: str
    default: bool = False


class ModelUpdate(Wire):
    """What changes of a model that the server offers. What is left out stays as it is."""

    url: str | None = Field(default=None, pattern=r"^https?://[^/]", max_length=2000)
    urls: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Several endpoints that serve the same weights."""
    name: Name | None = None
    """The model's name at the endpoint."""
    weight_version: Name
    """The version of the weights from now on, such as the training step."""

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if self.url is not None and self.urls is not None:
            raise ValueError("has 'url' and 'urls'; expected one of them")
        return self


class ModelView(Reply):
    """A model that the server offers."""

    name: str
    upstream_name: str
    urls: tuple[str, ...]
    """Only for callers with the scope admin."""
    capture: str
    weight_version: str | None = None
    updates: int = 0
    """How often it was updated since the server's folder was made."""
    running: int = 0
    queued: int = 0


class PauseMode(StrEnum):
    """What a pause does with rollouts that are running."""

    DRAIN = "drain"
    """They run to their end."""
    ABORT = "abort"
    """They are ended and queued again; what they did is kept as an interrupted attempt."""


class PauseRequest(Wire):
    """Start no more rollouts until the service is resumed."""

    mode: PauseMode = PauseMode.DRAIN
    model: Name | None = None
    """Only rollouts on this model (default: all)."""
    wait_sec: float = Field(default=0, ge=0, le=3600)
    """How long the reply waits until nothing runs any more."""


class ServiceView(Reply):
    """The state of the service, as far as the caller may see it."""

    version: str
    paused: tuple[str, ...] = ()
    """Models whose rollouts are not started; '*' for all."""
    draining: bool = False
    """The server is about to stop."""
    running: int
    queued: int
    done: int


class Event(Reply):
    """One event of a rollout: of its life, a phase, a model call, a score."""

    id: int
    """Counts the events of a rollout from 1; `Last-Event-ID` continues after it."""
    type: Literal["queued", "started", "phase", "call", "attempt", "done"]
    rollout: str
    time: float
    data: dict[str, Any] = Field(default_factory=dict)


class RunRequest(Wire):
    """A whole run on tasks of the served set: `whet run` on the server."""

    task: tuple[Name, ...] = Field(default=(), max_length=1000)
    """Only tasks with these ids, or with ids that match a pattern such as 'fix-*'."""
    split: Split | None = None
    limit: int | None = Field(default=None, ge=1)
    agents: tuple[Name, ...] = Field(default=(), max_length=64)
    models: tuple[Name, ...] = Field(default=(), max_length=64)
    skills: tuple[Name, ...] = Field(default=(), max_length=64)
    """Skills that the server offers; 'none' is an arm without one."""
    samples: int = Field(default=1, ge=1, le=MAX_SAMPLES)
    concurrency: int | None = Field(default=None, ge=1, le=64)
    max_cost: float | None = Field(default=None, gt=0)
    """Dollars."""
    max_tokens: int | None = Field(default=None, gt=0)


class ArmView(Reply):
    """One arm of a run, as `whet show` prints it."""

    agent: str
    model: str
    skill: str | None
    scored: int
    missing: dict[str, int]
    not_run: int
    mean: float | None
    low: float | None
    """95 % interval of the mean."""
    high: float | None


class RunView(Reply):
    """A run on the server."""

    id: str
    status: Status
    outcome: Literal["finished", "failed", "cancelled"] | None = None
    reason: str = ""
    planned: int
    done: int
    arms: tuple[ArmView, ...] = ()
    created: float


class ComparisonRequest(Wire):
    """Compare the arms of one run, or two runs, on the tasks that both did."""

    run: Name
    """Id of a run; 'served' for all rollouts that the caller may see."""
    other: Name | None = None
    by: Literal["agent", "model", "skill"] | None = None


class Problem(Reply):
    """Why a request was refused."""

    error: str
    """One line that names what is wrong and what was expected."""
    code: str
    """A word for programs: invalid, not-found, unauthorized, forbidden, busy, conflict, draining."""
