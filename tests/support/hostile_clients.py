"""What no well-meaning client of `whet serve` sends, over every door: mangled, deep, huge, misaddressed, out of order,
never ending. Seeded, so that a failure can be met again. `hostile_wire.py` sends it."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from support.hostile_requests import mangle, mangle_bytes, strange
from support.hostile_wire import Attack, Ending, close_frame, frame, handshake, request

DEPTH = 100_000
HUGE = 10 << 20
NOWHERE = "http://169.254.169.254/v1"
JSON = (("Content-Type", "application/json"),)
EVENTS = (*JSON, ("Accept", "application/json, text/event-stream"))
PROTOCOLS = ("2025-06-18", "2025-11-25", "2026-07-28", "2024-11-05", "1", "", "\x7f")

ROLLOUT: dict[str, Any] = {
    "instruction": "2 + 2?",
    "answer": "4",
    "agent": "chat",
    "model": "m",
    "files": {"a/b.txt": "text", "c.bin": {"base64": "AAAA"}},
    "samples": 1,
    "seed": 7,
    "priority": 1,
    "metadata": {"a": "b"},
    "limits": {"agent_sec": 5, "turns": 3},
    "on_failure": "null",
    "max_staleness": 1,
    "min_group": 1,
    "task_id": "mine",
}
ENDPOINT = {
    "instruction": "x",
    "agent": "chat",
    "endpoint": {"base_url": NOWHERE, "model": "m", "api_key": "sk-hostile-0123456789", "set": {"temperature": 1}},
}
STEP: dict[str, Any] = {
    "type": "call_tool",
    "tool_name": "run_rollout",
    "arguments": {"instruction": "2 + 2?", "agent": "chat", "model": "m", "agent_timeout_s": 5.0, "samples": 1},
}
BODIES: list[tuple[str, str, Any]] = [
    ("POST", "/v1/rollouts", ROLLOUT),
    ("POST", "/v1/rollouts", {"task": "one", "agent": "chat", "samples": 2}),
    ("POST", "/v1/rollouts", ENDPOINT),
    ("POST", "/v1/rollouts?wait=0.1", ROLLOUT),
    ("POST", "/v1/runs", {"task": ["one"], "agents": ["chat"], "models": ["m"], "samples": 1, "concurrency": 1}),
    ("POST", "/v1/comparisons", {"run": "served", "other": "served", "by": "agent"}),
    ("PUT", "/v1/models/m", {"url": NOWHERE, "weight_version": "1"}),
    ("POST", "/v1/pause", {"mode": "abort", "model": "m", "wait_sec": 1}),
    ("POST", "/reset", {"seed": 1, "episode_id": "x"}),
    ("POST", "/step", {"action": STEP, "timeout_s": 0.5, "request_id": "r"}),
    ("POST", "/step", {"action": {"type": "list_tools"}}),
    ("POST", "/whet/tasks", {"split": "train"}),
    ("POST", "/whet/num_tasks", {"split": "all"}),
    ("POST", "/whet/task", {"split": "all", "index": 0}),
    ("POST", "/whet/task_range", {"split": "all", "start": 0, "stop": 2}),
]
CALLS: list[tuple[str, Any]] = [
    ("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}}),
    ("notifications/initialized", {}),
    ("ping", {}),
    ("tools/list", {"cursor": "x", "session_id": "SESSION"}),
    ("tools/call", {"name": "run_rollout", "arguments": STEP["arguments"], "session_id": ""}),
    ("tools/call", {"name": "run_rollout", "arguments": {**STEP["arguments"], "base_url": NOWHERE, "api_key": "k"}}),
    ("tools/call", {"name": "run_task", "arguments": {"task": "one", "agent": "chat"}}),
    ("tools/call", {"name": "list_tasks", "arguments": {"split": "train", "from": 1}}),
    ("tools/call", {"name": "get_rollout", "arguments": {"id": "ROLLOUT"}}),
    ("tools/call", {"name": "wait_rollout", "arguments": {"id": "ROLLOUT", "max_seconds": 0.1}}),
    ("tools/call", {"name": "cancel_rollout", "arguments": {"id": "ROLLOUT"}}),
    ("tools/call", {"name": "read_trace", "arguments": {"id": "ROLLOUT", "from": 1, "to": 2}}),
    ("tools/call", {"name": "list_rollouts", "arguments": {"before": "ROLLOUT"}}),
    ("tools/call", {"name": "compare", "arguments": {"run": "served", "by": "agent"}}),
    ("openenv/session/create", {}),
    ("openenv/session/close", {"session_id": "SESSION"}),
    ("resources/read", {"uri": "file:///etc/passwd"}),
    ("logging/setLevel", {"level": "debug"}),
    ("notifications/cancelled", {"requestId": 1, "reason": "x"}),
]
FRAMES: list[Any] = [
    {"type": "reset", "data": {"seed": 1}},
    {"type": "step", "data": STEP},
    {"type": "step", "data": {"type": "list_tools"}},
    {"type": "state"},
    {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}},
    {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 2, "method": "openenv/session/create", "params": {}}},
]
PARTS = ("", "/events", "/trace", "/rows", "/files", "/files/answer.txt", "/files/%2e%2e%2f%2e%2e%2fetc%2fpasswd")
PLACES = [
    *("/v1/service", "/v1/tasks", "/v1/agents", "/v1/skills", "/v1/models", "/v1/runs", "/metrics", "/openapi.json"),
    *("/metadata", "/schema", "/state", "/list_environments", "/whet/splits", "/mcp", "/docs", "/", "//", "/v1"),
    *("/v1/rollouts/", "/v1//rollouts", "/v1/rollouts/..", "/v1/rollouts/%2e%2e/%2e%2e/etc/passwd", "/%2e%2e/%00"),
    *("/v1/tasks/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/v1/runs/%2e%2e", "/v1/runs/..%2frollouts", "/v1/models/%00"),
    *("/v1/rollouts/%ff%fe", "/v1/rollouts/%ed%a0%80", "/%", "/%zz", "/v1/rollouts/" + "x" * 8000, "/" + "a/" * 4000),
    *(
        "*",
        "http://169.254.169.254/",
        "/health/../metrics",
        "/health%2f..%2fmetrics",
        "/v1/rollouts;x=1",
        "/ws",
        "/a b",
    ),
]
QUERIES = [
    *(
        "wait=nan",
        "wait=inf",
        "wait=-1",
        "wait=0.05",
        "wait=1e999",
        "limit=0",
        "limit=99999999999999999999",
        "limit=-1",
    ),
    *("status=x", "status=done&status=done", "before=%00", "before=ROLLOUT", "format=atif", "format=verl", "format=x"),
    *(
        "format=../../x",
        "shape=x",
        "a=b&" * 2000,
        "%ff=%fe",
        "=",
        "&&&",
        "wait[]=1",
        "min_reward=nan",
        "session_id=SESSION",
    ),
]


@dataclass(frozen=True)
class Known:
    """What an attacker knows of the server."""

    tokens: Sequence[str]
    """Its own, and wrong ones; an empty one stands for no header."""
    ids: Sequence[str]
    """Of rollouts and groups, its own and others'."""
    sessions: Sequence[str]


