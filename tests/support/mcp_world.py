"""What the tests of MCP share: a project whose tasks are served, a slow or quick inner model, and the SDK's client."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, TextContent

from support.whet_program import Project
from whet.runs.config import read_config
from whet.serve.options import ServeOptions
from whet.serve.serving import OpenServer, open_server

T = TypeVar("T")
CONFIG = """
[defaults]
agent = "loop"
model = "inner"
[models.inner]
script = "inner.toml"
"""
INNER = """
[[scene]]
when = { user = "slowly" }
[[scene.reply]]
delay = 30
text = "At last."

[[scene]]
when = { user = "42" }
[[scene.reply]]
text = "I write it."
tools = [{ name = "bash", arguments = { command = "echo 42 > answer; echo done" } }]
[[scene.reply]]
text = "It is 42."

[[scene]]
[[scene.reply]]
text = "I do not know."
"""
RIGHT, WRONG, SLOW = "write-42", "write-43", "slow"


def write_project(project: Project) -> Project:
    """A project with three tasks: one that the agent solves, one that it does not, and one that takes half a minute."""
    project.write("whet.toml", CONFIG)
    project.write("inner.toml", INNER)
    project.rows(
        "tasks/rows.jsonl",
        {"id": RIGHT, "instruction": "Write 42 into answer.", "verify": ["grep -qx 42 answer"], "split": "train"},
        {"id": WRONG, "instruction": "Write another number.", "verify": ["grep -qx 43 answer"], "split": "test"},
        {"id": SLOW, "instruction": "Do it slowly.", "verify": ["true"]},
    )
    return project


def server_of(project: Project, *options: str) -> StdioServerParameters:
    """How a client starts whet in a project."""
    arguments = ["-m", "whet", "serve", "tasks", "--mcp-stdio", *options]
    return StdioServerParameters(command=sys.executable, args=arguments, env=project.environ(), cwd=project.path)


@contextlib.asynccontextmanager
async def connected(project: Project, *options: str, mode: str = "auto") -> AsyncIterator[Client]:
    """A client that has started whet. What whet prints on stderr is in a file of the project."""
    with stderr_of(project).open("a") as errors:
        async with Client(stdio_client(server_of(project, *options), errlog=errors), mode=mode) as client:
            yield client


@contextlib.asynccontextmanager
async def serving(
    project: Project, monkeypatch: pytest.MonkeyPatch, env: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[OpenServer]:
    """The whole server over HTTP, in this process."""
    enter_project(project, monkeypatch)
    config = read_config(Path("whet.toml"))
    chosen = ServeOptions(**{"tasks": Path("tasks"), "port": 0, **options}).complete(config)
    async with open_server(chosen, config, lambda _: None, {**project.environ(), **(env or {})}) as server:
        yield server


def enter_project(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process work in a project, with boxes in its TMPDIR."""
    for name, value in project.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(project.tmp))
    monkeypatch.chdir(project.path)


@contextlib.asynccontextmanager
async def held(context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """The same context, entered and left by one task, as the SDK wants it: a fixture is set up and torn down by two."""
    entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def hold() -> None:
        async with context as value:
            entered.set_result(value)
            await over.wait()

    holding = asyncio.ensure_future(hold())
    either: set[asyncio.Future[Any]] = {holding, entered}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    try:
        if entered.done():
            yield entered.result()
    finally:
        over.set()
        await holding


def stderr_of(project: Project) -> Path:
    return project.path / "stderr.txt"


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured content of a tool's answer, which must not be an error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def read(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a tool's answer."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    return text_of(result)


async def refuse(client: Client, tool: str, **arguments: Any) -> str:
    """The text of an error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)


def text_of(result: CallToolResult) -> str:
    return "\n".join(one.text for one in result.content if isinstance(one, TextContent))
