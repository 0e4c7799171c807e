"""Time and capacity: order on a socket, calls side by side, keep-alive, and what becomes of a client that goes away."""

import asyncio
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from support.openenv_world import OpenEnvServer, open_openenv
from support.serve_world import RIGHT, WRITES
from support.waiting import until
from whet.client.models import Outcome
from whet.client.openenv_models import RolloutResult
from whet.serve.access import LOCAL
from whet.serve.openenv.environment import OpenEnvSettings

DO: dict[str, Any] = {"model": "m", "instruction": "Write right.", "agent": WRITES, "verify": [RIGHT]}


def slow(seconds: float) -> dict[str, Any]:
    return {**DO, "setup": [f"sleep {seconds}"]}


def step(**arguments: Any) -> dict[str, Any]:
    return {"type": "step", "data": {"type": "call_tool", "tool_name": "run_rollout", "arguments": arguments}}


async def running_rollout(server: OpenEnvServer) -> str:
    """The id of a rollout that runs, as soon as there is one."""
    await until(lambda: server.service.view(LOCAL).running)
    return (await server.service.list_rollouts(LOCAL, status="running"))[0].id


async def until_sessions(server: OpenEnvServer, count: int) -> None:
    await until(lambda: len(server.openenv.sessions) == count)


async def test_replies_come_in_order_and_pings_are_answered_meanwhile(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server, server.socket() as ws:
        await ws.send(step(**slow(1)))
        await ws.send({"type": "state"})
        await ws.send("{")
        started = time.monotonic()
        await (await ws.connection.ping())
        assert time.monotonic() - started < 0.5
        assert [(await ws.receive())["type"] for _ in range(3)] == ["observation", "state", "error"]


@pytest.mark.parametrize("goodbye", ["close frame", "closed", "gone"])
async def test_a_client_that_goes_away_frees_its_slot_at_once_and_loses_nothing(tmp_path: Path, goodbye: str) -> None:
    async with open_openenv(tmp_path, settings=OpenEnvSettings(max_sessions=1)) as server:
        async with server.socket() as ws:
            await ws.send(step(**slow(1)))
            rollout = await running_rollout(server)
            match goodbye:
                case "close frame":
                    await ws.send({"type": "close"})
                case "closed":
                    await ws.connection.close()
                case "gone":
                    ws.connection.transport.abort()
            await until_sessions(server, 0)
            assert (await server.service.rollout(rollout, LOCAL)).outcome is None
        view = await server.service.wait(rollout, LOCAL, 30)
        assert (view.outcome, view.reward) == (Outcome.SCORED, 1.0)


async def test_calls_of_one_session_run_side_by_side(tmp_path: Path) -> None:
    async with open_openenv(tmp_path, concurrency=4) as server:
        session = (await server.rpc("openenv/session/create"))["result"]["session_id"]
        call = {"name": "run_rollout", "arguments": slow(1.5), "session_id": session}
        started = time.monotonic()
        both = asyncio.gather(*(server.rpc("tools/call", call, place) for place in range(2)))
        async with server.socket(f"/ws?session_id={session}") as ws:
            held = server.openenv.sessions.find(session, LOCAL.name)
            await until(lambda: len(held.state.running_rollouts) == 2)
            replies = await both
            assert time.monotonic() - started < 2 * 1.5
            assert [reply["id"] for reply in replies] == [0, 1]
            state = (await ws.ask({"type": "state"}))["data"]
            assert (state["rollouts_completed"], state["running_rollouts"], state["step_count"]) == (2, [], 2)


async def test_a_session_whose_client_hung_up_in_a_call_is_idle_and_still_counts_it(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server:
        session = (await server.rpc("openenv/session/create"))["result"]["session_id"]
        held = server.openenv.sessions.find(session, LOCAL.name)
        call = {"name": "run_rollout", "arguments": slow(1), "session_id": session}
        calling = asyncio.create_task(server.rpc("tools/call", call))
        await running_rollout(server)
        assert held.idle_for() == 0
        calling.cancel()
        await until(lambda: held.idle_for() > 0)
        await until(lambda: held.state.rollouts_completed == 1)
        assert held.state.last_reward == 1.0


async def test_calls_that_wait_are_answered_when_the_server_stops(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server, server.socket() as ws:
        call = {"name": "run_rollout", "arguments": slow(30)}
        calling = asyncio.create_task(server.rpc("tools/call", call))
        await ws.send(step(**slow(30)))
        (held,) = server.openenv.sessions._sessions.values()
        await until(lambda: server.service.view(LOCAL).running == 2 and held.state.running_rollouts)
        server.stopping.set()
        said = "Error calling tool 'run_rollout': the server is about to stop; what runs is done when it is back: "
        assert (await calling)["error"]["message"].startswith(said)
        error = (await ws.receive())["data"]["observation"]["error"]
        assert (error["error_type"], error["message"][: len(said)]) == ("execution_error", said)
        assert error["message"][len(said) :] in {one.id for one in await server.service.list_rollouts(LOCAL)}


async def test_a_defect_is_an_answer_and_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("whet.serve.openenv.tools.read_result", fail)
    async with open_openenv(tmp_path) as server, server.socket() as ws:
        reply = await server.rpc("tools/call", {"name": "run_rollout", "arguments": DO})
        assert reply["error"] == {
            "code": -32603,
            "message": "Error calling tool 'run_rollout': the server failed; its log says why",
            "data": None,
        }
        assert (await ws.ask(step(**DO)))["data"]["observation"]["error"]["error_type"] == "execution_error"
        assert (await ws.ask({"type": "state"}))["type"] == "state"
    assert "secret detail" in caplog.text


async def test_spaces_come_at_once_and_every_second_until_the_reply(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server, server.http() as client:
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        params = {"params": {"name": "run_rollout", "arguments": slow(2.5)}}
        started, arrivals, body = time.monotonic(), [], b""
        async with client.stream("POST", "/mcp", json=request | params) as reply:
            assert reply.headers["content-type"] == "application/json"
            async for chunk in reply.aiter_raw():
                arrivals.append(time.monotonic() - started)
                body += chunk
        assert arrivals[0] < 0.5
        assert len(body) - len(body.lstrip(b" ")) >= 3
        assert max(after - before for before, after in pairwise(arrivals)) < 2
        assert json.loads(body)["result"]["is_error"] is False


async def test_a_short_time_limit_of_the_client_is_enough_over_http(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server, server.http() as client:
        params = {"name": "run_rollout", "arguments": slow(4)}
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        reply = await client.post("/mcp", json=request, timeout=2)
        assert RolloutResult.model_validate_json(reply.json()["result"]["data"]).reward == 1.0


async def test_at_capacity_a_client_can_read_why(tmp_path: Path) -> None:
    async with open_openenv(tmp_path, settings=OpenEnvSettings(max_sessions=1)) as server:
        said = "Server at capacity: 1/1 sessions active. Cannot accept new connections."
        async with server.socket():
            async with server.socket() as second:
                await asyncio.sleep(0.2)  # clients send before they read; the socket must still be open
                refused = await second.ask({"type": "reset", "data": {}})
                counts = {"active_sessions": 1, "max_sessions": 1}
                assert refused == {"type": "error", "data": {"message": said, "code": "CAPACITY_REACHED", **counts}}
                with pytest.raises(ConnectionClosed):
                    await second.connection.recv()
            error = (await server.rpc("openenv/session/create"))["error"]
            assert error == {"code": -32000, "message": said, "data": counts}
            async with server.socket("/mcp") as third:
                assert (await third.receive())["error"]["code"] == -32000
            # Calls without a session need no slot.
            assert "result" in await server.rpc("tools/list")
        await until_sessions(server, 0)
        async with server.socket() as fourth:
            assert (await fourth.ask({"type": "reset"}))["type"] == "observation"


async def test_an_unknown_session_cannot_be_attached_to(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server, server.socket("/ws?session_id=nope") as ws:
        assert (await ws.receive())["data"] == {"message": "Unknown session_id: nope", "code": "SESSION_ERROR"}


async def test_idle_sessions_are_closed_but_not_while_a_rollout_runs(tmp_path: Path) -> None:
    settings = OpenEnvSettings(session_idle_sec=0.5)
    async with open_openenv(tmp_path, settings=settings) as server, server.socket() as idle:
        await server.rpc("openenv/session/create")
        async with server.socket() as busy:
            assert (await busy.ask(step(**slow(2))))["data"]["reward"] == 1.0
        with pytest.raises(ConnectionClosed):
            await idle.connection.recv()
        await until_sessions(server, 0)


async def test_the_state_names_the_rollout_that_runs(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server:
        session = (await server.rpc("openenv/session/create"))["result"]["session_id"]
        call = {"name": "run_rollout", "arguments": slow(1), "session_id": session}
        calling = asyncio.create_task(server.rpc("tools/call", call))
        rollout = await running_rollout(server)
        await until(lambda: server.openenv.sessions.find(session, LOCAL.name).state.running_rollouts)
        async with server.socket(f"/ws?session_id={session}") as ws:
            assert (await ws.ask({"type": "state"}))["data"]["running_rollouts"] == [rollout]
        events = [event.type async for event in server.service.events(rollout, LOCAL)]
        assert events[-1] == "done"
        await calling


async def test_many_sessions_wait_at_the_same_time(tmp_path: Path) -> None:
    async with open_openenv(tmp_path, concurrency=2) as server:

        async def one(place: int) -> str | None:
            async with server.socket() as ws:
                reset = await ws.ask({"type": "reset", "data": {"episode_id": f"ep-{place}"}})
                assert reset["type"] == "observation"
                state: str | None = (await ws.ask({"type": "state"}))["data"]["episode_id"]
                return state

        assert await asyncio.gather(*map(one, range(100))) == [f"ep-{place}" for place in range(100)]
        await until_sessions(server, 0)


async def test_done_is_reported_if_the_operator_wants_it(tmp_path: Path) -> None:
    settings = OpenEnvSettings(done_after_rollout=True)
    async with open_openenv(tmp_path, settings=settings) as server, server.socket() as ws:
        assert (await ws.ask(step(**DO)))["data"]["done"] is True
        assert (await ws.ask({"type": "step", "data": {"type": "list_tools"}}))["data"]["done"] is False


async def test_a_refused_upgrade_is_an_http_status(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server:
        with pytest.raises(InvalidStatus):
            async with server.socket("/nothing"):
                pass
