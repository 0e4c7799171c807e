"""The clients with a real server, which answers, refuses, is killed and comes back."""

import asyncio
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pytest

from support.scripted_rest import CALLS, call_async, call_sync
from support.server_process import ServerProcess
from support.waiting import wait_until
from support.whet_program import REPOSITORY, Project, new_project
from whet.client import AsyncClient, Client
from whet.client.errors import Conflict, InvalidRequest, NotFound
from whet.client.models import (
    ComparisonRequest,
    Outcome,
    PauseMode,
    RolloutRequest,
    RolloutView,
    RunRequest,
    Status,
)

pytestmark = pytest.mark.slow

SCRIPT = """
tokens = true
[[scene]]
when.user = "slow"
[[scene.reply]]
text = "4"
delay = 3
[[scene]]
[[scene.reply]]
text = "4"
"""
CONFIG = """
[models.policy]
script = "script.toml"
capture = "vllm"
set = { temperature = 1.0, top_p = 1.0, top_k = -1, min_p = 0.0, repetition_penalty = 1.0 }
"""
WRITES = "command:sh -c 'mkdir -p sub; echo right > sub/answer.txt'"


@pytest.fixture(params=CALLS.values(), ids=list(CALLS))
def call(request: pytest.FixtureRequest) -> Any:
    """Uses one client and the other."""
    return request.param


PATIENT = 300.0
"""How long the clients try here: a server takes a while to start when other tests compute as well."""


