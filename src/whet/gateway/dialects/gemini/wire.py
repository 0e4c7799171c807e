"""What requests, replies and streams of Gemini share: lenient reading, paths, schemas, and the parts of a turn."""

import base64
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from whet.gateway.dialects import neutral as n
from whet.ids import digest

_SNAKE = re.compile(r"_([a-z0-9])")


@contextmanager
def refuse_deep_nesting() -> Iterator[None]:
    """Makes what is nested too deeply a ValueError, like everything else that cannot be read."""
    try:
        yield
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def camel(name: str) -> str:
    """The name as Gemini's documents spell it.

    >>> camel("system_instruction"), camel("topP")
    ('systemInstruction', 'topP')
    """
    return _SNAKE.sub(lambda match: match[1].upper(), name) if "_" in name else name


def fields(value: Any, what: str) -> n.Json:
    """The fields of an object, in camelCase, without those that are null."""
    return {camel(name): field for name, field in an_object(value, what).items() if field is not None}


def an_object(value: Any, what: str) -> n.Json:
    """The value, if it is an object."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def a_string(value: Any, what: str) -> str:
    """The value, if it is a string."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is not a string")
    return value


def a_list(value: Any) -> list[Any]:
    """The value as a list; another value becomes a list of one."""
    return value if isinstance(value, list) else [value]


def others(names: Iterable[str], known: frozenset[str], prefix: str = "") -> list[str]:
    """The names that are not known."""
    return [prefix + name for name in names if name not in known]


def json_text(value: Any) -> str:
    """The value as compact JSON."""
    return msgspec.json.encode(value).decode()


UNARY = "generatecontent"
STREAM = "streamgeneratecontent"
COUNT = "counttokens"

_PATH = re.compile(r"(?:/v\d\w*)*/models/(?P<model>[^?]+):(?P<method>[a-zA-Z]+)(?:\?(?P<query>.*))?")


class Target(msgspec.Struct, frozen=True):
    """What the path of a call says."""

    model: str
    method: str
    """In lower case, for clients do not agree on its spelling."""
    as_events: bool
    """Whether a stream is to be server-sent events; else it is an array."""


def target(path: str) -> Target | None:
    """What a path says, with or without version and query; None when it is not one of a model's methods.

    >>> target("/v1beta/models/gemini-x:streamGenerateContent?alt=sse")
    Target(model='gemini-x', method='streamgeneratecontent', as_events=True)
    """
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    forms = parse_qs(match["query"] or "").get("alt", [])
    return Target(unquote(match["model"]), match["method"].lower(), any(form.lower() == "sse" for form in forms))


_RENAMED = {"defs": "$defs", "ref": "$ref"}
_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_OF_NAMED_SCHEMAS = frozenset({"properties", "$defs"})
_OF_A_SCHEMA = frozenset({"items", "additionalProperties", "not"})
_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
_SCHEMA_WITHOUT_MEANING = frozenset({"nullable", "propertyOrdering"})


def json_schema(raw: Any) -> n.Json:
    """The JSON schema that says the same. What is JSON schema already stays what it is.

    >>> json_schema({"type": "OBJECT", "properties": {"n": {"type": "INTEGER", "nullable": True}}})
    {'type': 'object', 'properties': {'n': {'type': ['integer', 'null']}}}
    """
    given = {_RENAMED.get(name, name): value for name, value in fields(raw, "a schema").items()}
    schema = {name: _keyword(name, value) for name, value in given.items() if name not in _SCHEMA_WITHOUT_MEANING}
    if schema.get("type") == "type_unspecified":
        del schema["type"]
    return _or_null(schema) if given.get("nullable") is True else schema


def _keyword(name: str, value: Any) -> Any:
    if name == "type":
        return value.lower() if isinstance(value, str) else [str(kind).lower() for kind in a_list(value)]
    if name in _OF_SCHEMAS:
        return [json_schema(inner) for inner in a_list(value)]
    if name in _OF_NAMED_SCHEMAS and isinstance(value, dict):
        return {key: json_schema(inner) for key, inner in value.items()}
    if name in _OF_A_SCHEMA and isinstance(value, dict):
        return json_schema(value)
    # Gemini's JSON carries 64-bit integers as strings.
    if name in _COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value


def _or_null(schema: n.Json) -> n.Json:
    if isinstance(schema.get("enum"), list):
        schema["enum"] = [*schema["enum"], None]
    if isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
    elif "anyOf" in schema:
        schema["anyOf"] = [*schema["anyOf"], {"type": "null"}]
    return schema


SKIP_VALIDATION = "skip_thought_signature_validator"
"""In the place of a signature: the provider did not make this call, and shall not ask for its signature."""

_MADE_HERE = base64.b64encode(b"whet.:").decode()
_PLAIN_BASE64 = str.maketrans("-_", "+/")
"""Clients send the alphabet for addresses, which only this dialect takes."""
_KNOWN = frozenset({"text", "thought", "thoughtSignature", "inlineData", "functionCall", "functionResponse"})
_WITHOUT_MEANING = frozenset({"partMetadata"})
_CALL_FIELDS = frozenset({"id", "name", "args"})
_RESPONSE_FIELDS = frozenset({"id", "name", "response", "parts"})


def read_part(raw: Any, lost: list[str]) -> Iterator[n.Part]:
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
            yield n.Thinking(text, token)
        return
    if text:
        yield n.Text(text)
    if "functionResponse" in part:
        yield _read_result(part["functionResponse"], lost)
    if "inlineData" in part:
        yield from _read_media(part["inlineData"], lost)
    if token:
        yield n.Thinking("", token, hidden=True)


