"""Reads from a store how a rollout was executed: its tries, its re-sent calls and the models that replies report."""

import json
import re
from typing import Any

from whet.exchange import CallError, Exchange
from whet.gateway import RETRIED
from whet.runs.store.schema import AttemptRow
from whet.runs.store.store import Store
from whet.scoring import Cause
from whet.skills.measurement import Execution, Outcome

_REPORTED = re.compile(rb'"(model|modelVersion|system_fingerprint)"\s*:\s*"([^"\\]{1,200})"')
"""Model name and fingerprint in a reply of any dialect. Inside a text the quotes would be escaped."""


def _is_retryable(exchange: Exchange) -> bool:
    """Whether a call failed in a way that may not happen again."""
    if exchange.error is CallError.STATUS:
        return exchange.status in RETRIED
    return exchange.error in {CallError.REFUSED, CallError.TIMEOUT, CallError.CUT, CallError.MALFORMED}


def read_execution(store: Store, rollout: str, guard: str | None = None) -> Execution:
    """Read how a rollout was executed, and the score of its guard, which is the judge of this name."""
    attempts = store.attempts_of(rollout)
    resent, reported = 0, dict[str, None]()
    for exchange in store.each_exchange(attempts[-1].id):
        # When the gateway gives up, the agent may send the call again itself: that is another sample of the model too.
        resent += max(0, exchange.attempts - 1) + _is_retryable(exchange)
        if model := _read_reported_model(exchange.response):
            reported[model] = None
    guarded = None if guard is None else _read_guard(store, attempts[-1], guard)
    return Execution(len(attempts), resent, tuple(reported), guarded)


def _read_guard(store: Store, attempt: AttemptRow, guard: str) -> Outcome:
    """The score of one judge. A rollout that was not judged has none, for the cause that it has no score at all."""
    body = store.result_body(attempt)
    result: dict[str, Any] = json.loads(body) if body else {}
    found = result.get("judgements", {}).get(guard, {})
    if found.get("value") is not None:
        return float(found["value"])
    return Cause(found.get("cause") or attempt.cause or Cause.JUDGE)


def _read_reported_model(response: bytes) -> str:
    """Name and fingerprint of the model, as first given in its reply."""
    found: dict[bytes, str] = {}
    for field, value in _REPORTED.findall(response):
        found.setdefault(b"fingerprint" if field == b"system_fingerprint" else b"model", value.decode(errors="replace"))
    return " ".join(found[part] for part in (b"model", b"fingerprint") if part in found)
