"""Reads what the run folder of a requested run holds. Blocks."""

from contextlib import closing
from pathlib import Path

from whet.client.models import ArmView, RunView, Status
from whet.gateway.limits import Spent
from whet.runs.stats.summary import Tally, skill_names, sum_spent, tally, total
from whet.runs.store.schema import connect, is_blank
from whet.runs.store.store import DATABASE, Store
from whet.serve.run_records import RunRecord


def read_spent(folder: Path) -> Spent:
    """What a run has used so far."""
    if not has_begun(folder / DATABASE):
        return Spent()
    with Store.open_read(folder) as store:
        return sum_spent(tally(store).values())


def read_view(folder: Path, record: RunRecord, status: Status, planned: int) -> RunView:
    """A run as clients see it. `planned` is how many rollouts it will have, as long as it has not begun."""
    view = RunView(
        id=record.id,
        status=status,
        outcome=record.outcome,
        reason=record.reason,
        planned=planned,
        done=0,
        created=record.created,
    )
    if not has_begun(folder / DATABASE):
        return view
    with Store.open_read(folder) as store:
        arms, names = tally(store), skill_names(store)
    whole = total(arms.values())
    shown = tuple(
        _arm_view(agent, model, names[skill] if skill else None, arm) for (agent, model, skill), arm in arms.items()
    )
    return view.model_copy(update={"planned": whole.planned, "done": whole.planned - whole.not_run, "arms": shown})


def has_begun(database: Path) -> bool:
    """Whether a run is in its file. The file is there a moment before."""
    if not database.exists():
        return False
    with closing(connect(database, "ro")) as db:
        return not is_blank(db)


def _arm_view(agent: str, model: str, skill: str | None, arm: Tally) -> ArmView:
    mean = arm.mean()
    return ArmView(
        agent=agent,
        model=model,
        skill=skill,
        scored=arm.measured,
        missing={str(cause): count for cause, count in sorted(arm.missing.items())},
        not_run=arm.not_run,
        mean=mean.mean if mean else None,
        low=mean.low if mean else None,
        high=mean.high if mean else None,
    )
