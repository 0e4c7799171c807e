"""What a user gets wrong is said in one line that can be acted on, and costs nothing."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from support.whet_program import Project, records, said_to_user, until_begun

GOOD = '{"id": "a", "instruction": "Do a.", "verify": ["test -f a"]}\n'
HARBOR = {
    "task/task.toml": "",
    "task/instruction.md": "Do it.\n",
    "task/tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
}
NOP = "--agent nop --model scripted:script.toml --out out"
SCRIPT = '[[scene]]\n[[scene.reply]]\ntext = "Hello."\n'

MISTAKES: dict[str, tuple[dict[str, str], str, str]]
MISTAKES = json.loads((Path(__file__).parent / "golden" / "mistakes.json").read_text())
"""Files besides those that every case has, arguments, and the line that is printed."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing(project: Project, mistake: str) -> None:
    files, arguments, line = MISTAKES[mistake]
    for name, text in {"script.toml": SCRIPT, "t.jsonl": GOOD, **HARBOR, **files}.items():
        project.write(name, text)
    before = sorted(project.path.rglob("*"))
    said = said_to_user(project.whet(*arguments.replace("NOP", NOP).split()))
    assert re.fullmatch("whet: " + line, said), said
    assert sorted(project.path.rglob("*")) == before


def test_all_problems_of_a_file_are_told_at_once(project: Project) -> None:
    project.write("t.jsonl", GOOD.replace("verify", "verfy") + GOOD.replace("instruction", "instructon"))
    done = project.whet("run", "t.jsonl", "--agent", "nop", "--model", "scripted:script.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "t.jsonl:1: unknown key 'verfy'" in done.stderr
    assert "t.jsonl:2: unknown key 'instructon'" in done.stderr
    assert "Traceback" not in done.stderr


def test_tests_that_need_their_own_root_are_refused_in_sandbox_local(project: Project) -> None:
    for name, text in {"script.toml": SCRIPT, **HARBOR}.items():
        project.write(name, text)
    done = project.whet("run", "task", *NOP.split(), "--sandbox", "local")
    assert (done.returncode, done.stdout) == (2, "")
    warning, line = done.stderr.splitlines()
    assert warning == "sandbox 'local' isolates nothing: agents run as you, with your files and network"
    assert line == (
        "whet: task: its tests need /tests and /logs, which sandbox 'local' cannot give; use sandbox 'bubblewrap'"
    )
    assert not (project.path / "out").exists()


def test_a_run_that_is_there_is_not_written_over(project: Project) -> None:
    run = [*project.writes_42(1), "--out", "out"]
    assert project.whet(*run).returncode == 0
    database = (project.path / "out" / "run.db").read_bytes()
    assert said_to_user(project.whet(*run)) == (
        "whet: out: exists already; continue it with --resume, or name another folder with --out"
    )
    assert (project.path / "out" / "run.db").read_bytes() == database


def test_a_task_that_has_changed_is_not_resumed(project: Project) -> None:
    run = [*project.writes_42(2), "--out", "out"]
    assert project.whet(*run).returncode == 0
    project.rows("tasks.jsonl", {"id": "t1", "instruction": "Another.", "verify": ["true"]})
    assert said_to_user(project.whet(*run, "--resume")) == (
        "whet: tasks.jsonl:1: task 't1' has changed since the run in out began; "
        "a changed task is another measurement: start a new run with another --out"
    )


def test_an_agent_that_has_changed_is_not_resumed_even_after_others_joined(project: Project) -> None:
    _, tasks, *_ = project.writes_42(1)
    run = ["run", tasks, "--model", "scripted:script.toml", "--out", "out"]
    project.write("whet.toml", '[agents.mine]\nkind = "command"\nargv = ["true"]\n')
    assert project.whet(*run, "--agent", "mine").returncode == 0
    assert project.whet(*run, "--agent", "nop", "--resume").returncode == 0
    project.write("whet.toml", '[agents.mine]\nkind = "command"\nargv = ["false"]\n')
    assert said_to_user(project.whet(*run, "--agent", "mine", "--resume")) == (
        "whet: agent 'mine' is not what it was when the run in out began: argv changed; "
        "start a new run with another --out"
    )


def test_a_run_that_another_process_writes_is_refused(project: Project) -> None:
    run = [*project.writes_42(1, delay=30), "--out", "out"]
    with project.start(*run, "--json") as first:
        assert first.stdout is not None
        assert json.loads(first.stdout.readline())["event"] == "started"
        try:
            until_begun(first, project.path / "out")
            line = said_to_user(project.whet(*run, "--resume"))
        finally:
            first.terminate()
            first.communicate()
    assert line == "whet: run out is being written by another process"


def test_a_refused_key_stops_the_run_in_one_line(project: Project) -> None:
    project.write("script.toml", SCRIPT + 'fault = "401"\n')
    project.write("whet.toml", '[models.m]\nscript = "script.toml"\nkey_env = "WHET_TEST_KEY"\n')
    tasks = project.rows("t.jsonl", *({"id": f"t{n}", "instruction": "?", "answer": "4"} for n in range(20)))
    keyed = replace(project, env={"WHET_TEST_KEY": "sk-test-not-a-real-key"})
    run = ["run", tasks, "--agent", "chat", "--model", "m", "--out", "out", "--concurrency", "1"]
    done = keyed.whet(*run)
    assert done.returncode == 2
    refused = r"whet: model 'm': http://127\.0\.0\.1:\d+/v1/chat/completions refused the key .*; nothing more was run\n"
    assert re.fullmatch(refused, done.stderr)
    assert done.stdout.count("missing: auth") == 1
    assert b"sk-test-not-a-real-key" not in (project.path / "out" / "run.db").read_bytes()
    project.write("script.toml", SCRIPT.replace("Hello.", "4"))
    again = keyed.whet(*run, "--resume")
    assert again.returncode == 0
    assert "20/20" in again.stdout


def test_a_full_disk_stops_the_run_in_one_line_and_nothing_stored_is_lost(project: Project) -> None:
    _, tasks, *_ = project.writes_42(8)
    agent = "command:python3 -c 'import os; print(os.urandom(200_000).hex())'"
    run = ["run", tasks, "--agent", agent, "--model", "scripted:script.toml", "--out", "out", "--concurrency", "1"]
    limit = ["prlimit", "--fsize=1000000:", sys.executable, "-m", "whet"]
    full = subprocess.run(
        [*limit, *run], cwd=project.path, env=project.environ(), capture_output=True, text=True, check=False
    )
    assert full.returncode == 2
    assert re.fullmatch(r"whet: out: cannot be written: .*; what was stored is kept\n", full.stderr)
    stored = records(project.path / "out")
    assert 0 < len(stored) < 8
    done = project.whet(*run, "--resume")
    assert done.returncode == 0
    finished = records(project.path / "out")
    assert len(finished) == 8
    assert all(finished[rollout] == record for rollout, record in stored.items())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("export run --to chat --out x", "--to is now --format"),
        ("sharpen skill tasks --estimate", "--estimate is now --dry-run"),
        ("sharpen skill tasks --also=AGENTS.md", "--also is now --memory-file"),
        ("sharpen skill tasks --optimizer-model m", "--optimizer-model is now --proposer-model"),
        ("run tasks --home own", "--home is now --user-config"),
        ("run tasks --capture off", "--capture is now --no-record"),
        ("run tasks --samples 0", "--samples is 0; expected a number of at least 1"),
        ("run tasks --max-cost -1", "--max-cost is -1; expected a number of at least 0"),
        ("run tasks --max-tokens 0", "--max-tokens is 0; expected a number of at least 1"),
        ("sharpen skill tasks --alpha 0.9", "--alpha is 0.9; expected a number of at most 0.5"),
    ],
)
def test_flags_of_earlier_versions_and_wrong_values_are_one_line(project: Project, words: str, line: str) -> None:
    done = project.whet(*words.split())
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"whet: {line}\n")


def test_what_few_users_need_has_its_own_part_of_the_help(project: Project) -> None:
    front, advanced = project.whet("sharpen", "--help").stdout.split("─ Advanced ─")
    for flag in ("--schedule", "--epochs", "--batch"):
        assert flag in advanced
        assert flag not in front
