"""The arguments of the tools: the few fields of a request that an agent needs, flat, each with a description for it.

They import nothing of a run, so that the tools are listed at once. `make_request` builds the request of the service.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from whet.validation_errors import refuse_input

if TYPE_CHECKING:
    from whet.client.models import RolloutRequest

MAX_SAMPLES = 32
"""The most rollouts of one call: more do not fit into an answer."""
LONGEST_WAIT = 3600.0
LIMITS = {"max_seconds": "agent_sec", "max_calls": "turns", "max_tokens": "total_tokens", "max_cost": "cost"}
"""The limits that an agent may set, and what they are called in a request."""


def _as_list(given: Any) -> Any:
    """Models often give a single command where a list is expected."""
    return [given] if isinstance(given, str) else given


Commands = Annotated[list[str], BeforeValidator(_as_list)]


class Arguments(BaseModel):
    """What all arguments share. Unknown ones are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


class How(Arguments):
    """Who does the task, how many times, and within which limits."""

    agent: str | None = Field(None, description="Agent that does the task. Default: the server's.")
    model: str | None = Field(None, description="Model that the agent calls. Default: the server's.")
    skill: str | None = Field(
        None, description="Skill that the agent gets, by name; 'none' for no skill. Default: the server's."
    )
    samples: int = Field(1, ge=1, le=MAX_SAMPLES, description="How many independent rollouts to run: a group.")
    max_seconds: float | None = Field(
        None, gt=0, description="Wall time of the agent. When it is up, what the agent did is judged."
    )
    max_calls: int | None = Field(None, gt=0, description="Most model calls of one rollout.")
    max_tokens: int | None = Field(None, gt=0, description="Most tokens of one rollout, input and output together.")
    max_cost: float | None = Field(None, gt=0, description="Most dollars of one rollout.")


class _Served(Arguments):
    task: str = Field(min_length=1, description="Id of the task, as list_tasks gives it.")


class _Described(Arguments):
    task: str | None = Field(
        None, description="Id of a task, as list_tasks gives it. Give either this or an instruction."
    )
    instruction: str | None = Field(None, description="What the agent is to do, if no task is given.")
    setup: Commands = Field(
        default_factory=list,
        description="Shell commands that prepare the working directory before the agent starts, with an instruction.",
    )
    verify: Commands = Field(
        default_factory=list,
        description="Shell commands that check the work afterwards, with an instruction. The score is the share of "
        "them that exit with 0. The agent never sees them. Without any, the rollout has no score.",
    )
    files: dict[str, str] = Field(
        default_factory=dict,
        description="Text files of the working directory before the agent starts, by path, with an instruction.",
    )
    answer: str | None = Field(None, description="The expected final answer, with an instruction.")


class RunTask(How, _Served):
    """Run a task of the served set."""


class RunRollout(How, _Described):
    """Run a task of the served set, or one that is described here."""


class OneRollout(Arguments):
    """Names a rollout or a group."""

    id: str = Field(min_length=1, description="Id of a rollout, or of a group of several samples.")


class WaitRollout(OneRollout):
    max_seconds: float = Field(
        45, ge=0, le=LONGEST_WAIT, description="Return after this time even if it is not done. Call again then."
    )


class ListRollouts(Arguments):
    before: str | None = Field(None, description="Only rollouts older than the one with this id; for the next page.")


class ListTasks(Arguments):
    task: str | None = Field(
        None, description="Only this id, or ids that match a pattern such as 'fix-*'. One task is shown in full."
    )
    split: Literal["train", "val", "test"] | None = Field(None, description="Only tasks of this split.")
    first: int = Field(1, ge=1, alias="from", description="Number of the first task to list; for the next page.")


class ReadTrace(Arguments):
    id: str = Field(min_length=1, description="Id of a rollout that is done.")
    first: int = Field(1, ge=1, alias="from", description="Number of the first step to read.")
    last: int | None = Field(
        None, ge=1, alias="to", description="Number of the last step. The same as 'from' shows one step in full."
    )


class Compare(Arguments):
    run: str = Field("served", description="Id of a run; 'served' for the rollouts of this server that you may see.")
    other: str | None = Field(None, description="Id of a second run. Without it, the arms of the one run are compared.")
    by: Literal["agent", "model", "skill"] | None = Field(
        None, description="Compare only arms that differ in this and in nothing else."
    )


def make_request(given: How) -> "RolloutRequest":
    """The request of the service. UserError when the arguments do not fit together."""
    from whet.client.models import RolloutRequest

    fields = {
        name: value for name, value in given.model_dump(exclude_unset=True).items() if value not in (None, [], {})
    }
    limits = {LIMITS[name]: fields.pop(name) for name in LIMITS if name in fields}
    try:
        # An agent wants to see the rollouts of a group that failed, too.
        return RolloutRequest.model_validate({**fields, "limits": limits or None, "on_failure": "null"})
    except ValidationError as error:
        raise refuse_input(error, "arguments", RolloutRequest) from error
