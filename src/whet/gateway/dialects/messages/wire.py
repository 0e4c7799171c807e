"""What requests, replies and streams of Anthropic Messages share: content blocks and their neutral parts."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import msgspec

from whet.gateway.dialects import neutral as n

T = TypeVar("T")
Fields = TypeVar("Fields", bound=msgspec.Struct)

QUIET = frozenset(
    {
        "allowed_callers",
        "cache_control",
        "caller",
        "diagnostics",
        "eager_input_streaming",
        "id",
        "inference_geo",
        "metadata",
        "model",
        "role",
        "service_tier",
        "speed",
        "stop_reason",
        "stop_sequence",
        "type",
        "usage",
        "user_profile_id",
        "workspace_id",
    }
)
"""Fields that mean nothing to the model. They are dropped without a warning."""

MAY_HOLD: dict[n.Role, tuple[type[n.Part], ...]] = {
    "system": (n.Text,),
    "user": (n.Text, n.Image, n.ToolResult),
    "assistant": (n.Text, n.Refusal, n.Thinking, n.ToolCall),
}
"""What a message of each role is made of."""

UNFIT_FOR_ID = re.compile(r"[^A-Za-z0-9_-]")
_OWN_TOKEN = "whet."  # noqa: S105 - the mark of a signature that no provider gave


def load(document: bytes | str, kind: type[T]) -> T:
    """The JSON document as this type. ValueError when it is not, or nests too deeply to be read."""
    try:
        return msgspec.json.decode(document, type=kind)
    except RecursionError as error:
        raise ValueError("the JSON nests too deeply") from error


def dump(value: Any) -> bytes:
    """The value as compact JSON. ValueError when it nests too deeply."""
    try:
        return msgspec.json.encode(value)
    except RecursionError as error:
        raise ValueError("the JSON nests too deeply") from error


class Lost:
    """What could not be carried over, each thing named once."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def name(self, what: str) -> None:
        """Note that this was lost."""
        self._names[what] = None

    def name_fields(self, given: n.Json, known: Collection[str], where: str = "") -> None:
        """Note the fields that say something to the model and are not known."""
        for key, value in given.items():
            if value and key not in known and key not in QUIET:
                self.name(f"{where} {key}".lstrip())

    def names(self) -> tuple[str, ...]:
        """All that was lost, in the order in which it was met."""
        return tuple(self._names)


def read_fields(given: n.Json, kind: type[Fields], lost: Lost, where: str = "") -> Fields:
    """An object of the wire as this struct; its other fields are noted as lost."""
    lost.name_fields(given, kind.__struct_fields__, where)
    return msgspec.convert(given, kind)


class CallIds:
    """Names the calls that have no id, and finds the call that a result without id answers: the oldest open one."""

    def __init__(self, stem: str = "toolu_") -> None:
        self._stem = stem
        self._calls = 0
        self._open: OrderedDict[str, None] = OrderedDict()

    def of_call(self, given: str | None) -> str:
        """The id of the next call."""
        self._calls += 1
        call_id = given or f"{self._stem}{self._calls}"
        self._open[call_id] = None
        return call_id

    def of_result(self, given: str | None) -> str:
        """The id of the call that the next result answers."""
        call_id = given or next(iter(self._open), f"{self._stem}0")
        self._open.pop(call_id, None)
        return call_id


class _Text(msgspec.Struct):
    text: str


class _Source(msgspec.Struct):
    type: str
    media_type: str = ""
    data: str = ""


class _Image(msgspec.Struct):
    source: _Source


class _Thinking(msgspec.Struct):
    thinking: str = ""
    signature: str | None = None


class _RedactedThinking(msgspec.Struct):
    data: str


class _ToolUse(msgspec.Struct):
    name: str
    id: str | None = None
    input: Any = None


class _ToolResult(msgspec.Struct):
    tool_use_id: str | None = None
    content: str | list[n.Json | str] | None = None
    is_error: bool | None = None