def write_said(part: n.Text | n.Refusal | n.Thinking) -> list[n.Json]:
    """The part of the dialect that says this; none for what is empty."""
    match part:
        case n.Text(text) | n.Refusal(text):
            return [{"text": text}] if text else []
        case n.Thinking(text, token, True):
            return [{"text": text, "thoughtSignature": token}] if token else []
        case n.Thinking(text, None):
            return [{"text": text, "thought": True}] if text else []
        case n.Thinking(text, token):
            return [{"text": text, "thought": True, "thoughtSignature": token}]


def write_image(image: n.Image) -> n.Json:
    """The part of the dialect that carries this picture."""
    return {"inlineData": {"mimeType": image.media_type, "data": image.data}}


def write_call(call: n.ToolCall, call_id: str, token: str, lost: list[str]) -> n.Json:
    """The part of the dialect that is this call, with the token if it has none of its own."""
    function = {"id": call_id, "name": wire_name(call.name, call.namespace), "args": _arguments(call, lost)}
    return {"functionCall": function, "thoughtSignature": call.token or token}


def write_result(result: n.ToolResult, call_id: str, name: str) -> list[n.Json]:
    """The result, and after it its pictures: only the newest models take them inside."""
    text = "\n".join(part.text for part in result.parts if isinstance(part, n.Text))
    response = {"id": call_id, "name": name, "response": {"error" if result.is_error else "output": text}}
    pictures = [write_image(part) for part in result.parts if isinstance(part, n.Image)]
    return [{"functionResponse": response}, *pictures]


def wire_name(name: str, namespace: str | None) -> str:
    """The name of a tool where there are no namespaces."""
    return f"{namespace}__{name}" if namespace else name


def make_token(*seeds: str) -> str:
    """A signature for what no provider signed: base64, always the same, and known again when it comes back."""
    return _MADE_HERE + base64.b64encode(digest(*(seed.encode() for seed in seeds)).encode()).decode()


class CallIds:
    """Gives the calls of a conversation that have no id one by position, and finds the call that a result answers."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._waiting: dict[str, deque[str]] = {}
        self._answered: set[str] = set()

    def name_call(self, given: str, name: str) -> str:
        """The id of the next call."""
        call_id = given or self._new_id()
        self._names[call_id] = name
        self._answered.discard(call_id)
        self._waiting.setdefault(name, deque()).append(call_id)
        return call_id

    def match_result(self, given: str, name: str) -> tuple[str, str]:
        """Id and name of the call that the next result answers: by its id, or the first of its name that waits."""
        call_id = given if given in self._names else self._first_waiting(name) or given or self._new_id()
        self._answered.add(call_id)
        return call_id, self._names.setdefault(call_id, name)

    def _first_waiting(self, name: str) -> str | None:
        waiting = self._waiting.get(name, deque())
        while waiting and waiting[0] in self._answered:
            waiting.popleft()
        return waiting[0] if waiting else None

    def _new_id(self) -> str:
        number = len(self._names)
        while f"call_{number}" in self._names:
            number += 1
        return f"call_{number}"


def _name_what_is_lost(part: n.Json, lost: list[str]) -> None:
    lost += others(part, _KNOWN | _WITHOUT_MEANING | {"fileData"}, "part ")
    if "fileData" in part:
        lost.append(f"fileData {fields(part['fileData'], 'fileData').get('mimeType', 'of unknown type')}")


def _read_token(raw: Any) -> str | None:
    if not isinstance(raw, str) or raw == SKIP_VALIDATION or raw.startswith(_MADE_HERE):
        return None
    return raw or None


def _read_call(raw: Any, token: str | None, lost: list[str]) -> n.ToolCall:
    call = fields(raw, "functionCall")
    lost += others(call, _CALL_FIELDS, "functionCall.")
    return n.ToolCall(
        id=a_string(call.get("id", ""), "the id of a functionCall"),
        name=a_string(call.get("name"), "the name of a functionCall"),
        arguments=json_text(an_object(call.get("args", {}), "args")),
        token=token,
    )


def _read_result(raw: Any, lost: list[str]) -> n.ToolResult:
    result = fields(raw, "functionResponse")
    lost += others(result, _RESPONSE_FIELDS, "functionResponse.")
    response = an_object(result.get("response", {}), "response")
    text = _response_text(response)
    inner = [said for part in a_list(result.get("parts", [])) for said in read_part(part, lost)]
    return n.ToolResult(
        call_id=a_string(result.get("id", ""), "the id of a functionResponse"),
        parts=(*([n.Text(text)] if text else []), *(part for part in inner if isinstance(part, n.Text | n.Image))),
        name=a_string(result.get("name", ""), "the name of a functionResponse"),
        is_error=bool(response.get("error")),
    )


def _response_text(response: n.Json) -> str:
    """What the tool said: `output` or `error` where the response is only that, else all of it."""
    said = next(iter(response.values()), "") if set(response) <= {"output", "error"} and len(response) < 2 else response
    return said if isinstance(said, str) else "" if said is None else json_text(said)


def _read_media(raw: Any, lost: list[str]) -> Iterator[n.Image]:
    media = fields(raw, "inlineData")
    media_type = a_string(media.get("mimeType", ""), "mimeType")
    if media_type.startswith("image/"):
        data = a_string(media.get("data", ""), "the data of inlineData")
        yield n.Image(media_type, data.translate(_PLAIN_BASE64))
    else:
        lost.append(f"inlineData {media_type or 'of unknown type'}")


def _arguments(call: n.ToolCall, lost: list[str]) -> n.Json:
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
