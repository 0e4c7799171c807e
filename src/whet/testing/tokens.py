"""A toy tokenizer and chat template: every byte is a token, and a few tokens more mark who speaks and how."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Mark(IntEnum):
    """The tokens that are not bytes."""

    SYSTEM = 256
    USER = 257
    ASSISTANT = 258
    TOOL = 259
    THINK = 260
    """Thinking follows."""
    SAY = 261
    """Text follows."""
    CALL = 262
    """The name of a tool follows."""
    ARGUMENTS = 263
    """The arguments of that tool follow."""
    END = 264
    """A message ends."""


_ROLES = {"system": Mark.SYSTEM, "assistant": Mark.ASSISTANT, "tool": Mark.TOOL}


def encode(text: str) -> list[int]:
    """The ids of a text.

    >>> encode("hé")
    [104, 195, 169]
    """
    return list(text.encode())


def decode(ids: Iterable[int]) -> str:
    """The text of ids, marks included.

    >>> decode([Mark.SAY, 104, 195, 169, Mark.END])
    '<|say|>hé<|end|>'
    """
    return b"".join(map(_bytes, ids)).decode(errors="replace")


def speech(thinking: str, text: str, calls: Iterable[tuple[str, str]]) -> list[int]:
    """What one message says: thinking, text, and calls of a name and arguments each. It does not hold its end."""
    ids = [*_mark(Mark.THINK, thinking), *_mark(Mark.SAY, text)]
    for name, arguments in calls:
        ids += [Mark.CALL, *encode(name), Mark.ARGUMENTS, *encode(arguments)]
    return ids


def prompt(messages: Iterable[tuple[str, Sequence[int]]]) -> tuple[int, ...]:
    """The ids a model reads for messages of a role and a speech each; what it then says continues them."""
    ids: list[int] = []
    for role, said in messages:
        ids += [_ROLES.get(role, Mark.USER), *said, Mark.END]
    return (*ids, Mark.ASSISTANT)


def logprobs(ids: Sequence[int], start: int) -> list[dict[str, Any]]:
    """What a model says about ids that it sampled; the first has this place in the completion."""
    return [
        {"token": decode([id_]), "logprob": _logprob(place, id_), "bytes": list(_bytes(id_)), "top_logprobs": []}
        for place, id_ in enumerate(ids, start)
    ]


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """What a chat request gets to see of the tokens."""

    allowed: bool = False
    """Whether the model reports its tokens at all, and counts them in its usage."""
    return_ids: bool = False
    return_logprobs: bool = False

    @property
    def wanted(self) -> bool:
        return self.allowed and (self.return_ids or self.return_logprobs)

    def describe_prompt(self, ids: Sequence[int]) -> dict[str, Any]:
        """The fields of an answer about what the model read."""
        return {"prompt_token_ids": ids} if self.return_ids else {}

    def describe(self, ids: Sequence[int], start: int) -> dict[str, Any]:
        """The fields of a choice about ids that were sampled for it; the first has this place in the completion."""
        fields: dict[str, Any] = {"token_ids": ids or None} if self.return_ids else {}
        if self.return_logprobs:
            fields["logprobs"] = {"content": logprobs(ids, start)} if ids else None
        return fields


NO_TOKENS = TokenOptions()


def _mark(mark: Mark, text: str) -> list[int]:
    return [mark, *encode(text)] if text else []


def _bytes(id_: int) -> bytes:
    return bytes([id_]) if id_ < Mark.SYSTEM else f"<|{Mark(id_).name.lower()}|>".encode()


def _logprob(place: int, id_: int) -> float:
    """Between -5 and 0. These factors never give neighbours the same, whatever their ids."""
    return -(1 + (place * 7919 + id_ * 104729) % 4999) / 1000
