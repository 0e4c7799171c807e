"""`reward`: Harbor's way. The task's tests/test.sh runs in the sealed box and writes the reward file."""

import json
import math
from typing import Any

from whet.box import SandboxError
from whet.scoring.judge import JudgeError, Work
from whet.scoring.score import Score
from whet.scoring.verify import command_result
from whet.tasks.judges import Reward

FOLDER = "/logs/verifier"
LIMIT = 1 << 20


async def reward(spec: Reward, work: Work) -> Score:  # noqa: ARG001 - the tests are the task's
    assert work.task.tests is not None
    box = work.sealed_box
    await box.mount(work.task.tests, "/tests", work.task.omitted_from("tests"))
    # As Harbor runs it: by its own first line when it is executable, by bash otherwise.
    command = "if [ -x /tests/test.sh ]; then /tests/test.sh; else bash /tests/test.sh; fi"
    done = await box.exec(["bash", "-c", command], env=work.env, timeout=work.seconds_left)
    details = {"commands": [command_result("/tests/test.sh", done)]}
    if done.timed_out:
        seconds = work.task.limits.verify_sec
        raise JudgeError(f"the tests did not end within {seconds:g} seconds", details=details)
    try:
        rewards = await read_rewards(work)
    except ValueError as error:
        raise JudgeError(str(error), details=details) from error
    value = rewards["reward"] if "reward" in rewards else next(iter(rewards.values()))
    checks = [{"op": "tests", "passed": value >= 1}]
    return Score.of(value, f"the tests gave {value:g}", rewards=rewards, checks=checks, **details)


async def read_rewards(work: Work) -> dict[str, float]:
    """The rewards that the tests wrote: reward.json when there is one, else reward.txt."""
    text = await _read(work, "reward.json")
    if text is not None:
        return _checked("reward.json", _parse_object(text))
    text = await _read(work, "reward.txt")
    if text is None:
        raise ValueError(f"the tests wrote no reward.txt or reward.json into {FOLDER}")
    try:
        return _checked("reward.txt", {"reward": float(text)})
    except ValueError as error:
        raise ValueError(f"reward.txt holds {text[:80]!r}; expected one number in [0, 1]") from error


async def _read(work: Work, name: str) -> str | None:
    try:
        return (await work.sealed_box.read_file(f"{FOLDER}/{name}", LIMIT)).decode()
    except FileNotFoundError:
        return None
    except (SandboxError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} cannot be read: {error}") from error


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


def _checked(name: str, rewards: dict[str, Any]) -> dict[str, float]:
    for key, value in rewards.items():
        if not _is_finite(value):
            raise ValueError(f"{name}: '{key}' is {value!r}; expected a finite number")
    main = rewards.get("reward", next(iter(rewards.values())))
    if not 0 <= main <= 1:
        raise ValueError(f"{name}: the reward is {main:g}; expected a number in [0, 1]")
    return {key: float(value) for key, value in rewards.items()}
