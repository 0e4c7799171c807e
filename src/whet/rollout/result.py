"""What a rollout is, and what comes of one attempt at it: the data, as it is stored."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from whet.agents import Agent, AgentReport
from whet.agents.tools import LoggedUse
from whet.exchange import Usage
from whet.gateway import Model, Session, Spent
from whet.gateway.prices import price_for
from whet.scoring import Score
from whet.skill import Skill
from whet.tasks import Task
from whet.text.plain import plain_value
from whet.text.redact import Redactor, mask
from whet.text.secrets import SecretMasker
from whet.trace.replay.session import Prefix
from whet.workspace import Change


@dataclass(frozen=True, slots=True)
class Rollout:
    """What to attempt."""

    id: str
    task: Task
    agent: Agent
    model: Model
    skill: Skill | None
    sample: int = 0
    """Rollouts with different sample numbers are independent: they do not share cached replies."""
    captured: bool = True
    """Whether the agent calls `model` through the gateway. If not, it calls its own model, unrecorded."""
    prefix: Prefix | None = None
    """The beginning of another rollout. This one repeats it before it calls the model itself."""


class Flag(StrEnum):
    """Something about a rollout that its score does not show."""

    NOT_CAPTURED = "not-captured"
    """The agent called its own model, so only its transcript is recorded."""
    PLANTED_REWARD = "planted-reward"
    """The agent wrote into the verifier's folder. What it wrote was not read."""
    CANARY = "canary"
    """The agent saw a text that is planted in files hidden from agents."""
    SELF_JUDGED = "self-judged"
    """The rollout's own model judged it."""
    MODEL_FAILED = "model-failed"
    """The model failed because of the rollout itself, so the work was judged anyway."""
    AGENT_FAILED = "agent-failed"
    """The agent worked before it failed, or in other rollouts of the run, so the work was judged anyway."""
    DRAINED = "drained-budget"
    """A limit of the run ended the rollout, which alone used more than half of it, so the work was judged anyway."""
    EMPTY_REPLY = "empty-reply"
    """The model gave an empty reply, no text and no tool call, and was asked again."""
    DIVERGED = "diverged"
    """A fork continued although its agent did something else than was recorded."""


SpeakerTokens = tuple[int, int]
"""Input and output tokens."""


class Spending(BaseModel):
    """What an attempt cost, as the gateway counted it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    captured: bool = True
    """Whether the gateway saw the calls at all."""
    calls: int = 0
    speakers: dict[str, int] = Field(default_factory=dict)
    """Calls of the main thread, of each sub-agent, and of each kind of helper."""
    tokens: dict[str, SpeakerTokens] = Field(default_factory=dict)
    """Input and output tokens by speaker. Runs of earlier versions do not have them."""
    input_tokens: int = 0
    output_tokens: int = 0
    from_record: int = 0
    """Of the calls, those answered from the record of the forked rollout. Their tokens are not counted."""
    uncounted_calls: int = 0
    """Calls whose reply did not report its tokens."""
    cost: float | None = None
    """Dollars; None when the model's price or a call's tokens are not known."""

    def __add__(self, other: "Spending") -> "Spending":
        speakers = Counter(self.speakers)
        speakers.update(other.speakers)
        return Spending(
            captured=self.captured and other.captured,
            calls=self.calls + other.calls,
            speakers=dict(speakers),
            tokens=_add_tokens(self.tokens, other.tokens),
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            from_record=self.from_record + other.from_record,
            uncounted_calls=self.uncounted_calls + other.uncounted_calls,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )

    def as_spent(self) -> Spent:
        """The same as the gateway's limits count it: a cost that is not known counts as nothing."""
        return Spent(self.calls, Usage(self.input_tokens, self.output_tokens), self.cost or 0.0)


def _add_tokens(one: dict[str, SpeakerTokens], other: dict[str, SpeakerTokens]) -> dict[str, SpeakerTokens]:
    """
    >>> _add_tokens({"main": (5, 1)}, {"main": (2, 2), "sub-agent": (3, 0)})
    {'main': (7, 3), 'sub-agent': (3, 0)}
    """
    none = (0, 0)
    return {
        who: (one.get(who, none)[0] + other.get(who, none)[0], one.get(who, none)[1] + other.get(who, none)[1])
        for who in {**one, **other}
    }


