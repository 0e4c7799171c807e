"""`whet show`: what an agent did in a rollout, and the files that it left behind."""

import json

from support.whet_program import Project, said_to_user
from whet.agents.install.packages import PACKAGES
from whet.agents.install.run import install
from whet.runs.store.store import Store

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
    assert "; 2 calls; tools exec_command 1; files answer.txt; 0 errors; answer text, 9 characters\n1 system: " in shown
    assert "call 1: → exec_command lookup Berlin > answer.txt; cat answer.txt\n" in shown
    assert "call 2: It is 42.\n" in shown
    lost = shown.partition("── withheld or lost between agent and model\n")[2].partition("\n── ")[0]
    assert "tool web_search  (2 calls)" in lost.splitlines()
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


LONG = """
[[scene]]
[[scene.reply]]
tools = [{ name = "bash", arguments = { command = "seq 300" } }]
[[scene.reply]]
tools = [{ name = "bash", arguments = { command = "echo 42 > answer.txt" } }]
[[scene.reply]]
text = "It is 42."
"""


def test_steps_can_be_shown_up_to_one_within_a_budget_and_in_a_line(project: Project) -> None:
    project.write("s.toml", LONG)
    project.rows("tasks.jsonl", TASK)
    words = "run tasks.jsonl --agent loop --model scripted:s.toml --out run"
    assert project.whet(*words.split()).returncode == 0
    with Store.open_read(project.path / "run") as store:
        (row,) = store.rollouts()

    prefix = project.whet("show", "run", row.id, "--to", "4").stdout
    assert prefix.startswith("1 system: ")
    assert "\n3 call 1: → bash seq 300\n4 tool bash: 1\n" in prefix
    assert "characters left out ...]" in prefix
    assert "call 2" not in prefix

    short = project.whet("show", "run", row.id, "--to", "7", "--budget", "700").stdout
    assert len(short) <= 700
    assert short.startswith("1 system: ")
    assert short.endswith("7 call 3: It is 42.\n")
    assert "\n    150\n" in project.whet("show", "run", row.id, "--full").stdout

    line = f"{row.id}  7 steps; 3 calls; tools bash 2; files answer.txt; 0 errors; answer text, 9 characters\n"
    assert project.whet("show", "run", "--summaries").stdout.endswith(line)
    assert said_to_user(project.whet("show", "run", row.id, "--to", "8")) == (
        f"whet: --to 8: rollout '{row.id}' has 7 steps; expected one of them"
    )
    assert (
        said_to_user(project.whet("show", "run", "--to", "8"))
        == "whet: --to needs a rollout: whet show RUN ROLLOUT --to 8"
    )
