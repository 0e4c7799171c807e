"""The README's way from a clone to a scored run and a sharpened document, typed as it stands there.

Claude Code is the real one, in a real box; a scripted model stands in for Anthropic. Sharpening is taken as far as
`--dry-run`: a whole one takes hundreds of rollouts, and has tests of its own.
"""

import asyncio
import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import whet
from support.whet_program import REPOSITORY, Project
from whet.testing import Scene, Script, ScriptedModel, call, say

KEY = "sk-0123456789abcdef"
COMMITS = 30
SCRIPT = Script(
    scenes=(
        Scene(replies=(call("bash", command="find . -name '*.py' | wc -l > count.txt"), say("The number is written."))),
    )
)
TEST = "import unittest\nfrom shop import total{n}\n\n\nclass Test{n}(unittest.TestCase):\n    def test(self):\n"


def typed() -> list[str]:
    """The commands of the README from a clone on, in order."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture
def repository(project: Project) -> Project:
    """Somebody's repository: each commit adds a function and its test."""

    def git(*words: str) -> None:
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
        # The same commits have the same ids in every run, by which tasks are named and split.
        dates = {f"GIT_{who}_DATE": "2026-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")}
        subprocess.run(["git", *identity, *words], cwd=project.path, check=True, env={**os.environ, **dates})

    project.write("CLAUDE.md", "# Rules\n\nUse short names.\n")
    project.write("tests/__init__.py", "")
    project.write("shop.py", "")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "Begin")
    for n in range(COMMITS):
        with (project.path / "shop.py").open("a") as file:
            file.write(f"def total{n}(): return {n}\n")
        project.write(f"tests/test_{n}.py", f"{TEST.format(n=n)}        self.assertEqual(total{n}(), {n})\n")
        git("add", "-A")
        git("commit", "-q", "-m", f"Add total{n}, which returns {n}")
    return project


def test_six_commands_lead_to_a_scored_run_and_nine_to_a_sharpened_document() -> None:
    commands = typed()
    assert [command.split()[0] for command in commands] == ["git", "sudo", "uv", *6 * ["whet"]]
    assert commands[5].startswith("whet run ")
    assert commands[8].startswith("whet adopt ")


@pytest.mark.slow
async def test_the_commands_work_in_somebodys_repository(repository: Project) -> None:
    async with ScriptedModel(SCRIPT, key=KEY) as anthropic:
        user = replace(repository, env={"ANTHROPIC_BASE_URL": anthropic.url, "ANTHROPIC_API_KEY": KEY})

        async def enter(command: str) -> str:
            done = await asyncio.to_thread(user.run, *shlex.split(command)[1:])
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            return done.stdout

        init, install, run, history, sharpen = typed()[3:8]
        await enter(init)
        await enter(install)
        await enter(run)
        history = history.replace("HEAD~100", f"HEAD~{COMMITS}")
        assert (await enter(history)).count("made ") == COMMITS
        estimate = await enter(f"{sharpen} --dry-run")
    assert {call.path.partition("?")[0] for call in anthropic.requests} >= {"/v1/messages"}
    (first,) = whet.load(repository.path / "runs" / "first").rollouts
    assert first.score is not None
    assert (first.agent, first.model, first.score.value) == ("claude-code", "anthropic/claude-sonnet-4-5", 1)
    assert "rollouts" in estimate
    assert (repository.path / "CLAUDE.md").read_text() == "# Rules\n\nUse short names.\n"
    _no_key_is_on_disk(repository.path)


def _no_key_is_on_disk(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
