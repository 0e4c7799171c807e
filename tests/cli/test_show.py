"""`whet show`: what an agent did in a rollout, and the files that it left behind."""

import json

from whet_program import Project, said_to_user
from whet_program import project_fixture as project_fixture

from whet.agents.installs import install
from whet.agents.packages import PACKAGES
from whet.runs.store import Store

SCRIPT = """
[[scene]]
[[scene.reply]]
tools = [{ name = "bash", arguments = { command = "lookup Berlin > answer.txt; cat answer.txt" } }]
[[scene.reply]]
text = "It is 42."
"""
TASK = {
    "id": "ask",
    "instruction": "Look Berlin up.",
    "verify": ["grep -qx 42 answer.txt"],
    "tools": [{"name": "lookup", "description": "tells a number", "answer": "42\n"}],
}


def test_a_rollout_is_shown_with_its_tools_its_changes_and_its_transcript(project: Project) -> None:
    install(PACKAGES["codex"])
    project.write("s.toml", SCRIPT)
    project.rows("tasks.jsonl", TASK)
    words = "run tasks.jsonl --agent codex --model scripted:s.toml --out run"
    assert project.whet(*words.split()).returncode == 0
    with Store.open_read(project.path / "run") as store:
        (row,) = store.rollouts()
    shown = project.whet("show", "run", row.id).stdout
    assert f"agent {PACKAGES['codex'].version} finished, exit code 0" in shown
    assert "tools asked for: exec_command 1" in shown
    assert "── calls of the task's tools\nlookup Berlin  (exit code 0)" in shown
    assert "── changes\nadded answer.txt" in shown
    assert "rollout-" in shown.rpartition("── transcript of the agent (--save FOLDER writes it)\n")[2]

    assert project.whet("show", "run", row.id, "--save", "kept").returncode == 0
    (transcript,) = (project.path / "kept/transcript").rglob("rollout-*.jsonl")
    assert any("It is 42." in json.dumps(json.loads(line)) for line in transcript.read_text().splitlines())
    assert said_to_user(project.whet("show", "run", row.id, "--save", "kept")) == (
        "whet: kept: exists already; --save needs a new folder"
    )
    assert said_to_user(project.whet("show", "run", "--save", "new")).startswith("whet: --save needs a rollout")
