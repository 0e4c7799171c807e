"""`reward`: Harbor's way. The task's tests/test.sh runs in the sealed box and writes the reward file.

The file is read when every process of the tests is dead, and only if the judge's user wrote it. Where both
reward.json and reward.txt are there and disagree, the lower reward counts, and the rollout is flagged.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from whet.box import Box, RefusedVerdict
from whet.scoring.failed_tests import describe_failure
from whet.scoring.judge import JudgeError, Work
from whet.scoring.judges.verify import command_result
from whet.scoring.score import Score
from whet.tasks.judges import RewardSpec

FOLDER = "/logs/verifier"
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


def main_reward(rewards: Mapping[str, float]) -> float:
    """The reward among several: the one of that name, or the only one."""
    return rewards["reward"] if "reward" in rewards else next(iter(rewards.values()))


async def read_rewards(box: Box) -> list[dict[str, float]]:
    """The rewards that the tests wrote, one set for each file: reward.json, then reward.txt."""
    found = []
    if (text := await _read(box, "reward.json")) is not None:
        found.append(_check_reward("reward.json", _parse_object(text)))
    if (text := await _read(box, "reward.txt")) is not None:
        found.append(_check_reward("reward.txt", {"reward": _parse_number(text)}))
    if not found:
        raise ValueError(f"the tests wrote no reward.txt or reward.json into {FOLDER}")
    return found


async def _read(box: Box, name: str) -> str | None:
    try:
        return (await box.read_verdict(name)).decode()
    except FileNotFoundError:
        return None
    except (RefusedVerdict, UnicodeDecodeError) as error:
        raise ValueError(f"{name} cannot be read: {error}") from error


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"reward.txt holds {text[:80]!r}; expected one number in [0, 1]") from error


def _parse_object(text: str) -> dict[str, Any]:
    try:
        rewards = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"reward.json is not JSON: {error}") from error
    if not isinstance(rewards, dict) or not rewards:
        raise ValueError(f"reward.json holds {text[:80]!r}; expected an object of numbers")
    if "reward" not in rewards and len(rewards) > 1:
        raise ValueError(f"reward.json has the keys {', '.join(sorted(rewards))}; expected one of them to be 'reward'")
    return rewards


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def _check_reward(name: str, rewards: dict[str, Any]) -> dict[str, float]:
    for key, value in rewards.items():
        if not _is_finite(value):
            raise ValueError(f"{name}: '{key}' is {value!r}; expected a finite number")
    main = main_reward(rewards)
    if not 0 <= main <= 1:
        raise ValueError(f"{name}: the reward is {main:g}; expected a number in [0, 1]")
    return {key: float(value) for key, value in rewards.items()}
