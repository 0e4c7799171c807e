"""What run_rollout returns, for every way in which a rollout can end."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from support.openenv_world import SECRET, OpenEnvServer, open_openenv
from support.serve_world import RIGHT, WRITES
from support.waiting import until
from whet.client.openenv_models import RolloutResult
from whet.serve.access import LOCAL
from whet.testing import Fault, Reply, Scene, Script, ScriptedModel, call, say

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
WORK = Scene(replies=(call("bash", command="echo right > answer.txt; echo 1 > /tmp/x"), say("Done.")))
DO: dict[str, Any] = {"model": "m", "instruction": "Write right.", "agent": WRITES, "verify": [RIGHT]}


@asynccontextmanager
async def open_with_model(folder: Path, *scenes: Scene) -> AsyncIterator[tuple[OpenEnvServer, ScriptedModel]]:
    """A server, and a model of the caller's that returns tokens."""
    async with ScriptedModel(Script(scenes=scenes), key=SECRET, tokens=True) as model:
        host = model.url.removeprefix("http://")
        async with open_openenv(folder, allow=(host,)) as server:
            yield server, model


def endpoint(model: ScriptedModel) -> dict[str, Any]:
    return {"base_url": model.url, "api_key": SECRET, "model": "scripted", "agent": "loop"}


async def test_every_turn_has_its_tokens_and_the_trace_trains_them(tmp_path: Path) -> None:
    async with open_with_model(tmp_path, WORK) as (server, model):
        result = await server.run(
            **endpoint(model), instruction="Write right.", verify=[RIGHT], sampling_params=SAMPLING, task_id="t"
        )
        sent = [json.loads(request.body) for request in model.requests]
    assert (result.reward, result.error, result.agent_exit_code) == (1.0, None, 0)
    assert (result.capture_level, result.rollout_type, result.reward_source) == ("tokens", "train", "exit_codes")
    assert [one["max_tokens"] for one in sent] == [4096, 4096]
    assert [one["top_logprobs"] for one in sent] == [5, 5]
    assert [turn.turn for turn in result.proxy_turns] == [0, 1]
    for turn in result.proxy_turns:
        assert turn.prompt_token_ids
        assert len(turn.completion_token_ids) == len(turn.per_token_logps) == len(turn.completion_tokens) > 0
        assert turn.loss_mask == [0] * len(turn.prompt_token_ids) + [1] * len(turn.completion_token_ids)
        assert (turn.role, turn.trainable, turn.upstream_status, turn.upstream_error) == ("agent", True, 200, None)
        assert turn.sampling_params["temperature"] == 1.0
        assert turn.latency_s > 0
        assert turn.request_messages[0]["role"] in {"system", "user"}
    first, second = result.proxy_turns
    assert (first.parent_id, second.parent_id) == (None, first.node_id)
    assert first.tool_calls[0]["name"] == "bash"
    assert second.text == "Done."
    assert result.training_trace is not None
    traced = result.training_trace["turns"]
    assert [turn["node_id"] for turn in traced] == [first.node_id, second.node_id]
    assert [turn["prompt_token_ids"] for turn in traced] == [one.prompt_token_ids for one in result.proxy_turns]
    assert result.n_trainable_tokens == sum(len(turn.completion_token_ids) for turn in result.proxy_turns)


async def test_calls_that_were_not_sampled_from_the_whole_distribution_are_not_trained(tmp_path: Path) -> None:
    async with open_with_model(tmp_path, WORK) as (server, model):
        result = await server.run(**endpoint(model), instruction="Write right.", verify=[RIGHT])
    assert (result.training_trace, result.n_trainable_tokens, result.rollout_type) == (None, 0, "eval")
    assert any("not trained: no temperature was sent" in finding for finding in result.findings)
    assert all(turn.completion_token_ids and not turn.trainable for turn in result.proxy_turns)


async def test_a_black_box_shows_no_calls_and_asks_for_no_tokens(tmp_path: Path) -> None:
    async with open_with_model(tmp_path, WORK) as (server, model):
        result = await server.run(**endpoint(model), instruction="x", verify=[RIGHT], mode="black_box")
        assert not any(b"logprobs" in request.body for request in model.requests)
    assert (result.mode, result.reward, result.proxy_turns, result.training_trace) == ("black_box", 1.0, [], None)


