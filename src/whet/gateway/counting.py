"""How many tokens a request has, as the model itself counts them. Such a call is on record, but it is no turn."""

import time
from collections.abc import Callable

from whet.exchange import CallError, Exchange, Kind, Speaker
from whet.gateway.cache import Question, Replay
from whet.gateway.call import Request
from whet.gateway.changes import changed, declared_name, top_level
from whet.gateway.dialects import TokenCounter
from whet.gateway.guards import refuse_remote_media
from whet.gateway.model import Model
from whet.gateway.outgoing import headers_for_model, secrets_for_model
from whet.gateway.upstream import Received, Upstream, UpstreamError
from whet.redact import Redactor

TOKEN_COUNT = "token count"  # noqa: S105 - no password


async def counted_by_model(
    request: Request,
    counter: TokenCounter,
    model: Model,
    *,
    session: str,
    index: int,
    upstream: Upstream,
    replay: Replay | None,
    redactor: Callable[..., Redactor],
) -> Exchange:
    """Ask a model that speaks the request's dialect. The exchange has an error when the reply is no count.

    ValueError when the request may not go to the model.
    """
    if "remote-media" not in model.allow:
        refuse_remote_media(request.body)
    path = counter.count_path(model.upstream_name)
    # Of the declared changes only the name: the others are about sampling, and nothing is sampled.
    body = changed(request.body, declared_name(top_level(request.body), model))
    question = replay.ask(path, body) if replay else None
    started, received = time.time(), Received()
    error = await _receive(request, path, body, model, received, upstream, question, session)
    response, body = b"".join(received.chunks), received.repair.body if received.repair else body
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
        warnings=received.repair.warnings if received.repair else (),
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
