"""What Claude Code's tool calls and their results say."""

import re
from typing import Any

from whet.sleep.readers.jsonl import FIELD_LIMIT, clip

SHELLS = frozenset({"Bash", "PowerShell"})
_EXIT = re.compile(r"Exit code (\d+)(\n|$)")


def read_call(tool: str, given: object) -> dict[str, Any]:
    """The fields of a step that are known from its call."""
    match given:
        case {"command": str(command)} if tool in SHELLS:
            return {"tool": tool, "command": clip(command)}
        case {"file_path": str(path)} | {"notebook_path": str(path)}:
            return {"tool": tool, "path": clip(path)}
    return {"tool": tool}


def read_result(part: dict[str, Any], structured: object) -> dict[str, Any]:
    """The fields of a step that are known from its result: the part of the message, and the form beside it."""
    output = join_texts(part.get("content"))
    result: dict[str, Any] = {"output": clip(output), "exit": _exit_of(part, structured, output)}
    return result | (read_edit(structured) if isinstance(structured, dict) and not part.get("is_error") else {})


def read_edit(structured: dict[str, Any]) -> dict[str, Any]:
    """The file before and after an edit; the replaced text, if the file is too long."""
    match structured:
        case {"filePath": str(path), "oldString": str(old), "newString": str(new), **more}:
            whole = more.get("originalFile")
            if not isinstance(whole, str) or old not in whole or len(whole) + len(new) > FIELD_LIMIT:
                return {"path": path, "before": clip(old), "after": clip(new)}
            after = whole.replace(old, new) if more.get("replaceAll") else whole.replace(old, new, 1)
            return {"path": path, "before": whole, "after": after, "whole_file": True}
        case {"filePath": str(path), "content": str(content), "type": "create" | "update", **more}:
            replaced = more.get("originalFile")
            fits = len(content) <= FIELD_LIMIT and len(replaced or "") <= FIELD_LIMIT
            before = clip(replaced) if replaced is not None else None
            return {"path": path, "before": before, "after": clip(content), "whole_file": fits}
    return {}


def _exit_of(part: dict[str, Any], structured: object, output: str) -> int | None:
    """Only a failed command has its exit code in the text. A success is known by its form."""
    if part.get("is_error"):
        found = _EXIT.match(output)
        return int(found[1]) if found else None
    match structured:
        case {"interrupted": True} | {"backgroundTaskId": str()} | {"returnCodeInterpretation": str()}:
            return None
        case {"stdout": str()}:
            return 0
        case None if part.get("is_error") is False:
            return 0
    return None


def join_texts(content: object) -> str:
    """The text of a message, which may be divided into parts."""
    if isinstance(content, list):
        parts = [part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)]
        return "\n".join(parts)
    return content if isinstance(content, str) else ""
