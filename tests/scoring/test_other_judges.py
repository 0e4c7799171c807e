"""Judges of changes, of how the work went, and functions of the user; many judges with weights make one score."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from support.judging_world import judged, said_of
from whet.errors import UserError
from whet.sandbox import sandbox_named
from whet.scoring import Cause, ObservedCall, Score, combine, judges_of
from whet.tasks import Task, TaskLimits, read_tasks
from whet.validation_errors import explain
from whet.workspace import Change

CHANGES = (
    Change(
        path="src/a.py",
        kind="changed",
        diff="--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,2 @@\n-old = 1\n+new = 2\n x\n",
    ),
    Change(path="docs/new.md", kind="added", diff="--- /dev/null\n+++ b/docs/new.md\n@@ -0,0 +1 @@\n+++ plus\n"),
)


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        ({"changed": "src/*.py"}, 1),
        ({"changed": ["src/", "tests/"]}, 0.5),
        ({"untouched": "tests/"}, 1),
        ({"untouched": "*.md"}, 0),
        ({"only": "src/"}, 0),
        ({"only": ["src/", "docs/"]}, 1),
        ({"changed": "s*r*c*/*.py", "untouched": ["t*e*s*t*"], "only": ["*s*/*", "*d*o*c*s*/*"]}, 1),
        ({"changed": "s*r*c*x*", "untouched": ["*.m*d*"], "only": ["*s*r*/*"]}, 0),
        ({"adds": "^new"}, 1),
        ({"adds": "src/a.py"}, 0),
        ({"adds": r"^\+\+ plus$"}, 1),
        ({"removes": "old"}, 1),
        ({"removes": "new"}, 0),
        ({"lacks": "old"}, 1),
        ({"lacks": "(?i)NEW"}, 0),
        ({"changed": "src/", "lacks": "new"}, 0.5),
    ],
)
async def test_diff_asks_for_paths_and_lines(asked: dict[str, Any], value: float) -> None:
    assert (await said_of("", {"kind": "diff", **asked}, changes=CHANGES)).value == value


async def test_a_pattern_for_paths_that_takes_forever_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.scoring.judges.diff.MATCH_SEC", 0.5)
    changes = (Change(path="a" * 200, kind="added", diff=""),)
    score = await said_of("", {"kind": "diff", "changed": "*a" * 20 + "*b"}, changes=changes)
    assert (score.cause, "did not end within" in score.reason) == (Cause.JUDGE, True)


@pytest.mark.parametrize("diff", [None, "@@ -1 +1 @@\n+new\n[the rest of this diff is left out]\n"])
async def test_a_diff_that_is_not_on_record_is_not_known(diff: str | None) -> None:
    changes = (*CHANGES, Change(path="big.bin", kind="added", diff=diff))
    assert (await said_of("", {"kind": "diff", "adds": "secret"}, changes=changes)).cause is Cause.JUDGE
    assert (await said_of("", {"kind": "diff", "lacks": "secret"}, changes=changes)).cause is Cause.JUDGE
    assert (await said_of("", {"kind": "diff", "adds": "new"}, changes=changes)).value == 1


@pytest.mark.parametrize(
    ("answer", "stop", "calls", "good"),
    [
        ("Done.", "finished", (), 3),
        (
            "Done.",
            "finished",
            (ObservedCall("t", "", "program", failed=True), ObservedCall("t", "", "program", failed=False)),
            3,
        ),
        ("Done.", "finished", (ObservedCall("t", "", "program", failed=True),), 2),
        ("I can't.", "finished", (), 2),
        ("Done.", "timeout", (), 2),
        ("", "crashed", (ObservedCall("t", "", "program", failed=True),), 0),
    ],
)
async def test_outcome_is_a_weak_label(answer: str, stop: str, calls: tuple[ObservedCall, ...], good: int) -> None:
    score = await said_of(answer, "outcome", stop=stop, calls=calls)
    assert score.value == pytest.approx(good / 3)
    assert score.details["weak"]


FUNCTIONS = """
import os, sys, subprocess, time
def length(work):
    print("printed, not an answer")
    return min(1.0, len(work["answer"]) / 4)
def told(work): return {"score": True, "reason": work["task"]["metadata"]["why"], "extra": [1]}
def crash(work): raise KeyError("nothing")
def leave(work): os._exit(3)
def stuck(work):
    subprocess.Popen(["sleep", "98765"])
    time.sleep(60)
