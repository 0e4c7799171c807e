"""A skill's description is sharpened and certified like its body: tasks say that the skill should be read."""

import json
from pathlib import Path

import aiohttp
import pytest

import whet
from support.whet_program import new_project
from whet.runs.config import Config
from whet.runs.stats.summary import tally
from whet.runs.store.store import Store
from whet.skills.measurement import RunPart

RULE = "Always read this skill before you start."
BODY = "Add the numbers one after the other and write down the sum."


async def careless(assignment: whet.Assignment) -> str:
    """An agent that reads a skill only if its description insists."""
    skill = assignment.skill
    shown = skill.text if skill and RULE in skill.text else "There are skills."
    messages = [{"role": "system", "content": shown}, {"role": "user", "content": assignment.task.instruction}]
    endpoint = assignment.model
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {endpoint.key}"}) as session:
        body = {"model": endpoint.model, "messages": messages}
        async with session.post(f"{endpoint.url}/chat/completions", json=body) as reply:
            return str((await reply.json())["choices"][0]["message"]["content"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums" / "SKILL.md").write_text(f"---\nname: sums\ndescription: About sums.\n---\n{BODY}\n")
    (tmp_path / "script.toml").write_text('[[scene]]\n[[scene.reply]]\ntext = "done"\n')
    judge = {"kind": "rules", "checks": [{"op": "skill_read"}, {"op": "contains", "arg": "done"}]}
    rows = [
        {"id": f"{side}-{n}", "instruction": f"Sum {n} of {side}.", "judge": judge, "split": side}
        for side in ("train", "val", "test")
        for n in range(6)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_a_description_that_is_too_weak_is_sharpened_and_certified(folder: Path) -> None:
    options = whet.SharpenOptions(budget="90", policy="description", force=True, out=folder / "out")
    model = whet.Model(script=folder / "script.toml")
    done = whet.sharpen(
        folder / "sums", folder / "tasks.jsonl", options=options, agent=careless, model=model, config=Config()
    )
    assert done.certified
    assert done.best.text == f"---\nname: sums\ndescription: About sums. {RULE}\n---\n{BODY}\n"
    with Store.open_read(folder / "out" / RunPart.TEST) as store:
        reads = {skill: arm.format_skill_reads() for (_, _, skill), arm in tally(store).items()}
    assert reads == {
        done.start.digest: "read its skill in 0 of 6 rollouts",
        done.best.digest: "read its skill in 6 of 6 rollouts",
    }
    report = (folder / "out" / "report.md").read_text()
    assert "With the old skill the agent read its skill in 0 of " in report
    with new_project(folder) as project:
        shown = project.whet("show", "out/test").stdout
        assert "read its skill in 6 of 6 rollouts" in shown
        assert "read its skill in 0 of 6 rollouts" in project.whet("compare", "out/test").stdout
