"""Whole runs and comparisons over REST: a run is an ordinary run folder, bounded by what its caller has left."""

import json
from pathlib import Path
from typing import Any

from support.serve_world import answers
from support.server_world import TestServer, open_test_server, read_events
from support.waiting import until
from whet.gateway import Limits
from whet.runs.stats.compared import compare_and_rank
from whet.runs.stored_run import load
from whet.serve.access import LOCAL
from whet.testing import Reply

RIGHT = answers("2 . 2", Reply(text="4"))
STUCK = answers("stuck", Reply(text="4", delay=60))
WRONG = answers(".", Reply(text="5"))


def tasks(folder: Path, *instructions: str) -> Path:
    rows = [{"id": f"t{n}", "instruction": text, "answer": "4"} for n, text in enumerate(instructions)]
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


async def finish(world: TestServer, body: dict[str, Any], **options: Any) -> dict[str, Any]:
    """A run, when it is done."""
    begun = await world.client.post("/v1/runs", json=body, **options)
    assert begun.status_code == 202, begun.text
    done = await world.client.get(f"/v1/runs/{begun.json()['id']}?wait=60", **options)
    return dict(done.json())


async def test_a_run_is_a_run_folder_with_every_attempt_as_an_event(tmp_path: Path) -> None:
    served = tasks(tmp_path, "2 + 2?", "3 + 1?")
    async with open_test_server(tmp_path, RIGHT, WRONG, tasks=served) as world:
        done = await finish(world, {"samples": 2, "agents": ["chat", "loop"]})
        assert (done["status"], done["outcome"], done["planned"], done["done"]) == ("done", "finished", 8, 8)
        assert {(arm["agent"], arm["scored"], arm["mean"]) for arm in done["arms"]} == {
            ("chat", 4, 0.5),
            ("loop", 4, 0.5),
        }
        path = f"/v1/runs/{done['id']}/events"
        async with world.client.stream("GET", path) as reply:
            events = [event async for event in read_events(reply)]
        assert [event.type for event in events] == ["queued", "started", *["attempt"] * 8, "done"]
        async with world.client.stream("GET", path, headers={"Last-Event-ID": "9"}) as reply:
            assert [event async for event in read_events(reply)] == events[9:]
        assert (await world.client.get("/v1/runs")).json() == [done]
    loaded = load(tmp_path / "served" / "runs" / done["id"])
    assert len(loaded.rollouts) == 8


async def test_a_run_names_only_what_is_offered(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, tasks=tasks(tmp_path, "2 + 2?")) as world:
        refused = {
            "agents": "key 'agents' has 'x', which is not offered; known: chat, ",
            "models": "key 'models' has 'x', which is not offered; known: m",
            "skills": "key 'skills' has 'x', which is not offered; known: none",
            "task": "`task` is 'x', which matches no task",
            "tasks": "unknown key 'tasks'; did you mean 'task'?",
            "out": "unknown key 'out'",
        }
        for key, begins in refused.items():
            reply = await world.client.post("/v1/runs", json={key: ["x"]})
            assert (reply.status_code, reply.json()["error"][: len(begins)]) == (422, begins)
        assert list((tmp_path / "served").glob("runs/*")) == []


async def test_a_cancelled_run_keeps_what_is_done(tmp_path: Path) -> None:
    served = tasks(tmp_path, "2 + 2?", "stuck")
    async with open_test_server(tmp_path, RIGHT, STUCK, tasks=served) as world:
        run = (await world.client.post("/v1/runs", json={})).json()
        await until(lambda: _attempts(tmp_path / "served" / "runs" / f"{run['id']}.events"))
        ended = (await world.client.delete(f"/v1/runs/{run['id']}")).json()
        assert (ended["status"], ended["outcome"], ended["done"]) == ("done", "cancelled", 1)
        assert (await world.client.delete(f"/v1/runs/{run['id']}")).json() == ended
    async with open_test_server(tmp_path, RIGHT, STUCK, tasks=served) as world:
        assert (await world.client.get(f"/v1/runs/{run['id']}")).json() == ended


def _attempts(events: Path) -> bool:
    return events.exists() and '"attempt"' in events.read_text()


async def test_a_run_that_the_server_left_is_resumed_when_it_comes_back(tmp_path: Path) -> None:
    served = tasks(tmp_path, "2 + 2?", "stuck")
    async with open_test_server(tmp_path, RIGHT, STUCK, tasks=served) as world:
        run = (await world.client.post("/v1/runs", json={})).json()
        await until(lambda: _attempts(tmp_path / "served" / "runs" / f"{run['id']}.events"))
    quick = answers("stuck", Reply(text="4"))
    async with open_test_server(tmp_path, RIGHT, quick, tasks=served) as world:
        done = (await world.client.get(f"/v1/runs/{run['id']}?wait=60")).json()
        assert (done["outcome"], done["done"], done["arms"][0]["mean"]) == ("finished", 2, 1.0)
        async with world.client.stream("GET", f"/v1/runs/{run['id']}/events") as reply:
            ids = [int(event.id) async for event in read_events(reply)]
        assert ids == list(range(1, len(ids) + 1))


