"""Which reply of a script answers a conversation, whatever dialect the conversation came in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from re import Pattern

from whet.testing.script import Reply, Scene, Script, When, say


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: str
    """system, user, assistant or tool."""
    text: str
    besides: str = ""
    """What it holds besides its text: thoughts, and calls of tools."""


def reply_to(conversation: Sequence[Turn], script: Script) -> Reply:
    """The reply that is due; where the script has none, a reply that says so."""
    scene = next((scene for scene in script.scenes if _fits(scene.when, conversation)), None)
    if scene is None:
        return say(f"[scripted model: no scene matches; {_ending(conversation)}]")
    due = _assistant_turns(conversation)
    if due >= len(scene.replies):
        return say(f"[scripted model: {_label(scene, script)} has no reply {due + 1}; {_ending(conversation)}]")
    return scene.replies[due]


def _assistant_turns(conversation: Sequence[Turn]) -> int:
    """How often the assistant spoke. What it said in one go may come as several messages, one for each part of it."""
    speakers = (role for role, _ in groupby(turn.role for turn in conversation))
    return sum(role == "assistant" for role in speakers)


def _fits(when: When, conversation: Sequence[Turn]) -> bool:
    return (
        _found(when.user, (turn.text for turn in conversation if turn.role == "user"))
        and _found(when.system, (turn.text for turn in conversation if turn.role == "system"))
        and _found(when.last, (turn.text for turn in conversation[-1:]))
    )


def _found(pattern: Pattern[str] | None, texts: Iterable[str]) -> bool:
    return pattern is None or any(pattern.search(text) for text in texts)


def _label(scene: Scene, script: Script) -> str:
    number = next(number for number, candidate in enumerate(script.scenes, 1) if candidate is scene)
    return f"scene {number} ({scene.name})" if scene.name else f"scene {number}"


def _ending(conversation: Sequence[Turn]) -> str:
    last = conversation[-1].text if conversation else ""
    return f"the last message begins {last[:60]!r}"
