"""How an agent's part of a rollout ended, and when it was let down: then there is nothing to judge."""

from whet.agents import AgentReport, StopReason
from whet.exchange import CallError
from whet.gateway import RETRIED, Session
from whet.scoring import Cause, Score
from whet.trace.replay.session import ReplaySession


def failure_of(report: AgentReport, session: Session, retelling: ReplaySession | None = None) -> Score | None:
    """A missing score when the agent was let down, None when its work can be judged."""
    if session.ended_with_run:
        return Score.missing(Cause.INTERRUPTED, f"the run was stopped by limit {session.ended_by}")
    if _key_refused(session):
        return Score.missing(Cause.AUTH, "the model's endpoint refused the key")
    if retelling is not None and (fell_short := retelling.fell_short()) is not None:
        return Score.missing(Cause.DIVERGED, fell_short)
    if session.cache_missed:
        return Score.missing(Cause.CACHE, "a reply is not in the cache, and --cache replay-only asks no model")
    if _model_failed(session):
        status = f" {session.last_status}" if session.last_error is CallError.STATUS else ""
        return Score.missing(Cause.MODEL, f"the last model call failed: {session.last_error}{status}")
    if session.calls and not session.answered and report.stop is StopReason.TIMEOUT:
        return Score.missing(Cause.MODEL, "the model answered no call in the agent's time")
    if session.calls == 0 and report.stop in {StopReason.CRASHED, StopReason.NO_MODEL_CALL}:
        last_words = report.error or report.stderr.strip()[-500:] or f"exit code {report.exit_code}"
        return Score.missing(Cause.AGENT, f"the agent ended before any model call was seen: {last_words}")
    if report.stop is StopReason.FAILED:
        return Score.missing(Cause.AGENT, f"the agent answered with an error of its own: {report.error}")
    return None


def stop_reason(report: AgentReport, session: Session, *, must_call: bool) -> StopReason:
    """Why the agent's part ended: what the gateway knows goes before what its program says."""
    if session.ended_by is not None:
        return StopReason.IDLE if session.ended_by.limit == "idle_sec" else StopReason.LIMIT
    if _key_refused(session):
        return StopReason.AUTH
    if must_call and session.calls == 0:
        return StopReason.NO_MODEL_CALL
    return report.stop


def _key_refused(session: Session) -> bool:
    """Whether a refused key was what ended the agent's work. An agent that was answered afterwards did not mind."""
    return session.last_error is CallError.AUTH or (session.auth_failed and not session.answered)


def _model_failed(session: Session) -> bool:
    """Whether the model's failure was what ended the agent's work."""
    if session.last_error is CallError.STATUS:
        # A 400 in the middle is the agent's doing, such as a prompt that grew too long. When no call ever went
        # well it is the set-up's, such as a model's name that the endpoint does not know.
        return session.last_status in RETRIED or session.answered == 0
    broken = {CallError.CUT, CallError.MALFORMED, CallError.TOO_LARGE}
    return session.last_error in {CallError.REFUSED, CallError.TIMEOUT} | broken
