"""A judge that the user passes as a Python object or function. It runs in this process."""

import inspect
import traceback

from whet.scoring.judge import JudgeError, Work
from whet.scoring.score import Score
from whet.tasks.judges import PythonJudge


async def python_object(spec: PythonJudge, work: Work) -> Score:
    """What the object says; a bare number is a score without a reason."""
    judge = spec.judge.judge if hasattr(spec.judge, "judge") else spec.judge
    try:
        found = judge(work)
        if inspect.isawaitable(found):
            found = await found
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError(repr(error), details={"traceback": traceback.format_exc()}) from error
    return found if isinstance(found, Score) else Score.of(float(found))