async def test_runs_spend_what_their_caller_has_left_and_no_more(tmp_path: Path) -> None:
    """Each call takes more than 60 tokens; the caller may use 100."""
    costs = answers(".", Reply(text="four " * 50))
    served = tasks(tmp_path, *(f"{n} + 2?" for n in range(6)))
    async with open_test_server(tmp_path, costs, tokens=True, tasks=served, concurrency=1) as world:
        poor = world.as_caller("poor")
        done = await finish(world, {}, headers=poor)
        assert done["outcome"] == "finished"
        assert done["reason"].startswith("stopped by a limit: total tokens: ")
        assert done["done"] < 6
        for path, body in (("/v1/runs", {}), ("/v1/rollouts", {"task": "t0"})):
            refused = await world.client.post(path, json=body, headers=poor)
            assert (refused.status_code, refused.json()["code"]) == (402, "spent"), path
    async with open_test_server(tmp_path, costs, tokens=True, tasks=served) as world:
        refused = await world.client.post("/v1/runs", json={}, headers=world.as_caller("poor"))
        assert (refused.status_code, refused.json()["code"]) == (402, "spent")
        assert (await world.client.get("/v1/runs", headers=world.as_caller("ann"))).json() == []
        assert (await world.client.get(f"/v1/runs/{done['id']}", headers=world.as_caller("ann"))).status_code == 404
        assert len((await world.client.get("/v1/runs", headers=world.as_caller("admin"))).json()) == 1


async def test_a_run_is_bounded_by_the_limits_of_the_server_too(tmp_path: Path) -> None:
    costs = answers(".", Reply(text="four " * 50))
    served = tasks(tmp_path, *(f"{n} + 2?" for n in range(6)))
    async with open_test_server(tmp_path, costs, tasks=served, concurrency=1, limits=Limits(total_tokens=100)) as world:
        done = await finish(world, {})
        assert done["reason"].startswith("stopped by a limit: total tokens: ")
        assert (await world.client.post("/v1/runs", json={})).status_code == 402


async def test_what_a_run_does_not_use_is_free_for_rollouts_again(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, RIGHT, tokens=True, tasks=tasks(tmp_path, "2 + 2?")) as world:
        poor = world.as_caller("poor")
        first = await finish(world, {}, headers=poor)
        assert first["outcome"] == "finished"
        assert (await world.run({"task": "t0"}, headers=poor))["reward"] == 1.0


async def test_a_comparison_is_what_the_command_prints(tmp_path: Path) -> None:
    served = tasks(tmp_path, "2 + 2?", "3 + 1?")
    async with open_test_server(tmp_path, RIGHT, WRONG, tasks=served) as world:
        one = await finish(world, {"agents": ["chat", "loop"]})
        two = await finish(world, {"agents": ["chat"]})
        folder = tmp_path / "served" / "runs"
        arms = (await world.client.post("/v1/comparisons", json={"run": one["id"], "by": "agent"})).json()
        expected = compare_and_rank(folder / one["id"], None, None).document()
        assert arms == json.loads(json.dumps(expected))
        both = (await world.client.post("/v1/comparisons", json={"run": one["id"], "other": two["id"]})).json()
        assert both["comparisons"][0]["second"] == two["id"]
        assert str(tmp_path) not in json.dumps(both)
        for agent in ("chat", "loop"):
            for task in ("t0", "t1"):
                await world.run({"task": task, "agent": agent})
        rollouts = (await world.client.post("/v1/comparisons", json={"run": "served"})).json()
        assert rollouts["comparisons"][0]["ties"] == 2
        alone = await world.client.post("/v1/comparisons", json={"run": two["id"]})
        assert (alone.status_code, "only one arm" in alone.json()["error"]) == (422, True)


async def test_a_caller_compares_its_own_rollouts_only(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, RIGHT, tokens=True, tasks=tasks(tmp_path, "2 + 2?")) as world:
        ann, bob = world.as_caller("ann"), world.as_caller("bob")
        await world.run({"task": "t0", "agent": "chat"}, headers=ann)
        await world.run({"task": "t0", "agent": "loop"}, headers=bob)
        mine = await world.client.post("/v1/comparisons", json={"run": "served"}, headers=ann)
        assert (mine.status_code, "only one arm" in mine.json()["error"]) == (422, True)
        every = await world.client.post("/v1/comparisons", json={"run": "served"}, headers=world.as_caller("admin"))
        assert len(every.json()["comparisons"]) == 1


async def test_a_draining_server_takes_no_runs_and_no_rollouts(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, RIGHT, tasks=tasks(tmp_path, "2 + 2?")) as world:
        await world.server.drain(0)
        assert world.server.service.view(LOCAL).draining
        for path, body in (("/v1/runs", {}), ("/v1/rollouts", {"task": "t0"})):
            refused = await world.client.post(path, json=body)
            assert (refused.status_code, refused.json()["code"]) == (503, "draining")
            assert int(refused.headers["retry-after"]) >= 1
