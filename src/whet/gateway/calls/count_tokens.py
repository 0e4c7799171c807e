"""How many tokens a request has, as the model itself counts them. Such a call is recorded, but it is not a turn."""

import time

from whet.exchange import CallError, Exchange, Kind, Speaker
from whet.gateway.calls.exchanges import FinishedCall, build_exchange
from whet.gateway.calls.requests import AgentRequest, CallContext
from whet.gateway.dialects import TokenCounter
from whet.gateway.guards import guard_request
from whet.gateway.guards.overrides import apply_changes, change_body, model_name_change
from whet.gateway.guards.screened import ScreenedBody
from whet.gateway.model import Model
from whet.gateway.replay.cache import ReplySource, SessionCache
from whet.gateway.upstream.client import OutgoingCall
from whet.gateway.upstream.headers import headers_for_model, secrets_for_model
from whet.gateway.upstream.reply import ReceivedReply, UpstreamError

TOKEN_COUNT = "token count"  # noqa: S105 - no password


async def ask_model_for_count(
    context: CallContext,
    model: Model,
    counter: TokenCounter,
    request: AgentRequest,
    screened: ScreenedBody,
    index: int,
    replay: SessionCache | None,
) -> Exchange:
    """Ask a model of the request's dialect. The exchange has an error when the reply is not a count.

    ValueError when the request may not go to the model.
    """
    fields = screened.split()
    guarded = guard_request(fields, screened.body, model.dialect, model, check_tools=screened.check_tools, counts=True)
    if guarded.keeps_conversation:
        screened.accept()
    path = counter.count_path(model.upstream_name)
    # Of the declared changes only the name: the others are about sampling, and nothing is sampled.
    name_change = model_name_change(apply_changes(fields, guarded.changes), model)
    body = change_body(screened.body, guarded.changes | name_change)
    stored = replay.ask(path, body) if replay else None
    started, received = time.time(), ReceivedReply(context.memory.spool())
    headers = headers_for_model(request.headers, model, translated=False)
    error = await _receive(context, OutgoingCall(model, path, headers, body, context.affinity), received, stored)
    response = received.body.read()
    if error is None and not counter.is_count(response):
        error = CallError.MALFORMED
    redactor = context.secrets.learn(received.token, *secrets_for_model(request.headers, model))
    evidence = f"POST {redactor.text(request.path)}"
    record = FinishedCall(
        context.session,
        index,
        request,
        started,
        received.status,
        response,
        error,
        address=model.address(path),
        sent=received.repair.body if received.repair else body,
        warnings=(*screened.warnings, *guarded.withheld),
        speaker=Speaker(Kind.UTILITY, TOKEN_COUNT, None, evidence, TOKEN_COUNT),
    )
    exchange = build_exchange(record, received, redactor)
    if stored is not None:
        await stored.settle(exchange, good=error is None)
    return exchange


async def _receive(
    context: CallContext, call: OutgoingCall, received: ReceivedReply, stored: ReplySource | None
) -> CallError | None:
    """Receive the reply. Returns what went wrong."""
    try:
        if stored is not None and (reply := await stored.find(received)):
            await reply.read()
        else:
            with await context.upstream.send(call, received) as incoming:
                while await incoming.read():
                    pass
    except UpstreamError as failure:
        return failure.error
    return CallError.STATUS if received.failed else None
