"""What a provider would run or fetch for an agent is withheld, and said so."""

import json
from typing import Any

import pytest
from gateway_world import answer_unary, world
from hypothesis import given
from hypothesis import strategies as st

from whet.gateway.changes import changed, top_level
from whet.gateway.guards import provider_tools, refuse_remote_media
from whet.gateway.seen import Seen

TOOL_LISTS = (
    b"[]",
    b"null",
    b'[{"type":"web_search"}]',
    b'[{"type":"function","name":"mine"}, {"type":"mcp"}]',
    b'[{"functionDeclarations":[]},{"googleSearch":{}}]',
    b'[{"name":"mine","input_schema":{}}]',
)

FUNCTION = {"type": "function", "name": "search", "description": "like web_search, but ours", "parameters": {}}


def filtered(dialect: str, **body: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    data = json.dumps(body).encode()
    changes, withheld = provider_tools(top_level(data), dialect)
    return json.loads(changed(data, changes)), withheld


@given(asked=st.lists(st.tuples(st.sampled_from(TOOL_LISTS), st.sampled_from(["chat", "messages", "gemini"]))))
def test_a_session_that_remembers_tools_judges_them_like_one_that_does_not(asked: list[tuple[bytes, str]]) -> None:
    seen = Seen()
    for tools, dialect in asked:
        fields = {"tools": tools, "tool_choice": b'"auto"'}
        remembered = provider_tools(fields, dialect, seen.look(b"{}").sorted_tools)
        assert remembered == provider_tools(fields, dialect)


@pytest.mark.parametrize(
    ("dialect", "tool", "name"),
    [
        ("responses", {"type": "web_search"}, "web_search"),
        ("responses", {"type": "web_search_preview", "user_location": None}, "web_search_preview"),
        ("responses", {"type": "code_interpreter", "container": {"type": "auto"}}, "code_interpreter"),
        ("responses", {"type": "mcp", "server_url": "https://x"}, "mcp"),
        ("messages", {"type": "web_search_20250305", "name": "web_search"}, "web_search_20250305"),
        ("messages", {"type": "code_execution_20250522", "name": "code_execution"}, "code_execution_20250522"),
        ("gemini", {"googleSearch": {}}, "googleSearch"),
        ("gemini", {"url_context": {}}, "url_context"),
    ],
)
def test_a_tool_of_the_provider_is_withheld_and_named(dialect: str, tool: dict[str, Any], name: str) -> None:
    own = {"functionDeclarations": [{"name": "mine"}]} if dialect == "gemini" else FUNCTION
    body, withheld = filtered(dialect, tools=[tool, own], model="m")
    assert body == {"tools": [own], "model": "m"}
    assert withheld == (f"tool {name}",)


def test_with_the_last_tool_goes_what_speaks_of_tools() -> None:
    body, _ = filtered("responses", tools=[{"type": "web_search"}], tool_choice="auto", parallel_tool_calls=True, n=1)
    assert body == {"n": 1}


@pytest.mark.parametrize("kind", ["bash_20250124", "text_editor_20250728"])
def test_tools_that_the_agent_runs_stay(kind: str) -> None:
    tools = [{"type": kind, "name": "web_search"}, {"name": "web_search", "input_schema": {"type": "object"}}]
    assert filtered("messages", tools=tools) == ({"tools": tools}, ())


def test_fields_that_switch_a_tool_on_are_withheld() -> None:
    assert filtered("chat", web_search_options={}, model="m") == ({"model": "m"}, ("field web_search_options",))
    assert filtered("messages", mcp_servers=[], model="m") == ({"model": "m"}, ("field mcp_servers",))


def test_what_is_clean_is_not_changed() -> None:
    assert provider_tools(top_level(b'{ "model":"m" , "tools": [ ] }'), "chat") == ({}, ())


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "input_image", "image_url": "http://169.254.169.254/latest"},
        {"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}},
        {"fileData": {"fileUri": "gs://bucket/a"}},
    ],
)
def test_media_that_lie_elsewhere_are_refused(part: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Media must be part of the request"):
        refuse_remote_media(json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode())


@pytest.mark.parametrize("url", [r'"url":"https:\/\/x"', r'"url":"\u0068ttps://x"', r'"\u0075rl":"https://x"'])
def test_escapes_hide_no_address(url: str) -> None:
    with pytest.raises(ValueError, match="Media must be part of the request"):
        refuse_remote_media(f'{{"messages":[{{"content":[{{"image_url":{{{url}}}}}]}}]}}'.encode())


def test_talk_of_addresses_and_inline_media_pass() -> None:
    text = 'see https://example.org and {"url": "https://example.org"}'
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    content = [{"type": "text", "text": text}, image]
    refuse_remote_media(json.dumps({"messages": [{"role": "user", "content": content}]}).encode())


async def test_a_request_with_remote_media_never_reaches_the_model() -> None:
    remote = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    async with world(answer_unary) as w:
        async with w.post(json={"model": "tiny", "messages": [{"role": "user", "content": [remote]}]}) as reply:
            assert reply.status == 400
        assert w.session.calls == 0


async def test_what_was_withheld_is_a_warning_of_the_exchange() -> None:
    async with world(answer_unary) as w:
        async with w.post(json={"model": "tiny", "messages": [], "web_search_options": {}}) as reply:
            assert reply.status == 200
        assert w.records.only.warnings == ("field web_search_options",)
        assert w.records.only.sent == b'{"model":"tiny","messages":[]}'