async def test_a_setup_command_that_fails_ends_the_rollout_before_the_agent(tmp_path: Path) -> None:
    async with open_with_model(tmp_path, WORK) as (server, model):
        result = await server.run(
            **endpoint(model), instruction="x", setup=["echo out; echo err >&2", "exit 7", "true"], verify=["true"]
        )
        assert model.requests == []
    assert result.error == "setup command failed (exit 7): exit 7"
    assert (result.reward, result.verify_results, result.proxy_turns) == (None, [], [])
    first, second = result.setup_results
    assert (first.cmd, first.exit_code, first.stdout, first.stderr) == ("echo out; echo err >&2", 0, "out\n", "err\n")
    assert second.exit_code == 7
    assert result.sandbox_id
    assert result.wall_s > 0


async def test_after_a_timeout_of_the_agent_its_work_is_still_verified(tmp_path: Path) -> None:
    replies = (call("bash", command="echo right > answer.txt; (sleep 9; echo wrong > answer.txt) & sleep 30"),)
    async with open_with_model(tmp_path, Scene(replies=replies)) as (server, model):
        result = await server.run(
            **endpoint(model), instruction="x", verify=[RIGHT, "false"], agent_timeout_s=2, task_id="late"
        )
    assert result.error is not None
    assert result.error.startswith("agent timeout: ")
    assert (result.reward, result.agent_exit_code, result.timed_out, result.task_id) == (0.5, None, True, "late")
    assert [one.exit_code for one in result.verify_results] == [0, 1]


async def test_the_exit_code_is_the_agents_own(tmp_path: Path) -> None:
    fails = "command:sh -c 'echo right > answer.txt; exit 3'"
    async with open_openenv(tmp_path, agents=("chat", fails)) as server:
        result = await server.run(**{**DO, "agent": fails})
    assert (result.agent_exit_code, result.verify_results[0].exit_code) == (3, 0)


