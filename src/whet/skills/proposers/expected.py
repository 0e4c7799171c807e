"""What the judges of a task wait for, word for word: what no rule may hold."""

from collections.abc import Iterator
from typing import Any

from whet.tasks import Task
from whet.tasks.checks import FileWords, Section, Words
from whet.tasks.judges import Choice, Contains, Exact, Json, Math, Number, Rules


def expected_of(task: Task) -> tuple[str, ...]:
    """The expected answers of a task, each once.

    >>> expected_of(Task(id="sum", instruction="1 + 1?", answer="2"))
    ('2',)
    """
    given = [] if task.answer is None else [task.answer]
    return tuple(dict.fromkeys([*given, *(text for judge in task.judge for text in _texts(judge))]))


def _texts(judge: object) -> Iterator[str]:
    match judge:
        case Exact(answer=tuple(texts)) | Contains(text=tuple(texts)):
            yield from texts
        case Choice(answer=str(text)) | Math(answer=str(text)):
            yield text
        case Number(answer=float(number)):
            yield f"{number:g}"
        case Json(expected=expected):
            yield from _leaves(expected)
        case Rules(checks=checks):
            for check in checks:
                match check:
                    case Words(op="contains", arg=text) | Section(text=str(text)) | FileWords(arg=text):
                        yield text


def _leaves(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for item in value.values():
                yield from _leaves(item)
        case list():
            for item in value:
                yield from _leaves(item)
        case str() | int() | float() if not isinstance(value, bool):
            yield str(value)
