"""The tasks of a rule: those that sessions left, then those of the repository's history, and the copies that ask for
the rule."""

import shutil
import tomllib
from collections.abc import Sequence
from pathlib import Path

from whet.errors import UserError
from whet.runs.checks.tasks import open_resources
from whet.sandbox import DEFAULT, sandbox_named
from whet.skills.rollouts.splits import FEWEST_TRAIN, FEWEST_VALIDATION
from whet.sleep.bank import BankTask, TaskKind, make_carrier, name_family, split_families
from whet.sleep.mining.mine import mine
from whet.sleep.mining.options import MineKind, MineOptions
from whet.sleep.mining.sessions.mine import SessionMiner, SessionsReport
from whet.sleep.redaction import Redaction
from whet.sleep.rules.rule import Rule
from whet.sleep.store import SleepStore
from whet.tasks.task import Split

ENOUGH = 12
"""Tasks that a night wants: six for the search and six for the exam."""
KINDS = {MineKind.COMMIT: TaskKind.HISTORY, MineKind.FAULT: TaskKind.FAULT}


class TooFewTasksError(UserError):
    """A rule cannot be tried: its repository has too few proved tasks."""


async def find_tasks(store: SleepStore, repository: Path, redaction: Redaction, data: Path) -> SessionsReport:
    """What the sessions of a repository gave. Where they left too few tasks, history is mined for more."""
    async with open_resources(sandbox_named(DEFAULT)) as resources:
        miner = SessionMiner(
            store, repository, resources, data, lambda content: not redaction.scan_file(content), scripts=False
        )
        report = await miner.mine()
    missing = ENOUGH - len(report.tasks)
    more = await _mine_history(store, repository, missing) if missing > 0 else []
    return report.model_copy(update={"tasks": (*report.tasks, *more)})


async def _mine_history(store: SleepStore, repository: Path, wanted: int) -> list[BankTask]:
    """Tasks of commits and of faults. Those that were proved in earlier nights are not proved again."""
    folder = store.history_bank(repository)
    report = await mine(MineOptions(repository=repository, to=folder, limit=wanted))
    return [_read_mined(folder / one.name, repository) for one in report.proved]


def _read_mined(folder: Path, repository: Path) -> BankTask:
    """A task of the history. Its family is the file that it is about."""
    about = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))["metadata"]["mined"]
    return BankTask(
        id=folder.name,
        kind=KINDS[MineKind(about["kind"])],
        repository=str(repository),
        family=name_family(str(repository), [about["family"]]),
        at=about["at"],
        folder=folder,
        proof="fails untouched and passes with the known work, 3 times each",
    )


def write_carriers(tasks: Sequence[BankTask], rule: Rule, folder: Path) -> None:
    """Write the copies of tasks that ask for a rule: older families for the search, newer ones for the exam.

    TooFewTasksError when there are too few of either.
    """
    train, exam = split_families(list(tasks))
    if len(train) < FEWEST_TRAIN or len(exam) < FEWEST_VALIDATION:
        raise TooFewTasksError(
            f"{len(train)} older and {len(exam)} newer tasks are proved; expected at least {FEWEST_TRAIN} and "
            f"{FEWEST_VALIDATION}, in different parts of the repository"
        )
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    sides: dict[Split, list[BankTask]] = {"train": train, "val": exam}
    for split, side in sides.items():
        for task in side:
            make_carrier(task, rule, unfinished, split)
    unfinished.rename(folder)