class Hostility:
    """Makes attacks."""

    def __init__(self, seed: int, known: Known) -> None:
        self.chance = random.Random(seed)
        self._known = known
        kinds: list[tuple[int, Callable[[], Attack]]] = [
            (22, self._mangled_body),
            (20, self._strange_place),
            (10, self._raw_body),
            (12, self._rpc),
            (12, self._mcp),
            (14, self._frames),
            (10, self._transport),
        ]
        self._weights = [weight for weight, _ in kinds]
        self._kinds = [make for _, make in kinds]

    def __iter__(self) -> Iterator[Attack]:
        return self

    def __next__(self) -> Attack:
        (make,) = self.chance.choices(self._kinds, self._weights)
        attack, chance = make(), self.chance
        if attack.ending is not Ending.READ:
            return attack
        endings = [Ending.READ, Ending.RESET, Ending.LEAVE, Ending.HALF_CLOSE, Ending.HOLD, Ending.NEVER_READ]
        (ending,) = chance.choices(endings, [82, 6, 4, 4, 1, 3])
        return replace(attack, ending=ending)

    # HTTP with a body

    def _mangled_body(self) -> Attack:
        method, target, body = self.chance.choice(BODIES)
        return self._send("mangled body", method, target, self._mangle(body))

    def _raw_body(self) -> Attack:
        method, target, body = self.chance.choice(BODIES)
        return self._send("raw body", method, target, self._raw(body))

    def _rpc(self) -> Attack:
        return self._send("rpc", "POST", "/mcp", self._call())

    def _mcp(self) -> Attack:
        chance = self.chance
        headers = [*EVENTS]
        if chance.random() < 0.5:
            headers.append(("Mcp-Session-Id", chance.choice([*self._known.sessions, "x", "", "\x7f", "a" * 5000])))
        if chance.random() < 0.5:
            headers.append(("Mcp-Protocol-Version", chance.choice(PROTOCOLS)))
        if chance.random() < 0.2:
            headers.append(("Mcp-Method", chance.choice(["tools/call", "x", ""])))
            headers.append(("Mcp-Name", chance.choice(["run_rollout", "x", ""])))
        if chance.random() < 0.15:
            return self._send("mcp", chance.choice(["GET", "DELETE", "PUT"]), "/mcp", b"", headers)
        return self._send("mcp", "POST", "/mcp", self._call(), headers)

    def _call(self) -> bytes:
        chance = self.chance
        method, params = chance.choice(CALLS)
        document: dict[str, Any] = {"jsonrpc": "2.0", "id": chance.choice([1, "a", 1]), "method": method}
        document["params"] = json.loads(self._fill(json.dumps(params)))
        match chance.randrange(10):
            case 0:
                return self._raw(document)
            case 1:
                return json.dumps([document] * chance.choice([0, 1, 2, 500])).encode()
            case 2 | 3:
                return json.dumps(document).encode()
            case 4:
                document["params"] = {**document["params"], "_meta": strange(chance)}
        return self._mangle(document)

    def _send(
        self, kind: str, method: str, target: str, body: bytes, headers: Sequence[tuple[str, str]] = JSON
    ) -> Attack:
        return Attack(kind, (request(method, target, [*headers, *self._headers()], body),))

    def _headers(self) -> list[tuple[str, str]]:
        """Who calls, and at times more that does not belong there."""
        chance = self.chance
        token = chance.choice(self._known.tokens)
        headers = [("Authorization", f"Bearer {token}")] if token else []
        if chance.random() < 0.2:
            keys = ["k", "k", "", "\x80\xff", "a" * 200, "a" * 201, "../..", "'; DROP TABLE request; --"]
            headers.append(("Idempotency-Key", chance.choice(keys)))
        if chance.random() < 0.1:
            others = [
                *(("Last-Event-ID", one) for one in ("-1", "nan", "9" * 18, "9" * 400, "0:1,0:2", "1:x", "²")),
                *(("Content-Type", one) for one in ("", "text/plain", "application/json; charset=utf-7", "a/" * 999)),
                *(("Content-Encoding", "gzip"), ("X-Forwarded-For", "127.0.0.1"), ("X-HTTP-Method-Override", "DELETE")),
                *(
                    ("Authorization", "Basic QTpC"),
                    ("Authorization", ""),
                    ("Cookie", "a=" + "b" * 9000),
                    ("Origin", "null"),
                ),
                *(("Accept", "\x80"), ("Accept", "text/event-stream" * 99), ("Range", "bytes=0-1"), ("Upgrade", "h2c")),
                *(
                    ("Expect", "100-continue"),
                    ("Transfer-Encoding", "identity"),
                    ("TE", "trailers"),
                    ("X", "y" * 60_000),
                ),
            ]
            headers.append(chance.choice(others))
        return headers

    def _mangle(self, body: Any) -> bytes:
        document = json.loads(self._fill(json.dumps(body)))
        for _ in range(self.chance.randrange(4)):
            mangle(document, self.chance)
        return json.dumps(document).encode()

    def _raw(self, body: Any) -> bytes:
        chance, text = self.chance, json.dumps(body).encode()
        forms: list[Callable[[], bytes]] = [
            lambda: chance.randbytes(chance.randrange(2000)),
            lambda: mangle_bytes(text, chance),
            lambda: mangle_bytes(text, chance),
            lambda: text[: chance.randrange(len(text))],
            lambda: _nest(text, chance.choice(["[", '{"a":', '[{"data":'])),
            lambda: text.replace(
                b": 1", chance.choice([b": NaN", b": Infinity", b": 1e999", b": -0", b": 0x1", b": " + b"9" * 5000])
            ),
            lambda: text.replace(b'"', b'"\\ud800', 3).replace(b"\\ud800", b"", 1),
            lambda: text[:-1] + b"," + text[1:],  # every key twice
            lambda: b"\xef\xbb\xbf" + text,
            lambda: text.decode().encode("utf-16"),
            lambda: text[:-1] + b', "pad": "' + b"x" * chance.choice([100_000, 1_000_000]) + b'"}',
            lambda: _huge(chance.choice(["text", "brackets", "keys"])) if chance.random() < 0.2 else b"",
        ]
        return chance.choice(forms)()

    # Places

    def _strange_place(self) -> Attack:
        chance = self.chance
        if chance.random() < 0.5:
            kind = chance.choice(["rollouts", "groups", "runs"])
            place = f"/v1/{kind}/{chance.choice([*self._known.ids, 'none', '%00', 'served'])}{chance.choice(PARTS)}"
        else:
            place = chance.choice(PLACES)
        if chance.random() < 0.4 and "?" not in place:
            place = f"{place}?{self._fill(chance.choice(QUERIES))}"
        methods = ["GET"] * 6 + ["DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI", "x" * 50, "get"]
        body = b"{}" if chance.random() < 0.1 else b""
        return self._send("place", chance.choice(methods), place, body, chance.choice([JSON, ()]))

    def _fill(self, text: str) -> str:
        chance, known = self.chance, self._known
        rollout, session = chance.choice([*known.ids, "none"]), chance.choice([*known.sessions, "none"])
        return text.replace("ROLLOUT", rollout).replace("SESSION", session)

    # WebSockets

    def _frames(self) -> Attack:
        chance = self.chance
        path = chance.choice(["/ws", "/ws", "/mcp", "/mcp", self._fill("/ws?session_id=SESSION"), "/ws?session_id=%00"])
        frames = [self._frame(path) for _ in range(chance.randrange(1, 7))]
        if chance.random() < 0.8:
            frames.append(close_frame(chance.choice([1000, 1001, 3000])))
        ending = Ending.HOLD if chance.random() < 0.02 else Ending.READ
        return Attack("frames", (self._handshake(path),), tuple(frames), ending)

    def _handshake(self, path: str) -> bytes:
        chance = self.chance
        if chance.random() < 0.85:
            return handshake(path, self._headers())
        wrong = [("Sec-WebSocket-Version", "99"), ("Sec-WebSocket-Key", "x"), ("Sec-WebSocket-Extensions", "x;" * 99)]
        wrong += [("Sec-WebSocket-Protocol", "\x80, a, a"), ("Connection", "close"), ("Content-Length", "5")]
        return handshake(path, [*self._headers(), chance.choice(wrong)])

    def _frame(self, path: str) -> bytes:
        chance = self.chance
        document = chance.choice(FRAMES) if path.startswith("/ws") else json.loads(self._call_or_nothing())
        forms: list[Callable[[], bytes]] = [
            lambda: frame(1, json.dumps(document).encode()),
            lambda: frame(1, self._mangle(document)) if isinstance(document, dict) else frame(1, b"[]"),
            lambda: frame(1, self._raw(document)),
            lambda: frame(2, self._raw(document)),
            lambda: frame(1, b'{"type": "close"}'),
            lambda: frame(1, b"\xff\xfe\xed\xa0\x80"),
            lambda: _fragmented(json.dumps(document).encode(), chance),
            lambda: frame(chance.choice([9, 10]), b"x" * chance.choice([0, 125])) * chance.choice([1, 300]),
            lambda: self._broken_frame(),
        ]
        return chance.choices(forms, [4, 6, 3, 2, 1, 1, 2, 1, 2])[0]()

    def _call_or_nothing(self) -> bytes:
        method, params = self.chance.choice(CALLS)
        return self._fill(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})).encode()

    def _broken_frame(self) -> bytes:
        chance = self.chance
        forms = [
            frame(1, b"x", masked=False),
            frame(chance.choice([3, 7, 11, 15]), b"x"),
            frame(1, b"x", reserved=chance.choice([1, 2, 4])),
            frame(9, b"x" * 126),
            frame(9, b"x", last=False),
            frame(0, b"x"),
            frame(1, b"x", length=2**63 + 5),
            frame(1, b"x" * 50, length=HUGE),
            frame(1, b"a", last=False) + frame(1, b"b"),
            frame(8, b"\x00"),
            frame(8, b"\x03\xed" + b"x" * 50),
            frame(8, b"\x00\x01\xff"),
            chance.randbytes(200),
            b"GET / HTTP/1.1\r\n\r\n",
        ]
        return chance.choice(forms)

    # Below HTTP

    def _transport(self) -> Attack:
        chance = self.chance
        auth = self._headers()[:1]
        body = json.dumps(ROLLOUT).encode()
        good = request("POST", "/v1/rollouts", [*JSON, *auth], body, close=False)
        get = request("GET", "/v1/service", auth, b"", close=False)
        last = request("GET", "/v1/service", auth, b"")

        def post(*headers: tuple[str, str], sent: bytes = body) -> bytes:
            return request("POST", "/v1/rollouts", [*JSON, *auth, *headers], sent, length=None)

        lies: list[tuple[bytes, ...]] = [
            (post(("Content-Length", "5")),),
            (post(("Content-Length", "-1")),),
            (post(("Content-Length", "+5")),),
            (post(("Content-Length", "5, 5")),),
            (post(("Content-Length", "5"), ("Content-Length", "6")),),
            (post(("Content-Length", "9" * 30)),),
            (post(("Content-Length", "9" * 5000)),),
            (post(("Content-Length", "0x10")),),
            (post(("Content-Length", "5"), ("Transfer-Encoding", "chunked"), sent=b"0\r\n\r\n" + last),),
            (post(("Transfer-Encoding", "chunked"), sent=b"zz\r\n{}\r\n0\r\n\r\n"),),
            (post(("Transfer-Encoding", "chunked"), sent=b"ffffffffffffffffffff\r\n{}"),),
            (post(("Transfer-Encoding", "chunked"), sent=b"2\r\n{}\r\n" * 50 + b"0\r\nX: y\r\n\r\n"),),
            (post(("Transfer-Encoding", "chunked"), sent=b"2;" + b"e" * 9000 + b"\r\n{}\r\n0\r\n\r\n"),),
            (post(("Transfer-Encoding", "xchunked"), sent=b"0\r\n\r\n"),),
            (post(("Transfer-Encoding", "chunked, gzip"), sent=b"0\r\n\r\n"),),
            (post(("Transfer-Encoding", " chunked"), ("Transfer-Encoding", "identity"), sent=b"0\r\n\r\n"),),
            (get * 30 + last,),
            (good + get + b"GARBAGE\r\n\r\n",),
            (good, get[:20], get[20:] + last),
            (b"POST /v1/rollouts HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",),
            (b"GET /v1/service HTTP/1.1\r\n\r\n",),
            (b"GET /v1/service HTTP/0.9\r\n\r\n",),
            (b"GET /v1/service HTTP/2.0\r\nHost: localhost\r\n\r\n",),
            (b"GET /v1/service\r\n\r\n",),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(200),),
            (chance.randbytes(chance.randrange(1, 3000)),),
            (b"\r\n" * 2000,),
            (b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(3000)) + b"\r\n",),
            (b"GET /v1/service HTTP/1.1\r\nHost: localhost\r\nX : y\r\n\r\n",),
            (b"GET /v1/service HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\x00c\r\n\r\n",),
            (b"GET /v1/service HTTP/1.1\nHost: localhost\n\n",),
            (b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",),
        ]
        match chance.randrange(10):
            case 0:
                return Attack("half open", (good[: chance.randrange(1, len(good))],), ending=Ending.HOLD)
            case 1:
                part = get[: chance.randrange(1, len(get))]
                return Attack("byte by byte", tuple(bytes([byte]) for byte in part), ending=Ending.RESET)
            case 2:
                return Attack("byte by byte", tuple(bytes([byte]) for byte in last))
            case 3:
                return Attack("never read", (get * 200,), ending=Ending.NEVER_READ)
            case 4:
                return Attack("abrupt", (good[: chance.randrange(1, len(good))],), ending=Ending.RESET)
            case 5:
                return Attack("connect", (), ending=chance.choice([Ending.RESET, Ending.LEAVE, Ending.HOLD]))
        return Attack("framing", chance.choice(lies))


@cache
def _huge(kind: str) -> bytes:
    match kind:
        case "brackets":
            return b"[" * HUGE
        case "keys":  # just within what is read
            return b"{" + b",".join(b'"k%d":1' % number for number in range(400_000)) + b"}"
    return b'{"instruction": "' + b"x" * HUGE + b'"}'


def _nest(text: bytes, opening: str) -> bytes:
    closing = "".join({"[": "]", "{": "}"}.get(one, "") for one in reversed(opening))
    deep = opening.encode() * DEPTH + b"1" + closing.encode() * DEPTH
    return text[:-1] + b', "metadata": ' + deep + b"}"


def _fragmented(payload: bytes, chance: random.Random) -> bytes:
    """A text in many frames, with a ping between them. It may lack its end."""
    cuts = sorted(chance.randrange(len(payload) + 1) for _ in range(chance.randrange(1, 20)))
    pieces = [payload[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(payload)], strict=True)]
    frames = [frame(1 if not place else 0, piece, last=False) for place, piece in enumerate(pieces)]
    if chance.random() < 0.8:
        frames.append(frame(0, b""))
    return frame(9, b"ping").join(frames)
