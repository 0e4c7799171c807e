"""What each caller may use and has used: a gateway for every caller with limits, and one for all others."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import astuple, replace
from functools import partial

from whet.gateway import Gateway, Limits, Reached, Spent
from whet.gateway.prices import Price, cost, price_for
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, decode_result
from whet.runs.store.schema import AttemptRow
from whet.runs.store.store import Store
from whet.serve.access import Caller
from whet.serve.reading import StoreReader


class Budgets:
    """The callers that are known, and the gateways that hold their limits."""

    def __init__(self, resources: RunResources, read: StoreReader, opened: AsyncExitStack) -> None:
        """`opened` closes the gateways of callers."""
        self._resources, self._read, self._opened = resources, read, opened
        self._callers: dict[str, Caller] = {}
        self._own: dict[str, RunResources] = {}
        self._adding = asyncio.Lock()

    async def add(self, caller: Caller) -> None:
        """Get to know a caller, and what it has used so far."""
        async with self._adding:
            if caller.name in self._callers:
                return
            if has_limits(caller.limits):
                spent, shared = await self._read_spent(caller.name), self._resources.gateway
                gateway = Gateway(self._resources.redactor, caller.limits, before=spent, within=shared)
                await self._opened.enter_async_context(gateway)
                self._own[caller.name] = replace(self._resources, gateway=gateway)
            self._callers[caller.name] = caller

    async def add_earlier(self) -> None:
        """Count what all callers have used so far against the limits of the server."""
        self._resources.gateway.add_spent(await self._read_spent(None))

    async def _read_spent(self, owner: str | None) -> Spent:
        prices = {name: price_for(model) for name, model in self._resources.models.items()}
        return await self._read(partial(read_spent, owner=owner, prices=prices))

    def caller(self, name: str) -> Caller | None:
        """The caller of this name; None when it is not known."""
        return self._callers.get(name)

    def resources(self, name: str) -> RunResources:
        """What the rollouts of a caller share."""
        return self._own.get(name, self._resources)

    def exhausted(self, name: str) -> Reached | None:
        """The limit that lets no further model call of a caller pass, if one is reached."""
        return self.resources(name).gateway.exhausted()


def has_limits(limits: Limits) -> bool:
    return any(limit is not None for limit in astuple(limits))


def read_spent(store: Store, owner: str | None, prices: Mapping[str, Price | None]) -> Spent:
    """All that the rollouts of a caller, or of all, have used, also in attempts that were killed."""
    return _sum(
        _spent_in(store, attempt, prices.get(model))
        for rollout, model in store.served.rollouts_by(owner)
        for attempt in store.attempts_of(rollout)
    )


def _spent_in(store: Store, attempt: AttemptRow, price: Price | None) -> Spent:
    body = store.result_body(attempt)
    if body is not None:
        return _spent(decode_result(body))
    calls, usage = store.usage(attempt.id)
    return Spent(calls, usage, cost(usage, price, calls) if price else 0.0)


def _spent(result: Result) -> Spent:
    return _sum(part.as_spent() for part in (result.spending, result.judging) if part is not None)


def _sum(parts: Iterable[Spent]) -> Spent:
    whole = Spent()
    for one in parts:
        whole = Spent(whole.turns + one.turns, whole.usage + one.usage, whole.cost + one.cost)
    return whole
