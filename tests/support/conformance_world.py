"""What the conformance tests share: one gateway, a session for each kind of model, and SDK clients in front of it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.gateway_world import PROVIDER_KEY, Records, model
from support.sdk_clients import FRONTS, Conversation, Front, Said, ask, connected
from whet.gateway import Gateway, Session
from whet.text.redact import Redactor

DIALECTS = tuple(FRONTS)
PAIRS = [pytest.param(FRONTS[front], back, id=f"{front}-{back}") for front in DIALECTS for back in DIALECTS]
TRANSLATED_TO = {"chat": "messages", "responses": "chat", "messages": "gemini", "gemini": "responses"}
SOME_PAIRS = [
    pytest.param(FRONTS[front], back, id=f"{front}-{back}")
    for front in DIALECTS
    for back in (front, TRANSLATED_TO[front])
]
"""Every dialect in front, once as it is and once translated; and every dialect behind, likewise."""
FORMS = [pytest.param(False, id="whole"), pytest.param(True, id="stream")]


@dataclass
class Stage:
    """A gateway in front of one model server that speaks all dialects, with a session for each of them."""

    sessions: dict[str, Session]
    urls: dict[str, str]
    records: dict[str, Records]
    closing: AsyncExitStack
    _clients: dict[tuple[str, str, bool], Any] = field(default_factory=dict)

    async def client(self, front: Front, back: str, *, sync: bool = False) -> Any:
        """The SDK, pointed at the session whose model speaks `back`. It is made once: making one is slow."""
        key = (front.name, back, sync)
        if key not in self._clients:
            opened = connected(front, self.urls[back], self.sessions[back].secret, sync=sync)
            self._clients[key] = await self.closing.enter_async_context(opened)
        return self._clients[key]

    async def ask(
        self, front: Front, back: str, conversation: Conversation, *, stream: bool, sync: bool = False
    ) -> Said:
        """What the model that speaks `back` says to an agent that speaks `front`."""
        client = await self.client(front, back, sync=sync)
        return await ask(front, client, conversation, stream=stream, sync=sync)


@asynccontextmanager
async def staged(url: str, **options: Any) -> AsyncIterator[Stage]:
    """A stage whose model server is at this address."""
    async with Gateway(Redactor([PROVIDER_KEY])) as gateway, AsyncExitStack() as closing:
        records = {back: Records() for back in DIALECTS}
        sessions = {
            back: gateway.open_session(f"{back}-1", model(url, dialect=back, **options), records[back])
            for back in DIALECTS
        }
        urls = {back: await session.listen() for back, session in sessions.items()}
        yield Stage(sessions, urls, records, closing)
