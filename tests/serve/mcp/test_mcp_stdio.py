"""A server that a client starts: quick to answer, nothing but protocol on stdout, and gone with the client."""

import json
import signal
import sys
from collections.abc import Iterator
from subprocess import PIPE, Popen, run
from typing import IO, Any

import pytest

from support.mcp_world import RIGHT, SLOW, call, connected, stderr_of, write_project
from support.waiting import PATIENCE
from support.whet_program import Project
from whet.runs.store.store import Store

OLDEST, NEWEST_HANDSHAKE = "2025-06-18", "2025-11-25"


@pytest.fixture(name="project")
def project_fixture(project: Project) -> Project:
    return write_project(project)


class Wire:
    """A client of its own, to see every byte."""

    def __init__(self, process: Popen[str]) -> None:
        self.process = process
        self.stdin, self.stdout = _stream(process.stdin), _stream(process.stdout)

    def send(self, method: str, params: dict[str, Any] | None = None, number: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, **({"params": params} if params is not None else {})}
        self.stdin.write(json.dumps(message | ({} if number is None else {"id": number})) + "\n")
        self.stdin.flush()

    def receive(self, number: int) -> dict[str, Any]:
        """The response to a request. All that comes before it must be protocol, too."""
        while True:
            message: dict[str, Any] = json.loads(self.stdout.readline())
            assert message["jsonrpc"] == "2.0"
            if message.get("id") == number:
                return message

    def wait_for_progress(self, phase: str) -> None:
        """Wait until a notification says that a rollout has come so far."""
        while True:
            message = json.loads(self.stdout.readline())
            if f": {phase}," in message["params"]["message"]:
                return

    def initialize(self, version: str = NEWEST_HANDSHAKE) -> dict[str, Any]:
        client = {"name": "test", "version": "1"}
        self.send("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": client}, 1)
        answer: dict[str, Any] = self.receive(1)["result"]
        self.send("notifications/initialized")
        return answer

    def call(self, number: int, tool: str, **arguments: Any) -> None:
        self.send("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": number}}, number)

    def end(self) -> str:
        """Close stdin and wait. Returns what was printed on stderr; nothing else may be left on stdout."""
        out, err = self.process.communicate(timeout=PATIENCE)
        for line in out.splitlines():
            assert json.loads(line)["jsonrpc"] == "2.0"
        return err


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@pytest.fixture
def wire(project: Project) -> Iterator[Wire]:
    with start(project) as process:
        yield Wire(process)
        process.kill()


def start(project: Project, *options: str) -> Popen[str]:
    return Popen(
        [sys.executable, "-m", "whet", "serve", "tasks", "--mcp-stdio", *options],
        cwd=project.path,
        env=project.environ(),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        text=True,
    )


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_unmodified_client_runs_a_task(project: Project, mode: str) -> None:
    async with connected(project, mode=mode) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert {"list_tasks", "run_task", "read_trace"} <= tools
        done = await call(client, "run_task", task=RIGHT)
        assert (done["reward"], done["agent"], done["model"]) == (1.0, "loop", "inner")
    assert stderr_of(project).read_text() == ""


def test_the_oldest_protocol_is_spoken_and_what_is_not_protocol_is_skipped(wire: Wire) -> None:
    answer = wire.initialize(OLDEST)
    assert (answer["protocolVersion"], answer["serverInfo"]["name"]) == (OLDEST, "whet")
    wire.stdin.write("not JSON\n" + "[" * 100_000 + "\n" + "x" * (9 << 20) + "\n\n{}\n")
    wire.call(2, "list_tasks")
    result = wire.receive(2)["result"]
    assert RIGHT in result["content"][0]["text"]
    assert result["structuredContent"]["total"] == 3
    assert wire.end() == ""
    assert wire.process.returncode == 0


def test_tools_are_listed_before_anything_of_a_run_is_loaded() -> None:
    """Clients begin their first turn without a server that is not there within a second or so."""
    program = (
        "import sys, whet.cli.serve_stdio, whet.serve.mcp.stdio as stdio\n"
        "heavy = ('whet.runs', 'whet.rollout', 'whet.gateway', 'whet.client', 'whet.tasks', 'numpy', 'aiohttp')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


NOISY = """
import contextlib, os, sys
from whet.event_loop import run_coroutine
from whet.serve.mcp.stdio import serve_stdio

@contextlib.asynccontextmanager
async def open_noisily():
    print("noise of this process", flush=True)
    os.system("echo noise of a child; cat")
    yield None

run_coroutine(serve_stdio(lambda: open_noisily))
"""


def test_whatever_prints_does_not_reach_the_client(project: Project) -> None:
    with Popen([sys.executable, "-c", NOISY], stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as process:
        wire = Wire(process)
        wire.initialize()
        wire.send("ping", {}, 2)
        wire.receive(2)
        err = wire.end()
    assert process.returncode == 0, err
    assert err.splitlines() == ["noise of this process", "noise of a child"]


def test_closing_stdin_ends_running_rollouts_and_the_next_server_continues_them(project: Project) -> None:
    with start(project) as process:
        wire = Wire(process)
        wire.initialize()
        wire.call(2, "run_task", task=SLOW)
        wire.wait_for_progress("agent")
        wire.end()
        assert process.returncode == 0
    assert project.boxes() == []
    with Store.open_read(project.path / "served/rollouts") as store:
        (waiting,) = store.served.waiting()
    with start(project) as process:
        wire = Wire(process)
        wire.initialize()
        wire.call(2, "cancel_rollout", id=waiting.rollout)
        assert wire.receive(2)["result"]["structuredContent"]["outcome"] == "cancelled"
        wire.end()


def test_a_signal_ends_it_though_stdin_is_open(project: Project) -> None:
    with start(project) as process:
        wire = Wire(process)
        wire.initialize()
        wire.call(2, "run_task", task=SLOW)
        wire.wait_for_progress("agent")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 130
    assert project.boxes() == []


def test_several_servers_in_one_project_have_folders_of_their_own(project: Project) -> None:
    with start(project) as first, start(project) as second:
        wires = [Wire(first), Wire(second)]
        for wire in wires:
            wire.initialize()
            wire.call(2, "run_task", task=RIGHT)
        assert [wire.receive(2)["result"]["structuredContent"]["reward"] for wire in wires] == [1.0, 1.0]
        said = sorted(wire.end() for wire in wires)
    assert sorted(path.name for path in project.path.glob("served*")) == ["served", "served-2"]
    assert said == ["", "whet: another server has served; rollouts are kept in served-2\n"]


def test_the_client_is_answered_before_the_options_are_read_and_a_wrong_one_ends_the_server(project: Project) -> None:
    with start(project, "--concurrency", "0") as process:
        assert Wire(process).initialize()["serverInfo"]["name"] == "whet"
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert out == ""
    assert err == "whet: --concurrency is 0; expected a number of at least 1\n"
