"""Asking a model for the tokens behind its words: ids and log-probabilities, as its kind of server gives them."""

import re
from types import MappingProxyType

from whet.gateway.model import Capture

_ASKED = re.compile(rb'"(?:logprobs|return_token_ids)"\s*:\s*true')

_WITH_IDS = MappingProxyType({"logprobs": b"true", "top_logprobs": b"0", "return_token_ids": b"true"})
_FIELDS = MappingProxyType(
    {
        "vllm": _WITH_IDS,
        "sglang": _WITH_IDS,
        "llamacpp": MappingProxyType({"logprobs": b"true", "top_logprobs": b"1"}),
        "openai": MappingProxyType({"logprobs": b"true", "top_logprobs": b"0"}),
    }
)


def asks_for_tokens(body: bytes) -> bool:
    """Whether the agent itself wants tokens; then the reply is its own, as it is."""
    return _ASKED.search(body) is not None


def capture_changes(capture: Capture) -> dict[str, bytes | None]:
    """What is set in a chat request so that the reply holds its tokens, in one piece."""
    return {"stream": b"false", "stream_options": None, **_FIELDS[capture]}
