"""Rules: every operator with what passes it and what does not; hard is all of them, soft the share."""

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from support.judging_world import judged, said_of
from whet.scoring import Cause, ObservedCall
from whet.scoring.judges.rules import sections
from whet.tasks import Task, read_tasks
from whet.tasks.checks import command_of_pattern, command_pattern
from whet.validation_errors import explain


async def passes(answer: str, check: dict[str, Any], **work: Any) -> bool:
    score = await said_of(answer, {"kind": "rules", "checks": [check]}, **work)
    assert score.value in {0, 1}
    return bool(score.value)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("# Summary\nx", True),
        ("   ###### My summary ##\nx", True),
        ("**Summary**", True),
        ("**The summary of it**:", True),
        ("summary: all is well", True),
        ("    # Summary", False),
        ("```sh\n# Summary\n```", False),
        ("```\n```sh\n# Summary\n```", False),
        ("````\n```\n# Summary\n````", False),
        ("```\n`````\n# Summary", True),
        ("#Summary", False),
        ("# Summary of it", False),
        ("The summary is short.", False),
        ("# Presummary", False),
        ("", False),
    ],
)
async def test_what_counts_as_a_section(answer: str, found: bool) -> None:
    assert await passes(answer, {"op": "section_present", "arg": "Summary"}) is found


@pytest.mark.parametrize(
    ("answer", "heading", "inside"),
    [
        ("# The STEPS taken\n1. Run pytest\n# End", True, True),
        ("# Steps\n## First\nRun pytest", True, True),
        ("# Steps\nNothing\n# Tests\nRun pytest", True, False),
        ("# Steps\nRun pytests", True, False),
        ("**Steps**\nRun pytest", False, False),
        ("Steps: run pytest", False, False),
    ],
)
async def test_section_contains_looks_at_headings_and_under_them(answer: str, heading: bool, inside: bool) -> None:
    assert await passes(answer, {"op": "section_contains", "arg": "steps"}) is heading
    assert await passes(answer, {"op": "section_contains", "arg": "steps", "text": "run pytest"}) is inside


def test_a_section_holds_its_smaller_sections() -> None:
    found = sections("# A\none\n## B\ntwo\n# C #\nthree")
    assert [(section.title, section.text) for section in found] == [
        ("A", "one\n## B\ntwo"),
        ("B", "two"),
        ("C", "three"),
    ]


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        ({"op": "max_chars", "arg": 3}, "äöü", "abcd"),
        ({"op": "min_chars", "arg": "+3"}, "abc", "ab"),
        ({"op": "max_chars", "arg": 3.0}, "abc", "abcd"),
        ({"op": "contains", "arg": "12"}, "It is 12.", "It is 512."),
        ({"op": "contains", "arg": "Art"}, "the art", "start"),
        ({"op": "not_contains", "arg": "12"}, "It is 512.", "It is 12."),
        ({"op": "regex", "arg": r"^\d+$"}, "123", "a 123"),
        ({"op": "regex", "arg": "(?i)yes"}, "Oh YES", "no"),
        ({"op": "no_refusal"}, "Here it is.", "> I can't do that."),
        ({"op": "no_refusal"}, "I can't say more than this: " + "x" * 600, "Sorry, I cannot."),
        ({"op": "no_refusal"}, "I cannotate it", "1. **I'm unable to**"),
        ({"op": "no_refusal"}, "I can\u2019taloupe", "I can\u2019t do that."),
    ],
)
async def test_operators_on_the_text(check: dict[str, Any], good: str, bad: str) -> None:
    assert (await passes(good, check), await passes(bad, check)) == (True, False)


@pytest.mark.parametrize(
    "check",
    [
        {"op": "max_chars", "arg": 100},
        {"op": "min_chars", "arg": 0},
        {"op": "not_contains", "arg": "x"},
        {"op": "regex", "arg": "^"},
        {"op": "no_refusal"},
    ],
)
async def test_silence_passes_no_check_of_the_text(check: dict[str, Any]) -> None:
    assert not await passes("", check)
    assert not await passes(" \n", check)


CALLS = (
    ObservedCall("bash", '{"command": "pip install x && pytest -q"}', "model"),
    ObservedCall("Shell", '{"command": ["git", "log"]}', "model"),
    ObservedCall("lookup", "--city Paris", "program", failed=False),
)