class BlockReader:
    """Reads the content of the messages of one conversation, in their order."""

    def __init__(self, lost: Lost, ids: CallIds) -> None:
        self._lost = lost
        self._ids = ids

    def parts(self, content: str | list[n.Json | str] | None) -> tuple[n.Part, ...]:
        """The parts of a content, which may be a plain string."""
        blocks = [content] if isinstance(content, str) else content or []
        return tuple(part for block in blocks if (part := self.part(block)) is not None)

    def part(self, block: n.Json | str) -> n.Part | None:
        """The part in a block; None when the block is empty or has no neutral form."""
        if isinstance(block, str):
            return n.Text(block) if block else None
        match block.get("type"):
            case "text" | None:
                text = self._read(block, _Text).text
                return n.Text(text) if text else None
            case "image":
                return self._image(self._read(block, _Image).source)
            case "thinking":
                thought = self._read(block, _Thinking)
                token = provider_token(thought.signature)
                return n.Thinking(thought.thinking, token) if thought.thinking or token else None
            case "redacted_thinking":
                token = provider_token(self._read(block, _RedactedThinking).data)
                return n.Thinking("", token, hidden=True) if token else None
            case "tool_use":
                call = self._read(block, _ToolUse)
                arguments = dump({} if call.input is None else call.input).decode()
                return n.ToolCall(self._ids.of_call(call.id), call.name, arguments)
            case "tool_result":
                return self._result(self._read(block, _ToolResult))
            case str(kind):
                self._lost.name(f"block {kind}")
                return None
        raise ValueError("the type of a content block is not text")

    def _read(self, block: n.Json, kind: type[Fields]) -> Fields:
        return read_fields(block, kind, self._lost, block.get("type") or "text")

    def _image(self, source: _Source) -> n.Image | None:
        if source.type == "base64":
            return n.Image(source.media_type, source.data)
        self._lost.name(f"image by {source.type}")
        return None

    def _result(self, result: _ToolResult) -> n.ToolResult:
        call_id = self._ids.of_result(result.tool_use_id)
        held = []
        for part in self.parts(result.content):
            if isinstance(part, n.Text | n.Image):
                held.append(part)
            else:
                self._lost.name(f"{kind_of(part)} in a tool result")
        return n.ToolResult(call_id, tuple(held), is_error=result.is_error or False)


def block(part: n.Part, lost: Lost) -> n.Json | None:
    """The block for this part; None when the part is empty."""
    match part:
        case n.Text(text) | n.Refusal(text):
            return {"type": "text", "text": text} if text else None
        case n.Image(media_type, data):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        case n.Thinking(_, token, True):
            return {"type": "redacted_thinking", "data": token} if token else None
        case n.Thinking(text, token):
            said = text or token
            return {"type": "thinking", "thinking": text, "signature": token or signature(text)} if said else None
        case n.ToolCall():
            return {"type": "tool_use", "id": part.id, "name": wire_name(part), "input": _input(part, lost)}
        case n.ToolResult():
            content = [written for held in part.parts if (written := block(held, lost))]
            result = {"type": "tool_result", "tool_use_id": part.call_id, "content": content, "is_error": part.is_error}
            return {key: value for key, value in result.items() if value}


def select_fitting(role: n.Role, parts: Iterable[n.Part], lost: Lost) -> list[n.Part]:
    """The parts that a message of this role may hold."""
    fit = []
    for part in parts:
        if isinstance(part, MAY_HOLD[role]):
            fit.append(part)
        else:
            lost.name(f"{kind_of(part)} of the {role}")
    return fit


def put_results_first(parts: Iterable[n.Part]) -> tuple[n.Part, ...]:
    """Results must directly follow their calls."""
    return tuple(sorted(parts, key=lambda part: not isinstance(part, n.ToolResult)))


def wire_name(tool: n.Tool | n.ToolCall | n.CallBegin) -> str:
    """The name of a tool or of a call to it, in a dialect that has no namespaces."""
    return f"{tool.namespace}__{tool.name}" if tool.namespace else tool.name


def kind_of(part: n.Part) -> str:
    """What a part is, in words."""
    return str(part.__struct_config__.tag).replace("_", " ")


def signature(thought: str) -> str:
    """A signature for thinking to which no provider gave one; always the same for the same thinking."""
    return _OWN_TOKEN + hashlib.blake2b(thought.encode(), digest_size=16).hexdigest()


def provider_token(token: str | None) -> str | None:
    """The token, if it is one that a provider gave."""
    return token if token and not token.startswith(_OWN_TOKEN) else None


def _input(call: n.ToolCall, lost: Lost) -> n.Json:
    if call.custom:
        return {"input": call.arguments}
    try:
        return load(call.arguments or "{}", n.Json)
    except ValueError:
        lost.name(f"arguments of {call.name} that are not a JSON object")
        return {"arguments": call.arguments}
