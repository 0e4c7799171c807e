"""Which reply of a script answers a conversation, whatever dialect the conversation came in."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from re import Pattern

from whet.gateway.dialects import neutral as n
from whet.testing import tokens
from whet.testing.script import Scene, Script, ScriptedReply, When, say
from whet.testing.tools import SPAWN, WAIT, plain_name

_PREAMBLE = "Got it. Thanks for the context!"
"""Qwen Code puts these words of the assistant before the first message of the user."""


@dataclass(frozen=True, slots=True)
class ScriptTurn:
    """One message of a conversation, or one result of a tool."""

    role: str
    """system, user, assistant or tool."""
    text: str
    thinking: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Name and arguments of each tool that it calls."""
    image: bool = False
    """Whether it holds a picture."""

    @property
    def beside(self) -> str:
        """All that it says beside its text."""
        return self.thinking + "".join(map("".join, self.calls))

    @property
    def ids(self) -> list[int]:
        """The token ids of the turn, without the mark of its end."""
        return tokens.speech(self.thinking, self.text, self.calls)


def read_turns(messages: Iterable[n.Message]) -> Iterator[ScriptTurn]:
    """The turns of a conversation. Results of tools are turns of their own."""
    for message in messages:
        results = [part for part in message.parts if isinstance(part, n.ToolResult)]
        for result in results:
            yield _turn("tool", result.parts)
        rest = [part for part in message.parts if not isinstance(part, n.ToolResult)]
        if rest or not results:
            yield _turn(message.role, rest)


def _turn(role: str, parts: Sequence[n.Part]) -> ScriptTurn:
    return ScriptTurn(
        role,
        "".join(part.text for part in parts if isinstance(part, n.Text | n.Refusal)),
        "".join(part.text for part in parts if isinstance(part, n.Thinking)),
        tuple((part.name, part.arguments) for part in parts if isinstance(part, n.ToolCall)),
        any(isinstance(part, n.Image) for part in parts),
    )


def reply_to(conversation: Sequence[ScriptTurn], script: Script) -> ScriptedReply:
    """The next reply of the script. Where the script has none, the reply says so."""
    scene = next((scene for scene in script.scenes if _fits(scene.when, conversation)), None)
    if scene is None:
        return say(f"[scripted model: no scene matches; {_ending(conversation)}]")
    due = _assistant_turns(conversation)
    if due >= len(scene.replies):
        return say(f"[scripted model: {_label(scene, script)} has no reply {due + 1}; {_ending(conversation)}]")
    return scene.replies[due]


def _assistant_turns(conversation: Sequence[ScriptTurn]) -> int:
    """How often the script has answered. One reply may come back as several messages, one for each part of it."""
    speeches = [list(turns) for role, turns in groupby(conversation, lambda turn: turn.role) if role == "assistant"]
    return sum(not _is_not_scripted(speech, before) for before, speech in pairwise([[], *speeches]))


def _is_not_scripted(speech: Sequence[ScriptTurn], before: Sequence[ScriptTurn]) -> bool:
    """Whether the agent made this speech up, or the speech only waits for a sub-agent that was just started."""
    if calls := _calls(speech):
        return calls == {WAIT} and SPAWN in _calls(before)
    return [turn.text for turn in speech] == [_PREAMBLE]


def _calls(speech: Sequence[ScriptTurn]) -> set[str]:
    return {plain_name(name) for turn in speech for name, _ in turn.calls}


def _fits(when: When, conversation: Sequence[ScriptTurn]) -> bool:
    return (
        _is_found(when.user, (turn.text for turn in conversation if turn.role == "user"))
        and _is_found(when.system, (turn.text for turn in conversation if turn.role == "system"))
        and _is_found(when.last, (turn.text for turn in conversation[-1:]))
        and _is_found(when.any, (turn.text for turn in conversation))
        and (when.image is None or when.image == any(turn.image for turn in conversation))
    )


def _is_found(pattern: Pattern[str] | None, texts: Iterable[str]) -> bool:
    return pattern is None or any(pattern.search(text) for text in texts)


def _label(scene: Scene, script: Script) -> str:
    number = next(number for number, candidate in enumerate(script.scenes, 1) if candidate is scene)
    return f"scene {number} ({scene.name})" if scene.name else f"scene {number}"


def _ending(conversation: Sequence[ScriptTurn]) -> str:
    last = conversation[-1].text if conversation else ""
    return f"the last message begins {last[:60]!r}"
