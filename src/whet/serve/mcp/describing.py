"""Turns what the service answers into what the tools answer. Text and structured content together stay below
`MOST_CHARACTERS`, because clients cut what is longer, or leave it out."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from whet.serve.mcp.results import (
    Answer,
    ArmMean,
    Check,
    ComparedPair,
    ComparisonAnswer,
    RolloutAnswer,
    RolloutLine,
    TaskLine,
    TaskList,
)
from whet.text.untrusted import shorten_text

if TYPE_CHECKING:
    from whet.client.models import CommandView, GroupView, RolloutView, TaskView

MOST_CHARACTERS = 10_000
SHOWN_ANSWER = 1200
SHOWN_REASON = 300
SHOWN_OUTPUT = 200
SHOWN_COMMAND = 120
SHOWN_NAME = 100
MOST_COMMANDS = 5
MOST_PATHS = 15
SHOWN_INSTRUCTION = 120
ONE_INSTRUCTION = 4000
SCALES = (1, 0.5, 0.25, 0.1, 0.02)
"""By how much texts are shortened, until an answer is short enough."""
_PAGE_CHARACTERS = MOST_CHARACTERS - 500
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

A = TypeVar("A", bound=Answer)


def describe_rollout(view: "RolloutView", more: str) -> RolloutAnswer:
    """All that an agent needs to know of a rollout."""
    return _fit(lambda scale: _describe(view, more, scale))


def _describe(view: "RolloutView", more: str, scale: float) -> RolloutAnswer:
    usage = view.usage
    fields: dict[str, Any] = {
        "reason": clip(view.reason, SHOWN_REASON * scale),
        "phase": view.phase,
        "place": view.place,
        "skill": view.skill,
        "answer": clip(view.answer, SHOWN_ANSWER * scale),
        "setup": _checks(view.setup, scale),
        "verify": _checks(view.verify, scale),
        "changed": _first_paths(view.changed, scale),
        "cost": usage.cost,
    }
    return RolloutAnswer(
        id=view.id,
        status=view.status,
        reward=view.reward,
        outcome=view.outcome,
        **_name(view),
        calls=usage.calls,
        tokens=usage.input_tokens + usage.output_tokens,
        seconds=round(sum(view.seconds.values()), 2),
        more=more,
        **{name: value for name, value in fields.items() if value not in (None, "", ())},
    )


def _fit(build: Callable[[float], A]) -> A:
    """The answer with the longest texts that is short enough."""
    built = [build(SCALES[0])]
    for scale in SCALES[1:]:
        if measure(built[-1]) < MOST_CHARACTERS:
            break
        built.append(build(scale))
    return built[-1]


def _name(view: "RolloutView") -> dict[str, Any]:
    return {name: clip(getattr(view, name), SHOWN_NAME) for name in ("task", "agent", "model")}


def describe_group(group: "GroupView", more: str) -> RolloutAnswer:
    """A group: its mean, and a line for each rollout."""
    rewards = [view.reward for view in group.rollouts if view.reward is not None]
    left_out = ", ".join(f"{what} {count}" for what, count in group.dropped.items())
    first = group.rollouts[0] if group.rollouts else None
    return RolloutAnswer(
        id=group.id,
        status=group.status,
        reward=sum(rewards) / len(rewards) if rewards else None,
        rollouts=tuple(line_of(view) for view in group.rollouts),
        more=more,
        **({"reason": clip(f"left out of the group: {left_out}", SHOWN_REASON)} if left_out else {}),
        **({**_name(first), "skill": first.skill} if first else {}),
    )


def line_of(view: "RolloutView", *, named: bool = False) -> RolloutLine:
    """A rollout in a list; with its task and agent if `named`."""
    about = {"task": clip(view.task, SHOWN_NAME), "agent": clip(view.agent, SHOWN_NAME)} if named else {}
    state = {"outcome": view.outcome, "reward": view.reward} if view.status == "done" else {}
    return RolloutLine(id=view.id, status=view.status, **state, **about)


def describe_tasks(tasks: Sequence["TaskView"], first: int) -> TaskList:
    """The page of tasks that begins with number `first`, from 1. A single one is shown in full."""
    if len(tasks) == 1:
        return _fit(lambda scale: TaskList(tasks=(_task_line(tasks[0], ONE_INSTRUCTION * scale),), total=1))
    page: list[TaskLine] = []
    room = _PAGE_CHARACTERS
    for task in tasks[first - 1 :]:
        line = _task_line(task, SHOWN_INSTRUCTION)
        room -= measure(line) + 4
        if page and room < 0:
            break
        page.append(line)
    following = first + len(page)
    rest = {"next": following} if page and following <= len(tasks) else {}
    return TaskList(tasks=tuple(page), total=len(tasks), **rest)


def describe_comparison(document: Mapping[str, Any]) -> ComparisonAnswer:
    """What `whet compare --format json` prints, as far as there is room."""
    room = _PAGE_CHARACTERS
    arms: list[ArmMean] = []
    pairs: list[ComparedPair] = []
    for ranked in document["ranking"]:
        mean = ranked["mean"] or {"mean": None}
        interval = {name: mean[name] for name in ("mean", "low", "high") if name in mean}
        arm = ArmMean(name=clip(ranked["name"], SHOWN_NAME), **interval)
        if (room := room - measure(arm) - 4) > 0:
            arms.append(arm)
    for one in document["comparisons"]:
        found = one["difference"]
        known = {"difference": found["mean"], "tasks": found["tasks"]} if found else {}
        names = {name: clip(one[name], SHOWN_NAME) for name in ("first", "second")}
        words = clip(one["words"], SHOWN_REASON * 2)
        pair = ComparedPair(**names, verdict=one["verdict"], **known, p=one["corrected_p"], words=words)
        if (room := room - measure(pair) - 4) > 0:
            pairs.append(pair)
    left_out = len(document["ranking"]) + len(document["comparisons"]) - len(arms) - len(pairs)
    return ComparisonAnswer(arms=tuple(arms), comparisons=tuple(pairs), **({"left_out": left_out} if left_out else {}))


def _task_line(task: "TaskView", most: float) -> TaskLine:
    beginning = clip(task.instruction, most) if most > SHOWN_INSTRUCTION else _first_words(task.instruction)
    return TaskLine(id=task.id, instruction=beginning, **({"split": task.split} if task.split else {}))


def _first_words(text: str) -> str:
    """The beginning of a text on one line."""
    line = " ".join(_CONTROL.sub("", text[: 4 * SHOWN_INSTRUCTION]).split())
    return line if len(line) <= SHOWN_INSTRUCTION else f"{line[:SHOWN_INSTRUCTION]} ..."


def _checks(commands: Sequence["CommandView"], scale: float) -> tuple[Check, ...]:
    """The first commands; those that failed with the end of what they printed."""
    return tuple(
        Check(
            command=clip(one.command, SHOWN_COMMAND * scale),
            exit_code=one.exit_code,
            **({} if one.exit_code == 0 else {"output": clip(one.stderr or one.stdout, SHOWN_OUTPUT * scale)}),
        )
        for one in commands[:MOST_COMMANDS]
    )


def _first_paths(paths: Sequence[str], scale: float) -> tuple[str, ...]:
    rest = [f"... and {len(paths) - MOST_PATHS} more"] if len(paths) > MOST_PATHS else []
    return (*(clip(path, SHOWN_NAME * scale) for path in paths[:MOST_PATHS]), *rest)


def clip(text: str, most: float) -> str:
    """A text without control characters, and without its middle if it is long."""
    return shorten_text(_CONTROL.sub("", text).strip(), int(most))


def measure(answer: Answer) -> int:
    """The characters of an answer, text and structured content together."""
    return len("\n".join(answer.lines())) + len(json.dumps(answer.structured(), ensure_ascii=False))
