"""Reads mini-swe-agent's transcript: one JSON file with the last run, which the next run overwrites."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from whet.agents.mini import MiniSweAgent
from whet.ids import digest
from whet.sleep.readers.draft import Draft, span
from whet.sleep.readers.jsonl import JsonFile, clip, read_time
from whet.sleep.readers.reader import Reading, Source
from whet.sleep.session import Origin, Place, Session, Speaker

TASK = re.compile(r"{{\s*task\s*}}")
INTERRUPTS = {
    "UserInterruption": "Interrupted by user: ",
    "UserRejection": "Commands not executed. The user rejected your commands with the following message: ",
    "UserNewTask": "The user added a new task: ",
}
"""What the program puts before the words of a person who interrupts it."""
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""A command that prints this ends the run."""


class MiniReader:
    """mini-swe-agent."""

    cli = "mini-swe-agent"
    tested = "2.4.6"

    def find(self, home: Path, env: Mapping[str, str]) -> Iterator[Source]:
        path = MiniSweAgent.traits.locate(".config/mini-swe-agent/last_mini_run.traj.json", home, env)
        if path.is_file():
            yield Source(path)

    def read(self, source: Source) -> Reading:
        file = JsonFile(source.path, "messages")
        records = [record for _, record in file]
        if not records:
            return Reading(broken=file.broken)
        story = _Story(source.path, records[0])
        for number, record in enumerate(records[1:]):
            story.take(number, record)
        session = story.finish(file.digest)
        return Reading((session,) if session.turns else (), dict(story.unknown), offset=file.offset)


class _Story:
    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self.unknown: Counter[str] = Counter()
        self._place = Place(path=str(path), offset=0)
        self._run = run
        self._draft = Draft()
        self._task = ""
        self._times: list[datetime] = []
        self._calls: dict[str, str] = {}
        """The name in the draft of the last call with an id. Some models give an id again."""
        self._interrupted = False

    def take(self, number: int, message: dict[str, Any]) -> None:
        extra = message.get("extra")
        extra = extra if isinstance(extra, dict) else {}
        at = _seconds(extra.get("timestamp"))
        self._times += [at] if at else []
        match message:
            case {"role": "system"}:
                pass
            case {"role": "user", "content": str(text)}:
                self._take_user(text, extra)
            case {"role": "assistant"}:
                self._draft.answer(clip(message.get("content")))
                self._take_calls(number, extra, at)
            case {"role": "tool", "tool_call_id": str(key)}:
                self._take_result(key, extra)
            case {"role": "exit"}:
                self._draft.answer(clip(extra.get("submission")).strip())
                self._draft.fail()
            case _:
                self.unknown[f"role {message.get('role')}"] += 1

    def _take_user(self, text: str, extra: dict[str, Any]) -> None:
        match extra:
            case {"interrupt_type": str(kind)} if kind in INTERRUPTS:
                self._interrupted = True
                if text.startswith(INTERRUPTS[kind]):
                    if kind != "UserNewTask":
                        self._draft.abort()
                    self._draft.say(clip(text.removeprefix(INTERRUPTS[kind])), Speaker.PERSON)
            case {"returncode": _} | {"actions": _}:
                pass  # a command that the person ran without the agent
            case _ if not self._task:
                self._task = _task_of(text, self._template())
                self._draft.say(clip(self._task), Speaker.SCRIPT if self._asks_nobody() else Speaker.PERSON)
            case _:
                self._draft.inject(clip(text))

    def _take_calls(self, number: int, extra: dict[str, Any], at: datetime | None) -> None:
        for action in extra.get("actions") or ():
            match action:
                case {"command": str(command), "tool_call_id": str(key)} if SUBMIT not in command:
                    self._calls[key] = f"{number}/{key}"
                    self._draft.call(f"{number}/{key}", "bash", command=clip(command), at=at)

    def _take_result(self, key: str, extra: dict[str, Any]) -> None:
        code = extra.get("returncode")
        ended = isinstance(code, int) and not extra.get("exception_info")  # else it was stopped, or never ran
        output = clip(extra.get("raw_output"))
        self._draft.result(self._calls.get(key, ""), output=output, output_at=self._place, exit=code if ended else None)

    def _asks_nobody(self) -> bool:
        """Whether it was told neither to ask before a command nor before its end, as a script tells it."""
        match self._run:
            case {"info": {"config": {"agent": {"mode": "yolo", "confirm_exit": False}}}}:
                return True
        return False

    def _origin(self) -> Origin:
        if self._interrupted:  # only a person at a terminal can
            return Origin.INTERACTIVE
        return Origin.HEADLESS if self._asks_nobody() else Origin.OTHER

    def _template(self) -> str:
        match self._run:
            case {"info": {"config": {"agent": {"instance_template": str(template)}}}}:
                return template
        return ""

    def finish(self, content: str) -> Session:
        info = self._run.get("info")
        info = info if isinstance(info, dict) else {}
        self._draft.abort_unfinished()
        started, ended = span(self._times)
        return Session(
            cli="mini-swe-agent",
            version=str(info["mini_version"]) if "mini_version" in info else None,
            id=digest(self._task.encode(), str(started).encode()),  # a run has no id of its own
            origin=self._origin(),
            cwd=_cwd(info),
            started=started,
            ended=ended,
            complete=bool(info.get("exit_status")),
            turns=self._draft.turns(),
            digest=content,
        )


def _cwd(info: dict[str, Any]) -> str | None:
    match info:
        case {"config": {"environment": {"cwd": str(cwd)}}} if cwd:
            return cwd
    return None


def _task_of(text: str, template: str) -> str:
    """The task in a message that was made from a template; the whole message if it does not fit.

    >>> _task_of("Solve: mend it\\n\\nUse a shell.", "Solve: {{ task }}\\n\\nUse a {% if a %}..")
    'mend it'
    """
    found = TASK.search(template)
    before, after = (template[: found.start()], template[found.end() :]) if found else ("", "")
    after = re.split(r"{[{%#]", after)[0]
    end = text.rfind(after) if after.strip() else len(text)
    fits = text.startswith(before) and end >= len(before)
    return text[len(before) : end].strip() if fits else text.strip()


def _seconds(value: object) -> datetime | None:
    return read_time(value * 1000) if isinstance(value, int | float) else None
