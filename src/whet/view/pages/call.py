"""The model calls of a rollout, and one call: what went over the wire, exactly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whet.exchange import Exchange, Kind
from whet.gateway.call_failures import describe_failure
from whet.look.numbers import plural
from whet.runs.store.exchanges import ExchangeHead
from whet.trace.conversations.graph import find_working_threads, thread_of
from whet.view import addresses
from whet.view.page import Crumb, Download, NotFoundError, Page, PageRequest, PageRoute, View
from whet.view.pages.attempt import OpenAttempt, open_attempt, read_choice, read_number
from whet.view.pages.call_bodies import (
    BODIES,
    FORMS,
    HEX_BYTES,
    PAGE_BYTES,
    PAGE_EVENTS,
    body_of,
    compare_bodies,
    is_stream,
    read_events,
    read_text,
)
from whet.view.pages.call_messages import PAGE, find_message, read_messages
from whet.view.pages.call_timing import read_timing
from whet.view.pages.call_tokens import PROMPT_PAGE, SAMPLED_PAGE, find_row, read_token_page

TABS = ("messages", *BODIES, "tokens", "timing")
CALLS_PAGE = 100
_UNCHANGED = {"sent": "request", "delivered": "response"}
"""The body that each of these was made of."""


@dataclass(frozen=True, slots=True)
class CallLine:
    """One call of the list."""

    head: ExchangeHead
    thread: str
    after: float
    """Seconds since the first call began."""


def calls_page(view: View, request: PageRequest) -> Page:
    """All model calls of a rollout."""
    with open_attempt(view, request) as opened:
        lines = _call_lines(opened)
    thread, page = request.query.get("thread") or "", read_number(request, "page") or 1
    threads = list(dict.fromkeys(line.thread for line in lines))
    chosen = [line for line in lines if thread in ("", line.thread)]
    pages = max(1, -(-len(chosen) // CALLS_PAGE))
    if page > pages:
        raise NotFoundError(f"Page {page} is not there: the exchanges have {plural(pages, 'page', 'pages')}.")
    data = {
        "opened": opened,
        "lines": chosen[(page - 1) * CALLS_PAGE : page * CALLS_PAGE],
        "total": len(chosen),
        "page_number": page,
        "pages": pages,
        "thread": thread,
        "threads": threads,
    }
    return Page("calls.html", f"Calls of {opened.rollout}", data, opened.crumbs(Crumb("calls")), _command(opened))


def call_page(view: View, request: PageRequest) -> Page:
    """One model call."""
    tab = read_choice(request, "tab", TABS)
    with open_attempt(view, request) as opened:
        exchange = _find(opened, request)
        lines = _call_lines(opened)
        data = {
            "opened": opened,
            "exchange": exchange,
            "failure": describe_failure(exchange) if exchange.error or exchange.status != 200 else "",
            "tab": tab,
            "tabs": [(name, _address(opened, exchange, tab=name)) for name in TABS],
            **_neighbours(lines, exchange.index),
            **_tab_data(opened, exchange, lines, tab, request),
        }
    crumbs = opened.crumbs(
        Crumb("calls", addresses.calls(opened.run, opened.rollout, attempt=opened.chosen)),
        Crumb(f"exchange {exchange.index}"),
    )
    return Page("call.html", f"Exchange {exchange.index} of {opened.rollout}", data, crumbs, _command(opened))


def call_row_page(view: View, request: PageRequest) -> Page:
    """What training makes of a call. Apart from its page, because all calls of the attempt are read for it."""
    with open_attempt(view, request) as opened:
        exchange = _find(opened, request)
        row = find_row(opened.store, opened.attempt.id, exchange.index)
    data = {"opened": opened, "exchange": exchange, "row": row}
    crumbs = opened.crumbs(
        Crumb(f"exchange {exchange.index}", _address(opened, exchange, tab="tokens")), Crumb("training")
    )
    return Page("call_row.html", f"Exchange {exchange.index} in training", data, crumbs)


def call_bytes(view: View, request: PageRequest) -> Download:
    """A body of a call as a file."""
    name = request.path["body"]
    if name not in BODIES:
        raise NotFoundError(f"A call has no '{name}'; expected one of: {', '.join(BODIES)}.")
    with open_attempt(view, request) as opened:
        exchange = _find(opened, request)
    return Download(body_of(exchange, name), f"{opened.rollout}-call-{exchange.index}-{name}.bin")


def _find(opened: OpenAttempt, request: PageRequest) -> Exchange:
    index = request.path["index"]
    found = opened.attempt.exchange(int(index)) if index.isascii() and index.isdigit() and len(index) < 10 else None
    if found is None:
        raise NotFoundError(f"There is no exchange {index[:40]} in this attempt.")
    return found


def _call_lines(opened: OpenAttempt) -> list[CallLine]:
    heads = opened.attempt.exchange_heads()
    working = find_working_threads(head.speaker for head in heads)
    began = heads[0].started if heads else 0.0
    return [CallLine(head, thread_of(head.index, head.speaker, working), head.started - began) for head in heads]


def _neighbours(lines: Sequence[CallLine], index: int) -> dict[str, Any]:
    """The calls before and after this one in its thread, and its number for a fork."""
    mine = next(line for line in lines if line.head.index == index)
    alike = [line.head.index for line in lines if line.thread == mine.thread]
    place = alike.index(index)
    whole = [line.head.index for line in lines if line.thread == mine.thread and _is_whole(line.head)]
    is_main = mine.head.speaker is None or mine.head.speaker.kind is Kind.MAIN
    return {
        "line": mine,
        "fork_at": whole.index(index) + 1 if is_main and index in whole else None,
        "previous": alike[place - 1] if place else None,
        "following": alike[place + 1] if place + 1 < len(alike) else None,
        "place": place + 1,
        "of": len(alike),
    }


def _is_whole(head: ExchangeHead) -> bool:
    """Whether a call was answered whole. A fork cannot begin at another one."""
    return head.status == 200 and head.error is None


def _tab_data(
    opened: OpenAttempt, exchange: Exchange, lines: Sequence[CallLine], tab: str, request: PageRequest
) -> dict[str, Any]:
    if tab == "messages":
        return _messages_data(opened, exchange, lines, request)
    if tab == "tokens":
        return _tokens_data(opened, exchange, request)
    if tab == "timing":
        return {"timing": read_timing(exchange)}
    return _body_data(opened, exchange, tab, request)


def _messages_data(
    opened: OpenAttempt, exchange: Exchange, lines: Sequence[CallLine], request: PageRequest
) -> dict[str, Any]:
    if (number := read_number(request, "message")) is not None:
        return {"message": find_message(exchange, number)}
    thread = next(line.thread for line in lines if line.head.index == exchange.index)
    before = [line.head.index for line in lines if line.thread == thread and line.head.index < exchange.index]
    previous = opened.attempt.exchange(before[-1]) if before else None
    start = read_number(request, "offset") or 0
    found = read_messages(exchange, previous, start)
    pager = _pager(opened, exchange, start, PAGE, found.earlier_total, tab="messages")
    return {"message": None, "messages": found, "pager": pager}


def _body_data(opened: OpenAttempt, exchange: Exchange, tab: str, request: PageRequest) -> dict[str, Any]:
    body, form = body_of(exchange, tab), read_choice(request, "form", FORMS)
    start = read_number(request, "offset") or 0
    headers = exchange.request_headers if tab in ("request", "sent") else exchange.response_headers
    events, text = None, None
    if form == "pretty" and tab in ("response", "delivered") and is_stream(body, () if tab == "delivered" else headers):
        events = read_events(body, exchange.arrivals if tab == "response" else (), start)
        pager = _pager(opened, exchange, start, PAGE_EVENTS, events.total, tab=tab, form=form)
    else:
        text = read_text(body, form, start)
        length = HEX_BYTES if form == "hex" else PAGE_BYTES
        pager = _pager(opened, exchange, start, length, text.total, tab=tab, form=form)
    return {
        "body": tab,
        "size": len(body),
        "form": form,
        "forms": [(name, _address(opened, exchange, tab=tab, form=name)) for name in FORMS],
        "download": addresses.call_bytes(opened.run, opened.rollout, exchange.index, tab, attempt=opened.chosen),
        "headers": () if tab in _UNCHANGED else headers,
        "events": events,
        "text": text,
        "pager": pager,
        **_change(exchange, tab),
    }


def _change(exchange: Exchange, tab: str) -> dict[str, Any]:
    """How a body differs from the one that it was made of."""
    origin = _UNCHANGED.get(tab)
    if origin is None:
        return {"origin": None, "changed": False, "diff": None}
    changed = getattr(exchange, tab) is not None
    was, now = body_of(exchange, origin), body_of(exchange, tab)
    return {"origin": origin, "changed": changed, "diff": compare_bodies(tab, was, now) if changed else None}


def _tokens_data(opened: OpenAttempt, exchange: Exchange, request: PageRequest) -> dict[str, Any]:
    start, prompt_start = read_number(request, "offset") or 0, read_number(request, "prompt")
    page = read_token_page(exchange, start, prompt_start or 0)
    return {
        "tokens": page,
        "row_address": addresses.call_row(opened.run, opened.rollout, exchange.index, attempt=opened.chosen),
        "prompt_open": prompt_start is not None,
        "pager": _pager(opened, exchange, start, SAMPLED_PAGE, page.total, tab="tokens"),
        "prompt_pager": _pager(
            opened, exchange, prompt_start or 0, PROMPT_PAGE, page.prompt_total, key="prompt", tab="tokens"
        ),
    }


def _pager(
    opened: OpenAttempt, exchange: Exchange, start: int, length: int, total: int, key: str = "offset", **query: object
) -> dict[str, Any] | None:
    """The pages around `start`; None when there is one only."""
    if start and start >= total:
        raise NotFoundError(f"`{key}` is {start} in this address, but there are only {total:,}.")
    if start == 0 and length >= total:
        return None
    end = min(start + length, total)
    before = _address(opened, exchange, **query, **{key: max(0, start - length)}) if start else ""
    after = _address(opened, exchange, **query, **{key: end}) if end < total else ""
    return {"text": f"{start + 1:,}–{end:,} of {total:,}", "previous": before, "following": after}


def _address(opened: OpenAttempt, exchange: Exchange, **query: object) -> str:
    return addresses.call(opened.run, opened.rollout, exchange.index, attempt=opened.chosen, **query)


def _command(opened: OpenAttempt) -> str:
    return f"{opened.command} --full"


ROUTES = (
    PageRoute("/runs/{run}/rollouts/{id}/calls", calls_page),
    PageRoute("/runs/{run}/rollouts/{id}/calls/{index}", call_page),
    PageRoute("/runs/{run}/rollouts/{id}/calls/{index}/row", call_row_page),
    PageRoute("/runs/{run}/rollouts/{id}/calls/{index}/{body}.bin", call_bytes),
)
