"""Runs groups of rollouts at a server for the adapters, and cancels them there when the trainer gives up."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from whet.adapters.rollouts import Finished
from whet.adapters.rows import Row
from whet.client import AsyncClient
from whet.client.errors import InvalidRequest, ServerError
from whet.client.models import GroupView, RolloutRequest

CANCEL_SEC = 30.0
"""How long a server is asked to cancel a group. It may be gone."""
FINISHED = "finished"
"""How the work of an agent ends that nothing cut off."""

log = logging.getLogger(__name__)


async def run_group(
    client: AsyncClient, request: RolloutRequest, key: str | None, max_tokens: int | None = None
) -> list[Finished]:
    """Run the rollouts of a request and wait for them: one per sample, in their order. If this is cancelled, the
    server cancels them too."""
    submitted = asyncio.ensure_future(client.submit(request, key=key))
    try:
        group = await client.wait_group((await asyncio.shield(submitted)).id)
        records = await _read_rows(client, group, max_tokens)
    except asyncio.CancelledError:
        await _finish(_cancel(client, submitted))
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


async def run_groups(
    client: AsyncClient, requests: Iterable[tuple[RolloutRequest, str | None]], max_tokens: int | None = None
) -> list[list[Finished]]:
    """Run several requests, each with its key, at the same time. If one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(run_group(client, request, key, max_tokens)) for request, key in requests]

    async def end() -> None:
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await _finish(end())


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


async def _cancel(client: AsyncClient, submitted: asyncio.Future[GroupView]) -> None:
    """Cancel a group at the server, also one whose request is still under way."""
    try:
        async with asyncio.timeout(CANCEL_SEC):
            await client.cancel_group((await submitted).id)
    except (ServerError, TimeoutError) as error:
        log.warning("a group was not cancelled at the server: %s", str(error) or "it does not answer")


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Do this to its end. Trainers may cancel twice; the second time takes effect afterwards."""
    task, again = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as cancelled:
            again = cancelled
    task.result()
    if again is not None:
        raise again