@pytest.mark.parametrize(
    ("check", "found"),
    [
        ({"op": "tool_called", "arg": "LOOKUP"}, True),
        ({"op": "tool_called", "arg": "look"}, False),
        ({"op": "command_ran", "arg": r"\bpytest\b"}, True),
        ({"op": "command_ran", "arg": "^git log$"}, False),
        ({"op": "command_ran", "arg": "(?m)^git log$"}, True),
        ({"op": "command_ran", "arg": "lookup --city"}, True),
        ({"op": "command_ran", "arg": "rm -rf"}, False),
        ({"op": "command_not_ran", "arg": "rm -rf"}, True),
        ({"op": "command_not_ran", "arg": "lookup"}, False),
    ],
)
async def test_what_was_called_is_what_the_record_says(check: dict[str, Any], found: bool) -> None:
    assert await passes("", check, calls=CALLS) is found


@pytest.mark.parametrize("was_read", [True, False])
async def test_whether_a_skill_was_read_is_what_the_prompts_say(was_read: bool) -> None:
    assert await passes("", {"op": "skill_read"}, skill_read=was_read) is was_read
    assert await passes("", {"op": "skill_not_read"}, skill_read=was_read) is not was_read


async def test_whether_a_skill_was_read_is_not_known_of_prompts_that_were_not_captured() -> None:
    score = await said_of("done", {"kind": "rules", "checks": [{"op": "skill_not_read"}]}, skill_read=None)
    assert (score.value, score.cause) == (None, Cause.JUDGE)


async def test_a_claim_in_the_answer_is_no_call() -> None:
    assert not await passes("TOOL_CALL: lookup", {"op": "tool_called", "arg": "lookup"})


async def test_what_was_not_captured_is_not_known() -> None:
    judge = {"kind": "rules", "checks": [{"op": "command_ran", "arg": "pytest"}]}
    score = await said_of("done", judge, captured=False)
    assert (score.value, score.cause) == (None, Cause.JUDGE)
    assert (await said_of("done", judge, captured=False, calls=CALLS)).value == 1


async def test_that_something_was_not_called_is_not_known_of_calls_that_were_not_captured() -> None:
    judge = {"kind": "rules", "checks": [{"op": "command_not_ran", "arg": "lookup"}]}
    score = await said_of("done", judge, captured=False)
    assert (score.value, score.cause) == (None, Cause.JUDGE)
    assert (await said_of("done", judge, captured=False, calls=CALLS[2:])).value == 0


def bash(command: str) -> ObservedCall:
    return ObservedCall("bash", json.dumps({"command": command}), "model")


@pytest.mark.parametrize(
    "edit",
    [
        ObservedCall("Edit", '{"file_path": "a.py"}', "model"),
        ObservedCall("write_file", '{"path": "a.py"}', "model"),
        ObservedCall("replace", "{}", "model"),
        ObservedCall("apply_patch", "*** Begin Patch", "model"),
        ObservedCall("str_replace_editor", '{"command": "create", "path": "a.py"}', "model"),
        bash("apply_patch <<'EOF'\n*** Begin Patch\nEOF"),
    ],
)
async def test_a_command_counts_after_the_last_edit_only(edit: ObservedCall) -> None:
    check = {"op": "command_ran_after_edit", "arg": command_pattern("make lint")}
    assert await passes("", check, calls=(bash("make lint"),))
    assert await passes("", check, calls=(edit, bash("cd src && make lint")))
    assert not await passes("", check, calls=(bash("make lint"), edit))
    assert not await passes("", check, calls=(edit, bash("make lint"), edit, bash("echo make lint")))


async def test_what_only_looks_at_a_file_is_no_edit() -> None:
    check = {"op": "command_ran_after_edit", "arg": "make"}
    view = ObservedCall("str_replace_editor", '{"command": "view", "path": "a.py"}', "model")
    assert await passes("", check, calls=(bash("make"), view, ObservedCall("Read", "{}", "model"), bash("ls")))


async def test_the_order_of_a_tasks_programs_is_not_on_record() -> None:
    judge = {"kind": "rules", "checks": [{"op": "command_ran_after_edit", "arg": "lookup"}]}
    assert (await said_of("done", judge, calls=CALLS[2:])).value == 0
    assert (await said_of("done", judge, captured=False, calls=CALLS[2:])).value is None


