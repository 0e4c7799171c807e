"""verifiers evaluates the served set with `vf-eval`, and its env server sends whet's rows over the wire."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.serve.client import EnvClient
from verifiers.v1.serve.server import EnvServer

from trainers_world import check_cancel, read_rows, report
from whet.testing import ScriptedModel, read_script

MODULE = """
from whet.adapters.verifiers import WhetEnv, WhetHarness, WhetTaskset

__all__ = ["WhetEnv", "WhetHarness", "WhetTaskset"]
"""


def check_eval(url: str, work: Path) -> None:
    """The command, offline: rewards, errors, and the branches of the traces that it writes."""
    argv = ["vf-eval", "whet_env", "--no-push", "-r", "2", "-m", "policy"]
    argv += ["--select.include.names", '["draw","fail"]']
    subprocess.run(argv, cwd=work, env=os.environ | {"WHET_URL": url}, check=True, stdout=subprocess.DEVNULL)
    (file,) = work.glob("outputs/*/traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    traces = [vf.WireTrace.model_validate(trace) for episode in episodes for trace in episode.get("traces", [episode])]
    assert sorted((trace.task.data.name, trace.ok) for trace in traces) == [("draw", True)] * 2 + [("fail", False)] * 2
    for trace in traces:
        if trace.ok:
            check_branches(url, trace, digits=4)
        else:
            assert trace.rewards == {"whet": None}
            assert "is failed" in trace.errors[-1].message
    report("vf-eval: 2 rollouts give the branches of the rows; 2 failed ones are errors without a reward")


def check_branches(url: str, trace: Any, digits: int = 12) -> None:
    rows = read_rows(url, trace.info["whet"]["rollout"])
    assert len(trace.branches) == len(rows) == 1
    for branch, row in zip(trace.branches, rows, strict=True):
        assert branch.token_ids == row["tokens"]
        assert branch.sampled_mask == [bool(one) for one in row["loss_mask"]]
        assert [round(one, digits) for one in branch.logprobs] == [round(one, digits) for one in row["logprobs"]]
        assert trace.rewards["whet"].score == row["reward"]


@asynccontextmanager
async def env_server(url: str, **harness: Any) -> AsyncIterator[Callable[..., Any]]:
    """The env server, as prime-rl uses it: a function that runs a task there and returns the trace of the episode."""
    agent = {"harness": {"id": "whet_env", "url": url, **harness}, "runtime": {"type": "subprocess"}}
    config = vf.resolve_env_config({"taskset": {"id": "whet_env", "url": url}, "agent": agent})
    tasks = {task.data.name: task.data.model_dump() for task in vf.load_environment(config).taskset}
    server = EnvServer(config, "tcp://127.0.0.1:0")
    serving = asyncio.create_task(server.run())
    client = EnvClient(server.address)

    async def run(task: str, engine: str = url, **sampling: Any) -> Any:
        settings = vf.SamplingConfig(**{"temperature": 1.0, **sampling})
        episode = await client.run(vf.EvalClientConfig(base_url=engine), "policy", settings, tasks[task])
        (trace,) = episode.traces
        return trace

    try:
        yield run
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def check_server(url: str) -> None:
    async with env_server(url) as run:
        await asyncio.to_thread(check_branches, url, await run("draw"))
        report("the env server: ids, masks and log-probabilities of the wire are those of the rows, digit by digit")
        trace = await run("pass", temperature=0.5)
        assert not trace.ok
        assert "sampled at temperature 1.0; the trainer expects 0.5" in trace.errors[-1].message
        report("a rollout at another temperature than the trainer's is an error")
        await check_cancel(url, run("wait"))
        report("a cancelled episode is cancelled at the server")
    async with env_server(url, max_tokens=20) as run:
        trace = await run("pass")
        assert (trace.ok, trace.reward, trace.branches, trace.metrics["placeholder_rows"]) == (True, 1.0, [], 1.0)
        report("a prompt that is too long: the reward stays, nothing is trained, it is counted")


async def check_own_engine(url: str, work: Path) -> None:
    """whet samples from the engine that verifiers was given, with its sampling."""
    full = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    async with ScriptedModel(read_script(work / "script.toml")) as engine, env_server(url, capture="vllm") as run:
        trace = await run("draw", f"{engine.url}/v1", **full, temperature=0.8)
        assert trace.ok, trace.errors
        await asyncio.to_thread(check_branches, url, trace)
        assert [json.loads(one.body)["temperature"] for one in engine.requests] == [0.8, 0.8]
    report("an engine of the trainer's: whet calls it, at the trainer's temperature")


if __name__ == "__main__":
    URL, WORK = sys.argv[1], Path(sys.argv[2])
    (WORK / "whet_env.py").write_text(MODULE)
    check_eval(URL, WORK)
    asyncio.run(check_server(URL))
    asyncio.run(check_own_engine(URL, WORK))
