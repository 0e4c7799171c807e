"""`reward`: Harbor's way. The task's tests/test.sh runs in the sealed box and writes the reward file.

The file is read when every process of the tests is dead, and only if the judge's user wrote it. Where both
reward.json and reward.txt are there and disagree, the lower reward counts, and the rollout is flagged.
"""

from typing import Any

from whet.scoring.commands import command_result
from whet.scoring.failed_tests import describe_failure
from whet.scoring.judge import JudgeError, Work
from whet.scoring.reward_files import FOLDER, main_reward, read_rewards
from whet.scoring.score import Score
from whet.tasks.judges import RewardSpec

TWO_REWARDS = "two-rewards"
"""Flag of a rollout whose tests wrote two reward files that disagree."""


async def reward(spec: RewardSpec, work: Work) -> Score:  # noqa: ARG001 - the tests are the task's
    assert work.task.tests is not None
    box = work.sealed_box
    await box.mount(work.task.tests, "/tests", work.task.omissions_in("tests"))
    # As Harbor runs it: by its own first line when it is executable, by bash otherwise.
    command = "if [ -x /tests/test.sh ]; then /tests/test.sh; else bash /tests/test.sh; fi"
    done = await box.exec(["bash", "-c", command], env=work.env, timeout=work.seconds_left)
    details: dict[str, Any] = {"commands": [command_result("/tests/test.sh", done)]}
    if done.timed_out:
        seconds = work.task.limits.verify_sec
        raise JudgeError(f"the tests did not end within {seconds:g} seconds", details=details)
    try:
        found = await read_rewards(box)
    except ValueError as error:
        raise JudgeError(str(error), details=details) from error
    if not found:
        raise JudgeError(f"the tests wrote no reward.txt or reward.json into {FOLDER}", details=details)
    rewards = min(found, key=main_reward)  # the first one of two that agree: reward.json can hold more
    value, highest = main_reward(rewards), max(map(main_reward, found))
    reason = f"the tests gave {value:g}"
    if value < 1:
        reason += f"; {describe_failure(details['commands'][0]['output'])}"
    if value != highest:
        reason += f", and {highest:g} in the other of two reward files; the lower one counts"
        details["flags"] = [TWO_REWARDS]
    checks = [{"op": "tests", "passed": value >= 1}]
    return Score.of(value, reason, rewards=rewards, checks=checks, **details)
