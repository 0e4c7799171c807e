"""Tells failures that a rollout brought about itself from outages. A rollout is judged in spite of the former."""

from dataclasses import dataclass

from whet.exchange import Recorder
from whet.gateway import Gateway, Model, Session
from whet.rollout.endpoint import Health, Keys, probe
from whet.scoring import Cause, Score

ENDPOINT = frozenset({Cause.MODEL, Cause.AUTH})
BLAMED = ENDPOINT | {Cause.AGENT, Cause.SANDBOX, Cause.INTERNAL}
"""Causes that an agent can bring about once its model has answered it."""


@dataclass(frozen=True, slots=True)
class Blamed:
    """Who brought a failure about."""

    own: bool
    """The rollout itself: its work is judged."""
    failure: Score
    """With what speaks for and against it in the details."""
    probed: Session | None = None
    """Where the endpoint was asked a question of whet's own."""


@dataclass(frozen=True, slots=True)
class _Try:
    up: bool
    """The endpoint answered a question of whet's own right after the failure."""
    heard: bool
    """Calls of the rollout itself went well before the failure."""


class Blame:
    """Decides over the tries of one rollout.

    A failure is its own when all its tries failed although the endpoint was up after each of them, or although each of
    them had good replies before. A refused key is its own as soon as the endpoint takes the same key from whet.
    """

    def __init__(self, gateway: Gateway, model: Model, keys: Keys, rollout: str) -> None:
        self._gateway, self._model, self._keys, self._rollout = gateway, model, keys, rollout
        self._tries: list[_Try] = []
        self.is_last = False
        """No other try follows. Until then every failure is for the next try to mend."""

    async def decide(self, failure: Score, session: Session, record: Recorder) -> Blamed:
        """Whether the failure that has ended a try is the rollout's own."""
        heard = session.totals.answered > 0
        if failure.cause not in ENDPOINT:
            self._tries.append(_Try(up=False, heard=heard))
            final = self.is_last or not (failure.cause and failure.cause.worth_retrying)
            return Blamed(final and self._all_heard, failure)
        asked = await probe(self._gateway, self._model, record)
        up = asked.health is Health.UP
        self._tries.append(_Try(up, heard))
        if up:
            self._keys.accept(self._model.name)
        elif failure.cause is Cause.AUTH and asked.health is Health.REFUSED:
            self._keys.refuse(self._model.name, self._rollout)
        own = (all(one.up for one in self._tries) or self._all_heard) if self.is_last else False
        details = {**failure.details, "endpoint": asked.health, "answered": session.totals.answered}
        told = failure.model_copy(update={"details": details})
        return Blamed(own or (up and failure.cause is Cause.AUTH), told, asked.session)

    @property
    def _all_heard(self) -> bool:
        return all(one.heard for one in self._tries)
