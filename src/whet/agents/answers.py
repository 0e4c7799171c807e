"""Structured answers: how whet requests one from an agent, and how it finds it in a text."""

import json
from collections.abc import Mapping
from typing import Any

from whet.text.plain import find_tagged, read_json

REMINDER = "You stopped without a final answer. Finish the task if it is not done, then state your final answer."
"""What a model is told after an empty reply."""


def ask_for_answer(instruction: str, schema: Mapping[str, Any]) -> str:
    """Add a request for an answer of this schema, for agents that have no schema option."""
    return (
        f"{instruction}\n\nEnd with your final answer between <answer> and </answer>: "
        f"JSON, and nothing else, that fits this JSON schema:\n{json.dumps(schema)}"
    )


def read_tagged_answer(text: str) -> Any:
    """The JSON between the last answer tags; None without any.

    >>> read_tagged_answer('It is <answer>{"n": 4}</answer>.')
    {'n': 4}
    """
    found = find_tagged(text)
    try:
        return None if found is None else read_json(found)
    except ValueError:
        return None
