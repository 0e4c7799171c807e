"""What the clients send, and what they make of replies and refusals."""

import inspect
import subprocess
import sys
from typing import Any

import pytest
from pydantic import SecretStr

import whet.client
from support.scripted_rest import CALLS, TOKEN, Reply, call_sync, scripted_rest
from whet.client import AsyncClient, Client
from whet.client.errors import (
    Busy,
    Conflict,
    Draining,
    Forbidden,
    InvalidRequest,
    NotFound,
    ServerError,
    Spent,
    TooLarge,
    Unauthorized,
    Unreachable,
)
from whet.client.models import (
    ComparisonRequest,
    Endpoint,
    GroupView,
    PauseMode,
    RolloutRequest,
    RolloutView,
    RunRequest,
    Status,
)
from whet.errors import UserError
from whet.tasks.task import TaskLimits, TaskTool

ROLLOUT = {"id": "r1", "group": "g1", "sample": 0, "task": "t", "agent": "chat", "model": "m", "created": 1.0}
DONE = {**ROLLOUT, "status": "done", "outcome": "scored", "reward": 1.0}
GROUP = {"id": "g1", "status": "done", "rollouts": [DONE], "created": 1.0}
SERVICE = {"version": "1", "running": 0, "queued": 0, "done": 0}
RUN = {"id": "x", "status": "done", "planned": 1, "done": 1, "created": 1.0}
MODEL = {"name": "policy", "upstream_name": "m", "urls": ["http://a"], "capture": "vllm"}

OPERATIONS: list[tuple[Any, str, Any]] = [
    (lambda c: c.rollout("r1"), "GET /v1/rollouts/r1", DONE),
    (lambda c: c.rollout("r/1?"), "GET /v1/rollouts/r%2F1%3F", DONE),
    (lambda c: c.rollout("r1", wait=5), "GET /v1/rollouts/r1?wait=5", DONE),
    (lambda c: c.rollouts(status=Status.DONE, before="r9"), "GET /v1/rollouts?status=done&limit=100&before=r9", [DONE]),
    (lambda c: c.cancel("r1"), "DELETE /v1/rollouts/r1", DONE),
    (lambda c: c.group("g1"), "GET /v1/groups/g1", GROUP),
    (lambda c: c.cancel_group("g1"), "DELETE /v1/groups/g1", GROUP),
    (
        lambda c: c.rows("r1", filter=("score>=0.5", "tag=a"), compaction=True),
        "GET /v1/rollouts/r1/rows?format=rows&filter=score%3E%3D0.5&filter=tag%3Da&compaction=true",
        {"format": "rows", "rows": [1]},
    ),
    (lambda c: c.group_rows("g1", format="trl"), "GET /v1/groups/g1/rows?format=trl", {"format": "trl", "rows": []}),
    (lambda c: c.trace("r1"), "GET /v1/rollouts/r1/trace", {"rollout": "r1", "conversations": []}),
    (lambda c: c.files("r1"), "GET /v1/rollouts/r1/files", [{"path": "a/b", "bytes": 3}]),
    (lambda c: c.tasks(), "GET /v1/tasks", [{"id": "t", "instruction": "Do it."}]),
    (lambda c: c.agents(), "GET /v1/agents", [{"name": "chat"}]),
    (lambda c: c.skills(), "GET /v1/skills", [{"name": "s", "digest": "d"}]),
    (lambda c: c.models(), "GET /v1/models", [MODEL]),
    (lambda c: c.update_model("policy", weight_version="7"), "PUT /v1/models/policy", MODEL),
    (lambda c: c.pause(PauseMode.ABORT, model="policy"), "POST /v1/pause", SERVICE),
    (lambda c: c.resume("policy"), "POST /v1/resume?model=policy", SERVICE),
    (lambda c: c.service(), "GET /v1/service", SERVICE),
    (lambda c: c.start_run(RunRequest(samples=2)), "POST /v1/runs", RUN),
    (lambda c: c.get_run("x"), "GET /v1/runs/x", RUN),
    (lambda c: c.runs(), "GET /v1/runs?limit=20", [RUN]),
    (lambda c: c.cancel_run("x"), "DELETE /v1/runs/x", RUN),
    (lambda c: c.compare(ComparisonRequest(run="x", by="skill")), "POST /v1/comparisons", {"arms": []}),
]


