"""The turns of a session while its transcript is read. All readers fill a draft, so that they divide turns alike."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from whet.sleep.session import Speaker, Step, Turn


@dataclass(slots=True)
class _OpenTurn:
    text: str
    said_by: Speaker
    at: datetime | None
    id: str
    calls: list[dict[str, Any]] = field(default_factory=list)
    answer: str = ""
    aborted: bool = False
    ended: bool = False
    """The last that is known of it is its end: an answer, or a failure."""

    @property
    def is_empty(self) -> bool:
        return not (self.calls or self.answer)


class Draft:
    """Takes what a transcript says in its order and gives turns.

    A message that the program injects opens no turn: what follows belongs to what was last said. Only what follows
    while nothing was said makes a turn of the harness.
    """

    def __init__(self) -> None:
        self._turns: list[_OpenTurn] = []
        self._calls: dict[str, dict[str, Any]] = {}
        self._injected = ""

    def say(self, text: str, said_by: Speaker, at: datetime | None = None, *, record: str = "") -> None:
        """Open a turn, with the id of its record. A turn of the harness is dropped if the agent does nothing in it."""
        self._turns.append(_OpenTurn(text, said_by, at, record))

    def inject(self, text: str) -> None:
        """Note a message of the program itself."""
        self._injected = text

    def call(self, key: str, tool: str, **step: Any) -> None:
        """Note a tool call under its id, with what is known of its step."""
        self._calls[key] = {"tool": tool, **step}
        turn = self._open()
        turn.calls.append(self._calls[key])
        turn.ended = False

    def result(self, key: str, **step: Any) -> None:
        """Add what the result of a tool call says. A result without a call is left out."""
        if key in self._calls:
            self._calls[key].update(step)

    def find(self, key: str) -> dict[str, Any] | None:
        """What is known of a tool call."""
        return self._calls.get(key)

    def answer(self, text: str) -> None:
        """Note a text of the agent. The last one of a turn is its answer."""
        if text.strip():
            turn = self._open()
            turn.answer, turn.ended = text, True

    def abort(self) -> None:
        """Note that the person interrupted the turn."""
        if self._turns:
            self._turns[-1].aborted = True

    def take_back(self, count: int) -> None:
        """Drop the last turns: the person took them back."""
        del self._turns[max(0, len(self._turns) - count) :]

    def fail(self) -> None:
        """Note that the turn ended without an answer, and not because the person interrupted it."""
        if self._turns:
            self._turns[-1].ended = True

    def abort_unfinished(self) -> None:
        """Take turns without an end as interrupted, for programs that do not write when a person interrupts them."""
        for turn in self._turns:
            turn.aborted = turn.aborted or not turn.ended

    def turns(self) -> tuple[Turn, ...]:
        kept = [turn for turn in self._turns if turn.said_by is not Speaker.HARNESS or not turn.is_empty]
        return tuple(_finish(number, turn) for number, turn in enumerate(kept, 1))

    def _open(self) -> _OpenTurn:
        if not self._turns:
            self.say(self._injected, Speaker.HARNESS)
        return self._turns[-1]


def _finish(number: int, turn: _OpenTurn) -> Turn:
    return Turn(
        number=number,
        text=turn.text,
        said_by=turn.said_by,
        at=turn.at,
        id=turn.id,
        steps=tuple(Step(**call) for call in turn.calls),
        answer=turn.answer,
        aborted=turn.aborted,
    )


def span(times: Iterable[datetime | None]) -> tuple[datetime | None, datetime | None]:
    """The first and the last of some times, of which any may be unknown."""
    known = [time for time in times if time is not None]
    return (min(known), max(known)) if known else (None, None)
