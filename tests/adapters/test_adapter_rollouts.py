"""What all adapters rest on: groups of a real server, in order, with rows for those that have a reward."""

import asyncio
from collections.abc import Awaitable, Iterator

import pytest

from support.adapters_world import serve_tasks
from whet.adapters.groups import run_group, run_groups
from whet.adapters.rollouts import Finished, Server, check_temperature, make_key, read_task
from whet.client import AsyncClient
from whet.client.errors import InvalidRequest, NotFound, Unreachable
from whet.client.models import GroupView, Outcome, Status
from whet.errors import UserError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve_tasks(tmp_path_factory.mktemp("server")) as url:
        yield Server(url)


async def wait_until_running(client: AsyncClient, task: str, number: int) -> list[str]:
    """The ids of the rollouts of a task, by sample, when so many of them run."""
    while True:
        found = [one for one in await client.rollouts(status=Status.RUNNING) if one.task == task]
        if len(found) == number:
            return [one.id for one in sorted(found, key=lambda one: one.sample)]


async def run_with_a_loss(server: Server, **fields: object) -> list[Finished]:
    """A group of three, of which the first is cancelled by somebody else."""
    with_fields = Server(server.url, request=fields)
    async with server.open() as client:
        running = asyncio.create_task(run_group(client, with_fields.make_request("slow", 3), None))
        first, *_ = await wait_until_running(client, "slow", 3)
        await client.cancel(first)
        return await running


async def test_a_group_has_one_result_per_sample_with_whets_own_rows(server: Server) -> None:
    async with server.open() as client:
        await client.update_model("policy", weight_version="7")
        rollouts = await run_group(client, server.make_request("four", 3), None)
        assert [one.view.sample for one in rollouts if one.view] == [0, 1, 2]
        for one in rollouts:
            (record,) = (await client.rows(one.id)).rows
            (row,) = one.rows
            assert (row.tokens, row.loss_mask, row.logprobs) == (
                record["tokens"],
                record["loss_mask"],
                record["logprobs"],
            )
            assert (one.reward, one.versions, row.replies[0].version) == (1.0, ("7",), "7")


async def test_a_rollout_without_a_reward_keeps_its_place(server: Server) -> None:
    lost, *others = await run_with_a_loss(server)
    assert (lost.reward, lost.rows) == (None, ())
    assert lost.why_missing().startswith(f"rollout {lost.id} is cancelled")
    assert [one.reward for one in others] == [1.0, 1.0]
    assert all(one.rows for one in others)


async def test_a_rollout_that_the_server_drops_keeps_its_place(server: Server) -> None:
    lost, *others = await run_with_a_loss(server, on_failure="drop")
    assert (lost.view, lost.reward) == (None, None)
    assert "cancelled" in lost.why_missing()
    assert [one.reward for one in others] == [1.0, 1.0]


async def test_a_zero_comes_only_if_it_is_asked_for(server: Server) -> None:
    lost, *_ = await run_with_a_loss(server, on_failure="zero")
    assert lost.reward == 0.0
    assert lost.view is not None
    assert lost.view.substituted


async def test_a_group_that_is_too_small_counts_for_nothing(server: Server) -> None:
    rollouts = await run_with_a_loss(server, min_group=3)
    assert [(one.reward, one.rows) for one in rollouts] == [(None, ())] * 3
    assert "2 rollouts of its group are scored, fewer than 3" in rollouts[1].why_missing()


async def test_a_failed_judge_is_no_zero(server: Server) -> None:
    async with server.open() as client:
        (lost,) = await run_group(client, server.make_request("lost", 1), None)
    assert lost.reward is None
    assert "is failed: judge" in lost.why_missing()


async def test_a_rollout_that_nothing_judges_has_no_rows(server: Server) -> None:
    async with server.open() as client:
        (one,) = await run_group(client, server.make_request({"instruction": "2 + 2?"}, 1), None)
    assert (one.reward, one.rows) == (None, ())
    assert "is unscored" in one.why_missing()


async def test_a_cancelled_group_is_cancelled_at_the_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server.open() as client:
        waits: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        wait_group = client.wait_group

        def wait_and_say_so(name: str) -> Awaitable[GroupView]:
            waits.set_result(name)
            return wait_group(name)

        monkeypatch.setattr(client, "wait_group", wait_and_say_so)
        running = asyncio.create_task(run_group(client, server.make_request("slow", 2), None))
        group = await waits
        for _ in range(3):  # a trainer that is impatient
            running.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()
        assert [one.outcome for one in (await wait_group(group)).rollouts] == [Outcome.CANCELLED] * 2