class SkillSeen(BaseModel):
    """Whether a skill reached the model. None where its text has no words to search for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shown: bool | None
    """The agent's prompts named it."""
    read: bool | None
    """Its text was in a prompt."""


class CommandResult(BaseModel):
    """A set-up command that was run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str
    exit_code: int | None
    output: str
    """The end of both streams."""
    stdout: str = ""
    """The end of it. Results of earlier versions have `output` only."""
    stderr: str = ""
    seconds: float
    timed_out: bool = False


class ForkReplay(BaseModel):
    """How far a fork followed the rollout that it repeats."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: int
    """The call of the main thread that the fork starts at, from 1."""
    given: int
    """How many calls of the main thread were answered from the record."""
    live_from: int | None
    """The first call of the main thread that went to the model; None when none did."""
    diverged: str | None
    """Where the agent did something else than was recorded."""
    unknown: int
    """Helper calls before `live_from` that are not recorded. They went to the model."""


class Result(BaseModel):
    """The outcome of an attempt. A failure is a result too: a missing score with its cause."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    score: Score
    judgements: dict[str, Score] = Field(default_factory=dict)
    failure: Score | None = None
    """What ended the rollout, if it caused that itself: the score that would be missing otherwise."""
    report: AgentReport | None = None
    limit: str | None = None
    """The limit that ended the agent's work, and how much of it was used."""
    skill: SkillSeen | None = None
    changes: tuple[Change, ...] = ()
    """What the agent changed in the working directory."""
    files: dict[str, bytes] = Field(default_factory=dict)
    """What small files hold that the agent added or changed, by their paths. They are stored as logs. If the task asks
    for it, other small files are among them."""
    files_left_out: tuple[str, ...] = ()
    """Paths that `files` would have too, but for their size, or because they are no files that can be read."""
    unseen: str | None = None
    """Why `changes` is incomplete, if it is."""
    tools: dict[str, int] | None = None
    """How often the model called each tool; None where that is not recorded."""
    tool_uses: tuple[LoggedUse, ...] = ()
    """Calls of the task's own tools, as the host answered them."""
    setup: tuple[CommandResult, ...] = ()
    """The task's set-up commands, with their output."""
    replay: ForkReplay | None = None
    """Only for a fork."""
    spending: Spending = Spending()
    judging: Spending | None = None
    """What the judges' own model calls cost, if there were any."""
    judged: int = 0
    """How often it was judged again since."""
    flags: tuple[str, ...] = ()
    seconds: dict[str, float] = Field(default_factory=dict)
    """Wall time of each phase."""


def encode_result(result: Result) -> bytes:
    """A result as it is stored: JSON without the logs."""
    logs: dict[str, Any] = {"report": {"stdout", "stderr", "transcript"}, "files": True}
    return Result.model_validate(plain_value(result.model_dump())).model_dump_json(exclude=logs).encode()


def decode_result(body: bytes) -> Result:
    """What `encode_result` wrote."""
    return Result.model_validate_json(body)


def redact_result(result: Result, redactor: Redactor) -> Result:
    """The result without known secrets and what looks like one, and without characters that cannot be stored."""
    known = mask(plain_value(result.model_dump()), redactor)
    return Result.model_validate(SecretMasker().value(known))


def session_spending(session: Session | None, model: Model) -> Spending:
    """What the calls of a session cost."""
    if session is None:
        return Spending()
    known = price_for(model) is not None and not session.totals.calls_without_usage
    return Spending(
        calls=session.totals.calls,
        speakers=dict(session.totals.speakers),
        tokens={who: (used.input, used.output) for who, used in session.totals.speaker_usage.items()},
        input_tokens=session.totals.usage.input,
        output_tokens=session.totals.usage.output,
        from_record=session.totals.from_record,
        uncounted_calls=session.totals.calls_without_usage,
        cost=session.totals.cost if known else None,
    )
