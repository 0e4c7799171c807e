"""REST, over a real port: rollouts are requested, waited for, cancelled, and fetched whole."""

import asyncio
import json
from pathlib import Path

import httpx2
import pytest

from support.serve_world import RIGHT, WRITES, answers
from support.server_world import open_test_server
from support.waiting import until
from whet.runs.stored_run import load
from whet.serve.rest import streams
from whet.testing import Reply

SLOW = answers("slow", Reply(text="4", delay=2.5))
STUCK = answers("stuck", Reply(text="4", delay=60))
QUICK = answers(".", Reply(text="4"))
QUESTION = {"instruction": "2 + 2?", "answer": "4"}


async def test_a_rollout_is_requested_waited_for_and_kept_as_any_other(tmp_path: Path) -> None:
    async with open_test_server(tmp_path) as world:
        body = {**QUESTION, "samples": 2, "metadata": {"step": "7"}}
        reply = await world.client.post("/v1/rollouts?wait=60", json=body)
        assert (reply.status_code, reply.headers["content-type"]) == (202, "application/json")
        group = reply.json()
        assert (group["status"], group["scored"], group["complete"]) == ("done", 2, True)
        first = group["rollouts"][0]
        assert (first["reward"], first["answer"], first["metadata"]) == (1.0, "4", {"step": "7"})
        assert (await world.client.get(f"/v1/rollouts/{first['id']}")).json() == first
        assert (await world.client.get(f"/v1/groups/{group['id']}")).json() == group
        await until(lambda: len(world.ended) == 2)
        assert {view.id for view in world.ended} == {one["id"] for one in group["rollouts"]}
    loaded = load(tmp_path / "served" / "rollouts")
    assert {one.id: one.score and one.score.value for one in loaded.rollouts} == {
        one["id"]: 1.0 for one in group["rollouts"]
    }


async def test_the_conversations_rows_and_files_of_a_rollout_are_fetched_by_its_id(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, ids=True) as world:
        talked = await world.run(QUESTION)
        trace = (await world.client.get(f"/v1/rollouts/{talked['id']}/trace")).json()
        (conversation,) = trace["conversations"]
        assert [(one["role"], one["content"]) for one in conversation["messages"]][-1] == ("assistant", "4")
        assert "2 + 2?" in conversation["messages"][-2]["content"]
        atif = (await world.client.get(f"/v1/rollouts/{talked['id']}/trace?format=atif")).json()
        assert atif["rows"][0][1]["schema_version"].startswith("ATIF")
        rows = (await world.client.get(f"/v1/rollouts/{talked['id']}/rows")).json()
        assert rows["format"] == "rows"
        assert rows["rows"][0]["reward"] == 1.0
        group = (await world.client.get(f"/v1/groups/{talked['group']}/rows?format=verl&max_tokens=9000")).json()
        assert group["rows"][0]["response_ids"]

        wrote = await world.run({"instruction": "Write.", "verify": [RIGHT], "agent": WRITES})
        files = await world.client.get(f"/v1/rollouts/{wrote['id']}/files")
        assert files.json() == [{"path": "answer.txt", "bytes": 6}]
        file = await world.client.get(f"/v1/rollouts/{wrote['id']}/files/answer.txt")
        assert file.content == b"right\n"
        assert file.headers["content-disposition"].startswith("attachment;")
        assert file.headers["x-content-type-options"] == "nosniff"
        assert (await world.client.get(f"/v1/rollouts/{wrote['id']}/files/other")).status_code == 404


FORMATS = (
    "rows",
    "trl-trace",
    "trl-grpo",
    "verl",
    "skyrl",
    "prime-rl",
    "areal",
    "slime",
    "chat",
    "atif",
    "otlp",
    "parquet",
)


async def test_every_kind_of_row_is_json(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, ids=True) as world:
        done = await world.run({**QUESTION, "samples": 2})
        for form in FORMATS:
            found = await world.client.get(f"/v1/groups/{done['group']}/rows", params={"format": form})
            assert found.status_code == 200, (form, found.text)
            assert found.json()["rows"], form


async def test_the_same_key_joins_and_another_request_with_it_is_refused(tmp_path: Path) -> None:
    async with open_test_server(tmp_path) as world:
        key = {"Idempotency-Key": "step-1"}
        first = await world.run(QUESTION, headers=key)
        assert await world.run(QUESTION, headers=key) == first
        other = await world.client.post("/v1/rollouts", json={**QUESTION, "samples": 2}, headers=key)
        assert (other.status_code, other.json()["code"]) == (409, "conflict")