def make_server(project: Project, *arguments: str) -> ServerProcess:
    project.write("script.toml", SCRIPT)
    project.write("whet.toml", CONFIG)
    rows = [{"id": f"sum-{n}", "instruction": f"{n} + {4 - n}?", "answer": "4", "split": "train"} for n in range(2)]
    tasks = project.rows("tasks.jsonl", *rows)
    given = ("--agent", f"chat,{WRITES}", "--model", "policy", "--drain-sec", "0", *arguments)
    return ServerProcess(project, tasks, *given)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of all these tests. Some of them kill it and start it again."""
    with new_project(tmp_path_factory.mktemp("server")) as project:
        server = make_server(project)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def slow(samples: int = 1) -> RolloutRequest:
    return RolloutRequest(instruction="Be slow: 2 + 2?", answer="4", samples=samples)


def test_a_group_gives_rows_traces_and_events(server: ServerProcess, call: Any) -> None:
    group = call(server.url, lambda c: c.run(RolloutRequest(task="sum-1", samples=2, metadata={"step": "1"})))
    assert (group.status, group.scored, group.complete) == (Status.DONE, 2, True)
    first: RolloutView = group.rollouts[0]
    assert (first.outcome, first.reward, first.answer, first.metadata) == (Outcome.SCORED, 1.0, "4", {"step": "1"})
    assert call(server.url, lambda c: c.rollout(first.id)) == first
    assert call(server.url, lambda c: c.wait(first.id)) == first
    assert call(server.url, lambda c: c.group(group.id)) == group
    rows = call(server.url, lambda c: c.group_rows(group.id))
    assert [row["reward"] for row in rows.rows] == [1.0, 1.0]
    assert len(call(server.url, lambda c: c.rows(first.id, subagents=0.0)).rows) == 1
    (conversation,) = call(server.url, lambda c: c.trace(first.id)).conversations
    assert [message["role"] for message in conversation.messages][-2:] == ["user", "assistant"]
    events = call(server.url, lambda c: c.events(first.id))
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert (events[0].type, events[-1].type) == ("queued", "done")
    assert call(server.url, lambda c: c.events(first.id, after=len(events) - 1)) == events[-1:]
    listed = call(server.url, lambda c: c.rollouts(status=Status.DONE, limit=1000))
    assert {one.id for one in group.rollouts} <= {one.id for one in listed}


def test_files_come_byte_for_byte(server: ServerProcess, call: Any) -> None:
    request = RolloutRequest(instruction="Write.", agent=WRITES, verify=("grep -qx right sub/answer.txt",))
    (done,) = call(server.url, lambda c: c.run(request)).rollouts
    assert done.reward == 1.0
    (file,) = call(server.url, lambda c: c.files(done.id))
    assert (file.path, file.bytes) == ("sub/answer.txt", 6)
    assert call(server.url, lambda c: c.file(done.id, file.path)) == b"right\n"
    with pytest.raises(NotFound, match=r"has no file 'answer\.txt'"):
        call(server.url, lambda c: c.file(done.id, "answer.txt"))


def test_what_is_offered_is_listed(server: ServerProcess, call: Any) -> None:
    assert [task.id for task in call(server.url, lambda c: c.tasks())] == ["sum-0", "sum-1"]
    assert [agent.name for agent in call(server.url, lambda c: c.agents())] == ["chat", WRITES]
    assert call(server.url, lambda c: c.skills()) == []
    (model,) = call(server.url, lambda c: c.models())
    assert (model.name, model.capture) == ("policy", "vllm")
    assert call(server.url, lambda c: c.service()).version


def test_refusals_carry_the_servers_line(server: ServerProcess, call: Any) -> None:
    with pytest.raises(InvalidRequest, match="unknown agent 'chad'; did you mean 'chat'"):
        call(server.url, lambda c: c.submit(RolloutRequest(task="sum-1", agent="chad")))
    with pytest.raises(NotFound):
        call(server.url, lambda c: c.rollout("nobody"))
    with pytest.raises(NotFound):
        call(server.url, lambda c: c.events("nobody"))
    group = call(server.url, lambda c: c.run(RolloutRequest(task="sum-1")))
    with pytest.raises(InvalidRequest, match="unknown format; did you mean 'rows'"):
        call(server.url, lambda c: c.group_rows(group.id, format="rws"))
    with pytest.raises(InvalidRequest, match="subagent"):
        call(server.url, lambda c: c.group_rows(group.id, subagent=1))


def test_a_key_joins_and_does_not_mix(server: ServerProcess, call: Any) -> None:
    key = f"key of {call.__name__}"
    first = call(server.url, lambda c: c.submit(RolloutRequest(task="sum-1"), key=key))
    assert call(server.url, lambda c: c.run(RolloutRequest(task="sum-1"), key=key)).id == first.id
    with pytest.raises(Conflict, match="was used for another request"):
        call(server.url, lambda c: c.submit(RolloutRequest(task="sum-0"), key=key))


def test_what_waits_and_runs_can_be_cancelled(server: ServerProcess, call: Any) -> None:
    group = call(server.url, lambda c: c.submit(slow(2)))
    one, other = (rollout.id for rollout in group.rollouts)
    assert call(server.url, lambda c: c.cancel(one)).outcome is Outcome.CANCELLED
    call(server.url, lambda c: c.cancel_group(group.id))
    assert call(server.url, lambda c: c.wait(other)).outcome is Outcome.CANCELLED


def test_nothing_starts_while_it_is_paused(server: ServerProcess) -> None:
    with Client(server.url) as client, client.paused(PauseMode.DRAIN, model="policy", wait_sec=60) as view:
        assert view.paused == ("policy",)
        model = client.update_model("policy", weight_version="7")
        assert (model.weight_version, client.update_model("policy", weight_version="7").updates) == ("7", model.updates)
        group = client.submit(RolloutRequest(task="sum-0"))
        assert client.wait_group(group.id, 0.2).status is Status.QUEUED
    with Client(server.url) as client:
        assert client.service().paused == ()
        assert client.wait_group(group.id).rollouts[0].weight_versions == ("7",)


async def test_the_async_client_pauses_too(server: ServerProcess) -> None:
    async with AsyncClient(server.url) as client:
        async with client.paused(model="policy", wait_sec=60) as view:
            assert view.paused == ("policy",)
        assert (await client.service()).paused == ()


async def test_many_waits_go_on_at_the_same_time(server: ServerProcess) -> None:
    async with AsyncClient(server.url) as client:
        groups = await asyncio.gather(*(client.run(RolloutRequest(task="sum-0")) for _ in range(20)))
    assert len({group.id for group in groups}) == 20
    assert all(group.rollouts[0].reward == 1.0 for group in groups)


def test_whole_runs_are_started_awaited_and_compared(server: ServerProcess, call: Any) -> None:
    key = f"run of {call.__name__}"
    begun = call(server.url, lambda c: c.start_run(RunRequest(agents=("chat",), samples=2), key=key))
    same = call(server.url, lambda c: c.start_run(RunRequest(agents=("chat",), samples=2), key=key))
    assert same.id == begun.id
    with pytest.raises(Conflict, match="was used for another request"):
        call(server.url, lambda c: c.start_run(RunRequest(agents=("chat",)), key=key))
    run = call(server.url, lambda c: c.wait_run(begun.id))
    assert (run.status, run.outcome, run.planned, run.done) == (Status.DONE, "finished", 4, 4)
    assert run.arms[0].mean == 1.0
    assert run.id in {one.id for one in call(server.url, lambda c: c.runs())}
    assert call(server.url, lambda c: c.cancel_run(run.id)).outcome == "finished"
    other = call(server.url, lambda c: c.start_run(RunRequest(agents=("chat",))))
    call(server.url, lambda c: c.wait_run(other.id))
    assert call(server.url, lambda c: c.compare(ComparisonRequest(run=run.id, other=other.id)))


def test_the_documented_program_runs(server: ServerProcess) -> None:
    document = (REPOSITORY / "docs/serve/rest.md").read_text()
    (program,) = re.findall(r"^```py\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    program = program.replace("http://127.0.0.1:8000", server.url)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0] == "scored 0.0 1", "this model writes no file"
    assert f"8 {[1.0] * 8}" in lines
    assert lines[-1].startswith("NotFound unknown task 'nothing'")


def test_waits_and_streams_survive_a_killed_server(server: ServerProcess) -> None:
    group = call_sync(server.url, lambda c: c.submit(slow(2)))
    first = group.rollouts[0].id
    with ThreadPoolExecutor() as threads:
        waits, streams = (
            [threads.submit(call, server.url, use, retry_sec=PATIENT) for call in CALLS.values()]
            for use in (lambda c: c.wait_group(group.id), lambda c: c.events(first))
        )
        with Client(server.url) as client:
            wait_until(lambda: client.rollout(first).status is Status.RUNNING)
        server.kill()
        server.start()
    for wait in waits:
        assert [(one.id, one.outcome) for one in wait.result().rollouts] == [
            (one.id, Outcome.SCORED) for one in group.rollouts
        ]
    for stream in streams:
        numbers, types = [one.id for one in stream.result()], [one.type for one in stream.result()]
        assert numbers == sorted(set(numbers))
        assert types.count("done") == 1
        assert types[-1] == "done"


def test_a_submit_whose_answer_is_lost_starts_once(server: ServerProcess) -> None:
    with Client(server.url, retry_sec=PATIENT) as client:
        before = {one.id for one in client.rollouts(limit=1000)}
        with LossyProxy(server) as proxy:
            group = call_sync(proxy.url, lambda c: c.submit(RolloutRequest(task="sum-1", samples=3)), retry_sec=PATIENT)
        assert proxy.lost == 1
        assert client.wait_group(group.id).scored == 3
        new = [one for one in client.rollouts(limit=1000) if one.id not in before]
    assert [one.group for one in new] == [group.id] * 3


def test_run_is_finished_although_the_server_stops_twice(server: ServerProcess) -> None:
    def restart_twice() -> None:
        for end in (server.stop, server.kill):
            with Client(server.url) as client:
                wait_until(lambda: client.service().running)
            end()
            server.start()

    again = threading.Thread(target=restart_twice)
    again.start()
    (done,) = call_async(server.url, lambda c: c.run(slow()), retry_sec=PATIENT).rollouts
    again.join()
    assert (done.outcome, done.attempts) == (Outcome.SCORED, 3)


class LossyProxy:
    """Passes connections on to a server. The answer to the first one is lost, and the server killed and started again:
    the request was stored, and its client cannot know."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.lost = 0
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listening.close()

    def _serve(self) -> None:
        for turn in range(2):
            client, _ = self._listening.accept()
            with client, socket.create_connection(("127.0.0.1", self._server.port)) as upstream:
                # Requests and replies here are small and come in one piece each, or in two.
                request = client.recv(65536)
                while b"\r\n\r\n" not in request or not request.endswith(b"}"):
                    request += client.recv(65536)
                upstream.sendall(request)
                reply = upstream.recv(65536)
                while not reply.endswith(b"}"):
                    reply += upstream.recv(65536)
                assert reply.startswith(b"HTTP/1.1 202 ")
                if turn == 0:
                    self.lost += 1
                    self._server.kill()
                    self._server.start()
                else:
                    client.sendall(reply)
