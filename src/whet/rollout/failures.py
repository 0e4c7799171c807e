"""How an agent's part of a rollout ended, and who caused a failure: the rollout itself, or an outage.

A rollout that caused its failure is judged. After an outage there is nothing to judge, and the score is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from whet.agents import AgentReport, StopReason
from whet.exchange import CallError, Recorder
from whet.gateway import RETRIED, Gateway, Model, Session
from whet.gateway.call_failures import is_permanent
from whet.rollout.endpoint import Endpoints, Health, probe
from whet.scoring import Cause, Score
from whet.trace.replay.session import ReplaySession
from whet.workspace import Change

ENDPOINT_CAUSES = frozenset({Cause.MODEL, Cause.AUTH})
OWN_CAUSES = ENDPOINT_CAUSES | {Cause.AGENT, Cause.SANDBOX, Cause.INTERNAL}
"""Causes that an agent can bring about once its model has answered it."""
NOT_STARTED = frozenset({StopReason.CRASHED, StopReason.NO_MODEL_CALL})
WAITED = frozenset({StopReason.TIMEOUT, StopReason.IDLE})
PERMANENT = "permanent"
"""In the details of a failure: the endpoint refused every call, the last one in a way that a retry does not change."""


def find_failure(
    report: AgentReport, session: Session, replay: ReplaySession | None = None, *, must_call: bool = False
) -> Score | None:
    """A missing score when the agent could not do its work; None when the work can be judged. `must_call`: an agent
    that never called its model has not started."""
    if session.limits.ended_with_run:
        return Score.missing(Cause.INTERRUPTED, f"the run was stopped by limit {session.limits.ended_by}")
    if _key_refused(session):
        return Score.missing(Cause.AUTH, session.totals.auth_failure)
    if replay is not None and (fell_short := replay.fell_short()) is not None:
        return Score.missing(Cause.DIVERGED, fell_short)
    if session.totals.cache_missed:
        return Score.missing(Cause.CACHE, "a reply is not in the cache, and --cache replay-only asks no model")
    if _model_failed(session):
        details = {PERMANENT: True} if _is_refused_for_good(session) else {}
        return Score.missing(Cause.MODEL, session.totals.last_failure, **details)
    if session.totals.calls and not session.totals.answered and report.stop is StopReason.TIMEOUT:
        return Score.missing(Cause.MODEL, f"{session.model.url} answered no call in the agent's time")
    if session.totals.calls == 0 and (report.stop in NOT_STARTED or (must_call and report.stop in WAITED)):
        return Score.missing(Cause.AGENT, _explain_silence(report), before_any_call=True)
    if report.stop is StopReason.FAILED:
        return Score.missing(Cause.AGENT, f"the agent answered with an error of its own: {report.error}")
    return None


def describe_ending(report: AgentReport | None, limit: str | None, changes: Sequence[Change]) -> str:
    """How the agent's work ended, if that may explain a low score; otherwise nothing."""
    if report is None:
        return ""
    seconds = f"after {report.seconds:.0f} s"
    match report.stop:
        case StopReason.FINISHED:
            return "" if report.text.strip() or changes else "the agent gave no answer and changed nothing"
        case StopReason.TIMEOUT:
            return f"the agent ran out of time {seconds}"
        case StopReason.IDLE:
            return f"the agent was idle for too long and was stopped {seconds}"
        case StopReason.STORAGE:
            return "the agent was stopped: it wrote more than the box may hold"
        case StopReason.LIMIT:
            return f"the agent was stopped by limit {limit}" if limit else "the agent was stopped by a limit"
        case StopReason.CRASHED:
            return f"the agent crashed with exit code {report.exit_code}"
        case StopReason.REFUSED:
            return "the model declined to answer"
        case _:
            return f"the agent ended with '{report.stop}'"


def stop_reason(report: AgentReport, session: Session, *, must_call: bool) -> StopReason:
    """Why the agent's part ended. What the gateway knows takes precedence over the program's own report."""
    if session.limits.ended_by is not None:
        return StopReason.IDLE if session.limits.ended_by.limit == "idle_sec" else StopReason.LIMIT
    if _key_refused(session):
        return StopReason.AUTH
    if must_call and session.totals.calls == 0 and report.stop is not StopReason.TIMEOUT:
        return StopReason.NO_MODEL_CALL
    return report.stop


