"""Keeps results within what a client takes: large parts are left out as a whole, and named."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from whet.client.openenv_models import RolloutResult
from whet.serve.openenv.turns import MESSAGES, PROMPTS, TRACE

SOCKET_BYTES = 1_000_000
"""Clients of openenv-core 0.2.1 refuse frames of more than 1 MiB, and a server cannot tell them from others."""
HTTP_BYTES = 64 << 20
COPIES = 2
"""A result is twice in its frame."""
_MARGIN = 4096
"""The rest of a frame."""
_SHORT = 200

Document = dict[str, Any]
Reduction = Callable[[Document], None]


def encode_result(result: RolloutResult, most: int) -> bytes:
    """The result as JSON in a JSON string. If a frame of `most` bytes cannot hold it, parts are left out, the largest
    first, and `truncated` is set. Blocks."""
    document: Document = result.model_dump(mode="json")
    text = quote(document)
    if _fits(text, most):
        return text
    for name, reduce in _REDUCTIONS:
        for one in _rollouts(document):
            reduce(one)
            one["truncated"] = True
            one["truncated_fields"] = [*dict.fromkeys([*one["truncated_fields"], name])]
        text = quote(document)
        if _fits(text, most):
            break
    return text


def quote(document: Document) -> bytes:
    """A document as JSON in a JSON string."""
    return msgspec.json.encode(msgspec.json.encode(document).decode())


def _fits(text: bytes, most: int) -> bool:
    return COPIES * len(text) + _MARGIN <= most


def _rollouts(document: Document) -> Iterator[Document]:
    yield document
    yield from document["rollouts"]


def _empty_in_turns(*names: str) -> Reduction:
    def reduce(document: Document) -> None:
        for turn in document["proxy_turns"]:
            for name in names:
                turn[name] = None if name == "request_tools" else []

    return reduce


def _drop_trace(document: Document) -> None:
    document["training_trace"] = None


def _drop_files(document: Document) -> None:
    document["files_extra"] = sorted({*document["files_extra"], *document["files"]})
    document["files"] = {}


def _drop_turns(document: Document) -> None:
    document["proxy_turns"] = []


def _drop_the_rest(document: Document) -> None:
    """Leave numbers, flags and short texts."""
    for name, value in document.items():
        if name == "rollouts" or name.startswith("truncated"):
            continue
        if isinstance(value, str):
            document[name] = value[:_SHORT]
        elif isinstance(value, list | dict):
            document[name] = type(value)()


_REDUCTIONS: tuple[tuple[str, Reduction], ...] = (
    (MESSAGES, _empty_in_turns("request_messages", "request_tools")),
    (TRACE, _drop_trace),
    (PROMPTS, _empty_in_turns("prompt_token_ids", "loss_mask")),
    ("proxy_turns.completion_tokens", _empty_in_turns("completion_tokens")),
    # Ids without their log-probabilities could be taken for a capture that failed.
    ("proxy_turns.completion_token_ids", _empty_in_turns("completion_token_ids", "per_token_logps")),
    ("files", _drop_files),
    ("proxy_turns", _drop_turns),
    ("other", _drop_the_rest),
)
"""In this order; all of a part is left out, so that no array is shorter than the one that belongs to it."""
