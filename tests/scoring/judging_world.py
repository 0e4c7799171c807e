"""What the tests of judges share: a sealed box in which some work lies, and what a judge says of it."""

from pathlib import Path

from whet.sandbox import sandbox_named
from whet.scoring import Score, Work, combine, judges_of
from whet.tasks import Task


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


def checks_in(folder: Path, script: str, mode: int = 0o755) -> Path:
    """A tests folder whose test.sh is this script."""
    tests = folder / "tests"
    tests.mkdir()
    test_script = tests / "test.sh"
    test_script.write_text("#!/bin/bash\n" + script)
    test_script.chmod(mode)
    return tests
