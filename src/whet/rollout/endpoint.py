"""Whether a model's endpoint works, and with its key: asked with a short question of whet's own.

An agent can provoke failures by what it sends. A question that no agent wrote distinguishes these from an outage.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from whet.exchange import CallError, Recorder
from whet.gateway import Gateway, Model, Session
from whet.rollout.model_client import QUESTION, ModelClient
from whet.scoring import JudgeError

PROBE_SEC = 60.0
REFUSALS = 3
"""After this many rollouts in a row whose key was refused, the key of a model that once answered is given up."""


class Health(StrEnum):
    """What became of the question."""

    UP = "up"
    """The endpoint answered it."""
    REFUSED = "refused"
    """The endpoint refused the key."""
    DOWN = "down"
    """Anything else."""


@dataclass(frozen=True, slots=True)
class Probe:
    health: Health
    session: Session | None
    """Where the question was asked; None when it was not."""


async def probe(gateway: Gateway, model: Model, record: Recorder) -> Probe:
    """Ask a model's endpoint a short question, past the cache."""
    session: Session | None = None
    health = Health.DOWN
    try:
        async with (
            asyncio.timeout(PROBE_SEC),
            ModelClient(gateway, {model.name: model}, model.name, record, "probe", cached=False) as client,
        ):
            try:
                await client.ask(None, QUESTION)
                health = Health.UP
            except JudgeError:
                pass
            finally:
                session = client.sessions.get(model.name)
    except TimeoutError:
        return Probe(Health.DOWN, session)
    if session is not None and session.totals.last_error is CallError.AUTH:
        health = Health.REFUSED
    return Probe(health, session)


class Keys:
    """Which models' keys are good, as far as a run has seen."""

    def __init__(self) -> None:
        self._good: set[str] = set()
        self._refused: dict[str, set[str]] = defaultdict(set)

    def accept(self, model: str) -> None:
        """The model gave a good reply."""
        self._good.add(model)
        self._refused[model].clear()

    def refuse(self, model: str, rollout: str) -> None:
        """A rollout ended with a refused key, and so did a question of whet's own."""
        self._refused[model].add(rollout)

    def are_bad(self, model: str) -> bool:
        """Whether the key is useless: it never worked in this run, or was refused several times in a row.

        >>> keys = Keys()
        >>> keys.refuse("m", "r1")
        >>> keys.are_bad("m"), keys.accept("m"), keys.refuse("m", "r2"), keys.are_bad("m")
        (True, None, None, False)
        """
        return len(self._refused[model]) >= (REFUSALS if model in self._good else 1)
