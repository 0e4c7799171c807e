"""What the tests of sharpening share: sums to do, and a scripted model that obeys the rules of its skill."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.runs.config import Config, ModelConfig
from whet.runs.options import RunOptions
from whet.runs.store.store import Store
from whet.skills.documents.edits import Edit, Op
from whet.skills.gate.plan import GatePlan
from whet.skills.measurement import RunPart
from whet.skills.proposers.base import Proposal, ProposalContext, Proposer
from whet.skills.proposers.schedule import ScheduleOptions
from whet.skills.results import SharpenResult
from whet.skills.rollouts.budget import read_budget
from whet.skills.sharpen.events import SharpenEvent
from whet.skills.sharpen.proposer_runtime import ProposerSpec
from whet.skills.sharpen.run import SharpenRequest, sharpen_skill

HELPFUL = "- Answer with the number alone."
USELESS = "- Smile."
HARMFUL = "- Write the answer in words."
SKILL = "---\nname: sums\ndescription: How to do sums.\n---\n# Rules\n- Be kind.\n"


def question(number: int) -> str:
    return f"What is {number} + 1?"


def write_tasks(folder: Path, numbers: Mapping[str, range], **more: Any) -> Path:
    """Sums in a JSONL file, with their splits."""
    rows = [
        {"id": f"{split}-{n}", "instruction": question(n), "answer": str(n + 1), "split": split, **more}
        for split, side in numbers.items()
        for n in side
    ]
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_script(folder: Path, numbers: range, delay: float = 0.0) -> Path:
    """A model that answers as its skill says. Without a rule it is right as the judge wants it once in five times."""
    scenes = []
    for n in numbers:
        plain = str(n + 1) if n % 5 == 0 else f"It is {n + 1}"
        for rule, reply in ((HARMFUL, "some number"), (HELPFUL, str(n + 1)), ("", plain)):
            obeyed = f'\nwhen.system = "{rule[2:]}"' if rule else ""
            when = f'when.user = "What is {n} \\\\+ 1"{obeyed}'
            scenes.append(f'[[scene]]\n{when}\n[[scene.reply]]\ntext = "{reply}"\ndelay = {delay}\n')
    file = folder / "script.toml"
    file.write_text("\n".join(scenes))
    return file


SEED = 0
"""Of the order of exams, so that runs can be compared."""
TASKS_DONE = (RunPart.SEARCH, RunPart.EXAM, RunPart.TEST)
SPLITS = {"train": range(8), "val": range(100, 110), "test": range(200, 206)}


class Adds:
    """A proposer that adds these rules, one per proposal, and keeps its contexts."""

    def __init__(self, *rules: str) -> None:
        self._rules = list(rules)
        self.contexts: list[ProposalContext] = []

    async def propose(self, context: ProposalContext) -> Proposal:
        self.contexts.append(context)
        return Proposal((Edit(op=Op.ADD, text=self._rules.pop(0)),)) if self._rules else Proposal(())


@dataclass
class World:
    """A folder with a skill, tasks and a model."""

    folder: Path
    splits: Mapping[str, range] = field(default_factory=lambda: SPLITS)
    model: ModelConfig | None = None
    """By default one that is served as long as a run lasts."""

    def __post_init__(self) -> None:
        (self.folder / "sums").mkdir()
        (self.folder / "sums" / "SKILL.md").write_text(SKILL)
        write_tasks(self.folder, self.splits)
        self.play()

    def play(self, script: str | None = None) -> None:
        """Have the model obey its skill, or play this."""
        if script is None:
            write_script(self.folder, range(max(side.stop for side in self.splits.values())))
        else:
            (self.folder / "script.toml").write_text(script)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def config(self) -> Config:
        """With the model under test, and `o`, which writes, once it has a script."""
        scripts = {"m": self.folder / "script.toml", "o": self.folder / "optimizer.toml"}
        models = {name: ModelConfig(script=file, attempts=1) for name, file in scripts.items()}
        return Config(models=models if self.model is None else models | {"m": self.model})

    async def sharpen(
        self,
        proposer: Proposer | ProposerSpec,
        budget: int | str = 400,
        *,
        resume: bool = False,
        watch: Callable[[SharpenEvent], None] = lambda _: None,
        schedule: ScheduleOptions | None = None,
        seed: int | None = SEED,
        **options: Any,
    ) -> SharpenResult:
        # The chat agent starts nothing in its box, so it may have the kind that opens fastest.
        looks_around = isinstance(proposer, ProposerSpec) and proposer.kind == "agent"
        options = {"sandbox": "bubblewrap" if looks_around else "local"} | options
        tasks = self.folder / "tasks.jsonl"
        run = RunOptions(tasks=tasks, out=self.out, agents=("chat",), models=("m",), resume=resume, **options)
        within = read_budget(str(budget))
        plan = GatePlan(within.rollouts or 0)
        request = SharpenRequest(
            self.folder / "sums",
            run,
            within,
            plan,
            "adds",
            schedule=schedule or ScheduleOptions(),
            seed=seed,
            force=True,
        )
        return await sharpen_skill(
            request, proposer, self.config, watch, env={"XDG_STATE_HOME": str(self.folder / "state")}
        )

    def exchanges(self) -> dict[str, list[int]]:
        """Model calls of each rollout of a task, attempt by attempt, over all stores."""
        return {row: calls for part in TASKS_DONE for row, calls in exchanges(self.out / part).items()}


def exchanges(folder: Path) -> dict[str, list[int]]:
    with Store.open_read(folder) as store:
        return {
            row.id: [len(store.exchanges(attempt.id)) for attempt in attempts]
            for row, attempts in store.attempts_by_rollout()
        }


def decisions(outcome: SharpenResult) -> Sequence[object]:
    """What a run decided, however often it was begun."""
    done = outcome.done
    held = [
        (one.exam, one.test.terms, one.test.verdict, [(at.incumbent, at.candidate) for at in one.test.pairs])
        for one in done.exam_results
    ]
    return done.steps, held, done.certified, done.leader, done.spent
