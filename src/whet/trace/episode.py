"""Episode: one rollout that is done, as exporters see it: its exchanges, its reward, and its place among others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from whet.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Episode:
    """One rollout with the attempt that counts."""

    rollout: str
    group: str
    """Rollouts of one group tried the same task with the same agent, model and skill."""
    task: str
    agent: str
    model: str
    skill: str
    """Digest; empty without one."""
    sample: int
    attempt: int
    reward: float | None
    """None when it was not scored. It is never 0 instead."""
    exchanges: Sequence[Exchange]
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
    flags: tuple[str, ...] = ()
    started: float = 0.0
    ended: float | None = None
    cost: float | None = None
