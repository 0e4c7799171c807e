"""A rollout in a line: how many steps, which tools and files, what went wrong, and what form its answer has."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from whet.trace.steps.steps import Step, StepKind

MOST = 4
"""How many tools and files are named; the others are counted."""
_PATHS = frozenset({"path", "file_path", "filepath", "filename", "file", "absolute_path", "notebook_path"})
"""Arguments in which programs name a file, in lower case."""
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^\s*```.*```\s*$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Summary:
    """A rollout in a few words."""

    steps: int
    calls: int
    """Replies of the main thread."""
    sub_agents: int
    tools: tuple[tuple[str, int], ...]
    """How often each was called, by anyone; the most frequent first."""
    files: tuple[str, ...]
    """Those that tools were called with, and those that are known to have changed."""
    errors: int
    """Tools that reported a failure, and calls without an answer."""
    answer: str
    """What form the last reply of the main thread has."""

    def __str__(self) -> str:
        parts = [_count(self.steps, "step"), _count(self.calls, "call")]
        if self.sub_agents:
            parts.append(_count(self.sub_agents, "sub-agent"))
        if self.tools:
            parts.append("tools " + _some([f"{name} {times}" for name, times in self.tools]))
        if self.files:
            parts.append("files " + _some(self.files))
        return "; ".join([*parts, _count(self.errors, "error"), f"answer {self.answer}"])


def summary(steps: Sequence[Step], changed: Sequence[str] = ()) -> Summary:
    """The summary of a rollout. Files that are known to have changed count as touched, whatever the steps tell."""
    tools = Counter(name for step in steps if step.kind is StepKind.REPLY for name, _ in step.tools)
    named = (file for step in steps for _, arguments in step.tools for file in _files(arguments))
    return Summary(
        steps=len(steps),
        calls=sum(step.call is not None for step in steps),
        sub_agents=sum(step.kind is StepKind.SUB_AGENT for step in steps),
        tools=tuple(tools.most_common()),
        files=tuple(dict.fromkeys([*changed, *named])),
        errors=sum(step.error or step.kind is StepKind.FAILED for step in steps),
        answer=_answer_form(steps),
    )


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _some(words: Sequence[str]) -> str:
    more = f" and {len(words) - MOST} more" if len(words) > MOST else ""
    return ", ".join(words[:MOST]) + more


def _files(arguments: str) -> Iterator[str]:
    yield from _PATCHED.findall(arguments.replace("\\n", "\n"))
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return
    for name, value in given.items() if isinstance(given, dict) else ():
        if name.replace("Path", "_path").lower() in _PATHS and isinstance(value, str):
            yield value


def _answer_form(steps: Sequence[Step]) -> str:
    last = next((step for step in reversed(steps) if step.call is not None), None)
    if last is None:
        return "none"
    if last.tools:
        return f"none: the last reply calls {last.tools[-1][0]}"
    text = last.text.strip()
    if not text:
        return "empty"
    if "<answer>" in text:
        return "in <answer>"
    if _is_json(text):
        return "JSON"
    if _FENCED.match(text):
        return "a code block"
    return f"text, {_count(len(text), 'character')}"


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False
