"""`verify`: shell commands run in the sealed box; the score is the share that exits 0, or what they write as reward."""

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from whet.scoring.commands import command_result
from whet.scoring.failed_tests import describe_failure
from whet.scoring.judge import JudgeError, Work
from whet.scoring.reward_files import main_reward, read_rewards
from whet.scoring.score import Score
from whet.tasks.judges import VerifySpec

MOST = 400
"""Characters of the reason that tell which commands failed."""


async def verify(spec: VerifySpec, work: Work) -> Score:  # noqa: ARG001 - the commands are the task's
    results = []
    for command in work.task.verify:
        left = work.seconds_left
        timeout = min(left, work.task.limits.command_sec or left)
        done = await work.sealed_box.exec(["bash", "-c", command], env=work.env, timeout=timeout)
        results.append(command_result(command, done))
    checks = [{"op": "command", "arg": one["command"], "passed": one["exit_code"] == 0} for one in results]
    good = sum(check["passed"] for check in checks)
    failed = "; ".join(_describe(one) for one in results if one["exit_code"] != 0)
    reason = f"{good} of {len(results)} commands passed" + (f"; {failed[:MOST]}" if failed else "")
    value, source = good / len(results), "exit_codes"
    if work.task.tests is None and (given := await _read_reward(work, results)) is not None:
        value, source, reason = given, "verifier", f"the commands wrote the reward {given:g}; {reason}"
    return Score.of(value, reason, commands=results, checks=checks, source=source)


async def _read_reward(work: Work, results: list[dict[str, Any]]) -> float | None:
    """The reward that the commands wrote, if they did; the lower one of two."""
    try:
        found = await read_rewards(work.sealed_box)
    except ValueError as error:
        raise JudgeError(str(error), details={"commands": results}) from error
    return min(map(main_reward, found), default=None)


def _describe(result: Mapping[str, Any]) -> str:
    """A failed command, how it ended, and what it said last."""
    ended = "timed out" if result["timed_out"] else f"exit code {result['exit_code']}"
    said = f", {describe_failure(result['output'])}" if result["output"].strip() else ""
    return f"`{shorten(result['command'], 60, placeholder=' ...')}`: {ended}{said}"
