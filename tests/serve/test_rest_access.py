"""Who may do what over HTTP, and what is refused: every refusal is a `Problem`, and none is a failure of the server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from support.serve_world import answers
from support.server_world import TOKENS, open_test_server
from support.waiting import until
from whet.client.models import Problem
from whet.errors import UserError
from whet.serve import guard
from whet.serve.access import LOCAL
from whet.testing import Reply

QUESTION = {"instruction": "2 + 2?", "answer": "4"}
STUCK = answers("stuck", Reply(text="4", delay=60))
JSON = {"Content-Type": "application/json"}

BAD: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("GET", "/nothing", {}, 404, "there is nothing at /nothing"),
    ("GET", "/v1/rollouts/none", {}, 404, "there is no rollout 'none'"),
    ("GET", "/v1/rollouts/none/trace", {}, 404, "there is no rollout 'none'"),
    ("GET", "/v1/rollouts/none/rows", {}, 404, "there is no rollout 'none'"),
    ("GET", "/v1/rollouts/none/files/x", {}, 404, "there is no rollout 'none'"),
    ("GET", "/v1/rollouts/none/events", {}, 404, "there is no rollout 'none'"),
    ("DELETE", "/v1/rollouts/none", {}, 404, "there is no rollout 'none'"),
    ("GET", "/v1/groups/none", {}, 404, "there is no group 'none'"),
    ("GET", "/v1/groups/none/events", {}, 404, "there is no group 'none'"),
    ("GET", "/v1/runs/none", {}, 404, "there is no run 'none'"),
    ("GET", "/v1/runs/none/events", {}, 404, "there is no run 'none'"),
    ("POST", "/v1/comparisons", {"json": {"run": "none"}}, 404, "there is no run 'none'"),
    ("POST", "/v1/comparisons", {"json": {"run": "../../etc"}}, 404, "there is no run '../../etc'"),
    ("POST", "/v1/runs", {"json": {}}, 422, "this server has no tasks"),
    ("PUT", "/v1/models/none", {"json": {"weight_version": "1"}}, 404, "unknown model 'none'"),
    ("PATCH", "/v1/rollouts", {}, 405, "PATCH is not possible at /v1/rollouts; expected one of: "),
    ("POST", "/v1/rollouts", {}, 422, "the body is missing"),
    ("POST", "/v1/rollouts", {"content": b"{", "headers": JSON}, 422, "the body is not JSON: "),
    ("POST", "/v1/rollouts", {"content": b"\xff\xfe", "headers": JSON}, 422, "the body is not JSON: "),
    ("POST", "/v1/rollouts", {"content": b"[" * 100_000, "headers": JSON}, 422, "the body is not JSON: recursion"),
    ("POST", "/v1/rollouts", {"content": b'{"samples": NaN}', "headers": JSON}, 422, "the body is not JSON: "),
    ("POST", "/v1/rollouts", {"data": QUESTION}, 422, "the header Content-Type is 'application/x-www-form"),
    ("POST", "/v1/rollouts", {"json": []}, 422, "expected"),
    ("POST", "/v1/rollouts", {"json": {}}, 422, "has both or neither of 'task' and 'instruction'"),
    (
        "POST",
        "/v1/rollouts",
        {"json": {"instrction": "x"}},
        422,
        "unknown key 'instrction'; did you mean 'instruction'",
    ),
    ("POST", "/v1/rollouts", {"json": {**QUESTION, "samples": 0}}, 422, "key 'samples' is 0; expected a number of at"),
    ("POST", "/v1/rollouts", {"json": {**QUESTION, "samples": 10**30}}, 422, "key 'samples' is a very large number"),
    ("POST", "/v1/rollouts", {"json": {**QUESTION, "agent": "codx"}}, 422, "unknown agent 'codx'; known: "),
    ("POST", "/v1/rollouts", {"json": {"task": "t"}}, 404, "unknown task 't'"),
    ("POST", "/v1/rollouts?wait=9999", {"json": QUESTION}, 422, "query: key 'wait' is '9999'; expected a number of at"),
    ("POST", "/v1/rollouts?wait=nan", {"json": QUESTION}, 422, "query: key 'wait' is 'nan'; expected a finite number"),
    ("GET", "/v1/rollouts?limit=x", {}, 422, "query: key 'limit' is 'x'; expected a whole number"),
    ("GET", "/v1/rollouts?status=x", {}, 422, "query: key 'status' is 'x'; expected one of: queued, running, done"),
    ("GET", "/v1/rollouts/x/rows?formt=1", {}, 422, "unknown option 'formt'; did you mean 'format'"),
]


async def test_every_refusal_is_a_problem_that_says_what_was_expected(tmp_path: Path) -> None:
    async with open_test_server(tmp_path) as world:
        for method, path, sent, status, begins in BAD:
            reply = await world.client.request(method, path, **sent)
            found = Problem.model_validate_json(reply.content)
            assert (reply.status_code, found.error[: len(begins)]) == (status, begins), (method, path, found)
        unknown = (await world.client.get("/v1/rollouts/x/rows?format=x")).json()
        assert unknown["code"] == "not-found"
        done = await world.run(QUESTION)
        for query, error in {
            "format=x": "`format` 'x': unknown format",
            "format=verl": "`format` 'verl' needs",
        }.items():
            refused = await world.client.get(f"/v1/rollouts/{done['id']}/rows?{query}")
            assert (refused.status_code, error in refused.json()["error"]) == (422, True), refused.text


async def test_a_key_of_a_client_is_never_in_a_refusal(tmp_path: Path) -> None:
    async with open_test_server(tmp_path) as world:
        secret = "sk-very-secret-0123456789"
        endpoint = {"base_url": "http://x", "model": "m", "api_key": [secret]}
        refused = await world.client.post("/v1/rollouts", json={**QUESTION, "endpoint": endpoint})
        assert refused.status_code == 422
        assert "endpoint.api_key" in refused.text
        assert secret not in refused.text


async def test_bodies_are_bounded_and_their_senders_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_test_server(tmp_path) as world:
        large = b" " * (guard.MOST_BODY_BYTES + 1)

        async def chunks() -> Any:
            yield large

        for content in (large, chunks()):
            refused = await world.client.post("/v1/rollouts", content=content, headers=JSON)
            assert (refused.status_code, refused.json()["code"]) == (413, "too-large")
        monkeypatch.setattr(guard, "BODY_SEC", 0.2)
        host, port = httpx2.URL(world.url).host, httpx2.URL(world.url).port
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"POST /v1/rollouts HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        reply = await reader.read()
        assert b" 422 " in reply.splitlines()[0]
        assert b"did not arrive within 0.2 seconds" in reply
        writer.close()
        assert (await world.client.get("/health")).json() == {"status": "healthy"}


async def test_requests_that_a_caller_has_open_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_OPEN", 1)
    async with open_test_server(tmp_path, STUCK, tokens=True) as world:
        ann, bob = world.as_caller("ann"), world.as_caller("bob")
        body = {**QUESTION, "instruction": "stuck"}
        waiting = asyncio.create_task(world.client.post("/v1/rollouts?wait=60", json=body, headers=ann))
        await until(lambda: world.server.service.view(LOCAL).running)
        refused = await world.client.get("/v1/service", headers=ann)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await world.client.get("/v1/service", headers=bob)).status_code == 200
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await world.until_status(200, "/v1/service", ann)


async def test_a_page_of_another_site_cannot_use_a_server_without_tokens(tmp_path: Path) -> None:
    async with open_test_server(tmp_path) as world:
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}):
            for path in ("/v1/service", "/openapi.json", "/mcp", "/metrics"):
                refused = await world.client.get(path, headers=headers)
                assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), (headers, path)
        assert (await world.client.get("/v1/service", headers={"Origin": world.url})).status_code == 200


async def test_a_caller_sees_and_ends_its_own_rollouts_only(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, tokens=True) as world:
        ann, bob, reader, admin = (world.as_caller(name) for name in ("ann", "bob", "reader", "admin"))
        for wrong in ({}, {"Authorization": "Bearer wrong-token-0123456789"}, {"Authorization": TOKENS["ann"]}):
            refused = await world.client.get("/v1/service", headers=wrong)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (await world.client.get("/health")).status_code == 200
        mine = await world.run(QUESTION, headers=ann)
        name, group = mine["id"], mine["group"]
        paths = [f"/v1/rollouts/{name}{part}" for part in ("", "/trace", "/rows", "/files", "/events")]
        for path in [*paths, f"/v1/groups/{group}", f"/v1/groups/{group}/events"]:
            for caller in (bob, reader):
                assert (await world.client.get(path, headers=caller)).status_code == 404, path
        assert (await world.client.delete(f"/v1/rollouts/{name}", headers=bob)).status_code == 404
        assert (await world.client.get("/v1/rollouts", headers=bob)).json() == []
        assert [one["id"] for one in (await world.client.get("/v1/rollouts", headers=admin)).json()] == [name]
        forbidden = [
            (reader, "POST", "/v1/rollouts", QUESTION),
            (reader, "DELETE", f"/v1/rollouts/{name}", None),
            (reader, "POST", "/v1/runs", {}),
            (ann, "PUT", "/v1/models/m", {"weight_version": "1"}),
            (ann, "POST", "/v1/pause", {}),
            (ann, "POST", "/v1/resume", None),
            (ann, "GET", "/metrics", None),
        ]
        for caller, method, path, body in forbidden:
            refused = await world.client.request(method, path, headers=caller, json=body)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), path
        assert (await world.client.get("/v1/models", headers=ann)).json()[0]["urls"] == []
        assert (await world.client.get("/v1/models", headers=admin)).json()[0]["urls"]


async def test_sockets_need_a_token_too(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, tokens=True) as world:
        url = world.url.replace("http", "ws") + "/ws"
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
        assert refused.value.response.status_code == 401
        async with connect(url, additional_headers=world.as_caller("ann")) as socket:
            await socket.send('{"type": "reset", "data": {}}')
            assert json.loads(await socket.recv())["type"] == "observation"


async def test_a_server_that_others_can_reach_needs_tokens(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"`host` is '0\.0\.0\.0'"):
        async with open_test_server(tmp_path, host="0.0.0.0"):
            pass


async def test_the_openapi_document_has_the_models_and_the_routes_of_the_mode(tmp_path: Path) -> None:
    for mode in ("simulation", "production"):
        (tmp_path / mode).mkdir()
        async with open_test_server(tmp_path / mode, mode=mode) as world:
            document = (await world.client.get("/openapi.json")).json()
        assert document["info"]["version"] == "1.0.0"
        assert {"/v1/rollouts", "/v1/groups/{name}", "/v1/runs", "/v1/comparisons"} < set(document["paths"])
        steps = {"/reset", "/step", "/state"}
        assert steps & set(document["paths"]) == (steps if mode == "simulation" else set())
        schemas = document["components"]["schemas"]
        assert {"RolloutRequest", "GroupView", "RunRequest", "Problem"} < set(schemas)
        assert "HTTPValidationError" not in json.dumps(document["paths"]["/v1/rollouts"])


async def test_one_address_speaks_both_protocols_of_mcp(tmp_path: Path) -> None:
    async with open_test_server(tmp_path) as world:
        assert (await world.client.post("/mcp", json={})).json()["jsonrpc"] == "2.0"
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        tools = (await world.client.post("/mcp", json=call)).json()["result"]["tools"]
        assert "run_rollout" in [tool["name"] for tool in tools]
        initialize = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        }
        accept = {"Accept": "application/json, text/event-stream"}
        reply = await world.client.post("/mcp", json=initialize, headers=accept)
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert '"serverInfo"' in reply.text


async def test_metrics_count_rollouts_calls_and_requests(tmp_path: Path) -> None:
    async with open_test_server(tmp_path) as world:
        await world.run(QUESTION)
        await until(lambda: world.ended)
        await world.client.get("/no/such/path")
        text = (await world.client.get("/metrics")).text
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    outcome = (("agent", "chat"), ("cause", ""), ("outcome", "scored"))
    assert samples["whet_rollouts_total", *outcome] == 1
    assert samples["whet_model_calls_total",] == 1
    assert samples["whet_tokens_total", ("direction", "input")] > 0
    assert samples["whet_queued",] == samples["whet_running",] == 0
    posted = (("method", "POST"), ("route", "/v1/rollouts"), ("status", "202"))
    assert samples["whet_request_seconds_count", *posted] == 1
    unknown = (("method", "GET"), ("route", "unknown"), ("status", "404"))
    assert samples["whet_request_seconds_count", *unknown] == 1
    assert any(key[0] == "whet_build_info" for key in samples)
