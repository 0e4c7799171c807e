"""Server-sent events: in order, continued where a client left off, and never more open than a caller may have."""

import asyncio
from pathlib import Path

import pytest

from support.serve_world import answers
from support.server_world import Sse, TestServer, open_test_server, read_events
from whet.serve.rest import parts, streams
from whet.testing import Reply

QUESTION = {"instruction": "2 + 2?", "answer": "4"}
STUCK = answers("stuck", Reply(text="4", delay=60))
SLOW = answers("slow", Reply(text="4", delay=1.0))
QUICK = answers(".", Reply(text="4"))


async def follow(world: TestServer, path: str, last: str | None = None, most: int = 1000) -> list[Sse]:
    """The events of a stream to its end, or the first ones."""
    found: list[Sse] = []
    headers = {"Last-Event-ID": last} if last is not None else {}
    async with world.client.stream("GET", path, headers=headers) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        async for event in read_events(reply):
            found.append(event)
            if len(found) == most:
                break
    return found


async def test_the_life_of_a_rollout_is_told_and_continued_after_the_last_event(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, SLOW) as world:
        begun = (await world.client.post("/v1/rollouts", json={**QUESTION, "instruction": "slow"})).json()
        path = f"/v1/rollouts/{begun['rollouts'][0]['id']}/events"
        first = await follow(world, path, most=2)
        live = await follow(world, path)
        types = [event.type for event in live]
        assert (types[0], types[-1]) == ("queued", "done")
        assert {"started", "phase", "call", "attempt"} < set(types)
        assert live[-1].data["data"] == {"outcome": "scored", "reward": 1.0}
        assert [event.id for event in live] == [str(number) for number in range(1, len(live) + 1)]
        assert first == live[:2]
        stored = await follow(world, path)
        assert [(event.id, event.type) for event in stored] == [(event.id, event.type) for event in live]
        rest = await follow(world, path, last=live[2].id)
        assert [event.id for event in rest] == [event.id for event in live[3:]]
        assert await follow(world, path, last=live[-1].id) == []


async def test_the_events_of_a_group_are_merged_and_continued(tmp_path: Path) -> None:
    async with open_test_server(tmp_path) as world:
        group = (await world.client.post("/v1/rollouts?wait=60", json={**QUESTION, "samples": 3})).json()
        path = f"/v1/groups/{group['id']}/events"
        whole = await follow(world, path)
        assert sum(event.type == "done" for event in whole) == 3
        half = len(whole) // 2
        rest = await follow(world, path, last=whole[half - 1].id)
        both = [(event.data["rollout"], event.data["id"]) for event in [*whole[:half], *rest]]
        assert sorted(both) == sorted((event.data["rollout"], event.data["id"]) for event in whole)
        assert len(set(both)) == len(both)


async def test_rollouts_that_a_group_drops_are_in_its_events(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, STUCK) as world:
        body = {**QUESTION, "instruction": "stuck", "samples": 2}
        group = (await world.client.post("/v1/rollouts", json=body)).json()
        ended = (await world.client.delete(f"/v1/groups/{group['id']}")).json()
        assert ended["rollouts"] == []
        events = await follow(world, f"/v1/groups/{group['id']}/events")
        assert [event.data["data"]["outcome"] for event in events if event.type == "done"] == ["cancelled"] * 2


async def test_a_silent_stream_has_a_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_SEC", 0.1)
    async with open_test_server(tmp_path, STUCK) as world:
        begun = (await world.client.post("/v1/rollouts", json={**QUESTION, "instruction": "stuck"})).json()
        path = f"/v1/rollouts/{begun['rollouts'][0]['id']}/events"
        beats = 0
        async with asyncio.timeout(20), world.client.stream("GET", path) as reply:
            async for line in reply.aiter_lines():
                beats += line.startswith(": ")
                if beats == 3:
                    break


async def test_streams_beyond_the_most_are_refused_until_one_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MOST_STREAMS", 1)
    async with open_test_server(tmp_path, STUCK) as world:
        begun = (await world.client.post("/v1/rollouts", json={**QUESTION, "instruction": "stuck"})).json()
        path = f"/v1/rollouts/{begun['rollouts'][0]['id']}/events"
        async with world.client.stream("GET", path) as reply:
            events = read_events(reply)
            assert (await anext(events)).type == "queued"
            refused = await world.client.get(path)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        await world.until_status(200, path)


async def test_an_id_that_is_no_number_is_refused(tmp_path: Path) -> None:
    async with open_test_server(tmp_path) as world:
        done = await world.run(QUESTION)
        for last in ("x", "-1", "1:2", "9" * 30, "\xb9"):
            headers = [(b"Last-Event-ID", last.encode("latin-1"))]
            refused = await world.client.get(f"/v1/rollouts/{done['id']}/events", headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid"), last


async def test_streams_end_when_the_server_stops(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, STUCK) as world:
        begun = (await world.client.post("/v1/rollouts", json={**QUESTION, "instruction": "stuck"})).json()
        path = f"/v1/rollouts/{begun['rollouts'][0]['id']}/events"
        following = asyncio.create_task(follow(world, path))
        waiting = asyncio.create_task(world.client.get(f"/v1/rollouts/{begun['rollouts'][0]['id']}?wait=60"))
        async with world.client.stream("GET", path) as reply:
            assert (await anext(read_events(reply))).type == "queued"
        await world.server.drain(0)
        world.server.stop()
        assert (await following)[0].type == "queued"
        assert (await waiting).json()["status"] == "queued"
