"""What the tests of runs share: small task files, scripted models and a run through the API."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.rollout.result import Result
from whet.runs.config import Config, ModelConfig
from whet.runs.options import RunOptions
from whet.runs.results import ResultReader
from whet.runs.run import Event, run
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.testing import Fault, Reply


def write_rows(folder: Path, *rows: Mapping[str, Any]) -> Path:
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def questions(folder: Path, *names: str) -> Path:
    """Tasks that are solved by the answer 4."""
    return write_rows(folder, *({"id": name, "instruction": f"{name}: 2 + 2?", "answer": "4"} for name in names))


def scripted(folder: Path, replies: Mapping[str, Reply], name: str = "m", **settings: Any) -> dict[str, ModelConfig]:
    """A model that gives this reply where a question holds this word. It is called once, without retries."""
    scenes = [
        {"when": {"user": word}, "reply": [reply.model_dump(mode="json", exclude_defaults=True)]}
        for word, reply in replies.items()
    ]
    file = folder / f"{name}.toml"
    file.write_text("\n".join(_scene(scene) for scene in scenes))
    return {name: ModelConfig(script=file, attempts=1, **settings)}


def _scene(scene: Mapping[str, Any]) -> str:
    # JSON's strings, numbers and lists are TOML's too.
    (reply,) = scene["reply"]
    keys = "\n".join(f"{key} = {json.dumps(value)}" for key, value in reply.items())
    return f"[[scene]]\nwhen.user = {json.dumps(scene['when']['user'])}\n[[scene.reply]]\n{keys}\n"


def fails(fault: Fault, times: int | None = None) -> Reply:
    """A reply that fails so often and is right from then on."""
    return Reply(text="4", fault=fault, times=times)


def outage() -> dict[str, Reply]:
    """The reply to whet's own question, of an endpoint that is down."""
    return {"Reply with the word OK": fails(Fault.SERVER_ERROR)}


async def perform(tasks: Path, config: Mapping[str, ModelConfig], **request: Any) -> list[Event]:
    """Run the chat agent, or others, through the API; all events."""
    seen: list[Event] = []
    wanted = {"agents": ("chat",), "models": tuple(config), "out": tasks.parent / "run", **request}
    await run(RunOptions(tasks=tasks, **wanted), Config(models=dict(config)), seen.append, env={})
    return seen


def values(run_folder: Path) -> dict[str, float | None]:
    """Task -> value of its last attempt."""
    with Store.open_read(run_folder) as store:
        return {row.task: attempts[-1].value for row, attempts in store.attempts_by_rollout() if attempts}


def read_results(run_folder: Path) -> list[tuple[RolloutRow, Result]]:
    """Each rollout with the result of its last attempt, in the order of the plan."""
    with Store.open_read(run_folder) as store:
        lasts = [(one.row, one.last) for one in ResultReader(store)]
        return [(row, last.result) for row, last in lasts if last and last.result]


def most_at_once(run_folder: Path, model: str | None = None) -> int:
    """How many attempts were ever under way at the same time."""
    with Store.open_read(run_folder) as store:
        spans = [
            (attempt.started, attempt.ended)
            for row, attempts in store.attempts_by_rollout()
            for attempt in attempts
            if model in {None, row.model}
        ]
    return max(sum(start <= moment < (end or moment) for start, end in spans) for moment, _ in spans)
