"""The plan of a run: tasks x agents x models x skills x samples, each rollout with a name that never changes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.agents import AnyAgent
from whet.box import Sandbox
from whet.errors import UserError
from whet.gateway import Model
from whet.ids import digest
from whet.rollout.result import Rollout
from whet.runs.store.schema import RolloutRow, SkillRow, TaskRow
from whet.scoring.task_judges import check_is_judged
from whet.skill import Skill
from whet.tasks import Task, resolve_env
from whet.tasks.judges import PythonSpec
from whet.trace.replay.session import Prefix

FILES = "files_digest"
"""Where a stored task has the digest of the files that an agent gets."""
BOX_JUDGES = "box_judges_digest"
"""Where it has the digest of everything that judges in the agent's box: tests, verify commands, rules about files."""
_JUDGED_BY = {"judge", "verify", "verify_env", "answer_schema", "tests", "omitted", "canary", "agent_logs", BOX_JUDGES}
_NOT_THE_TASK = {
    "origin",
    "digest",
    "warnings",
    "tags",
    "split",
    "metadata",
    "keep",
    "solution",
    "solution_env",
    *_JUDGED_BY,
}


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
        check_is_judged(task)
        check_runnable(task, sandbox, env)


def check_runnable(task: Task, sandbox: Sandbox, env: Mapping[str, str]) -> None:
    """UserError when a task cannot be run here."""
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
    # Inline files may be large, and answers are not for casual eyes; the digests vouch for both.
    spec = task.model_dump(mode="json", exclude={"files", "answer", "judge", "canary"})
    return json.dumps({**spec, FILES: _digest_files(task), BOX_JUDGES: _digest_box_judges(task)})


def find_changes(row: TaskRow, task: Task) -> list[str]:
    """What of a stored task is different for an agent now. How it is judged does not count."""
    if row.digest == task.digest:
        return []
    then, now = (
        {key: value for key, value in _read_spec(spec).items() if key not in _NOT_THE_TASK}
        for spec in (row.spec, public(task))
    )
    then.setdefault(FILES, now[FILES])  # earlier versions did not store it
    return sorted(key for key in then.keys() | now.keys() if then.get(key) != now.get(key))


def _read_spec(spec: str) -> dict[str, Any]:
    """A stored task. What an earlier version did not store has its default."""
    stored, defaults = json.loads(spec), json.loads(public(Task(id="-", instruction="-")))
    limits = {**defaults["limits"], **stored.get("limits", {})}
    return {**{key: value for key, value in defaults.items() if key != FILES}, **stored, "limits": limits}


def has_new_box_judges(row: TaskRow, task: Task) -> bool:
    """Whether judges that need the agent's box are different from those of a stored task."""
    then = json.loads(row.spec).get(BOX_JUDGES)
    return row.digest != task.digest and then is not None and then != _digest_box_judges(task)


def _digest_files(task: Task) -> str:
    inline = [part for name, text in sorted(task.files.items()) for part in (name, text)]
    parts = [one.encode() if isinstance(one, str) else one for one in inline]
    attached = [part for path in task.attachments for part in (path.name.encode(), path.read_bytes())]
    return digest(*parts, *attached, *_folder_parts(task.workspace))


def _digest_box_judges(task: Task) -> str:
    judges = [judge for judge in task.judge if judge.needs_box]
    sources = [judge.source for judge in judges if isinstance(judge, PythonSpec) and judge.source is not None]
    facts = [task.verify, task.verify_env, task.agent_logs, [judge.model_dump(mode="json") for judge in judges]]
    tests = _folder_parts(task.tests, task.omissions_in("tests"))
    return digest(json.dumps(facts, sort_keys=True).encode(), *(source.read_bytes() for source in sources), *tests)


def _folder_parts(folder: Path | None, omitted: Sequence[str] = ()) -> Iterator[bytes]:
    """Names and contents of the files in a folder."""
    for path in sorted(folder.rglob("*")) if folder is not None else ():
        name = path.relative_to(folder or path).as_posix()
        if path.is_file() and name not in omitted:
            yield from (name.encode(), path.read_bytes())
