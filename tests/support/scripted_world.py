"""What the tests of the scripted model share: replies of every kind, and a client of a model that really serves."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from hypothesis import strategies as st

from support.neutral_strategies import json_values
from whet.gateway.dialects import Dialect
from whet.gateway.dialects import neutral as n
from whet.testing import Reply, Scene, Script, ScriptedModel, ToolCall

OBJECTS = st.dictionaries(st.text(), json_values, max_size=3)
TOOLS = st.builds(ToolCall, name=st.text(min_size=1), arguments=OBJECTS)
SPOKEN = st.none() | st.text() | st.text(alphabet=" \nab")
REPLIES = st.builds(Reply, thinking=SPOKEN, text=SPOKEN, tools=st.lists(TOOLS, max_size=3).map(tuple))


def ask(text: str, *more: n.Message, stream: bool = False) -> n.Request:
    """A request of an agent."""
    messages = (n.Message("system", (n.Text("You code."),)), n.Message("user", (n.Text(text),)), *more)
    return n.Request("m", messages, sampling=n.Sampling(max_tokens=9), stream=stream)


def send_back(reply: n.Reply, result: str) -> list[n.Message]:
    """The reply in the history of the next request, and a result for each of its calls."""
    calls = [part for part in reply.parts if isinstance(part, n.ToolCall)]
    results = tuple(n.ToolResult(call.id, (n.Text(result),), call.name) for call in calls)
    return [n.Message("assistant", reply.parts), *([n.Message("user", results)] if calls else [])]


def assemble_stream(dialect: Dialect, stream: bytes) -> n.Reply:
    """The reply in a stream of events."""
    reader = dialect.EventReader()
    events = [event + b"\n\n" for event in stream.split(b"\n\n")[:-1]]
    return n.assemble([*(said for event in events for said in reader.read(event)), *reader.end()])


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Client:
    """One HTTP client, its model, and what it has heard so far of an answer."""

    model: ScriptedModel
    http: aiohttp.ClientSession
    heard: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    async def send(self, method: str, path: str, body: bytes | None = None) -> Answer:
        self.heard = b""
        data = None if body is None else io.BytesIO(body)
        async with self.http.request(method, self.model.url + path, data=data, headers=self.headers) as response:
            async for piece in response.content.iter_any():
                self.heard += piece
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, headers, self.heard)

    async def post(self, path: str, body: Any) -> Answer:
        return await self.send("POST", path, json.dumps(body).encode())

    async def call(self, dialect: Dialect, request: n.Request) -> Answer:
        body, _ = dialect.write_request(request)
        return await self.send("POST", dialect.upstream_path("", request.model, request.stream), body)

    async def ask(self, text: str = "Fix it.", **more: Any) -> Answer:
        body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
        return await self.post("/v1/chat/completions", body)


@asynccontextmanager
async def playing(*replies: Reply, key: str | None = None, tokens: bool = False) -> AsyncIterator[Client]:
    async with calling() as http, ScriptedModel(script(*replies), key=key, tokens=tokens) as model:
        yield Client(model, http)


def calling() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


def script(*replies: Reply) -> Script:
    return Script(scenes=(Scene(replies=replies),))
