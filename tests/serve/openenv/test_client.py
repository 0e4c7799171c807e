"""OpenCodeEnv: the methods of OpenEnv's own client, synchronous and asynchronous."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.openenv_world import OpenEnvServer, open_openenv
from support.serve_world import RIGHT, WRITES
from support.waiting import until
from support.whet_program import REPOSITORY
from whet.client import AsyncOpenCodeEnv, OpenCodeEnv
from whet.client.openenv import CallToolAction, ListToolsAction, RolloutResult
from whet.serve.openenv.environment import OpenEnvSettings
from whet.testing import Scene, Script, ScriptedModel, call, say

DO: dict[str, Any] = {"model": "m", "instruction": "Write right.", "agent": WRITES, "verify": [RIGHT]}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[OpenEnvServer]:
    async with open_openenv(tmp_path, settings=OpenEnvSettings(max_sessions=1)) as opened:
        yield opened


async def test_a_synchronous_session(server: OpenEnvServer) -> None:
    def use() -> RolloutResult:
        with OpenCodeEnv(base_url=server.url) as env:
            assert env.reset(episode_id="ep-1").observation.metadata["status"] == "ready"
            assert env.has_tool("run_rollout")
            assert not env.has_tool("fly")
            result = env.run_rollout(**DO, setup=["touch given.txt"], task_id="t")
            state = env.state()
            assert (state.episode_id, state.step_count, state.last_reward) == ("ep-1", 1, 1.0)
            stepped = env.step(CallToolAction(tool_name="run_rollout", arguments=DO))
            assert (stepped.reward, stepped.done, stepped.observation.tool_name) == (1.0, False, "run_rollout")
            with pytest.raises(RuntimeError, match=r"^Tool 'run_rollout' failed: .*instruction is required$"):
                env.run_rollout(model="m")
            with pytest.raises(RuntimeError, match=r"^Failed to create MCP session: Server at capacity: 1/1"):
                OpenCodeEnv(base_url=server.url).connect()
            return result

    result = await asyncio.to_thread(use)
    assert (result.reward, result.task_id, result.setup_results[0].exit_code) == (1.0, "t", 0)
    await until(lambda: not len(server.openenv.sessions))


async def test_an_asynchronous_session(server: OpenEnvServer) -> None:
    async with AsyncOpenCodeEnv(base_url=server.url) as env:
        await env.reset(seed=1)
        listed = await env.step(ListToolsAction())
        assert listed.observation.tools is not None
        assert [tool.name for tool in listed.observation.tools] == ["run_rollout"]
        results = await asyncio.gather(*(env.run_rollout(**DO) for _ in range(2)))
        assert [one.reward for one in results] == [1.0, 1.0]
        assert (await env.state()).rollouts_completed == 2
    await until(lambda: not len(server.openenv.sessions))


async def test_async_with_gives_coroutines(server: OpenEnvServer) -> None:
    async with OpenCodeEnv(base_url=server.url.replace("http", "ws")) as env:
        assert (await env.run_rollout(**DO)).reward == 1.0


async def test_a_client_that_fails_gives_its_session_back(server: OpenEnvServer) -> None:
    def use() -> None:
        with OpenCodeEnv(base_url=server.url):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await asyncio.to_thread(use)
    await until(lambda: not len(server.openenv.sessions))


async def test_a_server_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    def use() -> None:
        OpenCodeEnv(base_url="http://127.0.0.1:9", connect_timeout_s=1).connect()

    with pytest.raises(Exception, match="connect"):
        await asyncio.to_thread(use)


async def test_the_example_of_the_documentation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (REPOSITORY / "docs/serve/openenv.md").read_text()
    (example, *_) = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    work = call("bash", command="echo 'def binary_search(arr, target): return -1' > binary_search.py")
    script = Script(scenes=(Scene(replies=(work, say("Done."))),))
    async with (
        ScriptedModel(script, tokens=True) as model,
        open_openenv(tmp_path, agents=("loop",), allow=(model.url.removeprefix("http://"),)) as server,
    ):
        here = example.replace("http://127.0.0.1:8000", server.url).replace("http://127.0.0.1:8001", model.url)
        await asyncio.to_thread(exec, here, {})
    assert capsys.readouterr().out == "1.0 2\n"
