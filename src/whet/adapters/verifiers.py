"""verifiers 0.4: an environment whose rollouts whet runs. verifiers finds an environment by the name of its module, so
put these lines into `whet_env.py`, and call `vf-eval whet_env` with WHET_URL and WHET_TOKEN in the environment:

    from whet.adapters.verifiers import WhetEnv, WhetHarness, WhetTaskset

    __all__ = ["WhetEnv", "WhetHarness", "WhetTaskset"]
"""

import os
from collections.abc import Iterator
from typing import Any

from pydantic import Field

from whet.adapters.groups import run_group
from whet.adapters.rollouts import Finished, Server, check_temperature
from whet.adapters.rows import Row
from whet.client import Client
from whet.installers import require_extra

require_extra("verifiers", "verifiers", "environments of verifiers")

import verifiers.v1 as vf  # noqa: E402

TOKEN = "WHET_TOKEN"  # noqa: S105 - the name of a variable


def read_url() -> str:
    """The server that no option names: that of WHET_URL, or one on this machine."""
    return os.environ.get("WHET_URL", "http://127.0.0.1:8000")


class WhetTaskData(vf.TaskData):
    """A task of the served set."""

    whet_task: str


class WhetTask(vf.Task[WhetTaskData]):
    """Scored by whet."""

    @property
    def key(self) -> str:
        return str(self.data.whet_task)

    @vf.reward
    async def whet(self, trace: Any) -> float:
        """The rollout's reward. Without one the trace is not ok, and is not trained."""
        found = trace.info["whet"]["reward"]
        if found is None:
            raise vf.TaskError(trace.info["whet"]["why"])
        return float(found)

    @vf.metric
    async def whet_metrics(self, trace: Any) -> dict[str, float]:
        """How old the weights were, whether they changed during the rollout, and whether it has nothing to train on."""
        found = trace.info["whet"]
        names = {"placeholder_rows": not found["rows"], "straddled": found["straddled"]}
        return {name: float(value) for name, value in names.items()} | {"staleness": float(found["staleness"] or 0)}


class WhetTasksetConfig(vf.TasksetConfig):
    """Where the tasks are served."""

    url: str = Field(default_factory=read_url)
    split: str | None = None
    """Only tasks of this split: train, val or test."""


class WhetTaskset(vf.Taskset[WhetTask, WhetTasksetConfig]):
    """The served set."""

    def load(self) -> Iterator[WhetTask]:
        """The tasks of the served set, in its order."""
        with Client(self.config.url, os.environ.get(TOKEN)) as client:
            for task in client.tasks():
                if self.config.split in {None, task.split}:
                    data = WhetTaskData(id=task.id, name=task.id, prompt=task.instruction, whet_task=task.id)
                    yield WhetTask(data, self.config.task)


class WhetHarnessConfig(vf.HarnessConfig):
    """Which server runs the rollouts, and how."""

    url: str = Field(default_factory=read_url)
    request: dict[str, Any] = Field(default_factory=dict)
    """Fields of every request, such as agent, model, skill, limits, max_staleness."""
    capture: str = ""
    """Sample with the trainer's own inference server, of this kind: vllm, sglang ... (default: the server's model)."""
    max_tokens: int | None = None
    """The longest row that the trainer takes."""


class WhetHarness(vf.Harness[WhetHarnessConfig]):
    """Runs a rollout at the server and writes its rows into the trace, one branch each."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: Any, secret: Any, mcp_urls: Any, data: Any, *_: Any
    ) -> Any:
        """Run one rollout under the trace's id. If verifiers cancels this, the server cancels the rollout."""
        del runtime, endpoint, secret, mcp_urls
        config, sampling = self.config, ctx.sampling.model_dump(exclude_none=True)
        fields = dict(config.request)
        if config.capture:
            fields["endpoint"] = _endpoint(ctx, config.capture)
        server = Server(config.url, os.environ.get(TOKEN), fields, config.max_tokens)
        request = server.make_request(data.whet_task, 1, sampling)
        async with server.open() as client:
            (rollout,) = await run_group(client, request, trace.id, config.max_tokens)
        check_temperature([rollout], sampling.get("temperature"))
        for row in rollout.rows:
            _add_branch(trace, row, ctx.model)
        trace.info["whet"] = _facts(rollout)
        trace.notify()
        return vf.ProgramResult(0, rollout.view.answer if rollout.view else "", "")


class WhetEnvConfig(vf.SingleAgentEnvConfig):
    """One agent, which whet runs. Nothing of it runs in a sandbox of verifiers."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class WhetEnv(vf.Env[WhetEnvConfig]):
    """One rollout per episode."""

    async def run(self, task: Any, agents: Any) -> None:
        await agents.agent.run(task)


def _endpoint(ctx: Any, capture: str) -> dict[str, Any]:
    """The inference server of the trainer, for whet to call."""
    key = os.environ.get(ctx.client.api_key_var)
    found = {"base_url": ctx.client.base_url, "model": ctx.model, "capture": capture}
    return {**found, "api_key": key} if key else found


def _add_branch(trace: Any, row: Row, model: str) -> None:
    """A row as a path of the message graph: what came before each reply, and the reply."""
    parent, held = None, 0
    for reply in row.replies:
        before = row.tokens[held : reply.start]
        trace.nodes.append(
            vf.MessageNode(
                parent=parent, message=vf.UserMessage(content=""), token_ids=before, mask=[False] * len(before)
            )
        )
        sampled = slice(reply.start, reply.end)
        trace.nodes.append(
            vf.MessageNode(
                parent=len(trace.nodes) - 1,
                sampled=True,
                message=vf.AssistantMessage(content=""),
                token_ids=row.tokens[sampled],
                mask=[reply.trained] * (reply.end - reply.start),
                logprobs=row.logprobs[sampled] if reply.trained else [],
            )
        )
        parent, held = len(trace.nodes) - 1, reply.end
        usage = vf.Usage(prompt_tokens=reply.start, completion_tokens=reply.end - reply.start)
        finish = reply.finish if reply.finish in {"stop", "length", "tool_calls"} else None
        trace.calls.append(vf.ModelCall(node=parent, model=model, finish_reason=finish, usage=usage))


def _facts(rollout: Finished) -> dict[str, Any]:
    view = rollout.view
    return {
        "rollout": rollout.id,
        "reward": rollout.reward,
        "why": rollout.why_missing() if rollout.reward is None else "",
        "rows": len(rollout.rows),
        "weight_versions": list(rollout.versions),
        "straddled": bool(view and view.straddled),
        "staleness": view.staleness if view else None,
    }
