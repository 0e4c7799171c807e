"""`python`: a function of the user, called in the sealed box, by the box's Python."""

import base64
import json
import os
from pathlib import Path
from typing import Any

from whet.scoring.isolation.run import PROGRAMS, TAIL, read_answer
from whet.scoring.judge import JudgeError, Work
from whet.scoring.score import Score
from whet.tasks.judges import PythonSpec

MOST_BYTES = 16 << 20
"""How much the files beside a function may hold in all. They are handed to the box with every call."""
MOST_FILES = 2_000


async def python_function(spec: PythonSpec, work: Work) -> Score:
    box = work.sealed_box
    data = _request(work)
    if spec.workspace:
        data["workspace"] = box.workdir
    request = {"function": spec.function, "files": files_beside(spec.folder.resolve()), "work": data}
    seconds = min(spec.seconds, work.seconds_left)
    # -I: neither the variables of the task nor the files of the agent are where modules are looked for.
    argv = [box.python, "-I", "-B", "-c", PROGRAMS.read_text(), "python"]
    done = await box.exec(argv, env=work.env, stdin=json.dumps(request).encode(), timeout=seconds)
    output = done.stderr.text[-TAIL:]
    if done.timed_out:
        raise JudgeError(f"it did not end within {seconds:g} seconds", details={"output": output})
    return _score(read_answer(done.stdout.data, done.exit_code, output), spec.function)


def files_beside(folder: Path) -> dict[str, str]:
    """All files of a folder in base64, by their paths: without hidden ones, caches and what links lead to elsewhere."""
    found: dict[str, str] = {}
    room = MOST_BYTES
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for file in (Path(place, name) for name in sorted(files) if not name.startswith(".")):
            if file.is_file() and file.resolve().is_relative_to(folder):
                room -= file.stat().st_size
                if room < 0 or len(found) == MOST_FILES:
                    raise JudgeError(
                        f"{folder} holds more than {MOST_FILES} files or {MOST_BYTES >> 20} MB, too much to hand to "
                        "the box; name a folder with the function's own files by the judge's key 'folder'"
                    )
                found[str(file.relative_to(folder))] = base64.b64encode(file.read_bytes()).decode()
    return found


def _request(work: Work) -> dict[str, Any]:
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
    returned = answer if isinstance(answer, dict) else {"score": answer}
    value = returned.get("score")
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise JudgeError(
            f"the function gave {answer!r:.100}; expected a number in [0, 1], or a dict with 'score' and 'reason'"
        )
    details = {key: item for key, item in returned.items() if key not in {"score", "reason"}}
    reason = str(returned.get("reason", f"the function gave {value:g}"))
    checks = [{"op": "python", "arg": function, "passed": value >= 1}]
    return Score.of(float(value), reason, told=details, checks=checks)
