"""Hypothesis strategies for what one dialect can say beyond what all of them can."""

import msgspec
from hypothesis import strategies as st

from support.neutral_strategies import names, objects, replies, requests, texts, usages
from whet.exchange import Usage
from whet.gateway.dialects import neutral as n


def _has_no_blank_text(request: n.Request) -> bool:
    """Messages refuses blank text, so none is written."""
    parts = [part for message in request.messages for part in message.parts]
    held = [inner for part in parts if isinstance(part, n.ToolResult) for inner in part.parts]
    return all(part.text.strip() for part in (*parts, *held) if isinstance(part, n.Text))


@st.composite
def messages_requests(draw: st.DrawFn) -> n.Request:
    request = draw(requests(thinking=True, images=True).filter(_has_no_blank_text))
    said = list(request.messages)
    if said[-1].role == "user" and draw(st.booleans()):
        said.append(n.Message("system", (n.Text("Later."), n.Text("And this."))))
    if draw(st.booleans()):
        signed = n.Thinking(draw(texts), draw(names)), n.Thinking("", draw(names), hidden=True)
        result = n.ToolResult("own-1", (n.Image("image/png", "AA=="),), is_error=draw(st.booleans()))
        said += [n.Message("assistant", (*signed, n.ToolCall("own-1", draw(names), "{}")))]
        said += [n.Message("user", (result, n.Text("Well?")))]
    calls_tools = request.tool_choice is not None and request.tool_choice.mode != "none"
    return msgspec.structs.replace(
        request,
        messages=tuple(said),
        parallel_tools=draw(st.sampled_from([None, True, False])) if calls_tools else None,
        sampling=msgspec.structs.replace(
            request.sampling,
            top_k=draw(st.none() | st.integers(1, 99)),
            stop=tuple(draw(st.lists(texts, max_size=2))),
            effort=draw(st.sampled_from([None, "low", "medium", "high", "xhigh", "max"])),
        ),
        format=draw(st.none() | st.builds(n.Format, objects)),
    )


@st.composite
def responses_requests(draw: st.DrawFn) -> n.Request:
    request = draw(requests(thinking=True, images=True, custom=True))
    space = draw(st.none() | names)
    tools = tuple(
        msgspec.structs.replace(tool, strict=None if tool.custom else draw(st.booleans()), namespace=space)
        for tool in request.tools
    )
    formats = st.builds(n.Format, st.just({"type": "object"}), names, st.none() | st.booleans()) | st.just(n.Format())
    own_parts = st.builds(n.Text, texts) | st.builds(n.Refusal, texts) | st.builds(n.Thinking, texts, texts)
    said = draw(st.lists(own_parts, max_size=2))
    called = [
        n.ToolCall("own_0", draw(names), draw(texts), draw(st.booleans()), space),
        n.ToolCall("own_1", draw(names), draw(texts)),
    ]
    return msgspec.structs.replace(
        request,
        tools=tools,
        messages=(
            *request.messages,
            n.Message("system", (n.Text("b"), n.Text("b"))),
            n.Message("assistant", (*said, n.Thinking("", "gAA=", hidden=True), *called)),
        ),
        parallel_tools=draw(st.none() | st.booleans()) if tools else None,
        format=draw(st.none() | formats),
        sampling=msgspec.structs.replace(request.sampling, effort=draw(st.none() | st.just("high"))),
    )


def _name_results(request: n.Request) -> n.Request:
    """The request with the names of their tools in the results, as Gemini says them."""
    parts = [part for message in request.messages for part in message.parts]
    named = {part.id: part.name for part in parts if isinstance(part, n.ToolCall)}

    def name(part: n.Part) -> n.Part:
        return msgspec.structs.replace(part, name=named[part.call_id]) if isinstance(part, n.ToolResult) else part

    messages = [n.Message(message.role, tuple(map(name, message.parts))) for message in request.messages]
    return msgspec.structs.replace(request, messages=tuple(messages))


gemini_requests = st.builds(
    lambda request, sampling, form: msgspec.structs.replace(_name_results(request), sampling=sampling, format=form),
    requests(thinking=True, images=True),
    st.builds(
        n.Sampling,
        max_tokens=st.none() | st.integers(1, 9999),
        temperature=st.none() | st.floats(0, 2),
        top_k=st.none() | st.integers(1, 99),
        stop=st.lists(st.text(min_size=1, max_size=3), max_size=2).map(tuple),
        seed=st.none() | st.integers(0, 2**31),
        presence_penalty=st.none() | st.floats(-2, 2),
        frequency_penalty=st.none() | st.floats(-2, 2),
        effort=st.sampled_from([None, "minimal", "low", "medium", "high"]),
    ),
    st.sampled_from([None, n.Format(), n.Format({"type": "object", "properties": {"n": {"type": "integer"}}})]),
)


@st.composite
def messages_replies(draw: st.DrawFn) -> n.Reply:
    reply = draw(replies(thinking=True, id_prefix="msg_"))
    signed = draw(st.lists(st.builds(n.Thinking, texts, names), max_size=2))
    hidden = draw(st.lists(st.builds(lambda token: n.Thinking("", token, hidden=True), names), max_size=1))
    usage = Usage(*sorted(draw(st.tuples(*[st.integers(0, 99)] * 2)), reverse=True))
    return msgspec.structs.replace(reply, parts=(*signed, *hidden, *reply.parts), usage=usage)


_signed_thoughts = st.builds(
    n.Thinking, st.text(min_size=1, max_size=5), st.sampled_from(["AAA=", "/+8="])
) | st.builds(n.Thinking, st.just(""), st.just("BBB="), st.just(True))
gemini_replies = st.builds(
    lambda reply, first, usage, thought: msgspec.structs.replace(
        reply,
        parts=(*first, *reply.parts),
        usage=Usage(usage.input, usage.output + thought, usage.cache_read, reasoning=thought),
    ),
    replies(thinking=True),
    st.lists(_signed_thoughts, max_size=2),
    usages,
    st.integers(0, 99),
)


def _has_one_kind_per_name(reply: n.Reply) -> bool:
    calls = [part for part in reply.parts if isinstance(part, n.ToolCall)]
    return {part.name for part in calls if part.custom}.isdisjoint(part.name for part in calls if not part.custom)


REQUESTS: dict[str, st.SearchStrategy[n.Request]] = {
    "chat": requests(thinking=True, images=True),
    "messages": messages_requests(),
    "responses": responses_requests(),
    "gemini": gemini_requests,
}
"""By dialect: requests that it can say without loss."""
REPLIES: dict[str, st.SearchStrategy[n.Reply]] = {
    "chat": replies(thinking=True, custom=True, id_prefix="chatcmpl-").filter(_has_one_kind_per_name),
    "messages": messages_replies(),
    "responses": replies(thinking=True, custom=True, id_prefix="resp_").filter(_has_one_kind_per_name),
    "gemini": gemini_replies,
}
