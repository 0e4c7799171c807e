"""The arguments of the tools, and the requests that they become."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from whet.client.models import MAX_SAMPLES, Endpoint, OnFailure, RolloutRequest
from whet.client.openenv_models import BLACK_BOX, TRANSPARENT_PROXY
from whet.serve.openenv.catalog import NEITHER, ResolvedEndpoint, resolve
from whet.tasks.task import OPENENV_WORKDIR, TaskLimits

COMMAND_SEC = 120.0
"""Wall time of each set-up and verify command, as OpenEnv's clients expect it."""
SHOWN_ERRORS = 20
RUN_ROLLOUT, RUN_TASK, LIST_TASKS = "run_rollout", "run_task", "list_tasks"


class ArgumentError(Exception):
    """A call that cannot be a rollout. The text is for the caller."""


class InvalidArgumentsError(Exception):
    """Arguments of a wrong type or value. The text is for the caller."""


class _Arguments(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True, use_attribute_docstrings=True
    )


class _Policy(_Arguments):
    """The model and how it is asked."""

    endpoint: str = ""
    """Kind of endpoint: vllm, openai or hf_router. The server's environment has its address."""
    base_url: str = ""
    """Address of the model, in place of the catalog's."""
    api_key: str = Field(default="", repr=False)
    """Key of the model, in place of the catalog's. It is in memory while the rollout lasts, and written nowhere."""
    model: str = ""
    """Name of the model there; without endpoint and base_url, the name of a model that this server offers."""


class RunRolloutArguments(_Policy):
    """The arguments of `run_rollout`: OpenEnv's fourteen, then whet's own."""

    model_config = ConfigDict(title=f"call[{RUN_ROLLOUT}]")

    instruction: str = ""
    """What the agent is to do."""
    setup: list[str] | None = None
    """Shell commands before the agent, one by one. The first that fails ends the rollout."""
    verify: list[str] | None = None
    """Shell commands after the agent. The reward is the share that exits with 0, or the number that one of them writes
    into /home/user/logs/verifier/reward.txt."""
    task_id: str = Field(default="", max_length=200)
    """Echoed."""
    mode: str = TRANSPARENT_PROXY
    """transparent_proxy, or black_box: no tokens are requested and none are returned."""
    disable_thinking: bool | None = None
    """Ask the chat template for replies without thinking (default: that of the catalog, else no)."""
    max_tokens_cap: int = 4096
    """The most that a model call may sample; 0 for no cap."""
    top_logprobs: int = Field(default=5, ge=0, le=100)
    """Likely tokens that the model is asked to report for each sampled one."""
    agent_timeout_s: float = Field(default=600.0, gt=0)
    """Wall time of the agent."""
    template: str = ""
    """Name of a sandbox image. This server's sandboxes have none, so it is only noted in the result."""

    agent: str = ""
    """An agent that this server offers."""
    skill: str = ""
    """A skill that this server offers, by name; 'none' for none."""
    task: str = ""
    """A task of the served set, in place of instruction, setup and verify."""
    samples: int = Field(default=1, ge=1, le=MAX_SAMPLES)
    """Rollouts of this task. With several, the results are in `rollouts`."""
    seed: int | None = Field(default=None, ge=0)
    """Sent to the model with every call, plus the number of the sample (default: the seed of reset)."""
    tools: list[dict[str, Any]] | None = None
    """Programs that the agent finds on its PATH: name, description, and a fixed answer or a shell script."""
    limits: dict[str, Any] | None = None
    """Further limits of a rollout: turns, total_tokens, cost, memory_mb ..."""
    sampling_params: dict[str, Any] | None = None
    """Fields of every model request, such as temperature and top_p, in place of the agent's values."""
    capture: Literal["auto", "none", "vllm", "sglang", "llamacpp", "openai"] = "auto"
    """Which kind of server is asked for token ids and log-probabilities (auto: by its address)."""
    max_result_bytes: Annotated[int, Field(ge=10_000)] | None = None
    """The largest result that the caller takes. Token arrays are left out of a larger one, and `truncated` is set."""


class RunTaskArguments(_Policy):
    """The arguments of `run_task`."""

    model_config = ConfigDict(title=f"call[{RUN_TASK}]")

    task: str
    """Id of a task of the served set."""
    agent: str = ""
    """An agent that this server offers."""
    skill: str = ""
    """A skill that this server offers, by name; 'none' for none."""
    samples: int = Field(default=1, ge=1, le=MAX_SAMPLES)
    """Rollouts of this task. With several, the results are in `rollouts`."""
    seed: int | None = Field(default=None, ge=0)
    """Sent to the model with every call, plus the number of the sample (default: the seed of reset)."""
    mode: str = TRANSPARENT_PROXY
    """transparent_proxy, or black_box: no tokens are requested and none are returned."""
    limits: dict[str, Any] | None = None
    """Limits of a rollout, in place of the task's own."""
    max_result_bytes: Annotated[int, Field(ge=10_000)] | None = None
    """The largest result that the caller takes. Token arrays are left out of a larger one, and `truncated` is set."""


class ListTasksArguments(_Arguments):
    """The arguments of `list_tasks`."""

    model_config = ConfigDict(title=f"call[{LIST_TASKS}]")

    split: str = ""
    """Only tasks of this split: train, validation or test."""
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=100, ge=1, le=1000)


