"""Asks the judges' own models, through sessions of the gateway that are apart from the agent's: one budget for all."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Self

import aiohttp

from whet.exchange import Recorder
from whet.gateway import Gateway, Model, Session
from whet.scoring import Cause, JudgeError


class GatewayReferee:
    """Lets the judges of one rollout ask. Each model has a session of its own, opened when it is first asked."""

    def __init__(
        self,
        gateway: Gateway,
        models: Mapping[str, Model],
        default: str | None,
        record: Recorder,
        name: str,
        sample: int = 0,
    ) -> None:
        self._gateway, self._models, self._default = gateway, models, default
        self._record, self._name, self._sample = record, name, sample
        self._urls: dict[str, str] = {}
        self._opening = asyncio.Lock()
        self._http: aiohttp.ClientSession | None = None
        self.sessions: dict[str, Session] = {}
        """By the name of the model."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()
        for session in self.sessions.values():
            await session.close()

    async def ask(self, model: str | None, messages: Sequence[Mapping[str, str]]) -> str:
        """The model's reply; JudgeError when it does not answer."""
        name = model or self._default
        if name is None or name not in self._models:
            raise JudgeError(
                f"no model judges here{f' that is called {name!r}' if name else ''}; name one: --judge-model"
            )
        status, body = await self._post(name, {"model": self._models[name].upstream_name, "messages": list(messages)})
        session = self.sessions[name]
        if status != 200:
            cause = Cause.INTERRUPTED if session.ended_with_run else Cause.JUDGE
            raise JudgeError(
                f"model '{name}' did not answer: {session.last_error or 'refused'}, status {status}", cause
            )
        # The gateway lets no malformed reply through; a reply may still hold no text.
        return str(body["choices"][0]["message"].get("content") or "")

    async def _post(self, name: str, request: Mapping[str, Any]) -> tuple[int, Any]:
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        async with self._opening:
            if name not in self.sessions:
                session = self._gateway.open_session(
                    f"{self._name} {name}", self._models[name], self._record, sample=self._sample
                )
                self.sessions[name] = session
                self._urls[name] = await session.listen()
        headers = {"Authorization": f"Bearer {self.sessions[name].secret}"}
        url = f"{self._urls[name]}/v1/chat/completions"
        async with self._http.post(url, json=request, headers=headers) as response:
            return response.status, await response.json(content_type=None)
