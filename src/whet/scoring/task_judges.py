"""The judges of a task, and the one score that their scores combine to."""

import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from whet.box import SandboxError
from whet.errors import UserError
from whet.installers import require_extra
from whet.scoring.judge import JudgeError, Work
from whet.scoring.judges.choice import choice
from whet.scoring.judges.contains import contains
from whet.scoring.judges.diff import diff
from whet.scoring.judges.exact import exact
from whet.scoring.judges.json_answer import json_answer
from whet.scoring.judges.mathematics import mathematics
from whet.scoring.judges.number import number
from whet.scoring.judges.outcome import outcome
from whet.scoring.judges.python_function import python_function
from whet.scoring.judges.python_object import plugin, python_object
from whet.scoring.judges.reward import reward
from whet.scoring.judges.rubric import rubric
from whet.scoring.judges.rules import rules
from whet.scoring.judges.verify import verify
from whet.scoring.score import ROUNDING, Cause, Score
from whet.tasks import judges as specs
from whet.tasks.judges import AnyJudge
from whet.tasks.task import Task
from whet.text.plain import plain_text

_JUDGES: Mapping[type[AnyJudge], Callable[[Any, Work], Awaitable[Score]]] = {
    specs.RewardSpec: reward,
    specs.VerifySpec: verify,
    specs.ExactSpec: exact,
    specs.ContainsSpec: contains,
    specs.ChoiceSpec: choice,
    specs.NumberSpec: number,
    specs.JsonSpec: json_answer,
    specs.RulesSpec: rules,
    specs.MathSpec: mathematics,
    specs.RubricSpec: rubric,
    specs.PythonSpec: python_function,
    specs.DiffSpec: diff,
    specs.OutcomeSpec: outcome,
    specs.PluginSpec: plugin,
    specs.PythonJudge: python_object,
}


@dataclass(frozen=True, slots=True)
class TaskJudge:
    """One judge of a task."""

    name: str
    spec: AnyJudge

    @property
    def weight(self) -> float:
        return self.spec.weight

    async def judge(self, work: Work) -> Score:
        """What it says of the work; missing when it came to no verdict. The details hold it `hard` and `soft`."""
        try:
            score = await _JUDGES[type(self.spec)](self.spec, await _with_answer(self.spec, work))
        except JudgeError as error:
            return Score.missing(error.cause, str(error), **error.details)
        except SandboxError as error:
            return Score.missing(Cause.SANDBOX, str(error))
        except Exception as error:  # noqa: BLE001 - a defect must not end the run; it is kept, whole, as data
            return Score.missing(Cause.INTERNAL, repr(error), traceback=traceback.format_exc())
        return _grade(score, self.spec.threshold)


async def _with_answer(spec: AnyJudge, work: Work) -> Work:
    """The work with the answer that the judge is about: the agent's text, or the file that the judge names."""
    if not isinstance(spec, specs.AnswerSpec) or spec.file is None:
        return work
    content = await work.read_file(spec.file) or b""
    return replace(work, answer=plain_text(content.decode(errors="replace")).strip(), structured=None)


def _grade(score: Score, threshold: float | None) -> Score:
    """A score with what it is when it must be all or nothing."""
    if score.value is None:
        return score
    soft = score.details.get("soft", score.value)
    hard = score.details.get("hard", soft >= 1) if threshold is None else soft >= threshold - ROUNDING
    value = score.value if threshold is None else float(hard)
    return score.model_copy(update={"value": value, "details": {**score.details, "soft": soft, "hard": hard}})


def judges_of(task: Task) -> list[TaskJudge]:
    """The judges of a task: its tests and verify commands, and those that it names. None when nothing judges it.

    >>> [judge.name for judge in judges_of(Task(id="sum", instruction="1 + 1?", answer="2"))]
    ['exact']
    """
    named = list(task.judge)
    kinds = {spec.kind for spec in named}
    implied: list[AnyJudge] = []
    if task.tests is not None and "reward" not in kinds:
        implied.append(specs.RewardSpec(kind="reward"))
    if task.verify and "verify" not in kinds:
        implied.append(specs.VerifySpec(kind="verify"))
    if task.answer is not None and not named:
        named.append(specs.ExactSpec(kind="exact"))
    if "math" in kinds:
        require_extra("math_verify", "math", f"{task.origin}: judges of kind 'math'")
    return _name_judges([*implied, *named])


def check_is_judged(task: Task) -> None:
    """UserError when nothing can judge a task."""
    if not judges_of(task):
        raise UserError(f"{task.origin}: nothing can judge this task; expected tests, 'verify', 'answer' or 'judge'")


def _name_judges(given: list[AnyJudge]) -> list[TaskJudge]:
    """Give each judge a name of its own: the one in its spec, or its kind, numbered when there are several."""
    taken = {spec.name for spec in given if spec.name is not None}
    result = []
    for spec in given:
        name = spec.name or next(
            free for free in (spec.kind, *(f"{spec.kind}-{n}" for n in range(2, len(given) + 2))) if free not in taken
        )
        taken.add(name)
        result.append(TaskJudge(name, spec))
    return result


def combine(scores: Mapping[str, Score], weights: Mapping[str, float] | None = None, ending: str = "") -> Score:
    """One score of many: their weighted mean, or missing as soon as one that counts is missing. The reason of a score
    below 1 begins with `ending`: how the agent's work ended, where that may explain it."""
    counted = {name: score for name, score in scores.items() if weights is None or weights.get(name, 1)}
    for name, score in counted.items():
        if score.cause is not None:
            return Score.missing(score.cause, f"{name}: {score.reason}")
    shares = {name: 1.0 if weights is None else weights.get(name, 1) for name in counted}
    whole = sum(shares.values())

    def mean(value_of: Callable[[Score], float]) -> float:
        return min(1.0, sum(shares[name] * value_of(score) for name, score in counted.items()) / whole)

    value = mean(lambda score: score.value or 0.0)
    reasons = "; ".join([*([ending] if ending and value < 1 else []), *(score.reason for score in counted.values())])
    soft = mean(lambda score: float(score.details.get("soft", score.value or 0.0)))
    hard = all(score.details.get("hard", score.value == 1) for score in counted.values())
    return Score.of(value, reasons, soft=soft, hard=hard)