@pytest.fixture(params=CALLS.values(), ids=list(CALLS))
def call(request: pytest.FixtureRequest) -> Any:
    """Uses one client and the other."""
    return request.param


@pytest.mark.parametrize(("use", "expected", "body"), OPERATIONS, ids=[one[1] for one in OPERATIONS])
def test_an_operation_is_one_request(call: Any, use: Any, expected: str, body: Any) -> None:
    with scripted_rest(Reply(body=body)) as server:
        found = call(server.url, use)
    (sent,) = server.sent
    assert f"{sent.method} {sent.path}" == expected
    assert sent.headers["authorization"] == f"Bearer {TOKEN}"
    dumped = [one.model_dump(mode="json") for one in found] if isinstance(found, list) else found
    dumped = dumped.model_dump(mode="json") if hasattr(dumped, "model_dump") else dumped
    given, got = (body, dumped) if isinstance(body, list) else ([body], [dumped])
    assert all(one.items() <= other.items() for one, other in zip(given, got, strict=True)) or body == GROUP


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, Any]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: inspect.signature(one).parameters for name, one in found if not name.startswith("_")}

    assert methods(Client) == methods(AsyncClient)
    assert len(methods(Client)) > 25
    assert all(inspect.getdoc(getattr(Client, name)) for name in methods(Client))


def test_a_file_comes_byte_for_byte(call: Any) -> None:
    with scripted_rest(Reply(body=b"\x00\xff")) as server:
        assert call(server.url, lambda c: c.file("r1", "a b/c#.txt")) == b"\x00\xff"
    assert server.sent[0].path == "/v1/rollouts/r1/files/a%20b/c%23.txt"


def test_a_request_arrives_as_it_was_written(call: Any) -> None:
    request = RolloutRequest.model_validate(
        {
            "instruction": "Fix it.",
            "setup": ["make"],
            "verify": ["make test"],
            "files": {"a.txt": "text", "b.bin": b"\x00\xff"},
            "judge": [{"kind": "exact"}, {"kind": "rubric", "rubric": "It is short."}],
            "tools": [{"name": "now", "answer": "noon"}],
            "limits": {"turns": 5},
            "answer": "42",
            "samples": 4,
            "metadata": {"step": "7"},
        }
    )
    with scripted_rest(Reply(202, GROUP)) as server:
        assert isinstance(call(server.url, lambda c: c.submit(request)), GroupView)
    (sent,) = server.sent
    arrived = RolloutRequest.model_validate_json(sent.body)
    assert arrived == request
    assert arrived.tools == (TaskTool(name="now", answer="noon"),)
    assert arrived.limits is not None
    assert arrived.limits.model_fields_set == {"turns"}, "what is not set does not replace the limits of a task"
    assert arrived.limits == TaskLimits(turns=5)


def test_a_key_is_sent_in_clear_and_shown_nowhere(call: Any) -> None:
    endpoint = Endpoint(base_url="http://10.0.0.5:8000/v1", model="m", api_key=SecretStr("sk-secret-0123"))
    request = RolloutRequest(instruction="Do it.", endpoint=endpoint)
    with scripted_rest(Reply(422, {"error": "no", "code": "invalid"})) as server:
        with pytest.raises(InvalidRequest) as error:
            call(server.url, lambda c: c.submit(request))
        assert server.sent[0].json["endpoint"]["api_key"] == "sk-secret-0123"
        assert "sk-secret" not in repr(error.value) + repr(request) + str(error.value)
        assert TOKEN not in repr(Client(server.url, TOKEN)) + repr(AsyncClient(server.url, TOKEN))


