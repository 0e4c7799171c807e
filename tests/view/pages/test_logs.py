"""The page of logs: a log of any size, a piece at a time, with colours and without commands to the terminal."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from support.rollouts_world import rollout_name, write_rollouts
from support.view_server import ServedView, serve_view
from support.view_worlds import EPOCH
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.view.pages.logs import PIECE

NAME = rollout_name(0, 0, 0)
LOGS = f"/runs/small/rollouts/{NAME}/logs"
TEXT = re.compile(r'<pre class="block-text"[^>]*><bdi>(.*?)</bdi></pre>', re.DOTALL)
LINE = "line with an é and more\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_rollouts(folder / "small")
    with Store.create(folder / "large") as store, store.atomic():
        store.add_tasks([TaskRow("t", "0" * 16, "tests", "{}")])
        store.add_rollouts([RolloutRow("r0", 0, "t", "loop", "m", None, 0)])
        attempt = store.start_attempt("r0", EPOCH)
        store.add_log(attempt, "lines", (LINE * 30_000).encode())
        store.add_log(attempt, "one line", "aé".encode() * 200_000)
        store.add_log(attempt, "huge", b"0123456789abcdef\n" * (100 << 16))
        store.add_log(attempt, "empty", b"")
    return folder


@pytest.fixture(scope="module")
def view(root: Path) -> Iterator[ServedView]:
    with serve_view(root) as served:
        yield served


def shown(page: str) -> str:
    (found,) = TEXT.findall(page)
    return unescape(re.sub(r"<[^>]+>", "", found))


def read_pieces(view: ServedView, log: str) -> list[str]:
    """All pieces of a log, by the links from one to the next."""
    pieces, address = [], f"/runs/large/rollouts/r0/logs?name={log}"
    while address:
        page = view.get(address)
        pieces.append(shown(page))
        following = re.search(r'<a href="([^"]+)">next →</a>', page)
        address = unescape(following[1]) if following else ""
    return pieces


@pytest.mark.parametrize(("log", "whole"), [("lines", LINE * 30_000), ("one line", "aé" * 200_000)])
def test_the_pieces_of_a_log_are_the_whole(view: ServedView, log: str, whole: str) -> None:
    pieces = read_pieces(view, log)
    assert len(pieces) > 1
    assert "".join(pieces) == whole


def test_a_huge_log_is_read_in_parts(view: ServedView) -> None:
    total = 17 * (100 << 16)
    page = view.get(f"/runs/large/rollouts/r0/logs?name=huge&offset={17 * (99 << 16)}")
    assert len(page) < 2 * PIECE
    assert shown(page).startswith("0123456789abcdef\n")
    assert f"of {total:,}" in page
    assert "Download" not in page
    assert "too large to be sent" in view.get("/runs/large/rollouts/r0/logs?name=huge&raw=1", 404)


def test_logs_are_listed_with_their_sizes(view: ServedView) -> None:
    page = view.get("/runs/large/rollouts/r0/logs")
    assert re.findall(r'<li>.*?<bdi[^>]*>(.*?)</bdi>.*?<span class="quiet number">(.*?)</span>', page) == [
        ("empty", "0 B"),
        ("huge", "111.4 MB"),
        ("lines", "750.0 kB"),
        ("one line", "600.0 kB"),
    ]
    assert "It is empty." in view.get("/runs/large/rollouts/r0/logs?name=empty")
    assert "has no log" in view.get("/runs/large/rollouts/r0/logs?name=other", 404)


def test_colours_are_classes_and_other_sequences_are_marks(view: ServedView) -> None:
    page = view.get(f"{LOGS}?name=agent+stdout")
    assert '<span class="ansi-fg-2">green</span>' in page
    assert "⟨ESC[2J⟩" in page


def test_tests_of_the_task_are_shown_only_on_request(view: ServedView, root: Path) -> None:
    page = view.get(LOGS)
    assert "hidden_test.py" not in page
    assert "1 log of the task's tests is not shown" in unescape(page)
    hidden = view.get(f"{LOGS}?name=file+tests/hidden_test.py", 404)
    assert "--show-tests" in hidden
    assert "42" not in hidden
    with serve_view(root, show_tests=True) as served:
        assert "assert answer == 42" in shown(served.get(f"{LOGS}?name=file+tests/hidden_test.py"))


def test_a_log_is_downloaded_byte_for_byte(view: ServedView) -> None:
    reply = view.client.get(f"{LOGS}?name=agent+stdout&raw=1")
    assert reply.content == b"\x1b[32mgreen\x1b[0m \x1b[2Jcleared\n" * 3
    assert reply.headers["content-disposition"] == f"attachment; filename*=UTF-8''{NAME}-agent_stdout"
    assert reply.headers["content-type"] == "application/octet-stream"


def test_logs_of_an_earlier_attempt(view: ServedView) -> None:
    address = f"/runs/small/rollouts/{rollout_name(0, 0, 1)}/logs?attempt=1"
    assert "green" in view.get(address)
    assert "attempt=1" in view.get(address)


def test_an_attempt_without_logs_says_so(view: ServedView) -> None:
    page = view.get(f"/runs/small/rollouts/{rollout_name(2, 2, 0)}/logs")
    assert "No logs: they are stored when an attempt ends, and this one has not ended." in page
