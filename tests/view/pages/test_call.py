"""The pages of model calls: the list, and one call as it went over the wire, byte for byte."""

import json
import re
from collections.abc import Iterator
from html import unescape

import pytest

from support.browser import Pages, axe_violations, poll
from support.trace_pages_world import GO, LOOKS, SEES, SUB
from support.trace_world import MAIN, exchange, said, with_tokens
from support.view_server import ServedView, serve_view
from support.view_worlds import make_exchange, write_trace
from whet.exchange import CallError, Exchange
from whet.gateway.dialects.neutral import Text
from whet.view import addresses
from whet.view.pages.call_bodies import HEX_BYTES, PAGE_BYTES

BLOCK = re.compile(r'<pre class="block-text"[^>]*><bdi>(.*?)</bdi></pre>', re.DOTALL)
LARGE = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "0123456789abcdef é" * 30_000}]}, ensure_ascii=False
).encode()
ODD = b'{"b": 1.50, "a": 12345678901234567890, "a": [1e5, "\\u0041"]}'
"""JSON that a reader which decodes and encodes it again would change."""
EVENTS = b'data: {"n": 1}\n\nevent: end\ndata: {"n": 2}\n\n'
WIRE, SUBBED, FAILED, UNREADABLE, STREAMED, TOKENS, HUGE = range(2, 9)


def make_calls() -> Iterator[Exchange]:
    yield exchange(0, GO, LOOKS, speaker=MAIN)
    yield exchange(1, [*GO, LOOKS, SEES], said(Text("Done.")), speaker=MAIN)
    headers = (("X-Odd", "a<b"), ("Content-Type", "application/json"))
    sent = {"sent": b'{"b": 2}', "delivered": b'{"c": 3}', "warnings": ("a field was dropped",)}
    yield make_exchange(WIRE, ODD, ODD, request_headers=headers, speaker=MAIN, **sent)
    yield exchange(SUBBED, GO, said(Text("From below.")), speaker=SUB)
    yield make_exchange(FAILED, ODD, b"bad gateway", status=502, error=CallError.STATUS, attempts=5, speaker=MAIN)
    yield make_exchange(UNREADABLE, b"\xff\x00 not JSON", b"", status=None, error=CallError.REFUSED, speaker=MAIN)
    stream = {
        "response_headers": (("Content-Type", "text/event-stream"),),
        "arrivals": ((0.25, 16), (1.5, len(EVENTS))),
    }
    yield make_exchange(STREAMED, b"{}", EVENTS, speaker=MAIN, **stream)
    yield with_tokens(exchange(TOKENS, GO, said(Text("x" * 3))), range(3000), (7, 8, 9), (-0.05, -1.0, -6.0))
    yield make_exchange(HUGE, LARGE, LARGE, speaker=MAIN)


@pytest.fixture(scope="module")
def calls() -> list[Exchange]:
    return list(make_calls())


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory, calls: list[Exchange]) -> Iterator[ServedView]:
    root = tmp_path_factory.mktemp("runs")
    write_trace(root / "wire", calls)
    write_trace(root / "silent", [], ended=False)
    with serve_view(root) as served:
        yield served


def call(index: int, **query: object) -> str:
    return addresses.call("wire", "r0", index, **query)


def shown(page: str) -> str:
    """The one long text of a page."""
    (found,) = BLOCK.findall(page)
    return unescape(re.sub(r"<[^>]+>", "", found))


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page[page.index("<main") :])).split())


def test_the_list_has_every_call_with_its_speaker_and_how_it_ended(view: ServedView) -> None:
    page = view.get(addresses.calls("wire", "r0"))
    assert page.count('<tr class="row"') == HUGE + 1
    said = text_of(page)
    assert "sub explore" in said
    assert "✗ 502 status" in said
    assert "✗ no reply refused" in said


def test_the_list_shows_one_thread(view: ServedView) -> None:
    page = view.get(addresses.calls("wire", "r0", thread="sub-1"))
    assert page.count('<tr class="row"') == 1
    assert f"/calls/{SUBBED}" in page


def test_a_page_of_the_list_that_is_not_there_is_not_found(view: ServedView) -> None:
    assert "the exchanges have 1 page" in view.get(addresses.calls("wire", "r0", page=2), 404)


def test_an_attempt_without_calls_says_so(view: ServedView) -> None:
    assert "No model call has ended yet." in view.get(addresses.calls("silent", "r0"))


@pytest.mark.parametrize("name", ["request", "response", "sent", "delivered"])
def test_the_download_is_what_was_recorded(view: ServedView, calls: list[Exchange], name: str) -> None:
    for index in (WIRE, UNREADABLE, STREAMED, HUGE):
        reply = view.client.get(addresses.call_bytes("wire", "r0", index, name))
        origin = {"sent": "request", "delivered": "response"}.get(name, name)
        recorded = getattr(calls[index], name)
        assert reply.content == (getattr(calls[index], origin) if recorded is None else recorded)
        assert reply.headers["content-type"] == "application/octet-stream"
        assert reply.headers["content-disposition"].startswith("attachment;")
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_json_is_formatted_and_nothing_in_it_is_changed(view: ServedView) -> None:
    text = shown(view.get(call(WIRE, tab="request")))
    assert "\n" in text
    assert re.sub(r"\s", "", text).encode() == re.sub(rb"\s", b"", ODD)


def test_raw_pages_put_together_are_the_body(view: ServedView) -> None:
    pages = [
        shown(view.get(call(HUGE, tab="request", form="raw", offset=at))) for at in range(0, len(LARGE), PAGE_BYTES)
    ]
    assert len(pages) == 3
    # A character that a page ends in is written as its bytes, on both sides of the cut.
    joined = "".join(pages).encode()
    assert re.sub(rb"\\xc3\\xa9", "é".encode(), joined) == LARGE