def test_every_submit_has_a_key_of_its_own(call: Any) -> None:
    request = RolloutRequest(task="t")
    with scripted_rest(Reply(202, GROUP)) as server:
        for _ in range(2):
            call(server.url, lambda c: c.submit(request))
        call(server.url, lambda c: c.submit(request, key="step-7"))
    first, second, third = (sent.headers["idempotency-key"] for sent in server.sent)
    assert first != second
    assert third == "step-7"


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (422, "invalid", InvalidRequest),
        (401, "unauthorized", Unauthorized),
        (403, "forbidden", Forbidden),
        (404, "not-found", NotFound),
        (409, "conflict", Conflict),
        (413, "too-large", TooLarge),
        (429, "busy", Busy),
        (402, "spent", Spent),
        (503, "draining", Draining),
        (500, "internal", ServerError),
        (418, "new-word", ServerError),
    ],
)
def test_refusals_are_exceptions_with_the_servers_line(call: Any, status: int, code: str, kind: type) -> None:
    with (
        scripted_rest(Reply(status, {"error": "key 'task' is 'x'; expected another", "code": code})) as server,
        pytest.raises(ServerError) as error,
    ):
        call(server.url, lambda c: c.rollout("r1"), retry_sec=0)
    assert type(error.value) is kind
    assert str(error.value) == "key 'task' is 'x'; expected another"
    assert (error.value.code, error.value.status) == (code, status)


def test_a_refusal_after_a_good_status_is_an_exception_too(call: Any) -> None:
    body = b'   {"error": "no such rollout", "code": "not-found"}'
    with scripted_rest(Reply(200, body)) as server, pytest.raises(NotFound, match="no such rollout"):
        call(server.url, lambda c: c.rollout("r1", wait=5))


@pytest.mark.parametrize("reply", [Reply(200, b"<html>"), Reply(404, b"<html>"), Reply(302), Reply(200, {"id": 1})])
def test_replies_of_other_servers_are_exceptions(call: Any, reply: Reply) -> None:
    with scripted_rest(reply) as server, pytest.raises(ServerError, match="`whet serve`") as error:
        call(server.url, lambda c: c.rollout("r1"))
    assert "\n" not in str(error.value)
    assert type(error.value) is ServerError


def test_fields_of_newer_servers_are_ignored(call: Any) -> None:
    with scripted_rest(Reply(body={**DONE, "new": 1})) as server:
        assert call(server.url, lambda c: c.rollout("r1")) == RolloutView.model_validate(DONE)


def test_a_wrong_address_is_one_line(call: Any) -> None:
    with pytest.raises(UserError, match=r"`url` is '127\.0\.0\.1:8000'; expected the address of a server"):
        call("127.0.0.1:8000", lambda c: c.service())
    with pytest.raises(Unreachable, match=r"no answer from http://127\.0\.0\.1:9: ") as error:
        call("http://127.0.0.1:9", lambda c: c.service(), retry_sec=0)
    assert "\n" not in str(error.value)


def test_a_prefix_of_the_address_is_kept(call: Any) -> None:
    with scripted_rest(Reply(body=SERVICE)) as server:
        call(f"{server.url}/whet/", lambda c: c.service())
    assert server.sent[0].path == "/whet/v1/service"


async def test_the_client_works_inside_a_running_loop() -> None:
    with scripted_rest(Reply(body=DONE)) as server:
        assert call_sync(server.url, lambda c: c.wait("r1")).reward == 1.0


def test_clients_load_nothing_of_the_server() -> None:
    program = (
        "import sys; from whet.client import AsyncClient, Client; "
        "print(sorted({name.partition('.')[0] if not name.startswith('whet.') else '.'.join(name.split('.')[:2])"
        " for name in sys.modules}))"
    )
    loaded = set(eval(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stdout))
    heavy = {"numpy", "scipy", "aiohttp", "fastapi", "starlette", "uvicorn", "mcp", "rich", "typer"}
    rooms = {
        f"whet.{name}" for name in ("serve", "runs", "rollout", "gateway", "scoring", "sandbox", "agents", "trace")
    }
    assert loaded & (heavy | rooms) == set()


def test_clients_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(UserError, match=r"clients of `whet serve` need one more package: pip install 'whet\[client\]'"):
        _ = whet.client.Client
    with pytest.raises(AttributeError, match="has no attribute 'Clint'"):
        _ = whet.client.Clint
