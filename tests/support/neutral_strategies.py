"""Hypothesis strategies for neutral values that every dialect can say without loss, and for JSON that is nearly right.

The values are in one canonical form: at most one system message, at the start; then user and assistant in turn;
thinking before text before calls; every call answered, in order, by the next message; no two adjacent texts but in the
system message; nothing empty.
"""

from string import ascii_letters, ascii_lowercase, digits
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from whet.exchange import Usage
from whet.gateway.dialects import neutral as n

patient = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For tests that draw conversations: a machine needs its time for one, and they are the same in every run."""

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
names = st.from_regex(r"[a-z]{1,8}(_[a-z0-9]{1,6})?", fullmatch=True)
models = st.text(ascii_letters + digits + "-.", min_size=1, max_size=12).filter(lambda name: name.strip("."))
quarters = st.integers(0, 4).map(lambda quarter: quarter / 4)

scalars = st.none() | st.booleans() | st.integers(-(2**31), 2**31) | texts
objects = st.dictionaries(
    st.text(ascii_lowercase, min_size=1, max_size=6), scalars | st.lists(scalars, max_size=3), max_size=3
)
arguments = objects.map(lambda value: msgspec.json.encode(value).decode())

pictures = st.builds(
    n.Image, media_type=st.sampled_from(["image/png", "image/jpeg"]), data=st.sampled_from(["iVBORw==", "AAEC", "/+8="])
)
usages = st.builds(
    lambda cached, fresh, output: Usage(cached + fresh, output, cached),
    st.integers(0, 999),
    st.integers(0, 999),
    st.integers(0, 999),
)


def tools(*, custom: bool = False) -> st.SearchStrategy[tuple[n.Tool, ...]]:
    """Tools with different names; with `custom`, some of them take raw text."""
    properties = st.dictionaries(names, st.sampled_from([{"type": "string"}, {"type": "integer"}]), max_size=2)
    parameters = properties.map(lambda found: {"type": "object", "properties": found, "required": sorted(found)})
    function = st.builds(n.Tool, names, texts, parameters)
    raw = st.builds(n.Tool, names, texts, st.none(), custom=st.just(True))
    kinds = function | raw if custom else function
    return st.lists(kinds, max_size=3, unique_by=lambda tool: tool.name).map(tuple)


@st.composite
def assistant_parts(
    draw: st.DrawFn, *, thinking: bool = False, custom: bool = False, first_call: int = 0
) -> tuple[n.Part, ...]:
    """What an assistant says in one turn. Its calls are numbered from `first_call`."""
    thought = draw(st.lists(st.builds(n.Thinking, texts), max_size=1)) if thinking else []
    said = draw(st.lists(st.builds(n.Text, texts), max_size=1))
    calls = [
        draw(_calls(f"call_{number}", custom=custom))
        for number in range(first_call, first_call + draw(st.integers(0 if said else 1, 3)))
    ]
    return (*thought, *said, *calls)


def _calls(call_id: str, *, custom: bool) -> st.SearchStrategy[n.ToolCall]:
    function = st.builds(n.ToolCall, st.just(call_id), names, arguments)
    raw = st.builds(n.ToolCall, st.just(call_id), names, texts, custom=st.just(True))
    return function | raw if custom else function


@st.composite
def messages(
    draw: st.DrawFn, *, thinking: bool = False, images: bool = False, custom: bool = False
) -> tuple[n.Message, ...]:
    """A conversation in which it is the model's turn."""
    blocks = draw(st.lists(st.builds(n.Text, texts), max_size=2))
    conversation = [n.Message("system", tuple(blocks))] if blocks else []
    conversation.append(draw(_user_messages(images=images)))
    calls_made = 0
    for _ in range(draw(st.integers(0, 3))):
        said = draw(assistant_parts(thinking=thinking, custom=custom, first_call=calls_made))
        calls = [part for part in said if isinstance(part, n.ToolCall)]
        results = tuple(n.ToolResult(call.id, (n.Text(draw(texts)),), custom=call.custom) for call in calls)
        calls_made += len(calls)
        conversation.append(n.Message("assistant", said))
        conversation.append(n.Message("user", results) if results else draw(_user_messages(images=images)))
    return tuple(conversation)


def _user_messages(*, images: bool) -> st.SearchStrategy[n.Message]:
    text = st.builds(n.Text, texts)
    alone = st.tuples(text)
    with_images = st.tuples(text, pictures) | st.tuples(text, pictures, text) | st.tuples(pictures)
    parts = alone | with_images if images else alone
    return st.builds(n.Message, st.just("user"), parts)


@st.composite
def requests(draw: st.DrawFn, *, thinking: bool = False, images: bool = False, custom: bool = False) -> n.Request:
    """A request with nothing in it that only some dialects can say."""
    declared = draw(tools(custom=custom))
    choices = [n.ToolChoice(mode) for mode in ("auto", "none", "required")]
    choices += [n.ToolChoice("tool", tool.name) for tool in declared if not tool.custom]
    return n.Request(
        model=draw(models),
        messages=draw(messages(thinking=thinking, images=images, custom=custom)),
        tools=declared,
        tool_choice=draw(st.none() | st.sampled_from(choices)) if declared else None,
        sampling=n.Sampling(
            max_tokens=draw(st.integers(1, 9999)),
            temperature=draw(st.none() | quarters),
            top_p=draw(st.none() | quarters),
        ),
        stream=draw(st.booleans()),
    )


@st.composite
def replies(draw: st.DrawFn, *, thinking: bool = False, custom: bool = False, id_prefix: str = "") -> n.Reply:
    """A reply with usage. It stopped for its calls if and only if it has any."""
    parts = draw(assistant_parts(thinking=thinking, custom=custom))
    called = any(isinstance(part, n.ToolCall) for part in parts)
    return n.Reply(
        id=id_prefix + draw(st.text(ascii_lowercase + digits, min_size=1, max_size=12)),
        model=draw(models),
        parts=parts,
        stop=n.Stop.TOOLS if called else draw(st.sampled_from([n.Stop.END, n.Stop.LENGTH])),
        usage=draw(usages),
    )


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def mangled(draw: st.DrawFn, documents: st.SearchStrategy[Any]) -> Any:
    """A JSON document in which something, anywhere, was replaced by something else, or taken out."""
    document = draw(documents)
    if not isinstance(document, dict | list) or not document or draw(st.integers(0, 5)) == 0:
        return draw(json_values)
    if isinstance(document, dict):
        key = draw(st.sampled_from(sorted(document)))
        if draw(st.booleans()):
            return {name: value for name, value in document.items() if name != key}
        return document | {key: draw(mangled(st.just(document[key])))}
    index = draw(st.integers(0, len(document) - 1))
    return [*document[:index], draw(mangled(st.just(document[index]))), *document[index + 1 :]]
