"""Gateways of other projects for the gateway benchmark. Runs in the environment in which they are installed.

python gateway_others.py verifiers URL | litellm URL
"""

import asyncio
import json
import logging
import os
import secrets
import socket
import sys

from gateway_process import stay

SESSIONS = 32


async def verifiers(upstream_url: str) -> None:
    """The interception server of verifiers."""
    from verifiers.v1.agent import AgentConfig
    from verifiers.v1.clients import EvalClientConfig, ModelContext
    from verifiers.v1.interception.server import InterceptionServer
    from verifiers.v1.session import RolloutSession
    from verifiers.v1.task import TaskData
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask

    client = EvalClientConfig(base_url=f"{upstream_url}/v1", api_key_var="BENCH_KEY")
    context = ModelContext(model="bench", client=client)
    async with InterceptionServer() as server:
        slots = []
        for _ in range(SESSIONS):
            task = TraceTask(type="Task", data=TaskData(prompt="bench"))
            trace = Trace(task=task, agent=AgentInfo(config=AgentConfig()))
            secret, _ = server.register(RolloutSession(ctx=context, trace=trace))
            slots.append((server.base_url, secret))
        await stay({"chat": slots, "responses": slots, "messages": slots})


async def litellm(upstream_url: str) -> None:
    """The proxy of litellm."""
    secret = f"sk-{secrets.token_hex(32)}"
    os.environ |= {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # no traffic but on loopback
        "LITELLM_MASTER_KEY": secret,
        "OPENAI_API_KEY": "none",
        "WORKER_CONFIG": json.dumps({"model": "openai/bench", "alias": "bench", "api_base": f"{upstream_url}/v1"}),
    }
    import uvicorn  # type: ignore[import-not-found,unused-ignore]
    from litellm.proxy.proxy_server import app  # type: ignore[import-not-found]

    with socket.create_server(("127.0.0.1", 0)) as sock:
        config = uvicorn.Config(app, log_level="error")
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup([sock])
        await stay({"chat": [(f"http://127.0.0.1:{sock.getsockname()[1]}", secret)]})
        await server.shutdown([sock])


if __name__ == "__main__":
    # An agent that is cut off in the middle of a reply is no error here.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    asyncio.run({"verifiers": verifiers, "litellm": litellm}[sys.argv[1]](sys.argv[2]))
