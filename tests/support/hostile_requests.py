"""Requests that no well-meaning agent sends: mangled, bottomless, misaddressed, packed like a bomb. Seeded, so that a
failure can be met again."""

import gzip
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import msgspec
import zstandard

from support.raw_wire import PATHS
from support.raw_wire import asked as request_for
from support.sdk_clients import PNG, SCHEMA
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects import neutral as n

DEPTH = 10_000
BOMB_SIZE = 2 << 20
CONVERSATION = n.Request(
    model="tiny",
    messages=(
        n.Message("system", (n.Text("Be brief."),)),
        n.Message("user", (n.Text("Look."), n.Image("image/png", PNG))),
        n.Message(
            "assistant", (n.Thinking("Hm."), n.Text("I look."), n.ToolCall("call_1", "bash", '{"command": "ls"}'))
        ),
        n.Message("user", (n.ToolResult("call_1", (n.Text("a.txt"),), is_error=True),)),
    ),
    tools=(n.Tool("bash", "Runs a command.", SCHEMA),),
    tool_choice=n.ToolChoice("auto"),
    sampling=n.Sampling(max_tokens=99, temperature=0.5),
)
"""A conversation with something of everything, to be mangled."""


@dataclass(frozen=True)
class Hostile:
    """A request."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    with_secret: bool = True
    """Whether the secret of the session is presented."""
    intrudes: bool = False
    """Whether a key is presented that is not the session's."""


def hostile_request(front: str, chance: random.Random, stolen_key: str) -> Hostile:
    """Some request to a session, or to what might be one; `stolen_key` is the secret of another session."""
    tricks: list[Callable[[], Hostile]] = [
        lambda: Hostile(PATHS[front], chance.randbytes(chance.randrange(2000))),
        lambda: Hostile(PATHS[front], mangle_bytes(_valid(front), chance)),
        lambda: Hostile(PATHS[front], _bottomless(front, chance)),
        lambda: Hostile(_path(front, chance), _valid(front), method=chance.choice(["POST", "PUT", "GET", "PATCH"])),
        lambda: Hostile(PATHS[front], _valid(front), _headers(chance)),
        lambda: _intruder(front, chance, stolen_key),
        lambda: _packed(front, chance),
    ]
    # What is nearly right gets furthest, so that half of the requests are of this kind.
    return _mangled(front, chance) if chance.random() < 0.5 else chance.choice(tricks)()


@cache
def _valid(front: str) -> bytes:
    return DIALECTS[front].write_request(CONVERSATION)[0]


def mangle_bytes(body: bytes, chance: random.Random) -> bytes:
    """The bytes with some of them changed, lost, new, or there twice."""
    mangled = bytearray(body)
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(mangled))
        match chance.randrange(4):
            case 0:
                mangled[place] = chance.randrange(256)
            case 1:
                del mangled[place : place + chance.randrange(1, 40)]
            case 2:
                mangled[place:place] = chance.randbytes(chance.randrange(1, 8))
            case _:
                mangled[place:place] = mangled[place : place + 100]
        if not mangled:
            break
    return bytes(mangled)


def _mangled(front: str, chance: random.Random) -> Hostile:
    document = msgspec.json.decode(_valid(front))
    path, asked = request_for(front, stream=chance.random() < 0.3)
    document |= {"stream": True} if "stream" in asked else {}
    for _ in range(chance.randrange(1, 4)):
        mangle(document, chance)
    return Hostile(path, json.dumps(document).encode())


def mangle(document: Any, chance: random.Random) -> None:
    """Replace something, somewhere in it, by what does not belong there; or take it out, or put something in."""
    while True:
        places = list(document) if isinstance(document, dict) else range(len(document))
        if not places:
            return
        place = chance.choice(places)
        if not isinstance(document[place], dict | list) or not document[place] or chance.random() < 0.2:
            break
        document = document[place]
    match chance.randrange(4):
        case 0:
            del document[place]
        case 1 if isinstance(document, dict):
            document[strange(chance, names=True)] = strange(chance)
        case _:
            document[place] = strange(chance)


def strange(chance: random.Random, *, names: bool = False) -> Any:
    """A value that hardly belongs anywhere."""
    words = ["", "\0", "user", "tool", "function", "data:", "image/png", "\ufeff", "ﬀ" * 999, "{}", "type", "🙈\u200d"]
    if names:
        return chance.choice(words)
    numbers = [0, -1, 2**63, 10**400, -(10**30), 1.5, 1e308, float("nan"), float("inf")]
    others: list[Any] = [
        None,
        True,
        False,
        [],
        {},
        [[]],
        [None],
        {"": None},
        {"type": None},
        [{"type": 5}],
        ["x"] * 999,
    ]
    return chance.choice([*words, *numbers, *others])


