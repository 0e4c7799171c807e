"""A served set: requests name its tasks and skills, and other commands read what was served."""

from pathlib import Path
from typing import Any

import pytest

from support.run_world import write_rows
from support.serve_world import ADMIN, ANN, RIGHT, open_test_service, question, run_one
from support.whet_program import Project
from whet.client.models import Outcome, RolloutRequest
from whet.errors import UserError
from whet.runs.config import Config
from whet.runs.options import RejudgeOptions
from whet.runs.rejudge import rejudge
from whet.runs.stored_run import load
from whet.serve.problems import Refused
from whet.tasks import TaskLimits


def write_tasks(folder: Path, **changes: Any) -> Path:
    return write_rows(
        folder,
        {"id": "sum", "instruction": "2 + 2?", "answer": "4", "split": "train", "tags": ["easy"], **changes},
        {"id": "file", "instruction": "Write right.", "verify": [RIGHT], "limits": {"agent_sec": 30}},
    )


def write_skill(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    (path / "SKILL.md").write_text(f"---\nname: {name}\ndescription: How to add.\n---\nAdd carefully.\n")
    return path


async def test_tasks_of_the_set_are_listed_without_what_judges_them(tmp_path: Path) -> None:
    async with open_test_service(tmp_path, tasks=write_tasks(tmp_path)) as service:
        first, second = await service.tasks(ANN)
        assert (first.id, first.instruction, first.split, first.tags) == ("sum", "2 + 2?", "train", ("easy",))
        assert "right answer.txt" not in second.model_dump_json()
        done = await run_one(service, RolloutRequest(task="sum", agent="chat"), ANN)
        assert (done.task, done.reward) == ("sum", 1.0)
        limited = RolloutRequest(task="sum", agent="chat", limits=TaskLimits(input_tokens=1))
        short = await run_one(service, limited, ANN)
        assert (short.outcome, short.usage.calls) == (Outcome.SCORED, 1)
        with pytest.raises(Refused, match="unknown task 'sun'; did you mean 'sum'"):
            await service.submit(RolloutRequest(task="sun"), ANN)


async def test_the_first_skill_is_the_default_and_none_is_always_offered(tmp_path: Path) -> None:
    skills = tuple(write_skill(tmp_path, name) for name in ("adding", "other"))
    async with open_test_service(tmp_path, skills=skills) as service:
        assert [(one.name, one.default) for one in await service.skills(ANN)] == [("adding", True), ("other", False)]
        for given, expected in ((None, "adding"), ("other", "other"), ("none", None)):
            done = await run_one(service, question(skill=given), ANN)
            assert done.skill == expected
            sent = (await service.stored(done.id, ANN)).exchanges()[0].request
            assert (b"Add carefully" in sent) == (expected is not None)
    async with open_test_service(tmp_path, skills=(None, *skills)) as service:
        assert (await run_one(service, question(), ANN)).skill is None


async def test_a_served_folder_is_a_run_like_any_other(tmp_path: Path, project: Project) -> None:
    async with open_test_service(tmp_path, tokens=True) as service:
        group = await service.submit(question(samples=2), ANN)
        await service.wait_group(group.id, ANN, 60)
        folder = tmp_path / "served" / "rollouts"
        # Also while the server writes it.
        assert [one.score.value for one in load(folder).rollouts if one.score] == [1.0, 1.0]
    shown = project.whet("show", str(folder))
    assert "100.0%" in shown.stdout
    exported = project.whet("export", str(folder), "--format", "rows", "--out", "rows.jsonl")
    assert exported.returncode == 0, exported.stderr
    assert group.id in (project.path / "rows.jsonl").read_text()


async def test_a_task_that_changed_is_refused_until_it_is_judged_again(tmp_path: Path) -> None:
    async with open_test_service(tmp_path, tasks=write_tasks(tmp_path)) as service:
        done = await run_one(service, RolloutRequest(task="sum", agent="chat"), ANN)
        described = await run_one(service, question(), ANN)
    changed = write_tasks(tmp_path, answer="5")
    with pytest.raises(UserError, match="is judged otherwise"):
        async with open_test_service(tmp_path, tasks=changed):
            pass
    await rejudge(RejudgeOptions(run=tmp_path / "served" / "rollouts"), Config(), lambda _: None)
    async with open_test_service(tmp_path, tasks=changed) as service:
        again = await service.rollout(done.id, ADMIN)
        assert (await service.rollout(described.id, ADMIN)) == described
    assert (done.reward, again.reward) == (1.0, 0.0)
    other = write_tasks(tmp_path, answer="5", instruction="3 + 2?")
    with pytest.raises(UserError, match="has changed since the run"):
        async with open_test_service(tmp_path, tasks=other):
            pass
