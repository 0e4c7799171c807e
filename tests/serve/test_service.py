"""The service: requests become rollouts, and callers learn what became of their own."""

from pathlib import Path
from typing import Any

import pytest

from support.serve_world import ADMIN, ANN, BOB, RIGHT, WRITES, open_test_service, question, run_one
from whet.client.models import Outcome, RolloutRequest, Status
from whet.serve.problems import Code, Refused


async def test_a_request_becomes_a_scored_rollout(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        done = await run_one(service, question(task_id="sum", metadata={"step": "3"}), ANN)
    assert (done.status, done.outcome, done.reward) == (Status.DONE, Outcome.SCORED, 1.0)
    assert (done.answer, done.usage.calls, done.attempts, done.rewards) == ("4", 1, 1, {"exact": 1.0})
    assert (done.task_id, done.metadata, done.reward_source) == ("sum", {"step": "3"}, "judges")
    assert done.task.startswith("sum-")


async def test_commands_are_shown_with_what_they_printed(tmp_path: Path) -> None:
    request = RolloutRequest(
        instruction="Write right.", agent=WRITES, setup=("echo ready; echo so >&2",), verify=(RIGHT, "exit 3")
    )
    async with open_test_service(tmp_path) as service:
        done = await run_one(service, request)
        files = await service.files(done.id, ADMIN)
    assert (done.reward, done.reward_source, done.exit_code) == (0.5, "exit_codes", 0)
    assert [(one.stdout, one.stderr, one.exit_code) for one in done.setup] == [("ready\n", "so\n", 0)]
    assert [one.exit_code for one in done.verify] == [0, 3]
    assert done.changed == ("answer.txt",)
    assert files == {"answer.txt": b"right\n"}


async def test_a_reward_file_takes_precedence(tmp_path: Path) -> None:
    verify = ("echo 0.25 > /logs/verifier/reward.txt",)
    async with open_test_service(tmp_path) as service:
        done = await run_one(service, RolloutRequest(instruction="-", agent=WRITES, verify=verify))
    assert (done.reward, done.reward_source) == (0.25, "verifier")


async def test_what_nothing_judges_is_unscored(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        done = await run_one(service, RolloutRequest(instruction="-", agent=WRITES))
        group = await service.group(done.group, ADMIN)
    assert (done.outcome, done.reward, done.stop) == (Outcome.UNSCORED, None, "finished")
    assert (len(group.rollouts), group.complete) == (1, True)


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"agent": "chad"}, Code.INVALID, "unknown agent 'chad'; did you mean 'chat'?"),
        ({"model": "mm"}, Code.INVALID, "unknown model 'mm'; did you mean 'm'?"),
        ({"skill": "tidy"}, Code.INVALID, "unknown skill 'tidy'; known: none"),
        ({"judge": {"kind": "python", "function": "os:system"}}, Code.INVALID, "judge 'python' is not for requests"),
        ({"judge": {"kind": "rubric", "rubric": "Is it kind?"}}, Code.INVALID, "has no judge model"),
        ({"judge": "reward"}, Code.INVALID, "needs a folder tests/"),
        ({"files": {"../x": "y"}}, Code.INVALID, "key 'files"),
        ({"metadata": {"x": "\ud800"}}, Code.INVALID, "not Unicode"),
    ],
)
async def test_what_cannot_be_run_is_refused_with_a_reason(
    tmp_path: Path, fields: dict[str, Any], code: Code, reason: str
) -> None:
    async with open_test_service(tmp_path) as service:
        with pytest.raises(Refused) as refused:
            await service.submit(question(**fields), ANN)
        assert (refused.value.code, reason in str(refused.value)) == (code, True), str(refused.value)
        with pytest.raises(Refused, match="unknown task 'tasq'") as refused:
            await service.submit(RolloutRequest(task="tasq"), ANN)
        assert refused.value.code is Code.NOT_FOUND
        assert service.view(ADMIN).queued + service.view(ADMIN).done == 0


async def test_callers_do_not_see_what_is_not_theirs(tmp_path: Path) -> None:
    async with open_test_service(tmp_path) as service:
        mine = await run_one(service, question(), ANN)
        for look in (service.rollout, service.cancel, service.stored, service.files):
            with pytest.raises(Refused) as foreign:
                await look(mine.id, BOB)
            with pytest.raises(Refused) as unknown:
                await look("0" * 24, BOB)
            assert foreign.value.code is unknown.value.code is Code.NOT_FOUND
            assert str(foreign.value).replace(mine.id, "0" * 24) == str(unknown.value)
        with pytest.raises(Refused, match="there is no group"):
            await service.group(mine.group, BOB)
        with pytest.raises(Refused, match="there is no rollout"):
            await anext(service.events(mine.id, BOB))
        assert await service.list_rollouts(BOB) == []
        assert [one.id for one in await service.list_rollouts(ADMIN)] == [mine.id]
        assert (service.view(BOB).done, service.view(ANN).done, service.view(ADMIN).done) == (0, 1, 1)
