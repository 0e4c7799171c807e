"""`whet serve`: what it prints, how it drains, and what it continues when it comes back."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support.waiting import PATIENCE, wait_until
from support.whet_program import Project, said_to_user
from whet.runs.store.store import Store

SCRIPT = """
[[scene]]
when.user = "slow"
[[scene.reply]]
text = "4"
delay = 5
[[scene]]
when.user = "stuck"
[[scene.reply]]
text = "4"
delay = 60
[[scene]]
[[scene.reply]]
text = "4"
"""
SERVE = ("serve", "--agent", "chat", "--model", "scripted:script.toml", "--port", "0", "--json")


@dataclass
class Serving:
    """A server under way, as a process of its own."""

    process: "subprocess.Popen[str]"
    first: dict[str, Any]
    client: httpx2.Client

    def submit(self, instruction: str, **fields: Any) -> dict[str, Any]:
        """Request rollouts; the group."""
        body = {"instruction": instruction, "answer": "4", **fields}
        reply = self.client.post("/v1/rollouts", json=body)
        assert reply.status_code == 202, reply.text
        return dict(reply.json())

    def wait(self, group: str) -> list[dict[str, Any]]:
        """The rollouts of a group when they are done."""
        reply = self.client.get(f"/v1/groups/{group}?wait=60", timeout=90)
        return list(reply.json()["rollouts"])

    def until_running(self) -> None:
        wait_until(lambda: self.client.get("/v1/service").json()["running"])

    def stop(self) -> list[dict[str, Any]]:
        """End it; the events that it printed since it began."""
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> list[dict[str, Any]]:
        out, err = self.process.communicate(timeout=PATIENCE)
        assert (self.process.returncode, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(autouse=True)
def script(project: Project) -> None:
    project.write("script.toml", SCRIPT)


@contextmanager
def serving(project: Project, *arguments: str) -> Iterator[Serving]:
    with project.start(*SERVE, *arguments) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        first = json.loads(line)
        with httpx2.Client(base_url=first["url"], timeout=30) as client:
            yield Serving(process, first, client)


def test_it_says_where_it_listens_what_it_serves_and_how_to_try_it(project: Project) -> None:
    tasks = project.rows("tasks.jsonl", {"id": "a", "instruction": "2 + 2?", "answer": "4"})
    words = [word for word in SERVE if word != "--json"]
    with project.start(*words, tasks) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().rstrip() for _ in range(6)]
        url = lines[0].split()[0]
        assert lines[0] == f"{url} serves 1 task with chat on scripted:script.toml"
        assert lines[1] == "  everybody on this machine may call it, and nobody else"
        assert lines[2] == "  rollouts are kept in served/rollouts; Ctrl-C drains and ends it"
        done = httpx2.post(f"{url}/v1/rollouts?wait=60", json={"task": "a"}, timeout=60).json()["rollouts"][0]
        shown = subprocess.run(["sh", "-c", lines[4]], capture_output=True, text=True, check=True, timeout=PATIENCE)
        assert json.loads(shown.stdout)["status"] == "done"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    ended = out.splitlines()
    assert f"{done['id']}  1.00  a  chat  scripted:script.toml  the answer matches (" in ended[0]
    assert "stopping: 0 rollouts may run for 1 min 0 s more; Ctrl-C ends them at once" in ended
    assert project.whet("show", "served/rollouts").returncode == 0


def test_a_rollout_that_runs_when_the_server_is_told_to_stop_ends_and_new_work_is_refused(project: Project) -> None:
    with serving(project) as server:
        group = server.submit("slow")
        server.until_running()
        waited: list[Any] = []
        waiting = threading.Thread(target=lambda: waited.extend(server.wait(group["id"])))
        waiting.start()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: server.client.get("/v1/service").json()["draining"])
        refused = server.client.post("/v1/rollouts", json={"instruction": "2 + 2?"})
        assert (refused.status_code, refused.json()["code"]) == (503, "draining")
        assert int(refused.headers["retry-after"]) > 0
        assert server.client.get("/health").json() == {"status": "healthy"}
        events = server.end()
        waiting.join()
    assert [one["reward"] for one in waited] == [1.0]
    assert [event["event"] for event in events] == ["draining", "rollout"]
    assert (events[0]["running"], events[1]["reward"]) == (1, 1.0)
    assert "answer" not in events[1]


def test_what_does_not_end_in_time_runs_again_after_the_next_start(project: Project) -> None:
    with serving(project, "--drain-sec", "0", "--concurrency", "1") as server:
        stuck = server.submit("stuck")
        server.until_running()
        queued = server.submit("2 + 2?")
        assert [event["event"] for event in server.stop()] == ["draining"]
    project.write("script.toml", SCRIPT.replace("60", "0"))
    with serving(project) as server:
        assert server.first["waiting"] == 2
        for group in (stuck, queued):
            (done,) = server.wait(group["id"])
            assert done["reward"] == 1.0
        server.stop()


def test_a_second_signal_ends_it_at_once(project: Project) -> None:
    with serving(project, "--drain-sec", "600") as server:
        server.submit("stuck")
        server.until_running()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.stdout is not None
        assert json.loads(server.process.stdout.readline())["event"] == "draining"
        server.process.send_signal(signal.SIGTERM)
        server.end()


def test_a_killed_server_comes_back_with_its_queue_and_runs_nothing_twice(project: Project) -> None:
    with serving(project, "--concurrency", "2") as server:
        groups = [server.submit(f"2 + 2? {n}", samples=5)["id"] for n in range(6)]
        wait_until(lambda: server.client.get("/v1/service").json()["done"] >= 3)
        server.process.kill()
        server.process.wait()
    with serving(project) as server:
        done = [one for group in groups for one in server.wait(group)]
        assert [one["reward"] for one in done] == [1.0] * 30
        server.stop()
    with Store.open_read(project.path / "served" / "rollouts") as store:
        scored = Counter(
            row.id for row, attempts in store.attempts_by_rollout() for one in attempts if one.value is not None
        )
    assert set(scored) == {one["id"] for one in done}
    assert set(scored.values()) == {1}


def test_two_servers_do_not_share_a_folder(project: Project) -> None:
    folder = project.path / "served" / "rollouts"
    with Store.create(folder):
        said = said_to_user(project.whet(*SERVE))
    assert said == "whet: run served/rollouts is being written by another process"


def test_mistakes_are_one_line(project: Project) -> None:
    said = said_to_user(project.whet(*SERVE, "--host", "0.0.0.0"))
    assert said.startswith("whet: --host is '0.0.0.0', which other machines may reach, and there are no tokens; ")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = said_to_user(project.whet("serve", "--model", "scripted:script.toml", "--port", port))
    assert said == f"whet: cannot listen on 127.0.0.1 port {port}: Address already in use; name another --port"
    said = said_to_user(project.whet(*SERVE, "--tokens", "none.toml"))
    assert said == "whet: none.toml: cannot be read: No such file or directory"
    assert not (project.path / "served").exists()


def test_it_names_the_extra_that_it_needs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert said_to_user(project.whet(*SERVE)) == "whet: servers need one more package: pip install 'whet[serve]'"


def test_tokens_from_the_environment_are_needed_and_never_printed(project: Project) -> None:
    token = "a-token-of-the-environment"
    env = {"WHET_SERVE_TOKEN": token}
    with serving(Project(project.path, project.tmp, env)) as server:
        assert server.first["tokens"] == 1
        assert server.client.get("/v1/service").status_code == 401
        assert server.client.get("/v1/service", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        printed = json.dumps([server.first, *server.stop()])
    assert token not in printed
    assert _find(project.path / "served", token.encode()) == []


def _find(folder: Path, text: bytes) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]
