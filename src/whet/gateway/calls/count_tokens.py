"""How many tokens a request has, as the model itself counts them. Such a call is on record, but it is no turn."""

import time
from collections.abc import Callable

from whet.exchange import CallError, Exchange, Kind, Speaker
from whet.gateway.buffers.memory import Memory
from whet.gateway.calls.call import Request
from whet.gateway.dialects import TokenCounter
from whet.gateway.guards import guard_request
from whet.gateway.guards.overrides import apply_changes, changed, declared_name
from whet.gateway.guards.screened import Judging
from whet.gateway.guards.strict_json import split_object
from whet.gateway.model import Model
from whet.gateway.replay.cache import Question, Replay
from whet.gateway.upstream.client import Received, Upstream, UpstreamError
from whet.gateway.upstream.headers import headers_for_model, secrets_for_model
from whet.redact import Redactor

TOKEN_COUNT = "token count"  # noqa: S105 - no password


async def counted_by_model(
    request: Request,
    asked: Judging,
    counter: TokenCounter,
    model: Model,
    *,
    session: str,
    index: int,
    upstream: Upstream,
    memory: Memory,
    replay: Replay | None,
    redactor: Callable[..., Redactor],
) -> Exchange:
    """Ask a model that speaks the request's dialect. The exchange has an error when the reply is no count.

    ValueError when the request may not go to the model.
    """
    fields = split_object(asked.fresh)
    guarded = guard_request(fields, asked.body, model.dialect, model, check_tools=asked.check_tools, counts=True)
    if guarded.keeps_conversation:
        asked.passed()
    path = counter.count_path(model.upstream_name)
    # Of the declared changes only the name: the others are about sampling, and nothing is sampled.
    body = changed(asked.body, guarded.changes | declared_name(apply_changes(fields, guarded.changes), model))
    question = replay.ask(path, body) if replay else None
    started, received = time.time(), Received(memory.spool())
    error = await _receive(request, path, body, model, received, upstream, question, session)
    response, body = received.body.read(), received.repair.body if received.repair else body
    if error is None and not counter.is_count(response):
        error = CallError.MALFORMED
    masked = redactor(received.token, *secrets_for_model(request.headers, model))
    exchange = Exchange(
        session=session,
        index=index,
        dialect=counter.NAME,
        path=masked.text(request.path),
        request_headers=masked.headers(request.headers),
        request=masked.bytes(request.body),
        upstream=masked.text(received.upstream or model.address(path)),
        status=received.status,
        response_headers=masked.headers(received.headers),
        response=masked.bytes(response),
        attempts=received.attempts,
        error=error,
        started=started,
        first_byte=received.first_byte,
        ended=time.time(),
        usage=None,
        sent=None if body == request.body else masked.bytes(body),
        speaker=Speaker(Kind.UTILITY, TOKEN_COUNT, None, f"POST {masked.text(request.path)}", TOKEN_COUNT),
        warnings=(*asked.warnings, *guarded.withheld, *(received.repair.warnings if received.repair else ())),
        arrivals=tuple(received.arrivals),
    )
    if question is not None:
        await question.settle(exchange, good=error is None)
    return exchange


async def _receive(
    request: Request,
    path: str,
    body: bytes,
    model: Model,
    received: Received,
    upstream: Upstream,
    question: Question | None,
    affinity: str,
) -> CallError | None:
    """Receive the reply. Says what went wrong."""
    headers = headers_for_model(request.headers, model, translated=False)
    try:
        if question and (replayed := await question.replayed(received)):
            await replayed.read()
        else:
            async with upstream.send(model, path, headers, body, received, affinity) as incoming:
                while await incoming.read():
                    pass
    except UpstreamError as failure:
        return failure.error
    return CallError.STATUS if received.failed else None
