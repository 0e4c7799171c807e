"""The parts of a turn, both ways. They are the same in the contents of a request and in the candidate of a reply."""

import base64
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from whet.gateway.dialects.gemini.fields import a_list, a_string, an_object, fields, json_text, others
from whet.gateway.dialects.neutral import Image, Json, Part, Refusal, Text, Thinking, ToolCall, ToolResult
from whet.ids import digest

SKIP_VALIDATION = "skip_thought_signature_validator"
"""In the place of a signature: the provider did not make this call, and shall not ask for its signature."""

_MADE_HERE = base64.b64encode(b"whet.:").decode()
_PLAIN_BASE64 = str.maketrans("-_", "+/")
"""Clients send the alphabet for addresses, which only this dialect takes."""
_KNOWN = frozenset({"text", "thought", "thoughtSignature", "inlineData", "functionCall", "functionResponse"})
_WITHOUT_MEANING = frozenset({"partMetadata"})
_CALL_FIELDS = frozenset({"id", "name", "args"})
_RESPONSE_FIELDS = frozenset({"id", "name", "response", "parts"})


def read_part(raw: Any, lost: list[str]) -> Iterator[Part]:
    """What a part says. Calls and results keep the id they have, if only "".

    A signature on a part that has no place for one is a thought of its own, after it.
    """
    part = fields({"text": raw} if isinstance(raw, str) else raw, "a part")
    token = _read_token(part.get("thoughtSignature"))
    _name_what_is_lost(part, lost)
    if "functionCall" in part:
        yield _read_call(part["functionCall"], token, lost)
        return
    text = a_string(part.get("text", ""), "the text of a part")
    if part.get("thought") is True:
        if text or token:
            yield Thinking(text, token)
        return
    if text:
        yield Text(text)
    if "functionResponse" in part:
        yield _read_result(part["functionResponse"], lost)
    if "inlineData" in part:
        yield from _read_media(part["inlineData"], lost)
    if token:
        yield Thinking("", token, hidden=True)


def write_said(part: Text | Refusal | Thinking) -> list[Json]:
    """The part of the dialect that says this; none for what is empty."""
    match part:
        case Text(text) | Refusal(text):
            return [{"text": text}] if text else []
        case Thinking(text, token, True):
            return [{"text": text, "thoughtSignature": token}] if token else []
        case Thinking(text, None):
            return [{"text": text, "thought": True}] if text else []
        case Thinking(text, token):
            return [{"text": text, "thought": True, "thoughtSignature": token}]


def write_image(image: Image) -> Json:
    """The part of the dialect that carries this picture."""
    return {"inlineData": {"mimeType": image.media_type, "data": image.data}}


def write_call(call: ToolCall, call_id: str, token: str, lost: list[str]) -> Json:
    """The part of the dialect that is this call, with the token if it has none of its own."""
    function = {"id": call_id, "name": wire_name(call.name, call.namespace), "args": _arguments(call, lost)}
    return {"functionCall": function, "thoughtSignature": call.token or token}


def write_result(result: ToolResult, call_id: str, name: str) -> list[Json]:
    """The result, and after it its pictures: only the newest models take them inside."""
    text = "\n".join(part.text for part in result.parts if isinstance(part, Text))
    response = {"id": call_id, "name": name, "response": {"error" if result.is_error else "output": text}}
    pictures = [write_image(part) for part in result.parts if isinstance(part, Image)]
    return [{"functionResponse": response}, *pictures]


def wire_name(name: str, namespace: str | None) -> str:
    """The name of a tool where there are no namespaces."""
    return f"{namespace}__{name}" if namespace else name


def made_token(*seeds: str) -> str:
    """A signature for what no provider signed: base64, always the same, and known again when it comes back."""
    return _MADE_HERE + base64.b64encode(digest(*(seed.encode() for seed in seeds)).encode()).decode()


class CallIds:
    """Gives the calls of a conversation that have no id one by position, and finds the call that a result answers."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._waiting: dict[str, deque[str]] = {}
        self._answered: set[str] = set()

    def of_call(self, given: str, name: str) -> str:
        """The id of the next call."""
        call_id = given or self._unused()
        self._names[call_id] = name
        self._answered.discard(call_id)
        self._waiting.setdefault(name, deque()).append(call_id)
        return call_id

    def of_answered(self, given: str, name: str) -> tuple[str, str]:
        """Id and name of the call that the next result answers: by its id, or the first of its name that waits."""
        call_id = given if given in self._names else self._first_waiting(name) or given or self._unused()
        self._answered.add(call_id)
        return call_id, self._names.setdefault(call_id, name)

    def _first_waiting(self, name: str) -> str | None:
        waiting = self._waiting.get(name, deque())
        while waiting and waiting[0] in self._answered:
            waiting.popleft()
        return waiting[0] if waiting else None

    def _unused(self) -> str:
        number = len(self._names)
        while f"call_{number}" in self._names:
            number += 1
        return f"call_{number}"


def _name_what_is_lost(part: Json, lost: list[str]) -> None:
    lost += others(part, _KNOWN | _WITHOUT_MEANING | {"fileData"}, "part ")
    if "fileData" in part:
        lost.append(f"fileData {fields(part['fileData'], 'fileData').get('mimeType', 'of unknown type')}")


def _read_token(raw: Any) -> str | None:
    if not isinstance(raw, str) or raw == SKIP_VALIDATION or raw.startswith(_MADE_HERE):
        return None
    return raw or None


def _read_call(raw: Any, token: str | None, lost: list[str]) -> ToolCall:
    call = fields(raw, "functionCall")
    lost += others(call, _CALL_FIELDS, "functionCall.")
    return ToolCall(
        id=a_string(call.get("id", ""), "the id of a functionCall"),
        name=a_string(call.get("name"), "the name of a functionCall"),
        arguments=json_text(an_object(call.get("args", {}), "args")),
        token=token,
    )


def _read_result(raw: Any, lost: list[str]) -> ToolResult:
    result = fields(raw, "functionResponse")
    lost += others(result, _RESPONSE_FIELDS, "functionResponse.")
    response = an_object(result.get("response", {}), "response")
    text = _response_text(response)
    inner = [said for part in a_list(result.get("parts", [])) for said in read_part(part, lost)]
    return ToolResult(
        call_id=a_string(result.get("id", ""), "the id of a functionResponse"),
        parts=(*([Text(text)] if text else []), *(part for part in inner if isinstance(part, Text | Image))),
        name=a_string(result.get("name", ""), "the name of a functionResponse"),
        is_error=bool(response.get("error")),
    )


def _response_text(response: Json) -> str:
    """What the tool said: `output` or `error` where the response is only that, else all of it."""
    said = next(iter(response.values()), "") if set(response) <= {"output", "error"} and len(response) < 2 else response
    return said if isinstance(said, str) else "" if said is None else json_text(said)


def _read_media(raw: Any, lost: list[str]) -> Iterator[Image]:
    media = fields(raw, "inlineData")
    media_type = a_string(media.get("mimeType", ""), "mimeType")
    if media_type.startswith("image/"):
        data = a_string(media.get("data", ""), "the data of inlineData")
        yield Image(media_type, data.translate(_PLAIN_BASE64))
    else:
        lost.append(f"inlineData {media_type or 'of unknown type'}")


def _arguments(call: ToolCall, lost: list[str]) -> Json:
    if call.custom:
        return {"input": call.arguments}
    if not call.arguments:
        return {}
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return arguments
    lost.append(f"arguments of {call.name}, which are not a JSON object")
    return {"arguments": call.arguments}
