"""The tries at one served rollout: as `whet run` makes them, and those that the request asks for beyond."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from whet.client.models import OnFailure, Phase
from whet.exchange import Exchange
from whet.gateway import Model
from whet.rollout import observer
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, Rollout
from whet.runs.scheduler import MAX_ATTEMPTS, Ended, HopelessError, Stopped, run_until_scored
from whet.runs.store.schema import AttemptRow, RolloutRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.scoring import Cause
from whet.serve.events import PHASES_LOG, EventLog, call_data
from whet.serve.requests import Terms

SEED_DIALECTS = frozenset({"chat", "gemini"})
"""The APIs that take a seed."""


@dataclass(frozen=True, slots=True)
class Tries:
    """How far the tries at a rollout are. Attempts that were interrupted are none."""

    failed: int
    is_over: bool
    """`whet run` would try it no more."""
    extra: int
    """Tries after that."""


def count_tries(attempts: Sequence[AttemptRow]) -> Tries:
    """Count the stored attempts at a rollout that has no score."""
    causes = [one.cause for one in attempts if one.result is not None and one.cause is not Cause.INTERRUPTED]
    last = next((place for place, cause in enumerate(causes, 1) if _ends_tries(place, cause)), None)
    return Tries(len(causes), last is not None, len(causes) - last if last is not None else 0)


def _ends_tries(place: int, cause: Cause | None) -> bool:
    return place >= MAX_ATTEMPTS or cause is None or not cause.worth_retrying


class AttemptWatch:
    """Turns the progress of a rollout into events, and keeps what its views need."""

    def __init__(self, log: EventLog, attempts: int) -> None:
        """`attempts` is how many there were before."""
        self._log = log
        self._attempts = attempts
        self._phases: list[str] | None = None
        """Of the attempt under way."""
        self.phase: Phase | None = None
        self.result: Result | None = None
        """Of the last attempt that ended."""
        self.may_try_again: Callable[[Result], bool] = lambda _: False
        """Whether the request asks for another try after the last one that `whet run` makes."""

    def on_phase(self, phase: observer.Phase) -> None:
        self._begin().append(phase)
        self.phase = Phase(phase)
        self._log.add("phase", phase=phase)

    def on_exchange(self, exchange: Exchange) -> None:
        self._log.add("call", exchange.ended, **call_data(exchange))

    def on_event(self, event: Ended | Stopped) -> None:
        """An attempt has ended and is stored."""
        if isinstance(event, Ended):
            self.result = event.result
            self._end(event.result.score.cause, again=event.again or self.may_try_again(event.result))

    def interrupt(self, *, again: bool) -> None:
        """The attempt under way was interrupted, and that is stored."""
        self._end(Cause.INTERRUPTED, again=again)

    def store_interruption(self, store: Store) -> bool:
        """Store that the attempt under way was interrupted; whether there was one."""
        if not store.interrupt_open_attempts(self._log.rollout):
            return False
        last = store.attempts_of(self._log.rollout)[-1]
        store.add_log(last.id, PHASES_LOG, " ".join(self._phases or ()).encode())
        return True

    def _begin(self) -> list[str]:
        if self._phases is None:
            self._attempts += 1
            self._phases = []
            self._log.add("started", attempt=self._attempts)
        return self._phases

    def _end(self, cause: Cause | None, *, again: bool) -> None:
        self._begin()
        self._phases, self.phase = None, None
        self._log.add("attempt", attempt=self._attempts, cause=cause, again=again)


@dataclass(frozen=True, slots=True)
class RolloutRun:
    """One rollout, with all that its attempts need."""

    row: RolloutRow
    rollout: Rollout
    resources: RunResources
    writer: StoreWriter
    terms: Terms
    watch: AttemptWatch
    before: Sequence[AttemptRow] = field(default_factory=tuple)

    async def until_over(self) -> None:
        """Try until it is scored or no try is left. What came of it is in the store, and in `watch.result`."""
        tries = count_tries(self.before)
        left = self.terms.retries - tries.extra if self.terms.on_failure is OnFailure.RETRY else 0
        failed = tries.failed

        def may_try_again(result: Result | None) -> bool:
            has_failed = result is None or is_failure(result)
            return left > 0 and has_failed and self.resources.gateway.exhausted() is None

        self.watch.may_try_again = may_try_again
        if not tries.is_over:
            await self._try(failed, MAX_ATTEMPTS)
            failed = MAX_ATTEMPTS
        while may_try_again(self.watch.result):
            left -= 1
            await self._try(failed, failed + 1)
            failed += 1

    async def _try(self, failed: int, tries: int) -> None:
        watch = self.watch
        # The attempt is stored with its cause. Other rollouts of the model may have another address by now.
        with suppress(HopelessError):
            await run_until_scored(
                self.row, self.rollout, self.resources, self.writer, watch.on_event, failed, tries, watch
            )


def is_failure(result: Result) -> bool:
    """Whether the machinery failed."""
    return result.score.value is None and result.score.cause is not Cause.UNJUDGED


def with_seed(model: Model, seed: int | None, place: int) -> Model:
    """The model with the seed of a sample in every call, if its API has one."""
    if seed is None or model.dialect not in SEED_DIALECTS:
        return model
    others = tuple(one for one in model.set if one[0] != "seed")
    return replace(model, set=(*others, ("seed", str(seed + place).encode())))