async def test_a_cancel_while_a_group_is_submitted_reaches_the_server(server: Server) -> None:
    async with server.open() as client:
        request = server.make_request("slow", 1)
        running = asyncio.create_task(run_group(client, request, "cut off"))
        for _ in range(3):
            await asyncio.sleep(0)  # now the request is being sent
            running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()
        (only,) = (await client.submit(request, key="cut off")).rollouts
        assert only.outcome is Outcome.CANCELLED


async def test_a_cancel_that_the_server_does_not_answer_is_a_cancel_all_the_same(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with server.open() as client:

        async def fail(name: str) -> None:
            raise Unreachable(f"no server for {name}")

        monkeypatch.setattr(client, "cancel_group", fail)
        running = asyncio.create_task(run_group(client, server.make_request("slow", 1), None))
        await wait_until_running(client, "slow", 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()
    assert "a group was not cancelled at the server: no server for" in caplog.text


async def test_a_group_that_is_refused_cancels_the_others(server: Server) -> None:
    async with server.open() as client:
        good, wrong = (server.make_request(task, 1) for task in ("slow", "none such"))
        with pytest.raises(NotFound, match="none such"):
            await run_groups(client, [(good, "beside a wrong one"), (wrong, None)])
        (only,) = (await client.submit(good, key="beside a wrong one")).rollouts
        assert only.outcome is Outcome.CANCELLED


async def test_the_same_key_gives_the_recorded_group(server: Server) -> None:
    async with server.open() as client:
        first, second = [await run_group(client, server.make_request("four", 2), "step-1") for _ in range(2)]
    assert [one.id for one in first] == [one.id for one in second]
    assert first == second


async def test_rows_that_are_too_long_are_missing_and_the_reward_stays(server: Server) -> None:
    async with server.open() as client:
        (one,) = await run_group(client, server.make_request("four", 1), None, max_tokens=3)
    assert (one.reward, one.rows) == (1.0, ())
    assert "has no row" in one.why_missing()


@pytest.mark.parametrize(("task", "cut_off"), [("slow", True), ("four", False)])
async def test_rows_that_are_refused_are_missing_only_if_every_agent_was_cut_off(
    server: Server, task: str, cut_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = Server(server.url, request={"limits": {"agent_sec": 0.5}} if cut_off else {})
    async with server.open() as client:

        async def refuse(*_: object, **__: object) -> None:
            raise InvalidRequest("no call can be trained on")

        monkeypatch.setattr(client, "group_rows", refuse)
        running = run_group(client, limited.make_request(task, 1), None)
        if cut_off:
            (one,) = await running
            assert (one.reward, one.rows) == (0.0, ())
        else:
            with pytest.raises(InvalidRequest):
                await running


async def test_a_row_of_another_temperature_is_an_error(server: Server) -> None:
    async with server.open() as client:
        rollouts = await run_group(client, server.make_request("four", 1), None)
    check_temperature(rollouts, 1.0)
    with pytest.raises(UserError, match=r"was sampled at temperature 1\.0; the trainer expects 0\.7"):
        check_temperature(rollouts, 0.7)


def test_an_endpoint_gets_the_sampling_of_the_trainer() -> None:
    endpoint = {"base_url": "http://10.0.0.1:8000", "model": "m", "capture": "vllm", "set": {"top_k": -1}}
    request = Server("http://x", request={"endpoint": endpoint}).make_request("t", 4, {"temperature": 0.9, "n": 4})
    assert request.endpoint is not None
    assert request.endpoint.set == {"top_k": -1, "temperature": 0.9}
    assert (request.task, request.samples) == ("t", 4)


def test_a_task_that_is_neither_an_id_nor_fields_is_an_error() -> None:
    with pytest.raises(UserError, match="a task of the data set is None; expected the id of a served task"):
        read_task(None)


def test_a_long_key_becomes_a_digest() -> None:
    first, second = make_key("x" * 300, 1), make_key("x" * 300, 2)
    assert first != second
    assert len(first) <= 200


def test_a_server_shows_no_token() -> None:
    endpoint = {"endpoint": {"api_key": "secret"}}
    assert "secret" not in repr(Server("http://x", "secret", endpoint))