async def test_without_verify_commands_there_is_no_reward(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server:
        result = await server.run(**{**DO, "verify": []})
    assert (result.reward, result.reward_source, result.error) == (None, None, None)


async def test_a_verify_command_may_write_the_reward(tmp_path: Path) -> None:
    write = "echo 0.25 > /home/user/logs/verifier/reward.txt"
    async with open_openenv(tmp_path) as server:
        result = await server.run(**{**DO, "verify": [write, "false"]})
    assert (result.reward, result.reward_source) == (0.25, "verifier")


async def test_a_reward_that_is_no_number_from_0_to_1_is_an_error(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server:
        for content in ("nan", "inf", "-inf", "1.5", "-0.5", "good"):
            result = await server.run(**{**DO, "verify": [f"echo {content} > /home/user/logs/verifier/reward.txt"]})
            assert result.reward is None, content
            assert result.error, content
            assert result.exception_type == "judge"


async def test_commands_find_the_paths_of_openenv(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server:
        result = await server.run(
            **{
                **DO,
                "setup": [
                    "test $(pwd) = /home/user/workdir",
                    "echo 1 > /home/user/workdir/given.txt",
                    "echo 'print(1)' > /home/user/test.py",
                ],
                "verify": [
                    "cat /home/user/task/instruction.md",
                    "test -f /home/user/workdir/given.txt",
                    "test -d /home/user/logs/verifier",
                    "python3 /home/user/test.py",
                ],
            }
        )
    assert [one.exit_code for one in (*result.setup_results, *result.verify_results)] == [0] * 7
    assert result.verify_results[0].stdout.strip() == "Write right."


async def test_files_are_shown_by_their_absolute_paths(tmp_path: Path) -> None:
    setup = ["mkdir -p a/b; echo x > a/b/deep.txt; echo y > a/near.txt; head -c 99 /dev/urandom > noise"]
    async with open_openenv(tmp_path) as server:
        result = await server.run(**{**DO, "setup": setup})
    assert result.files["/home/user/workdir/answer.txt"] == "right\n"
    assert result.files["/home/user/workdir/a/near.txt"] == "y\n"
    assert "/home/user/workdir/a/b/deep.txt" not in result.files
    assert "/home/user/workdir/noise" in result.files_extra


async def test_a_call_that_failed_is_a_turn_with_its_error(tmp_path: Path) -> None:
    broken = Scene(replies=(Reply(fault=Fault.BAD_REQUEST),))
    async with open_with_model(tmp_path, broken) as (server, model):
        result = await server.run(**endpoint(model), instruction="x", verify=["true"])
    turn = result.proxy_turns[0]
    assert turn.upstream_status == 400
    assert turn.upstream_error is not None
    assert turn.upstream_error["type"] == "status"
    assert "status 400" in result.proxy_log_tail
    assert (result.reward, bool(result.error)) == (None, True)


async def test_a_cancelled_rollout_is_a_result_whether_it_ran_or_waited(tmp_path: Path) -> None:
    async with open_openenv(tmp_path, concurrency=1) as server:
        calls = [asyncio.create_task(server.run(**{**DO, "setup": ["sleep 30"], "task_id": str(n)})) for n in range(2)]
        await until(lambda: (server.service.view(LOCAL).running, server.service.view(LOCAL).queued) == (1, 1))
        for view in await server.service.list_rollouts(LOCAL):
            await server.service.cancel(view.id, LOCAL)
        results = await asyncio.gather(*calls)
    assert [one.task_id for one in results] == ["0", "1"]
    assert all(one.error and one.error.startswith("cancelled: ") for one in results), [one.error for one in results]
    assert [one.reward for one in results] == [None, None]


async def test_several_samples_come_as_a_group(tmp_path: Path) -> None:
    flips = "command:sh -c 'echo $$ | grep -q [02468]$ && echo right > answer.txt; true'"
    async with open_openenv(tmp_path, agents=("chat", flips)) as server, server.socket() as ws:
        data = await ws.call("run_rollout", **{**DO, "agent": flips}, samples=3, task_id="g")
        state = (await ws.ask({"type": "state"}))["data"]
    group = RolloutResult.model_validate_json(data["observation"]["result"]["data"])
    rewards = [one.reward for one in group.rollouts]
    assert len(rewards) == 3
    assert group.reward == sum(reward or 0 for reward in rewards) / 3
    assert (group.reward_source, group.task_id, group.proxy_turns) == ("mean", "g", [])
    assert {one.group_id for one in group.rollouts} == {group.group_id}
    assert len({one.rollout_id for one in group.rollouts}) == 3
    assert data["reward"] == group.reward
    assert state["rollouts_completed"] == 3


async def test_a_group_keeps_the_place_of_a_rollout_that_failed(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server:
        group = await server.run(**{**DO, "setup": ["false"]}, samples=2)
    assert [one.reward for one in group.rollouts] == [None, None]
    assert (group.reward, group.reward_source) == (None, None)
    assert group.error == "2 of 2 rollouts failed: setup command failed (exit 1): false"


async def test_the_seed_of_reset_reaches_the_model(tmp_path: Path) -> None:
    async with open_with_model(tmp_path, Scene(replies=(say("4"),))) as (server, model), server.socket() as ws:
        await ws.ask({"type": "reset", "data": {"seed": 40}})
        await ws.call("run_rollout", **endpoint(model), instruction="x", samples=2)
        assert sorted(json.loads(request.body)["seed"] for request in model.requests) == [40, 41]


async def test_large_results_are_whole_over_http_and_cut_on_a_socket(tmp_path: Path) -> None:
    many = Scene(replies=(*(call("bash", command=f"echo {place} {'x' * 900}") for place in range(12)), say("Done.")))
    async with open_with_model(tmp_path, many) as (server, model), server.socket() as ws:
        given = {**endpoint(model), "instruction": "x", "sampling_params": SAMPLING}
        whole = await server.run(**given)
        data = await ws.call("run_rollout", **given)
        cut = RolloutResult.model_validate_json(data["observation"]["result"]["data"])
        data = await ws.call("run_rollout", **given, max_result_bytes=50_000_000)
        wanted = RolloutResult.model_validate_json(data["observation"]["result"]["data"])
    assert len(whole.proxy_turns) == len(cut.proxy_turns) == 13
    assert (whole.truncated, cut.truncated, wanted.truncated) == (False, True, False)
    assert wanted.training_trace is not None
    assert cut.training_trace is None
    assert cut.rollout_id


async def test_a_template_is_noted_and_not_used(tmp_path: Path) -> None:
    async with open_openenv(tmp_path) as server:
        result = await server.run(**DO, template="opencode-rl")
    assert (result.reward, "template 'opencode-rl' was not used" in result.findings[0]) == (1.0, True)