def input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments, without the titles that pydantic makes up."""
    made = model.model_json_schema()
    properties = {name: _describe_argument(one) for name, one in made["properties"].items()}
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": made["required"]} if made.get("required") else {})


def _describe_argument(made: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in made.items() if key != "title"}
    return kept | ({"description": " ".join(made["description"].split())} if "description" in made else {})


def make_request(
    given: RunRolloutArguments | RunTaskArguments,
    offered: Sequence[str],
    env: Mapping[str, str],
    seed: int | None,
) -> RolloutRequest:
    """The request that a call stands for. `offered` are the server's models, `seed` is that of the session.

    ArgumentError has the text of OpenEnv's own server where that has one.
    """
    if given.mode not in {TRANSPARENT_PROXY, BLACK_BOX}:
        raise ArgumentError(f"unknown mode: {given.mode!r}; expected one of {(TRANSPARENT_PROXY, BLACK_BOX)}")
    policy = _choose_model(given, offered, env)
    common = {
        "agent": given.agent or None,
        "skill": given.skill or None,
        "samples": given.samples,
        "seed": seed if given.seed is None else given.seed,
        # Every sample has its place in the result, also one that failed.
        "on_failure": OnFailure.NULL,
        "metadata": {"mode": given.mode},
        **policy,
    }
    try:
        if isinstance(given, RunTaskArguments) or given.task:
            return RolloutRequest(**common, **_served_task(given))
        return RolloutRequest(**common, **_described_task(given))
    except ValidationError as error:
        title = type(given).model_config.get("title", "")
        raise InvalidArgumentsError(_describe(error, str(title))) from None


def _served_task(given: RunRolloutArguments | RunTaskArguments) -> dict[str, Any]:
    described = ("instruction", "setup", "verify", "tools")
    if also := next((name for name in described if getattr(given, name, None)), None):
        raise ArgumentError(f"has 'task' and '{also}'; expected the task as it is served, or an instruction")
    return {"task": given.task, "limits": TaskLimits.model_validate(given.limits) if given.limits else None}


def _described_task(given: RunRolloutArguments) -> dict[str, Any]:
    if not given.instruction:
        raise ArgumentError("instruction is required")
    setup, verify = given.setup or [], given.verify or []
    limits = {
        "agent_sec": given.agent_timeout_s,
        "command_sec": COMMAND_SEC,
        # Each command has its own limit, so all of them together may take as long.
        "setup_sec": COMMAND_SEC * max(1, len(setup)),
        "verify_sec": COMMAND_SEC * max(1, len(verify)),
        **(given.limits or {}),
    }
    return {
        "instruction": given.instruction,
        "setup": setup,
        "verify": verify,
        "tools": given.tools or (),
        "task_id": given.task_id,
        "workdir": OPENENV_WORKDIR,
        "keep": "files",
        "limits": TaskLimits.model_validate(limits),
    }


def _choose_model(
    given: RunRolloutArguments | RunTaskArguments, offered: Sequence[str], env: Mapping[str, str]
) -> dict[str, Any]:
    """The model of a call: one that the server offers, or an endpoint."""
    named = any((given.endpoint, given.base_url, given.api_key))
    if not named and (given.model in offered or (not given.model and given.task and offered)):
        _refuse_settings(given)
        return {"model": given.model or None}
    try:
        found = resolve(given.endpoint, base_url=given.base_url, api_key=given.api_key, model=given.model, env=env)
    except ValueError as error:
        names = f"; or only model=..., one of {tuple(offered)}" if str(error) == NEITHER and offered else ""
        raise ArgumentError(f"{error}{names}") from None
    return {"endpoint": _endpoint(given, found)}


def _refuse_settings(given: RunRolloutArguments | RunTaskArguments) -> None:
    """A model of the server is called with the server's settings."""
    settings = {"disable_thinking": None, "sampling_params": None, "capture": "auto"}
    if changed := next((name for name, unset in settings.items() if getattr(given, name, unset) != unset), None):
        raise ArgumentError(
            f"'{changed}' is for a model of yours, named by base_url or endpoint; the server's has its own"
        )


def _endpoint(given: RunRolloutArguments | RunTaskArguments, found: ResolvedEndpoint) -> Endpoint:
    full = given if isinstance(given, RunRolloutArguments) else RunRolloutArguments(mode=given.mode)
    capture = "none" if given.mode == BLACK_BOX else found.capture if full.capture == "auto" else full.capture
    disable = found.disable_thinking if full.disable_thinking is None else full.disable_thinking
    fields: dict[str, Any] = dict(full.sampling_params or {})
    if disable:
        fields.setdefault("chat_template_kwargs", {"enable_thinking": False})
    if capture != "none":
        fields.setdefault("top_logprobs", full.top_logprobs)
    try:
        return Endpoint(
            base_url=found.base_url,
            model=found.model,
            api_key=SecretStr(found.api_key),
            capture=capture,
            set=fields,
            max_tokens=full.max_tokens_cap if full.max_tokens_cap > 0 else None,
        )
    except ValidationError as error:
        raise InvalidArgumentsError(_describe(error, f"call[{RUN_ROLLOUT}]")) from None


def _describe(error: ValidationError, title: str) -> str:
    """The errors in pydantic's own form, without the values: they may hold a key."""
    lines = [f"{error.error_count()} validation error{'s'[: error.error_count() > 1]} for {title}"]
    for one in error.errors(include_input=False, include_url=False, include_context=False)[:SHOWN_ERRORS]:
        lines += [".".join(map(str, one["loc"])), f"  {one['msg']} [type={one['type']}]"]
    return "\n".join(lines)
