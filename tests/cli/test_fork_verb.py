"""`whet fork`: what it prints, what its run folder holds, and what it says when there is nothing to fork."""

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.whet_program import Project, events, new_project, said_to_user, until_begun
from whet.exchange import EXACT, RECORDED, Exchange
from whet.rollout.result import Result
from whet.runs.results import ResultReader
from whet.runs.store.store import Store

STEPS = ["echo one > one", "date; cat one", "echo wrong > answer"]
TASK = {"id": "t", "instruction": "Write right into answer.", "verify": ["grep -qx right answer"]}


def script(*commands: str, end: str, first: str = "", delay: float = 0) -> str:
    replies = [f"tools = [{{ name = 'bash', arguments = {{ command = {json.dumps(one)} }} }}]" for one in commands]
    said = [f"text = '{end}'\ndelay = {delay}"]
    return f"{first}\n[[scene]]\n" + "\n".join(f"[[scene.reply]]\n{reply}" for reply in [*replies, *said])


WHOLE_DISTRIBUTION = "{ temperature = 1.0, top_p = 1.0, top_k = -1, min_p = 0.0, repetition_penalty = 1.0 }"


@dataclass(frozen=True)
class Recorded:
    """A project in which a rollout is recorded that does the wrong thing in its third call."""

    project: Project
    rollout: str

    def fork(self, at: int, *more: str) -> Any:
        return self.project.whet("fork", "first", self.rollout, "--at", str(at), *more)


@pytest.fixture
def recorded(project: Project) -> Recorded:
    return record(project)


def record(project: Project) -> Recorded:
    project.rows("t.jsonl", TASK)
    project.write("wrong.toml", script(*STEPS, end="Wrong."))
    project.write("right.toml", script("exit 1", "exit 1", "echo right > answer", end="Right."))
    done = project.whet("run", "t.jsonl", "--agent", "loop", "--model", "scripted:wrong.toml", "--out", "first")
    assert done.returncode == 0, done.stderr
    with Store.open_read(project.path / "first") as store:
        return Recorded(project, store.rollouts()[0].id)


def outcome(run: Path) -> tuple[Result, list[Exchange]]:
    with Store.open_read(run) as store:
        (rollout,) = ResultReader(store)
        assert rollout.last is not None
        assert rollout.last.result is not None
        return rollout.last.result, list(rollout.last.exchanges())


def test_show_numbers_the_calls_that_a_fork_can_begin_at(recorded: Recorded) -> None:
    shown = recorded.project.whet("show", "first", recorded.rollout).stdout
    assert re.findall(r"^\d+ call (\d+):", shown, re.MULTILINE) == ["1", "2", "3", "4"]


def test_another_model_goes_on_from_a_call(recorded: Recorded) -> None:
    done = recorded.fork(3, "--model", "scripted:right.toml", "--out", "forked")
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first == (
        f"fork of first {recorded.rollout} at call 3: replays its calls before that (main 2) for $0, "
        "then asks model scripted:right.toml"
    )
    assert last.endswith("score 0.00 -> 1.00  replayed 2 calls for $0; live from call 3: 2 calls, $0.0000")
    result, exchanges = outcome(recorded.project.path / "forked")
    assert [(one.upstream == RECORDED, one.replayed, one.attempts) for one in exchanges] == [
        (True, True, 0),
        (True, True, 0),
        (False, False, 1),
        (False, False, 1),
    ]
    assert {change.path for change in result.changes} == {"one", "answer"}
    shown = recorded.project.whet("show", "forked", last.split()[0]).stdout
    assert f"first {recorded.rollout} at call 3" in shown
    assert "replayed 2 calls for $0; live from call 3" in shown
    assert last.split()[0] != recorded.rollout


@pytest.mark.parametrize(("at", "live"), [(1, 4), (4, 1), (5, 0)])
def test_it_may_begin_anywhere(recorded: Recorded, at: int, live: int) -> None:
    done = recorded.fork(at, "--model", "scripted:right.toml", "--out", "forked", "--json")
    assert done.returncode == 0, done.stderr
    told, _, ended = events(done.stdout)
    assert (told["event"], told["rollout"], told["replays"]) == ("fork", recorded.rollout, at - 1)
    assert ended["replay"]["live_from"] == (at if live else None)
    assert ended["spending"]["calls"] - ended["spending"]["from_record"] == live
    assert ended["spending"]["input_tokens"] == 0 or live
    assert ended["score"] == (1 if at <= 3 else 0)


def test_several_continuations_are_compared_exported_and_judged_like_any_run(recorded: Recorded) -> None:
    project = recorded.project
    done = recorded.fork(3, "--model", "scripted:right.toml", "--samples", "3", "--out", "forked")
    assert done.stdout.count("score 0.00 -> 1.00") == 3
    assert "+100.0" in project.whet("compare", "first", "forked").stdout
    assert "3 judged again" in project.whet("rejudge", "forked").stdout
    assert project.whet("export", "forked", "--format", "chat", "--out", "chat.jsonl").returncode == 0
    lines = [json.loads(line) for line in (project.path / "chat.jsonl").read_text().splitlines()]
    weights = [[one["weight"] for one in line["messages"] if one["role"] == "assistant"] for line in lines]
    assert weights == [[0, 0, 1, 1]] * 3


