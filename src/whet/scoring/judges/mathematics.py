"""`math`: the answer is the same mathematical object as the expected one, found out in a process of its own."""

import json
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.scoring.answers import final, normalise
from whet.scoring.isolation.run import PROGRAMS, read_answer, run_isolated
from whet.scoring.judge import JudgeError, Work
from whet.scoring.judges.rubric import rubric
from whet.scoring.score import Score
from whet.tasks.judges import MathSpec, RubricSpec

CONTROL_SEC = 20.0
"""How long the expected answer may take to be compared with itself."""


async def mathematics(spec: MathSpec, work: Work) -> Score:
    expected, answer = spec.answer or work.task.answer or "", final(work.answer)
    if not answer.strip():
        return Score.of(0, "there is no answer", checks=[{"op": "answered", "passed": False}])
    if normalise(answer) == normalise(expected):
        return Score.of(1, "the answer matches", by="text", checks=[{"op": "right", "passed": True}])
    try:
        found = await _compare(spec, work, expected, answer, spec.seconds)
    except JudgeError as error:
        if spec.fallback is not None:
            return await _ask_model(spec.fallback, work, expected, str(error))
        # The expected answer, compared with itself, shows whether the failure lies in the answer.
        await _compare(spec, work, expected, expected, max(spec.seconds, CONTROL_SEC))
        checks = [{"op": "mathematics", "passed": False}]
        return Score.undecided(f"the answer could not be compared: {error}", checks=checks, **error.details)
    if not found["same"] and spec.fallback is not None:
        # Either answer may be in words, which math-verify reads as something else.
        return await _ask_model(spec.fallback, work, expected, "math-verify does not agree", math=found)
    given = found["given"]
    reason = f"the answer {'equals' if found['same'] else 'is not'} {found['expected']}"
    checks = [{"op": "right" if given else "mathematics", "passed": bool(found["same"])}]
    reason = reason if given else "the answer contains no mathematics"
    return Score.of(float(found["same"]), reason, by="math", checks=checks, **found)


async def _ask_model(spec: RubricSpec, work: Work, expected: str, why: str, **details: Any) -> Score:
    """The verdict of a model that sees the expected answer."""
    task = work.task.model_copy(update={"answer": expected})
    score = await rubric(spec, replace(work, task=task))
    return score.model_copy(update={"details": {**score.details, **details, "by": "model", "fallback": why}})


async def _compare(spec: MathSpec, work: Work, expected: str, answer: str, seconds: float) -> Any:
    request = {"expected": expected, "answer": answer}
    return await (_in_box(work, request, seconds) if spec.where == "box" else run_isolated("math", request, seconds))


async def _in_box(work: Work, request: dict[str, Any], seconds: float) -> Any:
    box = work.sealed_box
    # Pure Python all of it, so that the box's own interpreter can run it.
    packages = await box.show(Path(sysconfig.get_path("purelib")), "math-packages")
    data = json.dumps({**request, "path": [packages]}).encode()
    argv = [box.python, "-I", "-c", PROGRAMS.read_text(), "math"]
    done = await box.exec(argv, env=work.env, stdin=data, timeout=seconds)
    if done.timed_out:
        raise JudgeError(f"it did not end within {seconds:g} seconds")
    return read_answer(done.stdout.data, done.exit_code, done.stderr.text[-4000:])
