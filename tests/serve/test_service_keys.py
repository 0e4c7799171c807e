"""Idempotency keys: a repeated request joins the group that it made, whenever it comes."""

import asyncio
from pathlib import Path

import pytest

from support.serve_world import ADMIN, ANN, BOB, open_test_service, question
from support.waiting import until
from whet.serve.problems import Code, Refused


async def test_a_repeated_key_gives_the_same_group(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        first = await service.submit(question(samples=2), ANN, "step-1")
        await service.wait_group(first.id, ANN, 60)
        again = await service.submit(question(samples=2), ANN, "step-1")
        assert (again.id, again.scored, again.complete) == (first.id, 2, True)
        with pytest.raises(Refused, match="was used for another request") as refused:
            await service.submit(question(samples=3), ANN, "step-1")
        assert refused.value.code is Code.CONFLICT
        other = await service.submit(question(samples=2), BOB, "step-1")
        assert other.id != first.id
        await service.wait_group(other.id, BOB, 60)
    async with open_test_service(tmp_path) as service:
        again = await service.submit(question(samples=2), ANN, "step-1")
        assert (again.id, service.view(ADMIN).done) == (first.id, 4)


async def test_requests_at_the_same_time_with_one_key_make_one_group(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        groups = await asyncio.gather(*(service.submit(question(), ANN, "k") for _ in range(10)))
        assert len({group.id for group in groups}) == 1
        await service.wait_group(groups[0].id, ANN, 60)
        assert len(await service.list_rollouts(ADMIN)) == 1


async def test_a_client_that_hangs_up_while_its_request_is_stored_loses_nothing(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        submitting = asyncio.create_task(service.submit(question(), ANN, "k"))
        while not service._submitter._storing:  # noqa: ASYNC110 - at the first moment, and not a later one
            await asyncio.sleep(0)
        submitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submitting
        await until(lambda: service.view(ADMIN).done == 1)  # nobody asks for it again
        group = await service.submit(question(), ANN, "k")
        assert (group.scored, len(await service.list_rollouts(ADMIN))) == (1, 1)


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb"])
async def test_a_key_that_cannot_be_kept_is_refused(tmp_path: Path, key: str) -> None:
    async with open_test_service(tmp_path) as service:
        with pytest.raises(Refused, match="idempotency key"):
            await service.submit(question(), ANN, key)