def test_replayed_tokens_stay_and_are_not_trained(project: Project) -> None:
    project.rows("t.jsonl", TASK)
    for name, commands in {"wrong": STEPS, "right": ["exit 1", "exit 1", "echo right > answer"]}.items():
        project.write(f"{name}.toml", script(*commands, end="Done.", first="tokens = true"))
    models = [
        f"[models.{name}]\nscript = '{name}.toml'\ncapture = 'vllm'\nset = {WHOLE_DISTRIBUTION}"
        for name in ("wrong", "right")
    ]
    project.write("whet.toml", "\n".join(models))
    assert project.whet("run", "t.jsonl", "--agent", "loop", "--model", "wrong", "--out", "first").returncode == 0
    _, then = outcome(project.path / "first")
    with Store.open_read(project.path / "first") as store:
        rollout = store.rollouts()[0].id
    assert project.whet("fork", "first", rollout, "--at", "3", "--model", "right", "--out", "forked").returncode == 0
    result, exchanges = outcome(project.path / "forked")
    assert result.score.value == 1
    assert [one.tokens for one in exchanges] == [EXACT] * 4
    assert [one.response for one in exchanges[:2]] == [one.response for one in then[:2]]
    # Nothing of the tokens is for the agent's eyes.
    assert all(b"token_ids" not in (one.delivered or b"") and one.delivered for one in exchanges)
    done = project.whet("export", "forked", "--format", "trl-trace", "--out", "trace.jsonl")
    assert done.returncode == 0, done.stderr
    (trace,) = [json.loads(line) for line in (project.path / "trace.jsonl").read_text().splitlines()]
    rollout_turns = [turn["node_id"].rpartition("-")[2] for turn in trace["turns"]]
    assert rollout_turns == ["2", "3"]


def test_a_changed_skill_is_no_divergence(recorded: Recorded) -> None:
    project = recorded.project
    for name in ("old", "new"):
        project.write(
            f"{name}/house/SKILL.md", f"---\nname: house\ndescription: {name} rules\n---\n\nThe {name} rules.\n"
        )
    arguments = ["--agent", "loop", "--model", "scripted:wrong.toml", "--skill", "old/house", "--out", "with"]
    assert project.whet("run", "t.jsonl", *arguments).returncode == 0
    with Store.open_read(project.path / "with") as store:
        rollout = store.rollouts()[0].id
    fork = ["fork", "with", rollout, "--at", "3", "--model", "scripted:right.toml"]
    assert "had a skill" in said_to_user(project.whet(*fork, "--out", "none"))
    done = project.whet(*fork, "--skill", "new/house", "--out", "forked")
    assert "score 0.00 -> 1.00" in done.stdout, done.stderr
    _, exchanges = outcome(project.path / "forked")
    assert b"The new rules." in exchanges[-1].request


def test_a_replay_that_diverges_has_no_score_and_says_where(recorded: Recorded) -> None:
    project = recorded.project
    project.write("chance.toml", script("date +%N", "echo right > answer", end="Done."))
    run = project.whet("run", "t.jsonl", "--agent", "loop", "--model", "scripted:chance.toml", "--out", "chance")
    assert run.returncode == 0
    with Store.open_read(project.path / "chance") as store:
        rollout = store.rollouts()[0].id
    done = project.whet("fork", "chance", rollout, "--at", "3", "--out", "strict")
    assert done.returncode == 0, done.stderr
    assert "missing: diverged" in done.stdout
    assert (
        "score 1.00 -> missing  replayed 1 call for $0; diverged at call 2: result of bash: recorded '" in done.stdout
    )
    done = project.whet("fork", "chance", rollout, "--at", "3", "--out", "loose", "--live-if-diverged", "--json")
    ended = events(done.stdout)[-1]
    assert (ended["score"], ended["flags"], ended["replay"]["live_from"]) == (1, ["diverged"], 2)


def test_what_cannot_be_forked_is_told_in_a_line(recorded: Recorded) -> None:
    project = recorded.project
    assert said_to_user(recorded.fork(6)) == (
        f"whet: --at is 6; expected the number of a call of rollout '{recorded.rollout}', which has 4: 1 to 4, or 5 to "
        f"replay all of them (whet show first {recorded.rollout})"
    )
    assert "expected one rollout" in said_to_user(project.whet("fork", "first", "zzz", "--at", "1"))
    assert "expected a run folder" in said_to_user(project.whet("fork", "gone", "a", "--at", "1"))
    assert "unknown model 'm'" in said_to_user(recorded.fork(1, "--model", "m"))
    project.rows("t.jsonl", {**TASK, "instruction": "Something else."})
    assert "is not what it was in first" in said_to_user(recorded.fork(1))
    database = project.path / "first/run.db"
    database.write_bytes(database.read_bytes()[:4096] + b"\x99" * 40_000)
    assert said_to_user(recorded.fork(1)).startswith("whet: first")


def test_what_was_not_captured_cannot_be_forked(project: Project) -> None:
    recorded = record(project)
    with Store.open_write(project.path / "first") as store:
        ((_, (attempt,)),) = store.attempts_by_rollout()
        result = json.loads(store.result_body(attempt) or b"")
        result["spending"]["captured"] = False
        store.replace_result(attempt.id, json.dumps(result).encode(), value=attempt.value, cause=None)
    assert said_to_user(recorded.fork(1)).endswith("was run without a record; there is no call to replay")


def test_a_fork_that_was_killed_goes_on(tmp_path: Path) -> None:
    with new_project(tmp_path) as project:
        recorded = record(project)
        project.write("slow.toml", script("exit 1", "exit 1", "echo right > answer", end="Right.", delay=30))
        fork = ["fork", "first", recorded.rollout, "--at", "3", "--model", "scripted:slow.toml", "--out", "forked"]
        with project.start(*fork) as whet:
            until_begun(whet, tmp_path / "forked")
            whet.send_signal(signal.SIGKILL)
        project.write("slow.toml", (tmp_path / "right.toml").read_text())
        assert "is not this fork" in said_to_user(
            project.whet("fork", "first", recorded.rollout, "--at", "2", "--out", "forked", "--resume")
        )
        done = project.whet(*fork, "--resume")
        assert "score 0.00 -> 1.00" in done.stdout, done.stderr