def test_hex_pages_show_every_byte(view: ServedView) -> None:
    text = shown(view.get(call(HUGE, tab="request", form="hex", offset=HEX_BYTES)))
    digits = "".join(line[10:57].replace(" ", "") for line in text.split("\n"))
    assert bytes.fromhex(digits) == LARGE[HEX_BYTES : 2 * HEX_BYTES]
    assert text.startswith(f"{HEX_BYTES:08x}  ")


def test_a_stream_is_a_list_of_events_with_the_times_of_their_arrival(view: ServedView) -> None:
    said = text_of(view.get(call(STREAMED, tab="response")))
    assert "2 events" in said
    assert 'data: {"n": 1}' in said
    assert "0.250 s" in said
    assert "1.500 s" in said


def test_headers_are_text(view: ServedView) -> None:
    page = view.get(call(WIRE, tab="request"))
    assert "X-Odd" in page
    assert "a&lt;b" in page


def test_what_was_changed_on_its_way_is_compared_and_explained(view: ServedView) -> None:
    said = text_of(view.get(call(WIRE, tab="sent")))
    assert "a field was dropped" in said
    assert "request → sent" in said
    assert '+ "b": 2' in said.replace("+  ", "+ ")
    assert "byte for byte" in text_of(view.get(call(0, tab="sent")))


def test_messages_put_first_what_is_new(view: ServedView) -> None:
    page = view.get(call(1))
    assert (
        page.index("Done.")
        < page.index("New since exchange 0")
        < page.index("exit code 1")
        < page.index("There before")
    )
    assert page.index("There before") < page.index("Let")


def test_one_message_is_shown_whole(view: ServedView) -> None:
    assert LARGE.decode()[60:9000] in unescape(view.get(call(HUGE, tab="messages", message=1)))
    assert "has 1 messages, not 7" in view.get(call(HUGE, tab="messages", message=7), 404)


def test_a_request_that_cannot_be_read_says_why_and_where_its_bytes_are(view: ServedView) -> None:
    said = text_of(view.get(call(UNREADABLE)))
    assert "cannot be read" in said
    assert "The tab `request` shows its bytes" in said
    assert "\\xff" in text_of(view.get(call(UNREADABLE, tab="request")))


def test_a_call_that_failed_says_how(view: ServedView) -> None:
    said = text_of(view.get(call(FAILED)))
    assert "502" in said
    assert "5 tries" in said


def test_tokens_have_their_ids_shades_and_prompt(view: ServedView) -> None:
    page = view.get(call(TOKENS, tab="tokens"))
    found = re.findall(
        r'<span class="token heat-(\d)" title="id (\d+), log-probability ([^,]+), probability ([^"]+)"', page
    )
    assert found == [("1", "7", "−0.050", "95.1%"), ("3", "8", "−1.000", "36.8%"), ("5", "9", "−6.000", "0.2%")]
    assert "3 sampled · 3,000 in the prompt" in text_of(page)
    assert " 1999</p>" in page
    assert '<p class="ids number">2000 2001' in view.get(call(TOKENS, tab="tokens", prompt=2000))


def test_tokens_say_what_training_makes_of_them(view: ServedView) -> None:
    row = addresses.call_row("wire", "r0", TOKENS)
    assert "Its reply is trained in" in text_of(view.get(row))
    fragment = view.client.get(row, headers={"HX-Request": "true"}).text
    assert "Its reply is trained in" in fragment
    assert "<html" not in fragment


def test_a_call_without_tokens_says_how_to_get_them(view: ServedView) -> None:
    assert "`capture` in whet.toml" in text_of(view.get(call(0, tab="tokens")))


def test_timing_of_a_stream_and_of_a_call_without_reply(view: ServedView) -> None:
    assert "2 pieces" in text_of(view.get(call(STREAMED, tab="timing")))
    said = text_of(view.get(call(UNREADABLE, tab="timing")))
    assert "When the pieces of the reply arrived is not recorded." in said


def test_calls_of_a_thread_lead_to_each_other(view: ServedView) -> None:
    page = view.get(call(WIRE))
    assert f"exchange {FAILED} →" in page
    assert "← exchange 1" in page


@pytest.mark.parametrize(
    "address",
    [
        call(99),
        call(0, tab="nothing"),
        call(0, tab="request", form="image"),
        call(0, tab="request", offset="x"),
        call(0, tab="request", offset=10**9),
        call(TOKENS, tab="tokens", offset=10**9),
        call(0).replace("/0", "/x"),
        addresses.call_bytes("wire", "r0", 0, "other"),
        addresses.call("wire", "nobody", 0),
    ],
)  # fmt: skip
def test_an_address_that_names_nothing_is_a_sentence(view: ServedView, address: str) -> None:
    page = view.get(address, 404)
    assert len(text_of(page)) > 30
    assert "Traceback" not in page


PHONE = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}


@pytest.mark.parametrize("browser_options", [{}, PHONE], ids=["wide", "phone"])
def test_every_tab_is_accessible_and_fits(view: ServedView, open_page: Pages) -> None:
    page = open_page(view.url)
    for address in (
        addresses.calls("wire", "r0"),
        *(call(TOKENS, tab=tab) for tab in ("messages", "request", "tokens", "timing")),
    ):
        page.goto(f"{view.origin}{address}")
        poll(page, "document.querySelectorAll('[hx-trigger=load]').length", 0)
        assert axe_violations(page) == [], address
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
