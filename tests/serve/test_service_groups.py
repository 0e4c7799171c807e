"""Groups: one request, several rollouts; rollouts without a score are treated as the request says, never as zeros."""

from pathlib import Path
from typing import Any

import pytest

from support.run_world import fails, outage
from support.serve_world import ADMIN, ANN, answers, open_test_service, question, run_one
from whet.client.models import GroupView, OnFailure, Outcome, Status
from whet.runs.options import RecordOptions
from whet.runs.store.store import Store
from whet.serve.problems import Refused
from whet.testing import Fault, Reply, Scene

ROWS = RecordOptions(format="rows")


def failing(times: int | None = None) -> tuple[Scene, ...]:
    """A model that is down for questions about cats, the first `times` times or always, and right about others."""
    down = [answers(word, reply) for word, reply in outage().items()]
    return (*down, answers("cats", fails(Fault.SERVER_ERROR, times)), answers("", Reply(text="4")))


async def run_group(folder: Path, *scenes: Scene, tokens: bool = True, **fields: Any) -> tuple[GroupView, list[Any]]:
    async with open_test_service(folder, *scenes, tokens=tokens) as service:
        group = await service.submit(question(**fields), ANN)
        done = await service.wait_group(group.id, ANN, 60)
        rows = await service.group_rows(group.id, ANN, ROWS)
    assert done.status is Status.DONE
    return done, rows.rows


async def test_a_group_has_rows_with_advantages_within_it(tmp_path: Path) -> None:
    scenes = answers("2", Reply(text="4"))
    async with open_test_service(tmp_path, scenes, tokens=True) as service:
        groups = [await service.submit(question(samples=2, seed=7), ANN) for _ in range(2)]
        done = [await service.wait_group(group.id, ANN, 60) for group in groups]
        assert [[one.sample for one in group.rollouts] for group in done] == [[0, 1], [0, 1]]
        assert all(group.complete and group.scored == 2 for group in done)
        found = await service.group_rows(groups[0].id, ANN, ROWS)
        assert {row["group_id"] for row in found.rows} == {groups[0].id}
        assert {row["rollout_id"] for row in found.rows} == {one.id for one in groups[0].rollouts}
        assert [row["advantage"] for row in found.rows] == [0.0, 0.0]
        (alone,) = (await service.rows([groups[1].rollouts[1].id], ANN, ROWS)).rows
        assert alone["advantage"] == 0.0  # relative to its group, of which it is one of two
        exchange = (await service.stored(groups[1].rollouts[1].id, ANN)).exchanges()[0]
        assert b'"seed":8' in (exchange.sent or b"").replace(b" ", b"")


@pytest.mark.parametrize("on_failure", [OnFailure.DROP, OnFailure.NULL, OnFailure.ZERO])
async def test_failures_are_dropped_kept_or_replaced_as_requested(tmp_path: Path, on_failure: OnFailure) -> None:
    group, rows = await run_group(tmp_path, *failing(), text="cats: 2 + 2?", samples=2, on_failure=on_failure)
    shown = [(one.outcome, one.cause, one.reward, one.substituted) for one in group.rollouts]
    assert group.scored == 0
    match on_failure:
        case OnFailure.DROP:
            assert (shown, group.dropped) == ([], {"failed: model": 2})
        case OnFailure.NULL:
            assert (shown, group.dropped) == ([(Outcome.FAILED, "model", None, False)] * 2, {})
        case OnFailure.ZERO:
            assert (shown, group.dropped) == ([(Outcome.FAILED, "model", 0.0, True)] * 2, {})
    assert rows == []
    with Store.open_read(tmp_path / "served" / "rollouts") as store:
        assert store.results() == []  # the store has no zero


