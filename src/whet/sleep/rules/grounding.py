"""Compares what a correction asks for with the recorded steps, by the code of the judge that would certify it.

A check is grounded when it fails on the steps before the correction and passes on those after it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from whet.scoring.judge import JudgeError, ObservedCall, Work
from whet.scoring.judges.rules import rules
from whet.sleep.rules.corrections import Demand, Wish
from whet.sleep.session import Session, Step, Turn
from whet.tasks import Task
from whet.tasks.checks import PatternCheck, RulesCheck, WordsCheck, command_pattern
from whet.tasks.judges import RulesSpec

_NO_EMOJI = r"(?s)\A(?!.*[\U0001F300-\U0001FAFF\u2600-\u27BF\u2B50\u2B55])"
_RECORDED = Task(id="recorded", instruction="a recorded session", verify=("true",))


@dataclass(frozen=True, slots=True)
class Record:
    """Steps of an agent, and its last answer."""

    steps: tuple[Step, ...]
    answer: str

    @classmethod
    def of(cls, turns: Iterable[Turn]) -> "Record":
        turns = tuple(turns)
        answers = [turn.answer for turn in turns if turn.answer.strip()]
        return cls(tuple(step for turn in turns for step in turn.steps), answers[-1] if answers else "")

    @property
    def commands(self) -> tuple[str, ...]:
        return tuple(step.command for step in self.steps if step.command)


def split_at(session: Session, turn: Turn) -> tuple[list[Record], Record]:
    """What happened before a correction, and what the agent did then.

    Before is the last turn with steps, and the whole session: a habit can be broken in either. After is the first turn
    with steps from the correction on, and the first answer.
    """
    earlier = [one for one in session.turns if one.number < turn.number]
    later = [one for one in session.turns if one.number >= turn.number]
    if not any(one.steps or one.answer.strip() for one in earlier):
        return [], _first(later)
    return [_first(earlier[::-1]), Record.of(earlier)], _first(later)


def _first(turns: Sequence[Turn]) -> Record:
    """The steps of the first turn that has some, and the first answer."""
    steps = next((turn.steps for turn in turns if turn.steps), ())
    return Record(steps, next((turn.answer for turn in turns if turn.answer.strip()), ""))


def checks_for(wish: Wish) -> list[RulesCheck]:
    """The checks that a wish can mean, strictest first."""
    match wish.demand:
        case Demand.RUN:
            return [PatternCheck(op="command_ran", arg=command_pattern(wish.words))]
        case Demand.RUN_AFTER_EDIT:
            pattern = command_pattern(wish.words)
            return [PatternCheck(op=op, arg=pattern) for op in ("command_ran_after_edit", "command_ran")]
        case Demand.NOT_RUN:
            return [PatternCheck(op="command_not_ran", arg=command_pattern(wish.words))]
        case Demand.SAY:
            return [WordsCheck(op="contains", arg=wish.words)]
        case Demand.NOT_SAY:
            return [WordsCheck(op="not_contains", arg=wish.words)]
        case Demand.NO_EMOJI:
            return [PatternCheck(op="regex", arg=_NO_EMOJI)]


async def find_grounded(checks: Sequence[RulesCheck], before: Sequence[Record], after: Record) -> list[RulesCheck]:
    """The checks that fail on a record before the correction and pass on the one after it."""
    about_steps = bool([step for step in after.steps if step.command or step.is_edit])
    usable = [check for check in checks if about_steps or not check.op.startswith("command_")]
    if not usable or not before:
        return []
    passed = await _evaluate(usable, after)
    failed = [await _evaluate(usable, one) for one in before]
    return [
        check
        for index, check in enumerate(usable)
        if passed[index] is True and any(results[index] is False for results in failed)
    ]


async def _evaluate(checks: Sequence[RulesCheck], record: Record) -> list[bool | None]:
    """Whether each check passes on a record. None when the record cannot tell."""
    work = Work(_RECORDED, None, record.answer, {}, calls=tuple(map(_observe, record.steps)))
    try:
        score = await rules(RulesSpec(kind="rules", checks=tuple(checks)), work)
    except JudgeError:
        return [None] * len(checks)
    return [None if "problem" in result else result["passed"] for result in score.details["checks"]]


def _observe(step: Step) -> ObservedCall:
    """A recorded step as the judge sees the call of a tool."""
    given = {"command": step.command, "path": step.path, "content": step.after}
    arguments = json.dumps({key: value for key, value in given.items() if value is not None})
    tool = "edit" if step.is_edit else step.tool  # the judge does not know the editors of every program
    return ObservedCall(tool, arguments, "model", failed=None if step.exit is None else step.exit != 0)
