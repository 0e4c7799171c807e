"""Coding agents as MCP clients of whet: the real programs, unmodified, with the settings that the documents give.

A scripted model plays the outer agent; another one plays the agent of the rollout that it starts.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.mcp_world import RIGHT, serving, write_project
from support.waiting import PATIENCE
from support.whet_program import REPOSITORY, Project, records
from whet.agents.install.packages import PACKAGES
from whet.agents.install.run import install
from whet.gateway.client_recipes import Address, recipe_for
from whet.serve.access import TOKEN_ENV
from whet.testing import Received, Scene, Script, ScriptedModel, call, say

DOCUMENT = REPOSITORY / "docs/serve/mcp.md"
TOKEN = "a-token-for-this-test-alone"
CEILING_SEC = 4 * PATIENCE
"""Some of them need several seconds for their start on a machine that has much else to do."""


@dataclass(frozen=True)
class Outer:
    """A program that calls whet, and how it is started without questions and without the network."""

    agent: str
    heading: str
    """In the document."""
    settings: str
    """Where its settings belong: below the project, or below the home if it begins with ~."""
    tool: Callable[[str], str]
    """How its model sees the name of a tool."""
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    home: Mapping[str, str]
    """More files below its home."""
    more_settings: str = ""
    """What is added to the settings of the document, to keep it quiet."""


OUTERS = {
    outer.agent: outer
    for outer in (
        Outer(
            "claude-code",
            "Claude Code",
            ".mcp.json",
            lambda tool: f"mcp__whet__{tool}",
            ("-p", "--mcp-config", ".mcp.json", "--dangerously-skip-permissions", "--output-format", "json"),
            {"IS_SANDBOX": "1", "MCP_CONNECTION_NONBLOCKING": "false"},
            {},
        ),
        Outer(
            "codex",
            "Codex",
            "~/.codex/config.toml",
            lambda tool: f"mcp__whet__{tool}",
            ("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-"),
            {},
            {},
            "\n[features]\nplugins = false\n",
        ),
        Outer(
            "opencode",
            "OpenCode",
            "opencode.json",
            lambda tool: f"whet_{tool}",
            ("run", "--format", "json", "--title", "test"),
            {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
            {".config/opencode/opencode.json": '{"permission": "allow"}'},
        ),
        Outer(
            "gemini",
            "Gemini CLI",
            ".gemini/settings.json",
            lambda tool: f"mcp_whet_{tool}",
            ("--yolo", "-o", "json"),
            {"GEMINI_CLI_TRUST_WORKSPACE": "true"},
            {
                ".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}, '
                '"privacy": {"usageStatisticsEnabled": false}}'
            },
        ),
    )
}
STDIO, HTTP = 0, 1


def read_settings(outer: Outer, transport: int) -> str:
    """The settings of a program as the document gives them."""
    _, _, section = DOCUMENT.read_text().partition(f"### {outer.heading}\n")
    section = re.split(r"^##", section, flags=re.MULTILINE)[0]
    found = re.findall(r"^```\w+\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(found) == 2, "one for stdio, one for HTTP"
    return str(found[transport])


@dataclass(frozen=True)
class Done:
    """What a program printed, and what it sent to its model."""

    output: str
    requests: list[Received]

    @property
    def conversation(self) -> str:
        """The last request, with all results of tools."""
        return self.requests[-1].body.decode()


async def ask(outer: Outer, project: Project, settings: str, env: Mapping[str, str]) -> Done:
    """Let a program list the tasks, run one, and say what it learned."""
    home = project.tmp / "home"
    below = home if outer.settings.startswith("~") else project.path
    files = {below / outer.settings.removeprefix("~/"): settings + outer.more_settings}
    for file, text in {**files, **{home / name: text for name, text in outer.home.items()}}.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    replies = (call(outer.tool("list_tasks")), call(outer.tool("run_task"), task=RIGHT), say("I have read the score."))
    async with ScriptedModel(Script(scenes=(Scene(replies=replies),))) as model:
        installed = install(PACKAGES[outer.agent])
        program = installed.folder / installed.program
        recipe = recipe_for(outer.agent, Address(model.url, "a-key", "outer"))
        known = {name: value for name, value in recipe.variables.items() if value is not None}
        variables = {
            **project.environ(),
            "HOME": str(home),
            "PWD": str(project.path),
            "TERM": "dumb",
            **known,
            **outer.env,
            **env,
        }
        process = await asyncio.create_subprocess_exec(
            program,
            *recipe.command[1:],
            *outer.arguments,
            cwd=project.path,
            env={**variables, "PATH": f"{program.parent}:{variables['PATH']}"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(CEILING_SEC):
                out, err = await process.communicate(b"How well does the agent do at its first task?")
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        assert process.returncode == 0, (out, err)
        return Done(out.decode(), model.requests)


def assert_it_read_the_score(done: Done, folder: Path) -> None:
    assert "I have read the score." in done.output
    assert RIGHT in done.conversation, "the list of tasks"
    assert re.search(r'\\*"reward\\*": ?1\b|reward 1\b', done.conversation), done.conversation[:2000]
    (record,) = records(folder).values()
    assert (record.value, record.answer, len(record.calls)) == (1.0, "It is 42.", 2)


@pytest.mark.slow
@pytest.mark.parametrize("outer", OUTERS.values(), ids=OUTERS)
async def test_it_starts_whet_lists_tasks_runs_one_and_reads_the_score(outer: Outer, project: Project) -> None:
    write_project(project)
    done = await ask(outer, project, read_settings(outer, STDIO), {})
    assert_it_read_the_score(done, project.path / "served/rollouts")


@pytest.mark.slow
@pytest.mark.parametrize("outer", OUTERS.values(), ids=OUTERS)
async def test_it_calls_a_server_with_a_token(outer: Outer, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(project)
    settings = read_settings(outer, HTTP)
    async with serving(project, monkeypatch, {TOKEN_ENV: TOKEN}) as server:
        settings = settings.replace("http://127.0.0.1:8000", server.about.url)
        done = await ask(outer, project, settings, {TOKEN_ENV: TOKEN})
    assert_it_read_the_score(done, project.path / "served/rollouts")
