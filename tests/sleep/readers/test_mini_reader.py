"""mini-swe-agent's transcript: the task in its template, true exit codes, and the words of a person who interrupts."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.story import home_of
from whet.sleep.readers.mini import MiniReader
from whet.sleep.readers.reader import Reading
from whet.sleep.session import Session

READER = MiniReader()
PATH = Path(".config/mini-swe-agent/last_mini_run.traj.json")
TASK = {"role": "user", "content": "Solve this: Mend it\n\nUse a shell."}


def read(tmp_path: Path, *messages: dict[str, Any], **agent: Any) -> Reading:
    template = {"instance_template": "Solve this: {{ task }}\n\nUse a shell.", "mode": "confirm", "confirm_exit": True}
    info = {"config": {"agent": {**template, **agent}, "environment": {"cwd": "/w"}}, "mini_version": "2.4.6"}
    (tmp_path / PATH).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / PATH).write_text(json.dumps({"info": info, "messages": messages}))
    (source,) = READER.find(tmp_path, {})
    return READER.read(source)


def only(reading: Reading) -> Session:
    (session,) = reading.sessions
    return session


def called(key: str, command: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "extra": {"actions": [{"command": command, "tool_call_id": key}]}}


def result(key: str, code: int, exception: str = "") -> dict[str, Any]:
    extra = {"raw_output": "out", "returncode": code, "exception_info": exception}
    return {"role": "tool", "content": '{"returncode": 0}', "tool_call_id": key, "extra": extra}


def interrupted(kind: str, text: str) -> dict[str, Any]:
    return {"role": "user", "content": text, "extra": {"interrupt_type": kind}}


@pytest.mark.parametrize(
    ("template", "text", "task"),
    [
        ("Solve this: {{task}}\n\nUse a shell.", "Solve this: Mend it\n\nUse a shell.", "Mend it"),
        ("{{ task }}", "Mend it", "Mend it"),
        ("Do: {{task}}\n{% if a %}x{% endif %}", "Do: Mend it\ny", "Mend it\ny"),
        ("Other: {{task}}", "Solve this: Mend it", "Solve this: Mend it"),
        ("", "Mend it", "Mend it"),
    ],
)
def test_the_task_is_taken_out_of_its_template(tmp_path: Path, template: str, text: str, task: str) -> None:
    session = only(read(tmp_path, {"role": "user", "content": text}, instance_template=template))
    assert [turn.text for turn in session.turns] == [task]


def test_a_command_that_was_stopped_has_no_exit_code(tmp_path: Path) -> None:
    steps = [called("a", "make"), result("a", 2), called("b", "sleep 99"), result("b", -1, "timed out")]
    (turn,) = only(read(tmp_path, TASK, *steps)).turns
    assert [(step.command, step.exit) for step in turn.steps] == [("make", 2), ("sleep 99", None)]
    assert turn.aborted


def test_the_words_of_a_person_who_interrupts_are_turns(tmp_path: Path) -> None:
    rejected = "Commands not executed. The user rejected your commands with the following message: No npm here."
    session = only(
        read(
            tmp_path,
            TASK,
            called("a", "npm test"),
            result("a", -1, "action was not executed"),
            interrupted("UserRejection", rejected),
            called("b", "make test"),
            result("b", 0),
            interrupted("UserInterruption", "Interrupted by user: Now lint."),
            {"role": "user", "content": "Your reply had no command."},
            {"role": "user", "content": "User command: ls", "extra": {"actions": [{"command": "ls"}]}},
            {"role": "user", "content": "{}", "extra": {"returncode": 0, "raw_output": ""}},
            {"role": "assistant", "content": "Linted.", "extra": {"actions": []}},
        )
    )
    assert session.origin == "interactive"
    told = [(turn.text, turn.aborted, [step.command for step in turn.steps]) for turn in session.turns]
    assert told == [("Mend it", True, ["npm test"]), ("No npm here.", True, ["make test"]), ("Now lint.", False, [])]


def test_a_later_run_is_another_session(tmp_path: Path) -> None:
    def started(at: float) -> str:
        return only(read(tmp_path, TASK, {"role": "assistant", "content": "Hi", "extra": {"timestamp": at}})).id

    assert started(1.0) == started(1.0) != started(2.0)


def test_a_file_that_is_cut_off_is_reported(tmp_path: Path) -> None:
    read(tmp_path, TASK)
    (tmp_path / PATH).write_text((tmp_path / PATH).read_text()[:-5])
    assert READER.read(next(READER.find(tmp_path, {}))) == Reading(broken=1)


def test_a_users_variables_move_the_transcript(tmp_path: Path) -> None:
    config = home_of("mini-swe-agent") / ".config"
    for name, value in {"XDG_CONFIG_HOME": config, "MSWEA_GLOBAL_CONFIG_DIR": config / "mini-swe-agent"}.items():
        assert [source.path for source in READER.find(tmp_path, {name: str(value)})] == [config.parent / PATH]
    assert [*READER.find(tmp_path, {})] == []
