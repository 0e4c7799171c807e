"""What the scripted model understands of tools and schemas, however odd they are."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scripted_world import JSON
from whet.testing import ToolCall
from whet.testing.schemas import minimal
from whet.testing.tools import called, offered

KEYS = st.sampled_from(
    ["type", "name", "tools", "function", "functionDeclarations", "parameters", "properties", "required", "enum"]
)
ODD = st.recursive(JSON, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))


@given(entries=ODD | st.lists(ODD, max_size=3), arguments=st.dictionaries(st.sampled_from(["command", "x"]), JSON))
def test_tools_that_make_no_sense_are_left_out(entries: Any, arguments: dict[str, Any]) -> None:
    tools = tuple(offered(entries))
    call = ToolCall(name="bash", arguments=arguments)
    assert called(call, tools, ["# Skill"]).name in {"bash", *(tool.name for tool in tools)}


@given(schema=ODD)
def test_any_schema_has_some_value(schema: Any) -> None:
    minimal(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "scripted"),
        ({"type": "INTEGER"}, 1),
        ({"type": "number", "minimum": 7}, 7),
        ({"type": "boolean"}, False),
        ({"type": "null"}, None),
        ({"type": ["string", "null"]}, "scripted"),
        ({"enum": ["low", "high"]}, "low"),
        ({"const": 3}, 3),
        ({"type": "string", "default": "x"}, "x"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 1),
        ({"type": "array", "items": {"type": "integer"}}, []),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, [1]),
        ({"properties": {"a": {"type": "object"}, "b": {}}, "required": ["a", "c"]}, {"a": {}, "c": "scripted"}),
    ],
)
def test_the_smallest_value_of_a_schema(schema: Any, value: Any) -> None:
    assert minimal(schema) == value