async def test_rollouts_are_listed_page_by_page_the_newest_first(tmp_path: Path) -> None:
    async with open_test_server(tmp_path) as world:
        made = [(await world.run(QUESTION))["id"] for _ in range(3)]
        page = [one["id"] for one in (await world.client.get("/v1/rollouts?limit=2")).json()]
        rest = await world.client.get("/v1/rollouts", params={"before": page[-1], "status": "done"})
        assert [*page, *(one["id"] for one in rest.json())] == made[::-1]


async def test_a_wait_that_is_over_gives_the_rollout_as_it_is(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, STUCK, QUICK) as world:
        reply = await world.client.post("/v1/rollouts?wait=0.5", json={**QUESTION, "instruction": "stuck"})
        (rollout,) = reply.json()["rollouts"]
        assert rollout["status"] == "running"
        cancelled = (await world.client.delete(f"/v1/rollouts/{rollout['id']}")).json()
        assert (cancelled["status"], cancelled["outcome"], cancelled["reward"]) == ("done", "cancelled", None)
        again = (await world.client.delete(f"/v1/groups/{rollout['group']}")).json()
        assert again["dropped"] == {"cancelled": 1}


async def test_a_client_with_a_short_time_out_survives_a_long_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PULSE_SEC", 0.1)
    async with open_test_server(tmp_path, SLOW) as world:
        body = {**QUESTION, "instruction": "slow"}
        reply = await world.client.post("/v1/rollouts?wait=60", json=body, timeout=httpx2.Timeout(20, read=2))
        assert reply.text.startswith("     ")
        assert reply.json()["rollouts"][0]["reward"] == 1.0


async def test_a_client_that_goes_away_loses_nothing(tmp_path: Path) -> None:
    async with open_test_server(tmp_path, SLOW) as world:
        with pytest.raises(httpx2.ReadTimeout):
            async with asyncio.timeout(20):
                await world.client.post(
                    "/v1/rollouts?wait=60",
                    json={**QUESTION, "instruction": "slow"},
                    headers={"Idempotency-Key": "k"},
                    timeout=httpx2.Timeout(20, read=0.3),
                )
        joined = await world.run({**QUESTION, "instruction": "slow"}, headers={"Idempotency-Key": "k"})
        assert (joined["reward"], joined["attempts"]) == (1.0, 1)


async def test_models_are_updated_and_rollouts_paused(tmp_path: Path) -> None:
    async with open_test_server(tmp_path) as world:
        updated = (await world.client.put("/v1/models/m", json={"weight_version": "1"})).json()
        assert (updated["weight_version"], updated["updates"]) == ("1", 1)
        paused = await world.client.post("/v1/pause", json={"wait_sec": 5})
        assert paused.json()["paused"] == ["*"]
        reply = await world.client.post("/v1/rollouts?wait=0.3", json=QUESTION)
        assert reply.json()["rollouts"][0]["status"] == "queued"
        assert (await world.client.post("/v1/resume")).json()["paused"] == []
        done = await world.client.get(f"/v1/groups/{reply.json()['id']}?wait=60")
        assert done.json()["rollouts"][0]["weight_versions"] == ["1"]


async def test_the_catalog_names_tasks_agents_skills_and_models(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "a/1", "instruction": "2 + 2?", "answer": "4", "tags": ["sum"]}) + "\n")
    skill = Path(__file__).parents[2] / "examples/skills/careful-shell"
    async with open_test_server(tmp_path, tasks=tasks, skills=(None, skill)) as world:
        listed = (await world.client.get("/v1/tasks")).json()
        assert [one["id"] for one in listed] == ["a/1"]
        assert "4" not in listed[0].values()
        assert (await world.client.get("/v1/tasks/a/1")).json() == listed[0]
        assert (await world.client.get("/v1/tasks/b")).status_code == 404
        agents = (await world.client.get("/v1/agents")).json()
        assert [one["name"] for one in agents if one["default"]] == ["chat"]
        (found,) = (await world.client.get("/v1/skills")).json()
        assert (found["name"], found["default"]) == ("careful-shell", False)
        (model,) = (await world.client.get("/v1/models")).json()
        assert model["name"] == "m"
        assert (await world.run({"task": "a/1"}))["reward"] == 1.0
        view = (await world.client.get("/v1/service")).json()
        assert (view["running"], view["queued"], view["done"]) == (0, 0, 1)
