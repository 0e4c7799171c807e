"""The plan of a run: tasks x agents x models x skills x samples, each rollout with a name that never changes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from whet.agents import AnyAgent
from whet.box import Sandbox
from whet.errors import UserError
from whet.gateway import Model
from whet.ids import digest
from whet.rollout.result import Rollout
from whet.runs.store.schema import RolloutRow, SkillRow, TaskRow
from whet.scoring import judges_of
from whet.skill import Skill
from whet.tasks import Task, resolve_env
from whet.trace.replay.session import Prefix


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run, in order."""

    tasks: Mapping[str, Task]
    agents: Mapping[str, AnyAgent]
    models: Mapping[str, Model]
    skills: Sequence[Skill | None]
    samples: int
    captured: bool = True
    """Whether agents call the models through the gateway."""
    prefix: Prefix | None = None
    """What each rollout repeats before it goes on by itself."""
    forked: str = ""
    """What that is the beginning of."""
    by_task: bool = False
    """Whether all samples of a task come before the next task."""

    def rows(self) -> list[RolloutRow]:
        """Every rollout. All tasks come once before any comes twice, so a run that is stopped early has breadth."""
        cells = [
            (task, agent, model, skill.digest if skill else None, sample)
            for sample in range(self.samples)
            for task in self.tasks.values()
            for agent in self.agents
            for model in self.models
            for skill in self.skills
        ]
        if self.by_task:
            places = {name: place for place, name in enumerate(self.tasks)}
            cells.sort(key=lambda cell: places[cell[0].id])
        return [
            RolloutRow(rollout_id(*cell, self.forked), ordinal, cell[0].id, *cell[1:])
            for ordinal, cell in enumerate(cells)
        ]

    def rollout(self, row: RolloutRow) -> Rollout:
        """What a row of the plan stands for."""
        skill = next((skill for skill in self.skills if skill and skill.digest == row.skill), None)
        task, agent, model = self.tasks[row.task], self.agents[row.agent], self.models[row.model]
        return Rollout(row.id, task, agent, model, skill, row.sample, self.captured, self.prefix)

    def skill_rows(self) -> list[SkillRow]:
        return [skill_row(skill) for skill in self.skills if skill]


def task_rows(tasks: Iterable[Task]) -> list[TaskRow]:
    return [TaskRow(task.id, task.digest, task.origin, public(task)) for task in tasks]


def skill_row(skill: Skill) -> SkillRow:
    return SkillRow(skill.digest, skill.name, skill.text.encode())


def rollout_id(task: Task, agent: str, model: str, skill: str | None, sample: int, forked: str = "") -> str:
    """The same rollout has the same id in every run that plans it. A fork is another one."""
    parts = (task.id, task.digest, agent, model, skill or "", str(sample), *([forked] if forked else []))
    return digest(*(part.encode() for part in parts))[:12]


def check_tasks(tasks: Sequence[Task], sandbox: Sandbox, env: Mapping[str, str]) -> None:
    """UserError when a task cannot be run or judged here; before anything is spent."""
    for task in tasks:
        judges_of(task)
        for variables in (task.env, task.verify_env):
            resolve_env(variables, env, task.origin)
        if task.unsupported is not None:
            raise UserError(f"{task.origin}: not supported: {task.unsupported}")
        if task.needs_image is not None:
            raise UserError(
                f"{task.origin}: needs {task.needs_image}; sandbox '{sandbox.name}' has no images, a container has"
            )
        if task.tests is not None and not sandbox.own_root:
            raise UserError(
                f"{task.origin}: its tests need /tests and /logs, which sandbox '{sandbox.name}' cannot give; "
                "use sandbox 'bubblewrap'"
            )


def public(task: Task) -> str:
    """A task as a run keeps it, in JSON."""
    # Inline files may be large, and answers are not for casual eyes; the digest vouches for both.
    return task.model_dump_json(exclude={"files", "answer", "judge", "canary"})
