"""Which reply of a script answers a conversation, whatever dialect the conversation came in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from re import Pattern

from whet.testing.script import Reply, Scene, Script, When, say
from whet.testing.tools import SPAWN, WAIT, plain

_PREAMBLE = "Got it. Thanks for the context!"
"""Qwen Code lets the assistant say this before the user says anything."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: str
    """system, user, assistant or tool."""
    text: str
    besides: str = ""
    """What it holds besides its text: thoughts, and calls of tools."""
    calls: tuple[str, ...] = ()
    """The names of the tools that it calls."""
    image: bool = False
    """Whether it holds a picture."""


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
    """How often the script spoke. What it said in one go may come as several messages, one for each part of it."""
    speeches = [list(turns) for role, turns in groupby(conversation, lambda turn: turn.role) if role == "assistant"]
    return sum(not _beside_the_script(speech, before) for before, speech in pairwise([[], *speeches]))


def _beside_the_script(speech: Sequence[Turn], before: Sequence[Turn]) -> bool:
    """Whether the agent made up what the assistant said, or it only waited for a sub-agent that it had just started."""
    if calls := _calls(speech):
        return calls == {WAIT} and SPAWN in _calls(before)
    return [turn.text for turn in speech] == [_PREAMBLE]


def _calls(speech: Sequence[Turn]) -> set[str]:
    return {plain(name) for turn in speech for name in turn.calls}


def _fits(when: When, conversation: Sequence[Turn]) -> bool:
    return (
        _found(when.user, (turn.text for turn in conversation if turn.role == "user"))
        and _found(when.system, (turn.text for turn in conversation if turn.role == "system"))
        and _found(when.last, (turn.text for turn in conversation[-1:]))
        and _found(when.any, (turn.text for turn in conversation))
        and (when.image is None or when.image == any(turn.image for turn in conversation))
    )


def _found(pattern: Pattern[str] | None, texts: Iterable[str]) -> bool:
    return pattern is None or any(pattern.search(text) for text in texts)


def _label(scene: Scene, script: Script) -> str:
    number = next(number for number, candidate in enumerate(script.scenes, 1) if candidate is scene)
    return f"scene {number} ({scene.name})" if scene.name else f"scene {number}"


def _ending(conversation: Sequence[Turn]) -> str:
    last = conversation[-1].text if conversation else ""
    return f"the last message begins {last[:60]!r}"