@pytest.mark.parametrize(("on_failure", "advantage"), [(OnFailure.ZERO, 1.0), (OnFailure.NULL, None)])
async def test_only_a_requested_zero_counts_in_advantages(
    tmp_path: Path, on_failure: OnFailure, advantage: float | None
) -> None:
    async with open_test_service(tmp_path, *failing(3), tokens=True, concurrency=1) as service:
        group = await service.submit(question("cats: 2 + 2?", samples=2, on_failure=on_failure), ANN)
        done = await service.wait_group(group.id, ANN, 60)
        (row,) = (await service.group_rows(group.id, ANN, ROWS)).rows
    assert [one.outcome for one in done.rollouts] == [Outcome.FAILED, Outcome.SCORED]
    assert (row["reward"], row["reward_source"]) == (1.0, "whet")
    assert row["advantage"] == (pytest.approx(advantage) if advantage else None)


async def test_failures_are_tried_more_often_if_requested(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"text": "cats: 2 + 2?", "on_failure": OnFailure.RETRY, "retries": 2}
    group, _ = await run_group(tmp_path, *failing(4), **fields)
    assert [(one.outcome, one.reward, one.attempts) for one in group.rollouts] == [(Outcome.SCORED, 1.0, 5)]


async def test_retries_end(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"text": "cats: 2 + 2?", "on_failure": OnFailure.RETRY, "retries": 1}
    group, _ = await run_group(tmp_path, *failing(), **fields)
    assert (group.rollouts, group.dropped) == ((), {"failed: model": 1})
    async with open_test_service(tmp_path, *failing()) as service:
        (failed,) = await service.list_rollouts(ADMIN)
    assert (failed.attempts, failed.outcome) == (4, Outcome.FAILED)


async def test_a_group_with_too_few_scores_has_no_rows(tmp_path: Path) -> None:
    group, rows = await run_group(tmp_path, answers("2", Reply(text="4")), samples=2, min_group=3)
    assert (group.complete, group.scored, rows) == (False, 2, [])


async def test_rows_wait_for_the_end(tmp_path: Path) -> None:
    async with open_test_service(tmp_path, answers("", Reply(text="4", delay=60))) as service:
        group = await service.submit(question(), ANN)
        for look in (service.group_rows(group.id, ANN, ROWS), service.rows([group.rollouts[0].id], ANN, ROWS)):
            with pytest.raises(Refused, match="is not done"):
                await look
        await service.cancel_group(group.id, ANN)
        with pytest.raises(Refused, match="unknown format"):
            await service.group_rows(group.id, ANN, RecordOptions(format="rowz"))


async def test_one_broken_model_does_not_stop_the_others(tmp_path: Path) -> None:
    scenes = (answers("Reply with", Reply(fault=Fault.UNAUTHORIZED)), answers("cats", Reply(fault=Fault.UNAUTHORIZED)))
    async with open_test_service(tmp_path, *scenes, answers("", Reply(text="4"))) as service:
        bad = [await service.submit(question("cats: 2 + 2?"), ANN) for _ in range(5)]
        good = await service.submit(question("dogs: 2 + 2?"), ANN)
        assert (await service.wait_group(good.id, ANN, 60)).scored == 1
        dropped = [(await service.wait_group(group.id, ANN, 60)).dropped for group in bad]
    assert dropped == [{"failed: auth": 1}] * 5


async def test_a_judge_that_decides_later_settles_what_it_could_not_decide(tmp_path: Path) -> None:
    broken, good = (f"command:sh -c 'echo {reward} > answer.txt'" for reward in ("nan", "1"))
    fields: dict[str, Any] = {"answer": None, "verify": ("cp answer.txt /logs/verifier/reward.txt",)}
    for restarted in (False, True):
        folder = tmp_path / str(restarted)
        folder.mkdir()
        async with open_test_service(folder, agents=(broken, good)) as service:
            first = await run_one(service, question(agent=broken, **fields))
            assert (first.outcome, first.cause) == (Outcome.FAILED, "judge")
            if not restarted:
                assert (await run_one(service, question(agent=good, **fields))).reward == 1.0
        async with open_test_service(folder, agents=(broken, good)) as service:
            if restarted:
                assert (await run_one(service, question(agent=good, **fields))).reward == 1.0
            again = await service.rollout(first.id, ADMIN)
        assert (again.outcome, again.reward, again.cause, again.flags) == (Outcome.SCORED, 0.0, None, ("no-verdict",))
