"""The files in which tests and commands of a task write the reward."""

import json
import math
from collections.abc import Mapping
from typing import Any

from whet.box import Box, RefusedVerdict

FOLDER = "/logs/verifier"


def main_reward(rewards: Mapping[str, float]) -> float:
    """The reward among several: the one of that name, or the only one."""
    return rewards["reward"] if "reward" in rewards else next(iter(rewards.values()))


async def read_rewards(box: Box) -> list[dict[str, float]]:
    """The rewards that tests or commands wrote, one set for each file: reward.json, then reward.txt. ValueError when
    one of them is not what only the judge can have written, or holds no reward."""
    found = []
    if (text := await _read(box, "reward.json")) is not None:
        found.append(_check_reward("reward.json", _parse_object(text)))
    if (text := await _read(box, "reward.txt")) is not None:
        found.append(_check_reward("reward.txt", {"reward": _parse_number(text)}))
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