def _explain_silence(report: AgentReport) -> str:
    said = report.error or report.stderr.strip()[-500:]
    if report.stop in WAITED:
        return f"timeout: the agent made no model call in {report.seconds:.0f} s{said and f': {said}'}"
    return f"the agent ended before any model call was seen: {said or f'exit code {report.exit_code}'}"


def _key_refused(session: Session) -> bool:
    """Whether a refused key ended the agent's work. If a later call was answered, it did not."""
    totals = session.totals
    return totals.last_error is CallError.AUTH or (bool(totals.auth_failure) and not totals.answered)


def _model_failed(session: Session) -> bool:
    """Whether a failure of the model ended the agent's work."""
    if session.totals.last_error is CallError.STATUS:
        # A 400 after good calls is the agent's doing, such as a prompt that grew too long. If no call ever
        # succeeded the set-up is wrong, such as a model name that the endpoint does not know.
        return session.totals.last_status in RETRIED or session.totals.answered == 0
    broken = {CallError.CUT, CallError.MALFORMED, CallError.TOO_LARGE}
    return session.totals.last_error in {CallError.REFUSED, CallError.TIMEOUT} | broken


def _is_refused_for_good(session: Session) -> bool:
    """Whether the endpoint answered no call, and refused the last one in a way that a retry does not change."""
    return session.totals.answered == 0 and is_permanent(session.totals.last_error, session.totals.last_status)


@dataclass(frozen=True, slots=True)
class Blamed:
    """Who caused a failure."""

    own: bool
    """The rollout itself: its work is judged."""
    failure: Score
    """With the evidence in its details."""
    probed: Session | None = None
    """The session of whet's own question to the endpoint, if it asked one."""


@dataclass(frozen=True, slots=True)
class _Try:
    up: bool
    """The endpoint answered whet's own question right after the failure."""
    answered: bool
    """The endpoint answered calls of the rollout before the failure."""


class Blame:
    """Decides over all tries of one rollout.

    The rollout caused its failure if every try failed although the endpoint was up after each of them, or if every
    try had good replies before it failed. It caused a refused key if the endpoint accepts the same key from whet.
    """

    def __init__(self, gateway: Gateway, model: Model, endpoints: Endpoints, rollout: str) -> None:
        self._gateway, self._model, self._endpoints, self._rollout = gateway, model, endpoints, rollout
        self._tries: list[_Try] = []
        self.is_last = False
        """No other try follows. Until then the next try may still succeed, so no failure is final."""

    async def decide(self, failure: Score, session: Session, record: Recorder) -> Blamed:
        """Decide about the failure that has ended a try."""
        answered = session.totals.answered > 0
        if failure.cause not in ENDPOINT_CAUSES:
            self._tries.append(_Try(up=False, answered=answered))
            final = self.is_last or not (failure.cause and failure.cause.worth_retrying)
            return Blamed(final and self._all_answered, failure)
        asked = await probe(self._gateway, self._model, record)
        up = asked.health is Health.UP
        self._tries.append(_Try(up, answered))
        if up:
            self._endpoints.accept(self._model.name)
        elif asked.health is _same_refusal(failure):
            self._endpoints.refuse(self._model.name, self._rollout, asked.failure)
        own = (all(one.up for one in self._tries) or self._all_answered) if self.is_last else False
        details = {**failure.details, "endpoint": asked.health, "answered": session.totals.answered}
        explained = failure.model_copy(update={"details": details})
        return Blamed(own or (up and failure.cause is Cause.AUTH), explained, asked.session)

    @property
    def _all_answered(self) -> bool:
        return all(one.answered for one in self._tries)


def _same_refusal(failure: Score) -> Health | None:
    """What whet's own question meets if the endpoint is the reason for a refusal, not what the agent sent."""
    if failure.cause is Cause.AUTH:
        return Health.REFUSED
    return Health.REJECTED if PERMANENT in failure.details else None
