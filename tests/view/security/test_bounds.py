"""Runs that are huge, damaged, or gone while they are looked at: every answer is bounded in bytes and time, says what
is the matter with the right status, and the server lives."""

import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from support.rollouts_world import rollout_name, write_rollouts
from support.view_process import ViewProcess, start_view
from support.view_worlds import EPOCH, finish, write_long_trace
from support.waiting import wait_until
from whet.runs.labels import LABELS, NewLabel, RunLabels
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import DATABASE, Store
from whet.view import addresses
from whet.view.app import PAGES
from whet.view.guard import MOST_STREAMS

MOST_BYTES = 4 << 20
"""Of any answer."""
MOST_SEC = 10.0
"""Of computing, for any answer. The time of the clock depends on what else the machine does."""
MOST_MEMORY = 700 << 20
"""Of the server, over all tests."""
LOG_BYTES = 256 << 20
FIRST = rollout_name(0, 0, 0)
PAGE = 4096


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    write_rollouts(root / "small")
    return root


@pytest.fixture(scope="module")
def server(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewProcess]:
    with start_view(tmp_path_factory.mktemp("server"), root) as process:
        yield process
        process.check_alive()
        assert process.peak_memory() < MOST_MEMORY


def look(server: ViewProcess, address: str, *expected: int) -> str:
    """A page, which is bounded and no defect."""
    before = server.used_sec()
    reply = server.view.client.get(address)
    assert server.used_sec() - before < MOST_SEC, address
    assert len(reply.content) < MOST_BYTES, (address, len(reply.content))
    assert reply.status_code in (expected or (200,)), (address, reply.status_code, sentence_of(reply.text))
    assert "Traceback" not in reply.text
    return reply.text


def sentence_of(page: str) -> str:
    """What a page says, in one line."""
    main = page.partition("<main")[2] or page
    return " ".join(re.sub(r"<[^>]*>", " ", main).split())[:1000]


def every_address(run: str, rollout: str) -> list[str]:
    """An address of each page about a run and a rollout."""
    values = {"run": run, "id": rollout, "index": "0", "body": "request", "step": "1", "number": "0", "attempt": "1"}
    paths = [route.path for route in PAGES if "{run}" in route.path and "/export" not in route.path]
    return [path.format_map({**values, "version": "0"}) for path in paths]


# --- Huge


