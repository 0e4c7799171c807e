"""Parts of messages as the Gemini CLI and Qwen Code, which began as a copy of it, write them."""

from collections.abc import Iterator, Mapping
from typing import Any

from whet.sleep.readers.jsonl import FIELD_LIMIT, clip

INJECTED = ("<session_context>", "<loaded_context>", "<hook_context>")
"""How texts begin that the program puts into a message of the person."""
ATTACHED = "--- Content from referenced files ---"
"""What follows was not typed: it is the content of files that the person named."""


def typed_text(content: object) -> str:
    """The text that was typed of a message."""
    typed = []
    for text in texts(content):
        if text.lstrip().startswith(ATTACHED):
            break
        if not text.lstrip().startswith(INJECTED):
            typed.append(text)
    return clip("".join(typed).rstrip())


def texts(content: object) -> Iterator[str]:
    """The texts of a message's content, without the model's thoughts."""
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else []:
        match part:
            case {"thought": True}:
                pass
            case {"text": str(text)}:
                yield text


def response_text(part: object) -> str:
    """What a tool gave to the model, of a part that holds that."""
    match part:
        case {"functionResponse": {"response": {"output": str(text)} | {"error": str(text)}}}:
            return text
    return ""


def file_of(args: Mapping[str, Any]) -> str | None:
    """The file that a tool call is about."""
    return next((args[key] for key in ("file_path", "absolute_path") if isinstance(args.get(key), str)), None)


def read_edit(args: Mapping[str, Any], display: object) -> dict[str, Any]:
    """What an edit that succeeded replaced, and by what: whole files where they are kept in full."""
    match display:
        case {"isNewFile": True, "newContent": str(after)} if len(after) <= FIELD_LIMIT:
            return {"after": after, "whole_file": True}
        case {"originalContent": str(before), "newContent": str(after)} if max(len(before), len(after)) <= FIELD_LIMIT:
            return {"before": before, "after": after, "whole_file": True}
    match args:
        case {"old_string": str(before), "new_string": str(after)}:
            return {"before": clip(before), "after": clip(after)}
        case {"content": str(after), "file_path": str()}:
            return {"after": clip(after), "whole_file": len(after) <= FIELD_LIMIT}
    return {}