@pytest.mark.parametrize(
    ("command", "line", "found"),
    [
        ("make lint", "make lint", True),
        ("make lint", "cd x && FOO=1 BAR='a' make -C src test lint 2>&1 | tail -3", True),
        ("make lint", "ls\nmake lint", True),
        ("make lint", "/bin/bash -lc make lint", True),
        ("make lint", "bash -lc 'cd a; make lint'", True),
        ("make lint", "if true; then make lint; fi", True),
        ("make lint", "(make lint)", True),
        ("make lint", "echo make lint", False),
        ("make lint", "make linter", False),
        ("make lint", "cmake lint", False),
        ("make lint", "make test; echo lint", False),
        ("make lint", "grep 'make lint' README.md", False),
        ("npm", "npm test", True),
        ("npm", "npx npm -v", True),
        ("npm", "pnpm test", False),
        ("npm", "cat npm.log", False),
        ("npm", "ls node_modules/npm", False),
        ("npm test", "npm --prefix=web test", True),
        ("npm test", "npm install test", False),
        ("pytest", "uv run pytest -q", True),
        ("pytest", ".venv/bin/python -m pytest", True),
        ("pytest", ".venv/bin/pytest -q", True),
        ("pytest", "pip install pytest", False),
        ("go test ./...", "timeout 60 go test ./...", True),
    ],
)
def test_a_command_is_found_where_a_shell_starts_it(command: str, line: str, found: bool) -> None:
    assert bool(re.search(command_pattern(command), line)) is found
    assert command_of_pattern(command_pattern(*command.split())) == command


async def test_files_are_looked_for_in_the_box() -> None:
    checks = [
        {"op": "file_exists", "arg": "a/b.txt"},
        {"op": "file_exists", "arg": "gone"},
        {"op": "file_exists", "arg": "a"},
        {"op": "file_exists", "arg": "out"},
        {"op": "file_contains", "path": "a/b.txt", "arg": "42"},
        {"op": "file_contains", "path": "a/b.txt", "arg": "4"},
        {"op": "file_contains", "path": "gone", "arg": "4"},
    ]
    task = Task.model_validate({"id": "t", "instruction": "-", "judge": {"kind": "rules", "checks": checks}})
    score = await judged(task, work="mkdir a; echo it is 42 > a/b.txt; ln -s /etc/hostname out")
    assert score.value == pytest.approx(2 / 7)
    assert score.details["hard"] is False
    assert score.reason.endswith("file_contains=4 in a/b.txt, file_contains=4 in gone")


async def test_hard_is_all_soft_the_share_and_what_failed_is_named() -> None:
    checks = [{"op": "contains", "arg": "red"}, {"op": "contains", "arg": "blue"}]
    half = await said_of("red", {"kind": "rules", "checks": checks})
    assert (half.value, half.details["soft"], half.details["hard"]) == (0.5, 0.5, False)
    assert half.reason == "1 of 2 checks passed; failed: contains=blue"
    assert [check["passed"] for check in half.details["checks"]] == [True, False]
    assert (await said_of("red", {"kind": "rules", "checks": checks, "threshold": 1})).value == 0
    assert (await said_of("red, blue", {"kind": "rules", "checks": checks, "threshold": 1})).value == 1


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ({"op": "contain", "arg": "x"}, "has the unknown operator 'contain'; did you mean 'contains'?"),
        ({"op": 3, "arg": "x"}, "has the unknown operator 3; known:"),
        ({"arg": "x"}, "expected a table with the key 'op'"),
        ("contains", "expected a table with the key 'op'"),
        ({"op": "contains"}, "'judge[0].rules.checks[0].contains.arg' is missing"),
        ({"op": "contains", "arg": " "}, "is ' '; expected"),
        (
            {"op": "contains", "arg": "x", "args": 1},
            "unknown key 'judge[0].rules.checks[0].contains.args'; did you mean",
        ),
        ({"op": "regex", "arg": "("}, "which does not compile"),
        ({"op": "max_chars", "arg": True}, "is True; expected a whole number of characters"),
        ({"op": "max_chars", "arg": 3.5}, "is 3.5; expected a whole number of characters"),
        ({"op": "max_chars", "arg": "5_0"}, "is '5_0'; expected a whole number of characters"),
        ({"op": "max_chars", "arg": float("inf")}, "is inf; expected a whole number of characters"),
        ({"op": "max_chars", "arg": -1}, "expected a number of at least 0"),
        ({"op": "file_exists", "arg": "../x"}, "expected a relative path"),
        ({"op": "section_present", "arg": "x", "text": "y"}, "which only section_contains looks for"),
    ],
)
def test_a_wrong_check_is_an_error_when_the_task_is_read(check: object, said: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        Task.model_validate({"id": "t", "instruction": "-", "judge": {"kind": "rules", "checks": [check]}})
    (line,) = explain(wrong.value, "here", Task)
    assert said in line


def test_rules_that_look_at_the_form_alone_are_warned_of(tmp_path: Any) -> None:
    file = tmp_path / "t.jsonl"
    shape = '{"kind": "rules", "checks": [{"op": "max_chars", "arg": 5}]}'
    file.write_text(f'{{"instruction": "-", "judge": {shape}}}\n')
    assert "only the form of the answer" in read_tasks(file)[0].warnings[0]
