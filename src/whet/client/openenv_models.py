"""What the OpenEnv tool `run_rollout` returns. Names, types and defaults are those of OpenEnv's `opencode_env`; what it
does not have is added with defaults, so its own models read these results too."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from whet.scoring.score import Cause

TRANSPARENT_PROXY, BLACK_BOX = "transparent_proxy", "black_box"


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class RolloutTurn(_Result):
    """One model call of a rollout, in order of arrival."""

    turn: int
    finish_reason: str | None = None
    completion_tokens: list[str] = Field(default_factory=list)
    """The sampled tokens as text, as far as the engine reports it."""
    completion_token_ids: list[int] = Field(default_factory=list)
    per_token_logps: list[float] = Field(default_factory=list)
    """One for each id, or none at all."""
    latency_s: float = 0.0
    timestamp: float = 0.0
    """When the call began, in seconds since the epoch."""
    upstream_status: int | None = None
    upstream_error: dict[str, Any] | None = None

    node_id: str = ""
    parent_id: str | None = None
    """The call whose prompt and reply begin this call's prompt, token by token."""
    role: Literal["agent", "auxiliary", "discarded"] = "agent"
    """auxiliary: a title, a summary or the like; discarded: a reply that the agent did not use."""
    trainable: bool = False
    prompt_token_ids: list[int] = Field(default_factory=list)
    loss_mask: list[int] = Field(default_factory=list)
    """Over prompt and completion. 1 where a token may be trained."""
    model: str = ""
    usage: dict[str, int] | None = None
    sampling_params: dict[str, Any] = Field(default_factory=dict)
    """As they were sent to the model."""
    requested_sampling_params: dict[str, Any] = Field(default_factory=dict)
    """As the agent asked for them."""
    text: str = ""
    tool_calls: list[dict[str, Any]] = Field(default_factory=list)
    request_messages: list[dict[str, Any]] = Field(default_factory=list)
    request_tools: list[dict[str, Any]] | None = None


class CommandResult(_Result):
    """A command of `setup` or `verify`."""

    cmd: str
    exit_code: int
    """-1 when the command could not be run, or was killed."""
    stdout: str = ""
    """The last 2,000 characters, as of `stderr`."""
    stderr: str = ""
    duration_s: float = 0.0


class RolloutResult(_Result):
    """What came of a rollout, or of a group of them."""

    task_id: str = ""
    sandbox_id: str = ""
    """The same as `rollout_id`."""
    reward: float | None = None
    agent_exit_code: int | None = None
    wall_s: float = 0.0
    mode: str = TRANSPARENT_PROXY
    setup_results: list[CommandResult] = Field(default_factory=list)
    verify_results: list[CommandResult] = Field(default_factory=list)
    proxy_turns: list[RolloutTurn] = Field(default_factory=list)
    files: dict[str, str] = Field(default_factory=dict)
    files_extra: list[str] = Field(default_factory=list)
    agent_log_tail: str = ""
    proxy_log_tail: str = ""
    error: str | None = None

    rollout_id: str = ""
    """Under this id the server keeps the rollout: /v1/rollouts/ID, with /trace, /rows and /files."""
    group_id: str = ""
    agent: str = ""
    model: str = ""
    skill: str | None = None
    answer: str = ""
    """The agent's final answer."""
    reward_source: Literal["verifier", "exit_codes", "judges", "mean"] | None = None
    """verifier: a verify command wrote reward.txt; exit_codes: the share of verify commands that passed; mean: of the
    scored rollouts of a group."""
    rewards: dict[str, float | None] = Field(default_factory=dict)
    """By judge."""
    rollout_type: Literal["train", "eval"] = "eval"
    """train: at least one token may be trained."""
    capture_level: Literal["tokens", "logprobs", "text"] = "text"
    findings: list[str] = Field(default_factory=list)
    """What a reader should know of the result, one line each."""
    phase_timings: dict[str, float] = Field(default_factory=dict)
    timed_out: bool = False
    exception_type: Cause | str | None = None
    """Why there is no reward, as a word."""
    n_trainable_tokens: int = 0
    budget_stop_count: int = 0
    """Calls that the gateway refused because a limit was reached."""
    weight_version: str | None = None
    """The newest version of the weights that sampled it."""
    weight_versions: list[str] = Field(default_factory=list)
    straddled: bool = False
    """The weights changed while it ran."""
    usage: dict[str, Any] = Field(default_factory=dict)
    training_trace: dict[str, Any] | None = None
    """The calls that may be trained, as OpenEnv's TrainingTrace."""
    truncated: bool = False
    """The result was too large. What was left out is at /v1/rollouts/ID."""
    truncated_fields: list[str] = Field(default_factory=list)
    rollouts: list["RolloutResult"] = Field(default_factory=list)
    """With `samples` > 1: the rollouts, in order. Then `reward` is the mean of their rewards, `rollout_id` is empty,
    and there are no turns outside of this list."""


class State(BaseModel):
    """The state of an OpenEnv session."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    episode_id: str | None = None
    step_count: int = Field(default=0, ge=0)
    rollouts_completed: int = 0
    last_reward: float | None = None
    last_task_id: str | None = None
    last_sandbox_id: str | None = None
    running_rollouts: list[str] = Field(default_factory=list)
    """Ids of rollouts that a call of this session is waiting for. Their events are at /v1/rollouts/ID/events."""
