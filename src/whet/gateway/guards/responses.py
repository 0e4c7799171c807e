"""What a request of the Responses API may hold."""

from typing import Any

from whet.gateway.guards.checks import (
    FieldCheck,
    a_choice,
    a_flag,
    a_schema,
    a_tool,
    an_object,
    anything,
    base64_data,
    by_kind,
    each,
    elsewhere,
    inline,
    one_of,
    refuse_stored,
    require_name,
    settings,
    text_or,
)

_DECLARED = dict.fromkeys(
    ("type", "name", "description", "strict", "defer_loading", "allowed_callers", "output_schema"), anything
)
_OWN_KINDS: dict[str, FieldCheck] = {
    "function": require_name(an_object("a function", _DECLARED | {"parameters": a_schema})),
    "custom": require_name(an_object("a custom tool", _DECLARED | {"format": anything})),
}
_INNER = each("tools of a namespace", a_tool(lambda tool: tool.get("type"), _OWN_KINDS.get))
_KINDS: dict[str, FieldCheck] = _OWN_KINDS | {
    "namespace": require_name(an_object("a namespace", _DECLARED | {"tools": _INNER})),
    # Run by the agent; the provider only knows their form.
    "local_shell": an_object("a local shell", {"type": anything}),
    "apply_patch": an_object("a patch tool", {"type": anything}),
}


def _kind(tool: Any) -> Any:
    return tool.get("type")


TOOLS = each("tools", a_tool(_kind, _KINDS.get))


def _part(*names: str, **checked: FieldCheck) -> FieldCheck:
    return an_object("a content part", {"type": anything, **dict.fromkeys(names, anything), **checked})


_STORED_FILE = refuse_stored("A file by its id")
_PARTS = {
    "input_text": _part("text"),
    "output_text": _part("text", "annotations", "logprobs"),
    "text": _part("text"),
    "summary_text": _part("text"),
    "reasoning_text": _part("text"),
    "refusal": _part("refusal"),
    "encrypted_content": _part("encrypted_content"),
    "input_image": _part("detail", image_url=inline, file_id=_STORED_FILE),
    "input_file": _part("filename", "detail", file_data=inline, file_url=elsewhere, file_id=_STORED_FILE),
    "input_audio": _part(input_audio=an_object("input_audio", {"data": base64_data, "format": anything})),
}
_CONTENT = text_or(each("content", text_or(by_kind("A content part", _PARTS))))


def _item(*names: str, **checked: FieldCheck) -> FieldCheck:
    always = dict.fromkeys(("type", "id", "status", "call_id", "name", "namespace", "caller", "created_by"), anything)
    return an_object("an input item", {**always, **dict.fromkeys(names, anything), **checked})


_ITEMS = {
    "message": _item("role", "phase", "end_turn", "metadata", content=_CONTENT),
    "agent_message": _item("role", "phase", "author", "recipient", "metadata", content=_CONTENT),
    "reasoning": _item("encrypted_content", summary=_CONTENT, content=_CONTENT),
    "function_call": _item("arguments"),
    "function_call_output": _item(output=_CONTENT),
    "custom_tool_call": _item("input"),
    "custom_tool_call_output": _item(output=_CONTENT),
    "local_shell_call": _item("action"),
    "local_shell_call_output": _item(output=_CONTENT),
    "apply_patch_call": _item("operation"),
    "apply_patch_call_output": _item(output=_CONTENT),
    "tool_search_call": _item("execution", "arguments"),
    "tool_search_output": _item("execution", tools=TOOLS),
    "additional_tools": _item("role", tools=TOOLS),
    "compaction": _item("encrypted_content", summary=_CONTENT, content=_CONTENT),
    "compaction_summary": _item("encrypted_content", summary=_CONTENT, content=_CONTENT),
    "context_compaction": _item("encrypted_content", summary=_CONTENT, content=_CONTENT),
}
_CONVERSATION = text_or(each("input", text_or(by_kind("An input item", _ITEMS, default="message"))))

_FREE = (
    "temperature",
    "top_p",
    "top_k",
    "top_logprobs",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "reasoning",
    "include",
    "parallel_tool_calls",
    "max_tool_calls",
    "truncation",
    "context_management",
    "stream_options",
    "store",
    "user",
    "metadata",
    "client_metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
)
FIELDS: dict[str, FieldCheck] = dict.fromkeys(_FREE, anything) | {
    "model": anything,  # set to the one that is called
    "input": _CONVERSATION,
    "instructions": _CONVERSATION,
    "tools": TOOLS,
    "tool_choice": a_choice("function", "custom", "allowed_tools", "local_shell", "apply_patch"),
    "max_output_tokens": anything,  # bounded with the model's own limit
    "text": a_schema,
    "chat_template_kwargs": settings("chat_template_kwargs"),
    "stream": a_flag("stream"),
    "service_tier": one_of("service_tier", "auto", "default", "flex"),
    "previous_response_id": refuse_stored("previous_response_id"),
    "conversation": refuse_stored("conversation"),
    "prompt": refuse_stored("prompt"),
}
