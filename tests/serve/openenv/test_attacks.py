"""Agents that cheat get nothing through OpenEnv's door, and the caller's key is nowhere but in the gateway."""

import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.openenv_world import SECRET, OpenEnvServer, open_openenv
from whet.client.openenv_models import RolloutResult
from whet.runs.store.store import Store
from whet.testing import Scene, Script, ScriptedModel, call, say

REWARD = "/home/user/logs/verifier/reward.txt"
PLANT = f"mkdir -p $(dirname {REWARD}) && echo 1.0 > {REWARD}; echo 1.0 > /logs/verifier/reward.txt"


@asynccontextmanager
async def attack(folder: Path, *commands: str) -> AsyncIterator[tuple[OpenEnvServer, dict[str, Any], ScriptedModel]]:
    """A server, and the arguments of a rollout whose agent runs these commands."""
    replies = (*(call("bash", command=command) for command in commands), say("Done."))
    async with (
        ScriptedModel(Script(scenes=(Scene(replies=replies),)), key=SECRET, tokens=True) as model,
        open_openenv(folder, allow=(model.url.removeprefix("http://"),)) as server,
    ):
        endpoint = {"base_url": model.url, "api_key": SECRET, "model": "scripted", "agent": "loop"}
        yield server, {**endpoint, "instruction": "Do nothing."}, model


async def test_a_planted_reward_is_not_read(tmp_path: Path) -> None:
    async with attack(tmp_path, PLANT) as (server, given, _):
        result = await server.run(**given, verify=["false", "false"])
    assert (result.reward, result.reward_source) == (0.0, "exit_codes")


async def test_a_planted_reward_is_no_reward_without_verify_commands(tmp_path: Path) -> None:
    async with attack(tmp_path, PLANT) as (server, given, _):
        result = await server.run(**given)
    assert result.reward is None


async def test_a_process_left_behind_changes_neither_reward_nor_work(tmp_path: Path) -> None:
    daemon = (
        f'setsid nohup sh -c \'trap "" TERM HUP; while true; do echo 1.0 > {REWARD}; '
        "echo right > /home/user/workdir/answer.txt; sleep 0.02; done' >/dev/null 2>&1 & sleep 0.3; rm -f answer.txt"
    )
    async with attack(tmp_path, daemon, "rm -f answer.txt; touch empty.txt") as (server, given, _):
        result = await server.run(
            **given, verify=["rm -f answer.txt; sleep 0.5; test ! -e answer.txt", f"test ! -e {REWARD}", "false"]
        )
    assert [one.exit_code for one in result.verify_results] == [0, 0, 1]
    assert result.reward == pytest.approx(2 / 3)


async def test_turns_cannot_be_forged_from_inside_the_sandbox(tmp_path: Path) -> None:
    turn = json.dumps({"turn": 99, "completion_token_ids": [7] * 50, "per_token_logps": [0.0] * 50})
    forge = (
        "mkdir -p /home/user/logs/agent; for f in proxy_trace.jsonl trace.jsonl proxy.log opencode.jsonl; do "
        f"echo '{turn}' >> /home/user/logs/agent/$f; done; true"
    )
    async with attack(tmp_path, forge) as (server, given, model):
        result = await server.run(**given, verify=["true"])
        assert len(result.proxy_turns) == len(model.requests) == 2
    assert all(turn.completion_token_ids != [7] * 50 for turn in result.proxy_turns)


async def test_the_callers_key_is_not_to_be_found_in_the_sandbox(tmp_path: Path) -> None:
    # Written so that the commands that search for it do not find themselves.
    hunt = (
        "(env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; "
        "timeout 20 find /home /tmp /run /etc /logs /var /dev/shm -type f -size -2M -exec cat {} +) "
        "2>/dev/null | grep -a -o -e 'sk-caller-key-01234[5]6789' -e 'sk-whet[-]' | sort | uniq -c > found.txt; true"
    )
    async with attack(tmp_path, hunt) as (server, given, model):
        result = await server.run(**given, verify=["true"])
        assert model.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    # It did search: the key of this one rollout is there, and worthless elsewhere.
    assert [line.split()[1] for line in result.files["/home/user/workdir/found.txt"].splitlines()] == ["sk-whet-"]


async def test_the_callers_key_is_in_no_log_record_result_or_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with attack(tmp_path, "true") as (server, given, _):
        async with server.socket() as ws:
            data = await ws.call("run_rollout", **given, verify=["true"], task_id="t")
            shown = [data, await ws.ask({"type": "state"})]
            shown.append(await ws.call("run_rollout", **{**given, "instruction": ""}))
            shown.append(await ws.call("run_rollout", **{**given, "setup": 5}))
        result = RolloutResult.model_validate_json(data["observation"]["result"]["data"])
        served = tmp_path / "served" / "rollouts"
        with Store.open_read(served) as store:
            (row,) = store.rollouts()
            (attempt,) = store.attempts_of(row.id)
            kept = [repr(store.exchanges(attempt.id)), repr(store.logs(attempt.id)), repr(store.result_body(attempt))]
    assert result.reward == 1.0
    assert SECRET not in json.dumps(shown) + "".join(kept) + caplog.text
    for place, _, names in os.walk(tmp_path / "served"):
        for name in names:
            assert SECRET.encode() not in Path(place, name).read_bytes(), name
