"""What people and machines read: tables, a rollout in full, JSON lines, a live terminal, a pipe that closes early."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace

import pytest

from support.whet_program import Project, events, said_to_user
from whet.cli import VERBS
from whet.runs.stats.summary import Tally
from whet.runs.stats.words import pass_notes

ANSWERS = """
[[scene]]
when = { user = "broken|word OK" }
[[scene.reply]]
fault = "500"

[[scene]]
when = { user = "wrong" }
[[scene.reply]]
text = "5"

[[scene]]
[[scene.reply]]
text = "4"
delay = DELAY
"""


def questions(project: Project, *names: str, delay: float = 0) -> list[str]:
    """Arguments of a run of questions: those with 'broken' in their name get no answer, those with 'wrong' a wrong
    one."""
    project.write("script.toml", ANSWERS.replace("DELAY", str(delay)))
    project.write("whet.toml", '[models.m]\nscript = "script.toml"\nattempts = 1\n')
    tasks = project.rows("q.jsonl", *({"id": name, "instruction": f"{name}: 2 + 2?", "answer": "4"} for name in names))
    return ["run", tasks, "--agent", "chat", "--model", "m", "--out", "out"]


def test_missing_is_counted_by_cause_and_never_as_zero(project: Project) -> None:
    done = project.whet(*questions(project, "right", "wrong", "broken"))
    assert done.returncode == 0
    assert done.stdout.count("missing: model, trying again  broken") == 2
    shown = project.whet("show", "out").stdout
    for text in (done.stdout, shown):
        assert re.search(r"^chat   m      50\.0% \[0\.0, 100\.0\]     1/2        1 ", text, re.MULTILINE), text
        assert "chat / m: missing, not counted as zero: model 1" in text
    assert re.search(r"^\w{12}  broken  missing: model ", shown, re.MULTILINE)
    assert re.search(
        r"^out  run   chat    m        2/3        1  50\.0% \[", project.whet("runs", ".").stdout, re.MULTILINE
    )


def test_what_is_missing_stays_in_sight_when_something_else_is_resumed(project: Project) -> None:
    run = questions(project, "broken")
    project.whet(*run)
    run[run.index("chat")] = "nop"
    resumed = project.whet(*run, "--resume").stdout
    assert "chat / m: missing, not counted as zero: model 1" in resumed
    assert "not run" not in resumed


def test_lines_in_a_pipe_name_the_skill_where_arms_differ_by_it(project: Project) -> None:
    project.write("careful/SKILL.md", "---\nname: careful\ndescription: -\n---\nBe careful.\n")
    done = project.whet(*questions(project, "wrong"), "--skill", "none,careful")
    lines = [line for line in done.stdout.splitlines() if "  0.00  wrong  chat  m  " in line]
    assert sorted(line.split("  ")[6].partition("@")[0] for line in lines) == ["-", "careful"]
    assert all(line.endswith(" s, 1 call)") for line in lines)


def test_several_samples_give_pass_at_k_and_pass_hat_k(project: Project) -> None:
    shown = project.whet(*questions(project, "right", "wrong"), "--samples", "2").stdout
    assert "pass@2 50.0%  pass^2 50.0%  (2 tasks with 2 samples)" in shown
    assert "pass@" not in project.whet(*questions(project, "right")[:-1], "one").stdout


def test_pass_rates_stop_where_a_task_has_fewer_scores_and_the_summary_says_so() -> None:
    arm = Tally(planned=8, values={"a": [1.0] * 4, "b": [0.0] * 2})
    lines = [str(line) for line in pass_notes("chat / m", arm)]
    assert lines == [
        "chat / m: pass@1 50.0%  pass@2 50.0%  pass^2 50.0%  (2 tasks with 2 samples)",
        "chat / m: pass@k and pass^k beyond k = 2 are not estimated: 1 of 2 tasks have only 2 scores",
    ]
    assert arm.solved == 4, "counted, not made from the mean, in which a task counts once"


def test_json_lines_carry_scores_and_causes(project: Project) -> None:
    done = project.whet(*questions(project, "right", "wrong", "broken"), "--json")
    assert done.stderr == ""
    started, *attempts = events(done.stdout)
    assert started.pop("warnings") == []
    assert started == {"event": "started", "run": "out", "sandbox": "bubblewrap", "planned": 3, "pending": 3}
    last = {event["task"]: event for event in attempts}
    assert {task: (event["score"], event["cause"]) for task, event in last.items()} == {
        "right": (1.0, None),
        "wrong": (0.0, None),
        "broken": (None, "model"),
    }
    assert [event["again"] for event in attempts if event["task"] == "broken"] == [True, True, False]
    assert last["right"]["spending"]["calls"] == 1
    assert (last["right"]["stop"], last["right"]["exit_code"], last["right"]["tools"]) == ("finished", None, {})
    summary = json.loads(done.stdout.splitlines()[-1])
    (arm,) = summary["arms"]
    assert (summary["event"], arm["missing"], arm["mean"]) == ("summary", {"model": 1}, 0.5)
    assert (arm["mean_with_missing_at_0"], arm["mean_with_missing_at_1"]) == pytest.approx((1 / 3, 2 / 3))


def test_a_rollout_is_shown_with_scores_steps_verification_and_logs(project: Project) -> None:
    project.writes_42(0)
    rows = {"id": "[/t]", "instruction": "Write 42.", "verify": ["grep 4 answer", "grep -qx 43 answer"]}
    run = ["run", project.rows("t.jsonl", rows), "--agent", "loop", "--model", "scripted:script.toml", "--out", "out"]
    (_, attempt) = events(project.whet(*run, "--json").stdout)
    shown = project.whet("show", "out", attempt["rollout"][:5]).stdout
    parts = [
        f"{attempt['rollout']}  task [/t]  agent loop  model scripted:script.toml  skill -  sample 0",
        "attempt 1: 0.50  1 of 2 commands passed",
        "2 calls",
        "agent finished, exit code 0",
        "── answer\n42\n",
        "user: Write 42.",
        " call 1: ",
        "→ bash echo 42 > answer",
        "tool bash: [exit code 0]",
        "── judge verify: 0.5",
        "── $ grep 4 answer  (exit code 0, ",
        "── $ grep -qx 43 answer  (exit code 1, ",
        "── agent stderr\n$ echo 42 > answer",
    ]
    places = [shown.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)


def test_long_steps_are_cut_unless_asked_for_in_full(project: Project) -> None:
    tasks = project.rows("t.jsonl", {"id": "long", "instruction": "x" * 5000 + "end", "answer": "4"})
    run = questions(project)
    run[1] = tasks
    (_, attempt) = events(project.whet(*run, "--json").stdout)
    short = project.whet("show", "out", attempt["rollout"]).stdout
    assert re.search(r"user: x+ \[\.\.\. [\d,]+ characters left out \.\.\.\] x+end", short)
    assert len(short) < 2000
    assert "x" * 5000 + "end" in project.whet("show", "out", attempt["rollout"], "--full").stdout


def test_a_run_that_a_limit_stopped_says_so_and_how_to_go_on(project: Project) -> None:
    run = questions(project, *(f"q{n}" for n in range(4)))
    project.write("whet.toml", '[models.m]\nscript = "script.toml"\n[limits]\nturns = 2\n')
    done = project.whet(*run, "--concurrency", "1")
    assert done.returncode == 0
    assert "\nstopped by limit turns: 2 of 2\n" in done.stdout
    assert "chat / m: 2 rollouts were not run" in done.stdout
    assert "--resume  # resumes with a higher limit" in done.stdout
    assert "\nstopped by limit turns: 2 of 2\n" in project.whet("show", "out").stdout
    *_, stopped = events(project.whet(*run, "--resume", "--json").stdout)
    assert (stopped["event"], stopped["limit"]) == ("stopped", "turns: 2 of 2")


def test_limits_of_the_command_line_reach_the_run(project: Project) -> None:
    run = [*questions(project, "a", "b"), "--concurrency", "1"]
    done = project.whet(*run, "--max-tokens", "1")
    assert re.search(r"^stopped by limit total tokens: \d+ of 1$", done.stdout, re.MULTILINE)
    project.write("whet.toml", '[models.m]\nurl = "http://127.0.0.1:9"\n')
    refused = said_to_user(project.whet(*run[:-3], "other", "--max-cost", "5"))
    assert refused.startswith("whet: model 'm': its price is not known, so a limit on cost cannot hold")


SPEAKS = """
ask() {
  curl -s -H "Authorization: Bearer $OPENAI_API_KEY" "$@" $OPENAI_BASE_URL/chat/completions \\
    -d '{"tools": [{"name": "bash"}], "messages": [{"role": "user", "content": "2 + 2?"}]}'
}
ask -H 'x-session-id: ses_1'
ask -H 'x-session-id: ses_1'
ask -H 'x-session-id: ses_2' -H 'x-parent-session-id: ses_1'
"""


def test_a_run_shows_who_spoke_how_often(project: Project) -> None:
    run = questions(project)
    row = {"id": "t", "instruction": "-", "files": {"agent.sh": SPEAKS}, "verify": ["true"]}
    run[1], run[run.index("chat")] = project.rows("t.jsonl", row), "command:bash agent.sh"
    (_, attempt) = events(project.whet(*run, "--json").stdout)
    assert attempt["spending"]["speakers"] == {"main": 2, "sub": 1}
    assert "main 2, sub 1" in project.whet("show", "out").stdout
    assert "3 calls (main 2, sub 1)" in project.whet("show", "out", attempt["rollout"]).stdout


def test_a_rollout_must_be_named_unmistakably(project: Project) -> None:
    project.whet(*questions(project, "right", "wrong"))
    for beginning, found in (("zz", "none does"), ("", "2 do")):
        assert said_to_user(project.whet("show", "out", beginning)) == (
            f"whet: out: expected one rollout whose id begins with '{beginning}'; {found} (whet show out)"
        )


def test_a_folder_without_runs_says_how_to_make_one(project: Project) -> None:
    done = project.whet("runs")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "no runs in runs; whet run TASKS --agent loop --model NAME makes one\n"


def test_sandbox_local_says_loudly_what_it_is(project: Project) -> None:
    done = project.whet(*questions(project, "right"), "--sandbox", "local")
    assert done.returncode == 0
    assert done.stderr == "sandbox 'local' isolates nothing: agents run as you, with your files and network\n"
    assert done.stdout.startswith("1 rollout; sandbox local; out\n")


def test_a_terminal_shows_progress_live_and_is_left_clean(project: Project) -> None:
    run = questions(project, "wrong", *(f"q{n}" for n in range(5)), delay=0.4)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    whet = subprocess.Popen(
        [sys.executable, "-m", "whet", *run, "--concurrency", "2"],
        cwd=project.path,
        env=project.environ() | {"TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    output = read_to_end(ours)
    assert whet.wait() == 0
    assert re.search(r"[2-5]/6", output)
    assert re.search(r"pass \d+\.\d% \[\d+\.\d, \d+\.\d\]", output)
    assert re.search(r"running for \d s: q\d  chat", output)
    assert re.search(r"  \w{12}  0\.00  wrong  chat  m  ", output)
    assert re.search(r"about \d+ s left", output)
    assert output.rfind(SHOW_CURSOR) > output.rfind(HIDE_CURSOR)
    first, blank, heading, arm, *rest = screen(output)
    assert (first, blank) == ("6 rollouts; sandbox bubblewrap; out", "")
    assert heading.startswith("agent  model")
    assert "5/6" in arm
    assert len(arm) <= 100
    assert rest[:2] == ["", "next:"]


HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


def screen(output: str) -> list[str]:
    """The lines that a terminal shows in the end. It knows the few codes that whet may use, and refuses others."""
    lines, at = [""], 0
    for code, text in re.findall(r"(\x1b\[[0-9;?]*[a-zA-Z]|\r?\n|\r)|([^\x1b\r\n]+)", output):
        if text:
            # Lines are written from their beginning, once, or were cleared before.
            lines[at] += text
        elif code.endswith("\n"):
            at += 1
            lines += [""] * (at == len(lines))
        elif code == "\x1b[2K":
            lines[at] = ""
        elif code == "\x1b[1A":
            at -= 1
        else:
            assert code == "\r" or code.endswith("m") or code in {HIDE_CURSOR, SHOW_CURSOR}, repr(code)
    return [line.rstrip() for line in lines]


def read_to_end(terminal: int) -> str:
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side is closed
            piece = b""
        if not piece:
            os.close(terminal)
            return b"".join(pieces).decode()
        pieces.append(piece)


@pytest.mark.parametrize(
    "arguments", ["show out", "tasks check q.jsonl", "run q.jsonl --agent nop --model m --out other"]
)
def test_a_pipe_that_closes_early_ends_it_quietly(project: Project, arguments: str) -> None:
    project.whet(*questions(project, *(f"q{n}" for n in range(40))))
    with project.start(*arguments.split()) as whet:
        assert whet.stdout is not None
        assert whet.stderr is not None
        whet.stdout.close()
        assert whet.stderr.read() == ""
    assert whet.returncode not in {0, 2}


def test_the_version_is_quick_to_ask_for(project: Project) -> None:
    code = (
        "import sys; sys.argv = ['whet', '--version']; from whet.cli import main\n"
        "try: main()\nfinally: print(*{'scipy', 'numpy', 'pyarrow', 'aiohttp', 'pydantic'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, heavy = done.stdout.splitlines()
    assert re.fullmatch(r"whet \d+\.\d+\.\d+", version)
    assert heavy == ""
    assert project.run("--version").stdout == version + "\n"


def test_help_lists_every_verb(project: Project) -> None:
    listed = project.whet("--help").stdout
    for verb in ("run", "runs", "show", "tasks", "scripted", "clean"):
        assert re.search(rf"^│ {verb} ", listed, re.MULTILINE)
    assert re.search(r"^│ check ", project.whet("tasks", "--help").stdout, re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_readable_at_80_columns(project: Project, verb: str) -> None:
    shown = replace(project, env={"COLUMNS": "80"}).whet(verb, "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r"<(bool|str|int|float|path|list)", shown)


def test_help_of_a_verb_with_many_options_has_examples_and_panels(project: Project) -> None:
    shown = replace(project, env={"COLUMNS": "80"}).whet("sharpen", "--help").stdout
    assert "\n whet sharpen skills/x tasks --agent loop --model m --budget '$5' --dry-run" in shown
    panels = re.findall(r"╭─ ([\w ]+) ─", shown)
    assert panels == ["Arguments", "Options", "Which tasks", "Limits", "Folder and output", "How it runs", "Advanced"]


def test_tasks_are_named_as_arguments_and_with_a_flag_alike(project: Project) -> None:
    words = questions(project, "right")
    tasks = words.pop(1)
    assert project.whet(*words, f"--tasks={tasks}").returncode == 0
    refused = said_to_user(project.whet("certify", "old", "new", "gone.jsonl", "--agent", "chat", "--model", "m"))
    assert refused == said_to_user(
        project.whet("certify", "old", "new", "--tasks", "gone.jsonl", "--agent", "chat", "--model", "m")
    )
    assert "gone.jsonl" in refused or "old" in refused


def test_json_of_a_run_is_not_torn_by_long_lines(project: Project) -> None:
    name = "n" * 150
    attempt = json.loads(project.whet(*questions(project, name), "--json").stdout.splitlines()[1])
    assert attempt["task"] == name
