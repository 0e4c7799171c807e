"""What the programs of `make check-trainers` share: the tasks of the server, and whet's own rows to compare with."""

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from whet.client import Client
from whet.client.models import Outcome, RolloutView, Status

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
CONFIG = f"""
[models.policy]
script = "script.toml"
capture = "vllm"
set = {{ {", ".join(f"{name} = {value}" for name, value in SAMPLING.items())} }}
"""
# Samples of a group differ in what the tool prints, and in their rewards.
SCRIPT = """
tokens = true

[[scene]]
when = { user = "Wait" }
[[scene.reply]]
text = "Done."
delay = 60

[[scene]]
[[scene.reply]]
text = "I draw a number."
tools = [{ name = "bash", arguments = { command = "od -An -N4 -tx4 /dev/urandom | tee number" } }]
[[scene.reply]]
text = "Drawn."
"""
DRAW = "cat number && echo 0.$(od -An -N6 -tu2 /dev/urandom | tr -d ' ') > /logs/verifier/reward.txt"
TASKS: tuple[dict[str, Any], ...] = (
    {"id": "draw", "instruction": "Draw a number.", "verify": [DRAW]},
    {"id": "pass", "instruction": "Draw a number and keep it.", "verify": ["test -s number"]},
    {
        "id": "fail",
        "instruction": "Draw a number for a judge that fails.",
        "verify": ["echo nonsense > /logs/verifier/reward.txt"],
    },
    {"id": "wait", "instruction": "Wait.", "verify": ["true"]},
)
UNSCORED = {"instruction": "Draw a number that nobody looks at."}


def write_world(folder: Path) -> None:
    """Write the files that the server reads."""
    (folder / "whet.toml").write_text(CONFIG)
    (folder / "script.toml").write_text(SCRIPT)
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))


def read_rows(url: str, rollout: str, form: str = "rows") -> list[dict[str, Any]]:
    """The rows of a rollout as whet has them."""
    with Client(url) as client:
        return client.rows(rollout, format=form).rows


def rows_by_tokens(url: str) -> dict[tuple[int, ...], dict[str, Any]]:
    """The rows of all rollouts of the server. Samples draw numbers, so no two have the same tokens."""
    with Client(url) as client:
        done = [one.id for one in client.rollouts() if one.reward is not None]
    return {tuple(row["tokens"]): row for name in done for row in read_rows(url, name)}


def find_rollout(url: str, task: str, status: Status) -> RolloutView | None:
    """The newest rollout of a task in this state."""
    with Client(url) as client:
        return next((one for one in client.rollouts(status=status) if one.task == task), None)


async def check_cancel(url: str, work: Awaitable[Any]) -> None:
    """Cancel work on the task 'wait' when its rollout runs. The server must have ended it."""
    task = asyncio.ensure_future(work)
    while (found := await asyncio.to_thread(find_rollout, url, "wait", Status.RUNNING)) is None:
        assert not task.done(), task.exception()
        await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait([task], timeout=20)
    assert task.cancelled(), task
    with Client(url) as client:
        ended = await asyncio.to_thread(client.wait, found.id, 20)
    assert ended.outcome is Outcome.CANCELLED, ended


def report(line: str) -> None:
    """Print what was found to hold."""
    print(f"  {line}", flush=True)
