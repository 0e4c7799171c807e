"""`python`: a function of the user, called in a process of its own on the host."""

import tempfile
from pathlib import Path
from typing import Any

from whet.scoring.isolated import isolated
from whet.scoring.judge import JudgeError, Work
from whet.scoring.score import Score
from whet.tasks.judges import PythonFunction


async def python_function(spec: PythonFunction, work: Work) -> Score:
    with tempfile.TemporaryDirectory(prefix="whet-judge-") as folder:
        told = _told(work)
        if spec.workspace:
            copy = Path(folder, "workspace")
            await work.sealed_box.download(work.sealed_box.workdir, copy)
            told["workspace"] = str(copy)
        request = {"function": spec.function, "folder": str(spec.folder.resolve()), "work": told}
        answer = await isolated("python", request, min(spec.seconds, work.seconds_left), work.env)
    return _score(answer, spec.function)


def _told(work: Work) -> dict[str, Any]:
    """What the function is given: plain values, as JSON has them."""
    return {
        "task": work.task.model_dump(
            mode="json", include={"id", "instruction", "followups", "answer", "tags", "metadata"}
        ),
        "answer": work.answer,
        "structured": work.structured,
        "stop": work.stop,
        "changes": [change.model_dump() for change in work.changes],
        "calls": [{"name": call.name, "arguments": call.arguments, "by": call.by} for call in work.calls],
    }


def _score(answer: Any, function: str) -> Score:
    """A number, or an object with `score` and `reason`; anything else is a defect of the function."""
    told = answer if isinstance(answer, dict) else {"score": answer}
    value = told.get("score")
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise JudgeError(
            f"the function gave {answer!r:.100}; expected a number in [0, 1], or a dict with 'score' and 'reason'"
        )
    details = {key: item for key, item in told.items() if key not in {"score", "reason"}}
    reason = str(told.get("reason", f"the function gave {value:g}"))
    checks = [{"op": "python", "arg": function, "passed": value >= 1}]
    return Score.of(float(value), reason, told=details, checks=checks)