def _bottomless(front: str, chance: random.Random) -> bytes:
    opening, closing = chance.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"content":', b"}]")])
    deep = opening * DEPTH + b"1" + closing * (DEPTH if chance.random() < 0.7 else 0)
    fields = msgspec.json.decode(_valid(front), type=dict[str, msgspec.Raw])
    # Names of tools that a provider runs make the gateway look closer.
    fields[chance.choice([*fields, "web_search_options", "tools", "x"])] = msgspec.Raw(deep)
    return b"{" + b",".join(json.dumps(name).encode() + b":" + bytes(value) for name, value in fields.items()) + b"}"


def _path(front: str, chance: random.Random) -> str:
    path = PATHS[front]
    return chance.choice(
        [
            "/v1/../.." + path,
            "/v1/%2e%2e/%2e%2e" + path,
            "/" + path,
            path + "/..",
            path + "/%00",
            path + "?" + "a=b&" * 2000,
            "/s//" + path,
            "/v1" * 500 + path,
            "/etc/passwd",
            "/v1/models/%ff%fe",
            "/v1/models/../../secret",
            "/v1beta/models/a:b:c:generateContent?alt=sse&alt=json",
            "/v1beta/models/" + "x" * 5000 + ":streamGenerateContent",
            "/v1beta/models/%F0%9F%99%88:countTokens",
            "/v1/messages/count_tokens?beta=true",
            "/" + "".join(chance.choices("abc/.:%25?#;=&", k=40)).replace("%", "%25"),
        ]
    )


def _headers(chance: random.Random) -> dict[str, str]:
    return chance.choice(
        [
            {f"X-Flood-{number}": "y" * 20 for number in range(chance.randrange(50, 400))},
            {"X-Long": "y" * chance.randrange(1000, 100_000)},
            {"Content-Type": chance.choice(["", "text/html", "multipart/form-data; boundary=x", "a" * 999])},
            {"Content-Encoding": chance.choice(["gzip", "zstd", "deflate", "br", "gzip, zstd", "x", "gzip" * 99])},
            {"Accept": "text/html", "User-Agent": "y" * 4000, "anthropic-version": "\t", "x-session": "other"},
            {"Expect": "100-continue", "Range": "bytes=0-1", "X-Forwarded-For": "127.0.0.1", "Host": "elsewhere"},
        ]
    )


def _intruder(front: str, chance: random.Random, stolen_key: str) -> Hostile:
    words = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789-_", k=chance.randrange(1, 60)))
    wrong = [stolen_key, stolen_key[:-1], stolen_key + "x", stolen_key.upper(), words, "null", "%00", "%2e%2e"]
    key, with_secret = chance.choice(wrong), chance.random() < 0.5
    path, body = PATHS[front], _valid(front)
    places: list[Hostile] = [
        Hostile(path, body, {"x-api-key": key}),
        Hostile(path, body, {"x-goog-api-key": key}),
        Hostile(f"{path}?key={key}", body),
        Hostile(f"/s/{key}{path}", body),
        Hostile(f"/s/{key}/v1/models", b"", method="GET"),
        Hostile("/v1/models", b"", {"x-goog-api-key": key}, method="GET"),
    ]
    if not with_secret:
        places += [Hostile(path, body, {"Authorization": f"{scheme} {key}"}) for scheme in ("Bearer", "Basic", "")]
    return replace(chance.choice(places), with_secret=with_secret, intrudes=True)


def _packed(front: str, chance: random.Random) -> Hostile:
    encoding = chance.choice(["gzip", "zstd"])
    packed = _compressed(front, encoding, chance.choice(["zeros", "brackets", "text", "valid"]))
    if chance.random() < 0.3:
        packed = mangle_bytes(packed, chance)
    return Hostile(PATHS[front], packed, {"Content-Encoding": encoding})


@cache
def _compressed(front: str, encoding: str, kind: str) -> bytes:
    bombs = {"zeros": bytes(BOMB_SIZE), "brackets": b"[" * BOMB_SIZE, "text": b'"' + b"x" * BOMB_SIZE}
    body = bombs.get(kind) or _valid(front)
    return gzip.compress(body) if encoding == "gzip" else zstandard.compress(body)