def high(work): return 85
def big(work): return len(bytearray(5 << 30)) > 0
def words(work): return "1"
def secret(work): return 0 if "WHET_TEST_SECRET" in os.environ else 1
def files(work): return float(open(work["workspace"] + "/n").read())
def where(work): return {"score": 1, "reason": f"{os.getuid()} {os.path.exists('/logs/verifier')} {os.listdir('.')}"}
def write(work): return {"score": 1, "reason": str(open(work["task"]["metadata"]["why"], "w"))}
def helped(work):
    from parts import half
    return half() + float(open("parts/data.txt").read())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    return tmp_path


async def python(folder: Path, name: str, answer: str = "ab", **keys: Any) -> Score:
    judge = {"kind": "python", "function": f"mine:{name}", "folder": str(folder), **keys}
    async with sandbox_named("bubblewrap").open(TaskLimits()) as box:
        await box.exec(["sh", "-c", f"echo 'import os; os._exit(9)' | tee mine.py json.py > {box.home}/base64.py"])
        await box.seal()
        return await said_of(answer, judge, metadata={"why": "because"}, box=box)


async def test_a_function_gives_a_number_or_says_more(folder: Path) -> None:
    assert (await python(folder, "length")).value == 0.5
    told = await python(folder, "told")
    assert (told.value, told.reason, told.details["told"]) == (1, "because", {"extra": [1]})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("crash", "KeyError: 'nothing'"),
        ("leave", "exit code 3 and no answer"),
        ("big", "MemoryError"),
        ("high", "the function gave 85; expected a number in [0, 1]"),
        ("words", "the function gave '1'"),
        ("gone", "has no attribute 'gone'"),
    ],
)
async def test_a_function_that_fails_gives_no_score_and_says_why(folder: Path, name: str, said: str) -> None:
    score = await python(folder, name)
    assert (score.value, score.cause) == (None, Cause.JUDGE)
    assert said in score.reason


async def test_a_function_that_does_not_end_is_ended(folder: Path) -> None:
    score = await python(folder, "stuck", seconds=0.7)
    assert "did not end within 0.7 seconds" in score.reason
    started = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _runs(entry, b"98765")]
    assert started == []


def _runs(entry: Path, word: bytes) -> bool:
    try:
        return word in (entry / "cmdline").read_bytes()
    except OSError:
        return False


async def test_a_function_runs_in_the_sealed_box_and_not_on_the_host(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "config").touch()
    (folder / "link").symlink_to("/etc/hostname")
    assert (await python(folder, "where")).reason == "1000 True ['mine.py']"
    target = folder / "on-the-host"
    judge = {"kind": "python", "function": "mine:write", "folder": str(folder)}
    async with sandbox_named("bubblewrap").open(TaskLimits()) as box:
        await box.seal()
        score = await said_of("", judge, metadata={"why": str(target)}, box=box)
    assert score.cause is Cause.JUDGE
    assert not target.exists()
    assert (await said_of("", judge, metadata={"why": "because"})).cause is Cause.JUDGE, "without a box it is not run"


async def test_what_lies_beside_a_function_goes_with_it(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "parts" / "__init__.py").write_text("def half(): return 0.5")
    (folder / "parts" / "data.txt").write_text("0.25")
    assert (await python(folder, "helped")).value == 0.75
    (folder / "big").write_bytes(bytes(17 << 20))
    assert "too much to hand to the box" in (await python(folder, "helped")).reason


async def test_a_function_does_not_see_the_environment_of_whet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_TEST_SECRET", "x")
    assert os.environ["WHET_TEST_SECRET"]
    assert (await python(folder, "secret")).value == 1


async def test_a_function_is_found_beside_the_task_and_may_see_the_files(folder: Path) -> None:
    file = folder / "t.jsonl"
    file.write_text('{"instruction": "-", "judge": {"kind": "python", "function": "mine:files", "workspace": true}}\n')
    (task,) = read_tasks(file)
    assert (await judged(task, work="echo 0.25 > n")).value == 0.25


