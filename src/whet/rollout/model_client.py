"""Asks the judges' own models, through sessions of the gateway that are apart from the agent's: one budget for all."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Self

import aiohttp

from whet.exchange import Exchange, Recorder
from whet.gateway import Gateway, Model, Session
from whet.scoring import Cause, JudgeError
from whet.text.plain import plain_text

QUESTION: Sequence[Mapping[str, str]] = ({"role": "user", "content": "Reply with the word OK."},)
"""Nothing of the work is in it: when it is not answered either, the work is not the reason."""


def number_calls(record: Recorder) -> Recorder:
    """A recorder that numbers the calls of several sessions, probes too, as those of one."""
    numbers = count()

    async def record_numbered(exchange: Exchange) -> None:
        await record(replace(exchange, index=next(numbers)))

    return record_numbered


class ModelClient:
    """Lets the judges of one rollout ask. Each model has a session of its own, opened when it is first asked."""

    def __init__(
        self,
        gateway: Gateway,
        models: Mapping[str, Model],
        default: str | None,
        record: Recorder,
        name: str,
        sample: int = 0,
        *,
        cached: bool = True,
    ) -> None:
        self._gateway, self._models, self._default = gateway, models, default
        self._record, self._name, self._sample, self._cached = record, name, sample, cached
        self._urls: dict[str, str] = {}
        self._opening, self._probing = asyncio.Lock(), asyncio.Lock()
        self._up: dict[str, bool] = {}
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
                f"no model judges here{f' that is called {name!r}' if name else ''}; name one: --judge-model",
                unrelated=True,
            )
        status, body = await self._post(name, {"model": self._models[name].upstream_name, "messages": list(messages)})
        session = self.sessions[name]
        if status != 200:
            cause = Cause.INTERRUPTED if session.limits.ended_with_run else Cause.JUDGE
            reason = f"model '{name}' did not answer: {session.totals.last_failure or f'status {status}'}"
            raise JudgeError(reason, cause, unrelated=messages is QUESTION or not await self._is_up(name))
        # The gateway lets no malformed reply through; a reply may still hold no text, or half a character.
        return plain_text(str(body["choices"][0]["message"].get("content") or ""))

    async def _is_up(self, name: str) -> bool:
        """Whether a model answers a question that has nothing of the work in it. It is asked once."""
        async with self._probing:
            if name not in self._up:
                asked = ModelClient(
                    self._gateway, self._models, name, self._record, f"{self._name} probe", cached=False
                )
                try:
                    async with asked:
                        await asked.ask(None, QUESTION)
                    self._up[name] = True
                except JudgeError:
                    self._up[name] = False
                self.sessions |= {f"probe of {one}": session for one, session in asked.sessions.items()}
        return self._up[name]

    async def _post(self, name: str, request: Mapping[str, Any]) -> tuple[int, Any]:
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        async with self._opening:
            if name not in self.sessions:
                # Its questions do not continue each other, so they go to all endpoints of the model in turn.
                session = self._gateway.open_session(
                    f"{self._name} {name}",
                    self._models[name],
                    self._record,
                    sample=self._sample,
                    cached=self._cached,
                    pinned=False,
                )
                self.sessions[name] = session
                self._urls[name] = await session.listen()
        headers = {"Authorization": f"Bearer {self.sessions[name].secret}"}
        url = f"{self._urls[name]}/v1/chat/completions"
        async with self._http.post(url, json=request, headers=headers) as response:
            return response.status, await response.json(content_type=None)
