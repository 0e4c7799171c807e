"""Episode: one rollout that is done, as exporters see it: its exchanges, its reward, and its place among others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.exchange import CallError, Exchange, Speaker, Usage
from whet.trace.training.versions import WeightUpdate


@dataclass(frozen=True, slots=True)
class CallRecord:
    """An exchange without its bodies."""

    index: int
    dialect: str
    speaker: Speaker | None
    status: int | None
    error: CallError | None
    started: float
    first_byte: float | None
    ended: float
    usage: Usage | None
    tokens: str | None
    replayed: bool
    from_record: bool
    """It was answered as in the rollout that this one is a fork of."""
    request_bytes: int
    response_bytes: int


def record_of(exchange: Exchange) -> CallRecord:
    """What is kept of an exchange when its bodies have been read."""
    return CallRecord(
        exchange.index,
        exchange.dialect,
        exchange.speaker,
        exchange.status,
        exchange.error,
        exchange.started,
        exchange.first_byte,
        exchange.ended,
        exchange.usage,
        exchange.tokens,
        exchange.replayed,
        exchange.from_record,
        len(exchange.request),
        len(exchange.response),
    )


@dataclass(frozen=True, slots=True)
class Episode:
    """One rollout with the attempt that counts."""

    rollout: str
    group: str
    """Rollouts of one group tried the same task with the same agent, model and skill; a request of a client is a group
    of its own."""
    task: str
    agent: str
    model: str
    skill: str
    """Digest; empty without one."""
    sample: int
    attempt: int
    reward: float | None
    """None when it was not scored. It is never 0 instead, unless it is `substituted`."""
    exchanges: Iterable[Exchange]
    """In order of their numbers. Whoever derives something goes through them once."""
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    """By judge."""
    advantage: float | None = None
    """By how many deviations the reward is above its group's mean; None when the group tells nothing."""
    cause: str | None = None
    """Why there is no reward."""
    stop: str | None = None
    """Why the agent's part ended."""
    version: str | None = None
    """Of the agent's program."""
    tags: tuple[str, ...] = ()
    split: str = ""
    """Of its task: train, val or test; empty without one."""
    flags: tuple[str, ...] = ()
    started: float = 0.0
    ended: float | None = None
    cost: float | None = None
    weight_version: str | None = None
    """Of the model, as the user says. What the engine reports with a reply comes first, then what `updates` say."""
    updates: Sequence[WeightUpdate] = ()
    """The log of the model's weights, in order."""
    substituted: bool = False
    """The reward is a 0 that was requested in place of a missing one."""
    labels: Sequence[Mapping[str, Any]] | None = None
    """What people said of it; None when the export does not ask for it."""