def test_which_judges_a_task_has() -> None:
    def names(**task: Any) -> list[str]:
        return [judge.name for judge in judges_of(Task.model_validate({"id": "t", "instruction": "-", **task}))]

    assert names(answer="4", verify=["true"]) == ["verify", "exact"]
    assert names(answer="4", verify=["true"], judge="number") == ["verify", "number"]
    assert names(answer="4", verify=["true"], judge=["number", {"kind": "verify", "weight": 3}]) == ["number", "verify"]
    many = [{"kind": "contains", "text": "a"}, {"kind": "contains", "text": "b"}, {"kind": "outcome", "name": "how"}]
    assert names(judge=many) == ["contains", "contains-2", "how"]


def test_weights_count_and_what_has_none_is_noted_only() -> None:
    scores = {"a": Score.of(1), "b": Score.of(0.5), "c": Score.missing(Cause.JUDGE, "no model")}
    whole = combine(scores, {"a": 3, "b": 1, "c": 0})
    assert whole.value == pytest.approx((3 + 0.5) / 4)
    assert whole.details == {"soft": pytest.approx(3.5 / 4), "hard": False}
    assert combine(scores, {"a": 3, "b": 1, "c": 0.1}) == Score.missing(Cause.JUDGE, "c: no model")


@pytest.mark.parametrize(
    ("judge", "said"),
    [
        ("exat", "key 'judge[0]' has the unknown kind 'exat'; did you mean 'exact'? (known: choice, contains,"),
        ({"kind": "model"}, "has the unknown kind 'model'; known:"),
        ({"knd": "exact"}, "expected the name of a judge, or a table with the key 'kind'"),
        ("exact", "has 'exact', which needs an expected answer; expected the key 'answer'"),
        ("verify", "has 'verify', which needs the key 'verify'"),
        ("reward", "has 'reward', which needs a folder tests/ with a test.sh"),
        ("choice", "needs an 'answer' that is one of the letters ABCDE"),
        ({"kind": "number", "answer": 4, "tol": 1}, "unknown key 'judge[0].number.tol'"),
        ({"kind": "outcome", "weight": -1}, "expected a number of at least 0"),
        ({"kind": "outcome", "weight": 0}, "has judges of weight 0 only"),
        ({"kind": "outcome", "threshold": 2}, "threshold"),
        ([{"kind": "outcome", "name": "a"}, {"kind": "outcome", "name": "a"}], "has two judges of one name"),
        ({"kind": "rank", "rubric": "x"}, "which is only for judging again; expected it in a file for whet rejudge"),
        ({"kind": "json", "schema": {"type": 3}}, "is not a JSON schema"),
        ("json", "needs something to compare with"),
        ({"kind": "python", "function": "os.system"}, "expected text that matches"),
        ("diff", "asks for nothing"),
        (3, "expected the name of a judge"),
    ],
)
def test_a_wrong_judge_is_an_error_when_the_task_is_read(judge: object, said: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        Task.model_validate({"id": "t", "instruction": "-", "judge": judge})
    assert said in "\n".join(explain(wrong.value, "here", Task))


MARKS = ("11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000")


def harbor(folder: Path, whet: str) -> Task:
    """A task folder whose tests carry two canaries, one of which is in the agent's files too."""
    for name, text in {
        "task.toml": f"[metadata.whet]\n{whet}",
        "instruction.md": "Do it.",
        "tests/test.sh": "\n".join(f"# a canary {mark}" for mark in MARKS),
        "workspace/a.txt": f"# canary {MARKS[1]}",
    }.items():
        file = folder / "task" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return read_tasks(folder / "task")[0]


def test_a_task_folder_names_judges_beside_its_tests(tmp_path: Path) -> None:
    task = harbor(tmp_path, 'answer = "4"\njudge = ["number", { kind = "python", function = "a:b", weight = 2 }]')
    assert [judge.name for judge in judges_of(task)] == ["reward", "number", "python"]
    assert task.judge[1].model_dump(include={"folder"}) == {"folder": tmp_path / "task"}
    (weighed,) = judges_of(harbor(tmp_path, 'judge = [{ kind = "reward", weight = 2 }]'))
    assert (weighed.name, weighed.weight) == ("reward", 2)
    with pytest.raises(UserError, match="unknown kind 'numbr'; did you mean 'number'"):
        harbor(tmp_path, 'judge = "numbr"')


def test_canaries_are_those_that_only_hidden_files_carry(tmp_path: Path) -> None:
    assert harbor(tmp_path, "").canary == (MARKS[0],)
    assert harbor(tmp_path, 'canary = ["my own canary"]').canary == ("my own canary",)
