"""What the tests of judges share: a sealed box in which some work lies, and what a judge says of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.box import Box
from whet.sandbox import sandbox_named
from whet.scoring import ObservedCall, Score, Work, combine, judges_of
from whet.tasks import Task
from whet.workspace import Change


async def judged(task: Task, *, work: str = "true", answer: str = "", env: dict[str, str] | None = None) -> Score:
    """The score of a task after an agent ran the shell script `work` in its box."""
    async with sandbox_named("bubblewrap").open(task.limits, task.workdir) as box:
        await box.exec(["bash", "-c", work])
        await box.seal()
        done = Work(task, box, answer, env or {})
        return combine({judge.name: await judge.judge(done) for judge in judges_of(task)})


async def judgement(task: Task) -> Score:
    """What the only judge of a task says, with its details."""
    (judge,) = judges_of(task)
    async with sandbox_named("bubblewrap").open(task.limits, task.workdir) as box:
        await box.seal()
        return await judge.judge(Work(task, box, "", {}))


class ScriptedReferee:
    """A judge's model that gives these replies, in order, and remembers what it was asked."""

    def __init__(self, *replies: str) -> None:
        self.replies = [*replies]
        self.asked: list[tuple[str | None, list[dict[str, str]]]] = []

    async def ask(self, model: str | None, messages: Sequence[Mapping[str, str]]) -> str:
        self.asked.append((model, [dict(message) for message in messages]))
        return self.replies.pop(0)


async def said_of(
    text: str,
    judge: object,
    /,
    *,
    calls: tuple[ObservedCall, ...] = (),
    changes: tuple[Change, ...] = (),
    captured: bool = True,
    stop: str = "finished",
    skill_read: bool | None = None,
    structured: Any = None,
    referee: ScriptedReferee | None = None,
    box: Box | None = None,
    **task: Any,
) -> Score:
    """What one judge, as a task would declare it, says of an answer; there is no box unless one is given."""
    asked = Task.model_validate({"id": "t", "instruction": "Do it.", "judge": judge, **task})
    work = Work(
        asked,
        box,
        text,
        {},
        calls=calls,
        changes=changes,
        captured=captured,
        stop=stop,
        skill_read=skill_read,
        structured=structured,
        referee=referee,
    )
    (only,) = judges_of(asked)
    return await only.judge(work)


def checks_in(folder: Path, script: str, mode: int = 0o755) -> Path:
    """A tests folder whose test.sh is this script."""
    tests = folder / "tests"
    tests.mkdir()
    test_script = tests / "test.sh"
    test_script.write_text("#!/bin/bash\n" + script)
    test_script.chmod(mode)
    return tests
