"""What the adapters share: run the rollouts of a request on a server, and read their training rows."""

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from whet.adapters.rows import Row, find_main_row
from whet.client import AsyncClient
from whet.client.errors import InvalidRequest
from whet.client.models import GroupView, Outcome, RolloutRequest, RolloutView
from whet.errors import UserError

PLACEHOLDERS = "whet/placeholder_rows"
"""The metric that counts the rows which stand for rollouts without one. They train nothing."""
FINISHED = "finished"
"""How the work of an agent ends that nothing cut off."""
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")

log = logging.getLogger(__name__)


class NoReward(Exception):  # noqa: N818 - what is missing is the point
    """A rollout has no reward, or no row to train on. The text says why."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where `whet serve` is, and what all rollouts of a trainer share. It can be pickled."""

    url: str
    token: str | None = field(default=None, repr=False)
    request: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Fields of every request, such as agent, model, endpoint, limits, min_group or max_staleness."""
    max_tokens: int | None = None
    """The longest row that the trainer takes. Longer ones are cut after a reply, or dropped and counted."""

    def open(self) -> AsyncClient:
        """A client, to be used in `async with`."""
        return AsyncClient(self.url, self.token)

    def make_request(self, task: Any, samples: int, sampling: Mapping[str, Any] | None = None) -> RolloutRequest:
        """The request for a task of the trainer's data set. A rollout without a reward stays in its group, as null,
        unless `request` has another `on_failure`."""
        fields = {"on_failure": "null", **self.request, **read_task(task), "samples": samples}
        if sampling and fields.get("endpoint"):
            sent = {name: sampling[name] for name in _SAMPLING if sampling.get(name) is not None}
            endpoint = dict(fields["endpoint"])
            fields["endpoint"] = {**endpoint, "set": {**endpoint.get("set", {}), **sent}}
        return RolloutRequest.model_validate(fields)


def read_task(given: Any) -> dict[str, Any]:
    """What a data set says about a task: the id of a served task, or fields of a request, also as JSON.

    >>> read_task("fix-1")
    {'task': 'fix-1'}
    >>> read_task('{"instruction": "Write 42 into answer.", "verify": ["grep -qx 42 answer"]}')["verify"]
    ['grep -qx 42 answer']
    """
    if isinstance(given, str) and given.lstrip().startswith("{"):
        given = json.loads(given)
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, str) and given:
        return {"task": given}
    raise UserError(f"a task of the data set is {given!r}; expected the id of a served task, or fields of a request")


@dataclass(frozen=True, slots=True)
class Finished:
    """A rollout that is over."""

    view: RolloutView | None
    """None if the server left it out of its group."""
    rows: tuple[Row, ...] = ()
    left_out: str = ""
    """Why it does not count: it was left out of its group, or its group is too small."""

    @property
    def reward(self) -> float | None:
        return self.view.reward if self.view and not self.left_out else None

    @property
    def id(self) -> str:
        return self.view.id if self.view else ""

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the weights that sampled it, oldest first."""
        return self.view.weight_versions if self.view else ()

    @property
    def seconds(self) -> float:
        """Wall time of all its phases."""
        return sum(self.view.seconds.values()) if self.view else 0.0

    @property
    def main_row(self) -> Row | None:
        """The longest row of the main thread, for trainers that take one row per rollout."""
        return find_main_row(self.rows)

    def why_missing(self) -> str:
        """Why there is no reward, or no row."""
        if self.view is None:
            return f"a rollout was left out of its group: {self.left_out}"
        if self.view.reward is None:
            why = ": ".join(str(one) for one in (self.view.cause, self.view.reason) if one)
            return f"rollout {self.id} is {self.view.outcome or Outcome.UNSCORED}{': ' if why else ''}{why}"
        if self.left_out:
            return f"rollout {self.id} does not count: {self.left_out}"
        return f"rollout {self.id} has no row: no call can be trained on, or its rows are truncated or too long"


async def run_group(
    client: AsyncClient, request: RolloutRequest, key: str | None, max_tokens: int | None = None
) -> list[Finished]:
    """Run the rollouts of a request and wait for them: one per sample, in their order. If this is cancelled, the
    server cancels them too."""
    group = await _submit(client, request, key)
    try:
        group = await client.wait_group(group.id)
        records = await _read_rows(client, group, max_tokens)
    except asyncio.CancelledError:
        await asyncio.shield(client.cancel_group(group.id))
        raise
    rows: dict[str, list[Row]] = {}
    for record in records:
        rows.setdefault(record["rollout_id"], []).append(Row.read(record))
    small = "" if group.complete else f"{group.scored} rollouts of its group are scored, fewer than {request.min_group}"
    # A rollout that nothing judges has rows too. Trainers learn from rewards, so they get none of them.
    done = {
        view.sample: Finished(view, tuple(rows.get(view.id, ())) if view.reward is not None else (), small)
        for view in group.rollouts
    }
    dropped = ", ".join(f"{times} x {why}" for why, times in group.dropped.items())
    missing = Finished(None, left_out=dropped or "the server gave no reason")
    return [done.get(sample, missing) for sample in range(request.samples)]


async def _read_rows(client: AsyncClient, group: GroupView, max_tokens: int | None) -> list[dict[str, Any]]:
    """The rows of a group. A server whose model does not return what rows need refuses them, and so does one whose
    rollouts were all cut off in the middle of a call. Only the first is a mistake that the trainer must hear of."""
    try:
        return (await client.group_rows(group.id, max_tokens=max_tokens)).rows
    except InvalidRequest as error:
        if any(view.stop == FINISHED for view in group.rollouts):
            raise
        log.warning("group %s has no rows: %s", group.id, error)
        return []


async def run_groups(
    client: AsyncClient, requests: Iterable[tuple[RolloutRequest, str | None]], max_tokens: int | None = None
) -> list[list[Finished]]:
    """Run several requests, each with its key, at the same time. If one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(run_group(client, request, key, max_tokens)) for request, key in requests]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _submit(client: AsyncClient, request: RolloutRequest, key: str | None) -> GroupView:
    """Submit a request. A cancel in the middle of it waits for the id, and cancels that."""
    submitted = asyncio.ensure_future(client.submit(request, key=key))
    try:
        return await asyncio.shield(submitted)
    except asyncio.CancelledError:
        group = await submitted
        await asyncio.shield(client.cancel_group(group.id))
        raise


def check_temperature(rollouts: Iterable[Finished], expected: float | None) -> None:
    """UserError if a row was sampled at another temperature than the trainer computes with."""
    for rollout in rollouts:
        for row in rollout.rows:
            if expected is not None and row.temperature is not None and row.temperature != expected:
                raise UserError(
                    f"rollout {rollout.id} was sampled at temperature {row.temperature}; the trainer expects "
                    f"{expected}: set the same 'temperature' under 'set' of the model in whet.toml"
                )


def make_key(*parts: object) -> str:
    """An idempotency key of what a trainer calls a rollout; a digest if that is too long for a header.

    >>> make_key("run-7", "train", 3, "fix-1")
    'run-7/train/3/fix-1'
    """
    key = "/".join(map(str, parts))
    return key if len(key) <= 200 and key.isascii() and key.isprintable() else blake2b(key.encode()).hexdigest()
