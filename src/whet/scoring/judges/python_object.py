"""A judge written in Python: an object or function that the user passes, or a plug-in of an installed package. It runs
in this process."""

import inspect
import traceback

from pydantic import ValidationError

from whet.errors import UserError
from whet.plugins import JUDGES, find_plugins, make_object
from whet.scoring.judge import JudgeError, Work
from whet.scoring.score import Score
from whet.tasks.judges import PluginSpec, PythonJudge


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


async def plugin(spec: PluginSpec, work: Work) -> Score:
    found = find_plugins(JUDGES).get(spec.kind)
    if found is None:
        raise JudgeError(f"the plug-in '{spec.kind}' of {spec.package} is not installed")
    try:
        judge = make_object(found.load(), spec.model_extra or {})
    except (UserError, ValidationError) as error:
        raise JudgeError(str(error)) from error
    return await python_object(PythonJudge(judge=judge), work)
