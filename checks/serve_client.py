"""One version of OpenEnv's client against a server. Prints a JSON line per check: its name, and what is wrong.

python serve_client.py JOB URL MODEL_URL KEY
"""

import asyncio
import contextlib
import inspect
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction

from serve_models import FOURTEEN, OpenCodeEnv, RolloutResult, read, text_of

IS_SYNC = not inspect.iscoroutinefunction(OpenCodeEnv.call_tool)
"""Core 0.2.1."""
RIGHT = "grep -qx right /home/user/workdir/answer.txt"
REWARD = "/home/user/logs/verifier/reward.txt"


class Job:
    """The checks of one version."""

    def __init__(self, url: str, model_url: str, key: str) -> None:
        self.url = url
        self._endpoint = {"base_url": model_url, "api_key": key, "model": "scripted"}

    def arguments(self, **fields: Any) -> dict[str, Any]:
        """All fourteen, and the small agent in place of OpenCode."""
        given = {"instruction": "Write right.", "verify": [RIGHT], "agent": "loop"}
        return {**FOURTEEN, **self._endpoint, **given, **fields}

    async def with_async(self, use: Callable[[Any], Awaitable[None]], **settings: Any) -> None:
        async with OpenCodeEnv(self.url, **settings) as env:
            await env.reset()
            await use(env)

    async def in_thread(self, use: Callable[[Any], None]) -> None:
        def work() -> None:
            with contextlib.ExitStack() as stack:
                env = OpenCodeEnv(self.url)
                env = stack.enter_context(env if IS_SYNC else env.sync())
                env.reset()
                use(env)

        await asyncio.to_thread(work)

    # The matrix

    async def async_call_tool(self) -> None:
        if IS_SYNC:
            return await self.in_thread(lambda env: check_good(read(env.call_tool("run_rollout", **self.arguments()))))

        async def use(env: Any) -> None:
            assert [tool.name for tool in await env.list_tools()] == ["run_rollout"]
            check_good(read(await env.call_tool("run_rollout", **self.arguments(task_id="m"))), "m")
            for arguments, beginning in (
                (FOURTEEN, "must provide either ``endpoint`` (one of ('vllm', 'openai', 'hf_router')) or all of"),
                (self.arguments(endpoint="bogus"), "unknown endpoint kind: 'bogus'; expected one of ('vllm', "),
                (self.arguments(instruction=""), "instruction is required"),
            ):
                said = f"Tool 'run_rollout' failed: Error calling tool 'run_rollout': {beginning}"
                await raises(partial(env.call_tool, "run_rollout", **arguments), said)
            await raises(lambda: env.call_tool("fly"), "Tool 'fly' failed: ")

        return await self.with_async(use)

    async def sync_call_tool(self) -> None:
        def use(env: Any) -> None:
            assert [tool.name for tool in env.list_tools()] == ["run_rollout"]
            check_good(read(env.call_tool("run_rollout", **self.arguments(task_id="s"))), "s")

        await self.in_thread(use)

    async def step(self) -> None:
        def use(env: Any) -> None:
            env.reset(episode_id="ep-7", seed=3)
            assert env.step(ListToolsAction()).observation.tools[0].name == "run_rollout"
            done = env.step(CallToolAction(tool_name="run_rollout", arguments=self.arguments()))
            assert done.reward == 1.0, done.reward
            assert done.done is False
            check_good(RolloutResult.model_validate_json(text_of(done.observation.result)))
            state = env.state()
            assert (state.episode_id, state.step_count) == ("ep-7", 2), state
            failed = env.step(CallToolAction(tool_name="fly", arguments={}))
            assert failed.observation.error.message == "Unknown tool: 'fly'"

        await self.in_thread(use)

    async def run_rollout(self) -> None:
        """The method itself, where it works."""
        assert IS_SYNC

        def use(env: Any) -> None:
            check_good(env.run_rollout(**self.arguments(task_id="r")), "r")

        await self.in_thread(use)

    async def results(self) -> None:
        """Every way in which a rollout can end is a valid result."""

        def use(env: Any) -> None:
            def run(**fields: Any) -> RolloutResult:
                result = read(env.call_tool("run_rollout", **self.arguments(task_id="k", **fields)))
                assert (result.task_id, bool(result.sandbox_id)) == ("k", True)
                assert result.wall_s > 0
                return result

            failed = run(setup=["true", "exit 9"])
            assert (failed.error, failed.reward) == ("setup command failed (exit 9): exit 9", None), failed
            assert [one.exit_code for one in failed.setup_results] == [0, 9]
            late = run(instruction="Linger.", agent_timeout_s=3)
            assert (late.error or "").startswith("agent timeout: "), late.error
            assert (late.reward, late.agent_exit_code) == (1.0, None), late
            crashed = run(agent="command:sh -c 'exit 3'")
            assert (crashed.agent_exit_code, crashed.proxy_turns) == (3, []), crashed
            unjudged = run(verify=[])
            assert (unjudged.reward, unjudged.error, len(unjudged.proxy_turns)) == (None, None, 2), unjudged
            forged = run(instruction="Plant a reward.", verify=["false", "false"])
            assert forged.reward == 0.0, forged
            for content in ("nan", "inf", "1.5"):
                odd = run(verify=[f"echo {content} > {REWARD}"])
                assert (odd.reward, bool(odd.error)) == (None, True), (content, odd)
            written = run(verify=[f"echo 0.25 > {REWARD}", "false"])
            assert written.reward == 0.25, written
            black = run(mode="black_box")
            assert (black.reward, black.proxy_turns, black.mode) == (1.0, [], "black_box"), black

        await self.in_thread(use)

    # One by one

    async def capacity_one(self) -> None:
        """One client is one slot: it connects where there is only one."""

        async def use(env: Any) -> None:
            check_good(read(await env.call_tool("run_rollout", **self.arguments())))
            message = "Server at capacity: 1/1 sessions active. Cannot accept new connections."
            await raises(lambda: OpenCodeEnv(self.url).connect(), f"Failed to create MCP session: {message}")

        await self.with_async(use)
        await self.with_async(use)

    async def parallel_calls(self) -> None:
        """Two calls of one session run at the same time."""

        async def use(env: Any) -> None:
            started = asyncio.get_running_loop().time()
            arguments = self.arguments(setup=["sleep 4"])
            both = await asyncio.gather(*(env.call_tool("run_rollout", **arguments) for _ in range(2)))
            took = asyncio.get_running_loop().time() - started
            for raw in both:
                check_good(read(raw))
            assert took < 2 * 4, f"{took:.1f} s for two calls of 4 s"

        await self.with_async(use)

    async def long_call(self) -> None:
        """A rollout of 90 s with a time limit of 5 s."""

        async def use(env: Any) -> None:
            result = read(await env.call_tool("run_rollout", **self.arguments(setup=["sleep 90"])))
            check_good(result)
            assert result.wall_s > 90

        await self.with_async(use, message_timeout_s=5.0)

    async def many_sessions(self) -> None:
        """200 sessions at the same time, 60 of which run a rollout of 3 s."""
        arguments = self.arguments(setup=["sleep 3"], agent="command:sh -c 'echo right > answer.txt'")
        all_open = asyncio.Barrier(200)

        async def one(place: int) -> None:
            env = OpenCodeEnv(self.url, connect_timeout_s=60.0)
            async with env:
                await env.reset(episode_id=f"ep-{place}")
                await all_open.wait()
                if place < 60:
                    assert read(await env.call_tool("run_rollout", **arguments)).reward == 1.0
                assert (await env.state()).episode_id == f"ep-{place}"

        await asyncio.gather(*(one(place) for place in range(200)))

    async def hold(self) -> None:
        """Take a session, call a long rollout, and wait to be killed."""

        def use(env: Any) -> None:
            print(json.dumps({"holding": True}), flush=True)
            env.call_tool("run_rollout", **self.arguments(setup=["sleep 100"]))

        await self.in_thread(use)

    async def take(self) -> None:
        """Take the session that another client had, as soon as that is possible."""
        for _ in range(200):
            try:
                return await self.in_thread(lambda env: env.state())
            except Exception as error:
                if "capacity" not in str(error).lower() and "ConnectionClosed" not in type(error).__name__:
                    raise
                await asyncio.sleep(0.1)
        raise AssertionError("the slot was not freed within 20 s")

    async def seed_example(self) -> None:
        """The example of the client's documentation, with OpenCode itself."""

        def use(env: Any) -> None:
            arguments = {key: value for key, value in self.arguments().items() if key != "agent"}
            raw = env.call_tool("run_rollout", **{**arguments, **EXAMPLE})
            result = read(raw)
            assert (result.reward, result.error, result.agent_exit_code) == (1.0, None, 0), result
            assert any(path.endswith("/binary_search.py") for path in result.files), list(result.files)
            assert result.proxy_turns, "no turns"
            for turn in result.proxy_turns:
                assert len(turn.completion_token_ids) == len(turn.per_token_logps) > 0, turn
            print(json.dumps({"printed": [result.reward, len(result.proxy_turns)]}), flush=True)

        await self.in_thread(use)


