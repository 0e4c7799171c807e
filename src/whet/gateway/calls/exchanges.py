"""The one place that builds an `Exchange`: what a call left behind, without secrets."""

import time
from dataclasses import dataclass

from whet.exchange import CallError, Exchange, Speaker, Usage
from whet.gateway.calls.requests import AgentRequest
from whet.gateway.upstream.reply import ReceivedReply
from whet.text.redact import Redactor


@dataclass(slots=True, eq=False)
class FinishedCall:
    """One call as it is to be recorded, before secrets are taken out of it."""

    session: str
    index: int
    request: AgentRequest
    started: float
    status: int | None
    response: bytes
    error: CallError | None
    address: str = ""
    """Where the call would have been sent, if it was not."""
    sent: bytes | None = None
    """The body that went to the model; None when it was not sent."""
    delivered: bytes | None = None
    """The body that went to the agent, if it is another than the response."""
    usage: Usage | None = None
    warnings: tuple[str, ...] = ()
    speaker: Speaker | None = None
    tokens: str | None = None


def build_exchange(
    record: FinishedCall, received: ReceivedReply | None, redactor: Redactor, request_body: bytes | None = None
) -> Exchange:
    """The exchange of a call. `request_body` is the body of the request without secrets, if that is known already."""
    request, sent, delivered = record.request, record.sent, record.delivered
    body = redactor.bytes(request.body) if request_body is None else request_body
    warnings = record.warnings
    if received is not None and received.repair is not None:
        warnings = (*warnings, *received.repair.warnings)
    return Exchange(
        session=record.session,
        index=record.index,
        dialect=request.dialect.NAME,
        path=redactor.text(request.path),
        request_headers=redactor.headers(request.headers),
        request=body,
        upstream=redactor.text((received.upstream if received else "") or record.address),
        status=record.status,
        response_headers=redactor.headers(received.headers) if received else (),
        response=redactor.bytes(record.response),
        attempts=received.attempts if received else 0,
        error=record.error,
        started=record.started,
        first_byte=received.first_byte if received else None,
        ended=time.time(),
        usage=record.usage,
        sent=None if sent is None or sent == request.body else redactor.bytes(sent),
        delivered=None if delivered is None else redactor.bytes(delivered),
        warnings=warnings,
        speaker=record.speaker,
        arrivals=received.arrivals if received else (),
        tokens=record.tokens,
    )
