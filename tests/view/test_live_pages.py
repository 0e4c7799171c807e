"""Streams: what is sent, when, to how many, and what a slow reader or a dead run does to them."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from support.live_run import LiveRun, write_live_run
from support.view_server import ServedView, serve_view
from support.view_worlds import make_exchange, write_many_rollouts
from support.waiting import wait_until
from whet.runs.store.store import Store
from whet.view import addresses
from whet.view.guard import MOST_STREAMS
from whet.view.live import Event, Sent
from whet.view.page import Part

RUN = addresses.run_events("live")


def render(part: Part) -> str:
    return f"{part.id} {dict(part.data)} {[one.id for one in part.inner]}"


def part(name: str, *inner: Part, **data: Any) -> Part:
    return Part(name, "template.html", data, inner)


def test_what_is_equal_is_not_sent_again() -> None:
    sent = Sent()
    assert len(sent.render_new([part("a", n=1), part("b", n=1)], render)) == 2
    assert sent.render_new([part("a", n=1), part("b", n=2)], render) == [render(part("b", n=2))]
    assert sent.render_new([part("a", n=1), part("b", n=2)], render) == []


def test_data_that_differs_and_looks_the_same_is_not_sent_again() -> None:
    sent = Sent()
    assert sent.render_new([part("a", n=1)], lambda _: "same") == ["same"]
    assert sent.render_new([part("a", n=2)], lambda _: "same") == []


def test_a_row_is_sent_alone_unless_rows_come_or_go() -> None:
    sent = Sent()
    sent.render_new([part("list", part("x", n=1), part("y", n=1))], render)
    assert sent.render_new([part("list", part("x", n=1), part("y", n=2))], render) == [render(part("y", n=2))]
    longer = part("list", part("x", n=1), part("y", n=2), part("z", n=1))
    assert sent.render_new([longer], render) == [render(longer)]
    back = part("list", part("x", n=1), part("y", n=1), part("z", n=1))
    assert sent.render_new([back], render) == [render(part("y", n=1))], "sent with the list meanwhile, so it is news"


def test_an_event_is_sent_once() -> None:
    sent = Sent()
    assert sent.choose_new([Event("steps", "3")]) == [Event("steps", "3")]
    assert sent.choose_new([Event("steps", "3")]) == []
    assert sent.choose_new([Event("steps", "4")]) == [Event("steps", "4")]


class Stream:
    """The messages of a stream, as a browser reads them."""

    def __init__(self, reply: httpx2.Response) -> None:
        self.reply, self._lines = reply, reply.iter_lines()

    def next(self) -> tuple[str, str]:
        """The event and the text of the next message. Comments are skipped."""
        event, data = "", list[str]()
        for line in self._lines:
            if not line and (event or data):
                return event, "\n".join(data)
            name, _, value = line.partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                data.append(value)
        raise EOFError

    def until(self, words: str) -> str:
        """The text of the first message that has these words."""
        while words not in (text := self.next()[1]):
            pass
        return text

    def rest(self) -> list[tuple[str, str]]:
        """All messages up to the end of the stream."""
        found = []
        while True:
            try:
                found.append(self.next())
            except EOFError:
                return found


@contextmanager
def listen(view: ServedView, address: str) -> Iterator[Stream]:
    with view.client.stream("GET", address, headers={"HX-Request": "true"}) as reply:
        assert reply.status_code == 200, reply.read()
        yield Stream(reply)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveRun]:
    with write_live_run(tmp_path / "runs" / "live") as run:
        yield run


@pytest.fixture
def view(tmp_path: Path, live: LiveRun) -> Iterator[ServedView]:
    with serve_view(tmp_path / "runs") as served:
        yield served


def test_a_stream_begins_with_the_whole_page_and_goes_on_with_what_changes(view: ServedView, live: LiveRun) -> None:
    with listen(view, RUN) as stream:
        assert 'id="run-state"' in stream.next()[1]
        stream.until('id="run-cells"')
        live.end(live.waiting[0])
        changed = stream.until('id="run-progress"')
        assert "1 <span" in changed
        assert 'hx-swap-oob="outerMorph"' in changed
        row = stream.until('id="task-')
        assert row.startswith("<tr"), "a row alone: browsers drop it after anything else"


def test_a_stream_of_all_runs_tells_of_a_new_run(view: ServedView, live: LiveRun, tmp_path: Path) -> None:
    with listen(view, addresses.events()) as stream:
        assert "live" in stream.next()[1]
        with write_live_run(tmp_path / "runs" / "second"):
            assert 'href="/runs/second"' in stream.until("second")


def test_filters_hold_for_the_stream_too(view: ServedView, live: LiveRun, tmp_path: Path) -> None:
    with write_live_run(tmp_path / "runs" / "other"), listen(view, addresses.events(q="li")) as stream:
        first = stream.next()[1]
        assert "/runs/live" in first
        assert "/runs/other" not in first


def test_a_killed_writer_ends_nothing_but_is_said(view: ServedView, live: LiveRun) -> None:
    """Nothing is written when a process dies: only its lock is gone. The run can be resumed, so the stream stays."""
    live.begin(live.waiting[0])
    with listen(view, RUN) as stream:
        assert "running" in stream.until('id="run-state"')
        live.store.close()
        told = stream.until('id="run-state"')
        assert "stopped" in told
        assert "was killed" in told
        assert "whet run tasks.jsonl --agent loop" in told
        assert "--resume" in told


def test_a_run_that_ends_is_over(view: ServedView, live: LiveRun) -> None:
    with listen(view, RUN) as stream:
        for rollout in live.waiting:
            live.end(rollout)
        live.store.close()
        rest = stream.rest()
        assert rest[-1] == ("over", "")
        assert any("ended" in text for _, text in rest)
    assert "hx-sse" not in view.get(addresses.run("live")), "a page of what has ended does not listen"


def test_a_replaced_run_ends_the_stream(view: ServedView, live: LiveRun, tmp_path: Path) -> None:
    with listen(view, RUN) as stream:
        stream.until('id="run-cells"')
        folder = tmp_path / "runs" / "live"
        folder.rename(tmp_path / "old")
        with write_live_run(folder, tasks=1):
            rest = stream.rest()
    assert rest[-1] == ("over", "gone")
    assert any("taken the place" in text or "deleted" in text for _, text in rest)


def test_a_damaged_run_ends_the_stream_with_its_reason(view: ServedView, live: LiveRun, tmp_path: Path) -> None:
    live.store.close()
    with listen(view, RUN) as stream:
        stream.until('id="run-cells"')
        database = tmp_path / "runs" / "live" / "run.db"
        database.write_bytes(b"x" * database.stat().st_size)
        assert "no longer kept up to date" in stream.rest()[-2][1]


def test_a_trace_is_told_how_many_steps_there_are(view: ServedView, live: LiveRun) -> None:
    rollout = live.waiting[0]
    live.begin(rollout)
    live.call(rollout)
    with listen(view, addresses.rollout_events("live", rollout, steps=1)) as stream:
        event, first = stream.next()
        assert event == "steps"
        body = json.dumps({"messages": [{"role": "user", "content": "more"}]}).encode()
        said = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}
        live.store.add_exchange(live.attempt(rollout), make_exchange(7, body, json.dumps(said).encode()))
        assert int(stream.next()[1]) > int(first)


def test_more_readers_than_there_is_room_for_are_refused(view: ServedView, live: LiveRun) -> None:
    limits = httpx2.Limits(max_connections=None)
    with (
        ExitStack() as opened,
        httpx2.Client(base_url=view.origin, cookies=view.client.cookies, limits=limits, timeout=60) as client,
    ):
        statuses = [opened.enter_context(client.stream("GET", RUN)).status_code for _ in range(MOST_STREAMS + 5)]
        assert statuses == [200] * MOST_STREAMS + [503] * 5
        assert view.get(addresses.run("live"))
    wait_until(lambda: _is_open(view, RUN))  # whoever leaves makes room


def _is_open(view: ServedView, address: str) -> bool:
    with view.client.stream("GET", address) as reply:
        return reply.status_code == 200


def test_a_reader_that_does_not_read_is_not_waited_for(view: ServedView, live: LiveRun, tmp_path: Path) -> None:
    """Its messages are not kept: at most one is made before it has read the last one."""
    write_many_rollouts(tmp_path / "runs" / "many", tasks=300, arms=4, samples=1)
    parts = urlsplit(view.origin)
    cookie = "; ".join(f"{name}={value}" for name, value in view.client.cookies.items())
    request = f"GET {addresses.run_events('many')} HTTP/1.1\r\nHost: {parts.netloc}\r\nCookie: {cookie}\r\n\r\n"
    assert parts.port
    with Store.open_write(tmp_path / "runs" / "many") as store, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", parts.port))
        deaf.sendall(request.encode())
        with listen(view, RUN) as stream:
            stream.until('id="run-cells"')
            for _ in range(20):
                store.reopen([store.rollouts()[0].id])
                live.call(live.running[0]) if live.running else live.begin(live.waiting[0])
            stream.until('id="run-progress"')
            assert view.get(addresses.runs())


def test_a_stopped_server_ends_streams_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with write_live_run(tmp_path / "live"), ExitStack() as opened:
        with serve_view(tmp_path) as view:
            client = opened.enter_context(httpx2.Client(cookies=view.client.cookies, timeout=60))
            stream = Stream(opened.enter_context(client.stream("GET", view.origin + RUN)))
            stream.until('id="run-cells"')
        stream.rest()
    assert caplog.messages == []
