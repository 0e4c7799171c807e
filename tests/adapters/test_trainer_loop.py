"""The training loop of the documents, against `whet serve` and two engines that take turns."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.serve_world import SAMPLING
from support.whet_program import REPOSITORY
from whet.testing import Reply, Scene, Script, ScriptedModel

DOCUMENT = REPOSITORY / "docs/serve/trainers.md"
CONFIG = f"""
[models.policy]
url = "http://127.0.0.1:9"
name = "policy"
capture = "vllm"
set = {{ {", ".join(f"{name} = {value}" for name, value in SAMPLING.items())} }}
"""
TASKS = """
{"id": "four", "instruction": "2 + 2?", "answer": "4"}
{"id": "five", "instruction": "2 + 3?", "answer": "5"}
"""


def read_loop() -> str:
    (block,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    return str(block)


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """`whet serve`, as a user starts it."""
    (folder / "whet.toml").write_text(CONFIG)
    (folder / "tasks.jsonl").write_text(TASKS)
    argv = [sys.executable, "-m", "whet", "serve", "tasks.jsonl", "--agent", "chat", "--model", "policy"]
    argv += ["--allow", "127.0.0.1:*", "--port", "0"]
    with subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield next(word for word in server.stdout.readline().split() if word.startswith("http://"))
        finally:
            server.terminate()
            server.communicate()


@pytest.mark.slow
async def test_the_loop_of_the_documents_gets_rows_of_the_right_version(tmp_path: Path) -> None:
    script = Script(scenes=(Scene(replies=(Reply(text="4"),)),))
    async with ScriptedModel(script, tokens=True) as first, ScriptedModel(script, tokens=True) as second:
        with serve(tmp_path) as url:
            environ = {"ENGINES": f"{first.url},{second.url}", "WHET_URL": url}
            program = await asyncio.create_subprocess_exec(
                sys.executable, "-c", read_loop(), env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            out, error = await program.communicate()
        assert program.returncode == 0, error.decode()
    rewards = {"four": [1.0] * 4, "five": [0.0] * 4}
    expected = [f"{step} {task} ['{step}'] {rewards[task]} {{}}" for step in range(4) for task in ("four", "five")]
    assert out.decode().splitlines() == expected
    # Steps 0 and 2 were sampled by one engine, steps 1 and 3 by the other: two tasks of four samples each.
    assert [len(first.requests), len(second.requests)] == [16, 16]


def test_the_environment_of_the_documents_is_the_one_that_is_checked() -> None:
    checked = (REPOSITORY / "checks/trainers_verifiers.py").read_text()
    (module,) = re.findall(r'MODULE = """\n(.*?)"""', checked, re.DOTALL)
    assert f"```py\n{module}```" in DOCUMENT.read_text()
