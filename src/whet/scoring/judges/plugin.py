"""A judge of an installed package: a function, or a class with a method `judge`. It runs in this process."""

from pydantic import ValidationError

from whet.errors import UserError
from whet.plugins import JUDGES, find_plugins, make_object
from whet.scoring.judge import JudgeError, Work
from whet.scoring.judges.python_object import python_object
from whet.scoring.score import Score
from whet.tasks.judges import PluginSpec, PythonJudge


async def plugin(spec: PluginSpec, work: Work) -> Score:
    found = find_plugins(JUDGES).get(spec.kind)
    if found is None:
        raise JudgeError(f"the plug-in '{spec.kind}' of {spec.package} is not installed")
    try:
        judge = make_object(found.load(), spec.model_extra or {})
    except (UserError, ValidationError) as error:
        raise JudgeError(str(error)) from error
    return await python_object(PythonJudge(judge=judge), work)
