"""A login as a model, for judges and proposers: each question is answered by one start of a program that is logged in,
in a sealed box. The provider accepts such a login from its own program only, so whet does not use it itself."""

import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from whet.agents import CliAgent
from whet.exchange import Exchange
from whet.gateway import Gateway, Model
from whet.rollout.attempt import attempt
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, Rollout
from whet.sandbox import DEFAULT, sandbox_named
from whet.scoring import Cause
from whet.tasks import Task, TaskLimits
from whet.text.redact import Redactor

ANSWER_SEC = 600.0
"""Time limit of one answer."""


@asynccontextmanager
async def serve_login(agent: CliAgent, model: Model, env: Mapping[str, str] = os.environ) -> AsyncIterator[str]:
    """The address of an endpoint of the chat dialect that answers with this agent's login."""
    redactor = Redactor(agent.login_secrets(env))
    sandbox = sandbox_named(DEFAULT)
    await sandbox.check()
    async with Gateway(redactor) as gateway:
        resources = RunResources(sandbox, gateway, redactor, env)

        async def answer(request: web.Request) -> web.Response:
            prompt = write_prompt(await request.json())
            if prompt is None:
                return _refuse(400, "a login answers questions of text only, without tools and not as a stream")
            # Every task needs a judge; the answer is judged by whoever asked.
            task = Task(id="question", instruction=prompt, verify=("true",), limits=TaskLimits(agent_sec=ANSWER_SEC))
            result = await attempt(Rollout("question", task, agent, model, None), resources, _discard)
            return _write_reply(result, model)

        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def write_prompt(request: Mapping[str, Any]) -> str | None:
    """The messages of a request as one text; None if they are not text alone.

    >>> write_prompt({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]})
    'Be brief.\\n\\nHi'
    """
    messages = request.get("messages") or []
    if request.get("stream") or request.get("tools") or not all(isinstance(one["content"], str) for one in messages):
        return None
    spoken = any(one["role"] == "assistant" for one in messages)
    return "\n\n".join(
        f"{one['role'].capitalize()}: {one['content']}" if spoken and one["role"] != "system" else one["content"]
        for one in messages
    )


def _write_reply(result: Result, model: Model) -> web.Response:
    report, spent = result.report, result.spending
    if report is None or not report.text:
        failed = result.score.reason or (report.error if report else None) or "the program gave no answer"
        return _refuse(401 if result.score.cause is Cause.AUTH else 502, failed)
    usage = {"prompt_tokens": spent.input_tokens, "completion_tokens": spent.output_tokens}
    usage["total_tokens"] = spent.input_tokens + spent.output_tokens
    choice = {"index": 0, "message": {"role": "assistant", "content": report.text}, "finish_reason": "stop"}
    body = {"id": "login", "object": "chat.completion", "created": int(time.time()), "model": model.upstream_name}
    return web.json_response({**body, "choices": [choice], "usage": usage})


def _refuse(status: int, message: str) -> web.Response:
    return web.Response(
        status=status, text=json.dumps({"error": {"message": message}}), content_type="application/json"
    )


async def _discard(exchange: Exchange) -> None:
    """The answer is recorded where it was asked for."""