def test_a_huge_log_is_shown_in_pieces(root: Path, server: ViewProcess) -> None:
    with Store.create(root / "log") as store, store.atomic():
        store.add_tasks([TaskRow("t", "0" * 16, "tests", "{}")])
        store.add_rollouts([RolloutRow("r0", 0, "t", "loop", "m", None, 0)])
        attempt = store.start_attempt("r0", EPOCH)
        store.add_log(attempt, "agent stdout", bytes(LOG_BYTES))
        finish(store, attempt, 1.0, None)
    for offset in (0, LOG_BYTES // 2, LOG_BYTES - 1000, LOG_BYTES + 1000):
        assert f"of {LOG_BYTES:,}" in look(server, addresses.log("log", "r0", "agent stdout", offset=offset))
    assert "too large to be sent" in look(server, addresses.log("log", "r0", "agent stdout", raw=1), 404)


# --- Damaged


def damage_page(path: Path, number: int) -> None:
    """Overwrite a page of a database."""
    with path.open("r+b") as file:
        file.seek(number * PAGE)
        file.write(b"\xa5" * PAGE)


def copy_run(root: Path, name: str) -> Path:
    """A copy of the small run; its database."""
    shutil.copytree(root / "small", root / name)
    return root / name / DATABASE


def look_at_all(server: ViewProcess, run: str) -> dict[str, str]:
    """Open every page about a run; what each says."""
    return {address: look(server, address, 200, 303, 404, 409, 410) for address in every_address(run, FIRST)}


def test_a_run_that_is_damaged_in_any_place_is_a_sentence(root: Path, server: ViewProcess) -> None:
    pages = (root / "small" / DATABASE).stat().st_size // PAGE
    refused = 0
    for number in range(1, pages, max(1, pages // 5)):
        run = f"damaged-{number}"
        damage_page(copy_run(root, run), number)
        refused += any("the run is damaged" in page for page in look_at_all(server, run).values())
        shutil.rmtree(root / run)
    assert refused >= 3


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_run_that_was_cut_off_is_a_sentence(root: Path, server: ViewProcess, share: float) -> None:
    path = copy_run(root, run := f"cut-{share}")
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * share))
    page = look(server, addresses.run(run), 409)
    assert DATABASE in page
    look_at_all(server, run)
    assert run in look(server, addresses.runs())


def test_a_run_of_a_newer_version_says_the_versions(root: Path, server: ViewProcess) -> None:
    with closing(sqlite3.connect(copy_run(root, "newer"))) as db:
        db.execute("PRAGMA user_version = 99")
    assert "version 99" in look(server, addresses.run("newer"), 409)
    assert "use a newer whet" in look(server, addresses.rollout("newer", FIRST), 409)
    look_at_all(server, "newer")
    assert "use a newer whet" in look(server, addresses.runs())


def test_damaged_labels_are_a_sentence(root: Path, server: ViewProcess) -> None:
    copy_run(root, "labelled")
    RunLabels(root / "labelled").add([NewLabel("ana", FIRST, 1, "verdict", "good")], EPOCH)
    (root / "labelled" / LABELS).write_bytes(b"no database at all" * 1000)
    look_at_all(server, "labelled")


# --- Gone


def test_a_run_whose_writer_was_killed_is_shown(root: Path, server: ViewProcess) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from support.live_run import write_live_run
with write_live_run(Path({str(root / "killed")!r})) as run:
    run.end(run.waiting[0])
    run.begin(run.waiting[0])
    print("ready", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        assert "running" in sentence_of(look(server, addresses.run("killed")))
        writer.kill()
    assert (root / "killed" / f"{DATABASE}-wal").stat().st_size > 0, "it was killed before it could tidy up"
    assert "stopped" in sentence_of(look(server, addresses.run("killed")))
    for address in every_address("killed", "00000001"):
        look(server, address, 200, 303, 404)


def test_a_run_that_is_deleted_while_it_is_looked_at_is_not_found(root: Path, server: ViewProcess) -> None:
    copy_run(root, "gone")
    look_at_all(server, "gone")
    shutil.rmtree(root / "gone")
    for address in (one for one in every_address("gone", FIRST) if "gone" in one):
        page = look(server, address, 404)
        assert "gone" in sentence_of(page), address
    assert "gone" not in sentence_of(look(server, addresses.runs()))


def test_a_database_that_is_deleted_while_it_is_looked_at_is_not_found(root: Path, server: ViewProcess) -> None:
    path = copy_run(root, "emptied")
    look(server, addresses.run("emptied"))
    path.unlink()
    for address in (one for one in every_address("emptied", FIRST) if "emptied" in one):
        look(server, address, 404)


# --- No room


def test_a_full_disk_is_a_sentence_and_other_pages_are_shown(root: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    write_long_trace(runs / "long", turns=200, size=2000)
    (tmp_path / "server").mkdir()
    with start_view(tmp_path / "server", runs, largest_file=16 << 10) as server:
        page = look(server, addresses.trace("long", "r0", wait=1))
        assert "full" in sentence_of(page)
        for address in every_address("long", "r0"):
            look(server, address, 200, 303, 404)
        assert "Fix the parser" in look(server, addresses.call("long", "r0", 0))
        server.check_alive()


def test_a_hundred_readers_who_listen_leave_room_for_pages(root: Path, server: ViewProcess) -> None:
    host = server.view.origin.removeprefix("http://")
    cookie = "; ".join(f"{name}={value}" for name, value in server.view.client.cookies.items())
    request = f"GET {addresses.events()} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie}\r\n\r\n".encode()
    with ExitStack() as opened:
        readers = [opened.enter_context(open_socket(host)) for _ in range(100)]
        for reader in readers:
            reader.sendall(request)
        statuses = [reader.recv(4096).split()[1] for reader in readers]
        assert statuses.count(b"200") == MOST_STREAMS
        assert statuses.count(b"503") == 100 - MOST_STREAMS
        look(server, addresses.run("small"))
        server.check_alive()
    wait_until(lambda: is_open(host, request))  # whoever leaves makes room


def open_socket(host: str) -> socket.socket:
    name, _, port = host.partition(":")
    return socket.create_connection((name, int(port)), timeout=60)


def is_open(host: str, request: bytes) -> bool:
    with open_socket(host) as reader:
        reader.sendall(request)
        return reader.recv(4096).split()[1] == b"200"