SEARCHES = "from binary_search import binary_search as b; assert [b([1, 3], n) for n in (1, 3, 4)] == [0, 1, -1]"
EXAMPLE: dict[str, Any] = {
    "instruction": "Create binary_search.py exposing def binary_search(arr, target) -> int, the index or -1.",
    "setup": ["echo 'from binary_search import binary_search as b' > check.py", "python3 --version"],
    "verify": [
        "test -f /home/user/workdir/binary_search.py",
        f"cd /home/user/workdir && PYTHONPATH=. python3 -c '{SEARCHES}'",
    ],
    "task_id": "binary_search_v1",
}


def check_good(result: RolloutResult, task_id: str | None = None) -> None:
    assert result.error is None, result.error
    assert result.reward == 1.0, result.reward
    assert task_id is None or result.task_id == task_id
    assert [one.exit_code for one in result.verify_results] == [0]
    assert len(result.proxy_turns) == 2, len(result.proxy_turns)
    for turn in result.proxy_turns:
        assert len(turn.completion_token_ids) == len(turn.per_token_logps) > 0
        assert turn.upstream_status == 200


async def raises(call: Callable[[], Awaitable[Any]], beginning: str) -> None:
    said = "no error"
    try:
        await call()
    except RuntimeError as error:
        said = str(error)
    assert said.startswith(beginning), f"{said}; expected {beginning!r}"


async def main(job: str, url: str, model_url: str, key: str) -> int:
    checks = Job(url, model_url, key)
    for name in job.split(","):
        wrong = ""
        try:
            await getattr(checks, name)()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is printed
            wrong = f"{type(error).__name__}: {error}"[:600]
            traceback.print_exc()
        print(json.dumps({"check": name, "wrong": wrong}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
