"""Whether a model's endpoint works, with its key and the model's name: asked with a short question of whet's own.

An agent can provoke failures by what it sends. A question that no agent wrote distinguishes these from an outage.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from whet.errors import UserError
from whet.exchange import CallError, Exchange, Recorder
from whet.gateway import Gateway, Model, Session
from whet.gateway.call_failures import is_permanent
from whet.rollout.model_client import QUESTION, ModelClient
from whet.scoring import JudgeError

PROBE_SEC = 60.0
REFUSALS = 3
"""After this many rollouts in a row that an endpoint refused for good, a model that once answered is given up."""


class Health(StrEnum):
    """What became of the question."""

    UP = "up"
    """The endpoint answered it."""
    REFUSED = "refused"
    """The endpoint refused the key."""
    REJECTED = "rejected"
    """The endpoint refused the request for good, such as a model that it does not know."""
    DOWN = "down"
    """Anything else."""


@dataclass(frozen=True, slots=True)
class Probe:
    health: Health
    session: Session | None
    """Where the question was asked; None when it was not."""

    @property
    def failure(self) -> str:
        """Why it was not answered."""
        return (self.session.totals.last_failure if self.session else "") or "no answer"


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
    elif session is not None and is_permanent(session.totals.last_error, session.totals.last_status):
        health = Health.REJECTED
    return Probe(health, session)


async def check_judge_models(gateway: Gateway, models: Mapping[str, Model]) -> None:
    """UserError when a model that judges ask does not answer; before anything is spent on rollouts."""

    async def forget(exchange: Exchange) -> None:
        pass

    for name, model in models.items():
        asked = await probe(gateway, model, forget)
        if asked.health is not Health.UP:
            raise UserError(f"judge model '{name}' does not answer: {asked.failure}; nothing was run")


class Endpoints:
    """Which models' endpoints work, as far as a run has seen."""

    def __init__(self) -> None:
        self._good: set[str] = set()
        self._refused: dict[str, dict[str, str]] = defaultdict(dict)

    def accept(self, model: str) -> None:
        """The model gave a good reply."""
        self._good.add(model)
        self._refused[model].clear()

    def refuse(self, model: str, rollout: str, failure: str) -> None:
        """The endpoint refused a rollout for good, and a question of whet's own too."""
        self._refused[model][rollout] = failure

    def why_useless(self, model: str) -> str:
        """Why no call to a model can succeed: it never answered in this run, or refused several rollouts in a row.
        Empty if it may work.

        >>> endpoints = Endpoints()
        >>> endpoints.refuse("m", "r1", "status 404")
        >>> endpoints.why_useless("m"), endpoints.accept("m"), endpoints.why_useless("m")
        ('status 404', None, '')
        """
        refused = list(self._refused[model].values())
        return refused[-1] if len(refused) >= (REFUSALS if model in self._good else 1) else ""
