"""The columns of the table of rollouts, which of them tell something in a run, and what rows are sorted by."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.look.numbers import clock, number, price, score
from whet.runs.index import IndexRow
from whet.scoring import Cause

ARM = ("agent", "model", "skill")
NOTHING = "–"
"""In a cell: the rollout has no result yet, or its calls were not counted."""


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Column:
    """A column: what it is about, how a cell reads, and what rows are sorted by."""

    name: str
    read: Callable[[IndexRow], Any]
    show: Callable[[Any], str] = str
    key: Callable[[Any], Any] = _itself
    """None is last, whatever the order."""
    head: str = ""
    """By default its name."""
    is_number: bool = True
    is_long: bool = False
    """A text, which may take several lines."""
    is_constant: bool = False
    """Shown even if it is the same in all rows."""
    is_optional: bool = False
    """Rows that have none do not make it differ."""
    same: str = "{name}: {value}"
    """What is said above the table when all rows have the same."""

    def cell(self, row: IndexRow) -> str:
        """What a row shows."""
        return self.show(self.read(row))


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What is true of the table of a run, whatever filters choose."""

    columns: tuple[Column, ...]
    """Those that differ between rows."""
    same: tuple[str, ...]
    """What all rows have, in words, of the other columns."""
    agents: tuple[str, ...]
    models: tuple[str, ...]
    skills: tuple[str | None, ...]
    """Digests; None stands for no skill."""
    causes: tuple[Cause, ...]
    flags: tuple[str, ...]


def read_table(rows: Sequence[IndexRow], skills: Mapping[str | None, str]) -> TableFacts:
    """Look at all rollouts of a run."""
    varying, same = [], []
    for column in make_columns(skills):
        values = (value for row in rows if (value := column.read(row)) is not None or not column.is_optional)
        first = next(values, None)
        if column.is_constant or any(value != first for value in values):
            varying.append(column)
        elif rows:
            same.append(column.same.format(name=column.name, value=column.show(first) or "none"))
    rollouts = [row.rollout for row in rows]
    return TableFacts(
        tuple(_join_arm(varying)),
        tuple(same),
        tuple(sorted({one.agent for one in rollouts})),
        tuple(sorted({one.model for one in rollouts})),
        tuple(sorted({one.skill for one in rollouts}, key=lambda skill: skill or "")),
        tuple(sorted({row.cause for row in rows if row.cause is not None})),
        tuple(sorted({flag for row in rows for flag in row.flags})),
    )


def _join_arm(columns: Sequence[Column]) -> list[Column]:
    """The columns, with what tells arms apart in one of them."""
    parts = [column for column in columns if column.name in ARM]
    if not parts:
        return list(columns)
    reads = [part.read for part in parts]
    arm = Column("arm", lambda row: tuple(read(row) for read in reads), " / ".join, is_number=False)
    place = columns.index(parts[0])
    return [*columns[:place], arm, *(column for column in columns[place:] if column.name not in ARM)]


def make_columns(skills: Mapping[str | None, str]) -> tuple[Column, ...]:
    """All columns, in order."""
    return (
        Column("task", lambda row: row.rollout.task, is_number=False, is_constant=True),
        Column("agent", lambda row: row.rollout.agent, is_number=False, same="agent {value}"),
        Column("model", lambda row: row.rollout.model, is_number=False, same="model {value}"),
        Column("skill", lambda row: name_skill(row.rollout.skill, skills), is_number=False, same="{value}"),
        Column("sample", lambda row: row.rollout.sample, head="#", same="sample {value}"),
        Column("score", lambda row: row.value, score, is_constant=True),
        Column("judges", _read_judges, _show_judges, _first_score, is_number=False, is_long=True, is_optional=True),
        Column("calls", _counted(lambda row: row.calls), _shown_as(number)),
        Column("tokens", _counted(lambda row: row.input_tokens + row.output_tokens), _shown_as(number)),
        Column("cost", _counted(lambda row: (row.cost,)), _shown_as(_show_cost), _cost_key),
        Column("time", lambda row: None if row.attempt is None else row.seconds, _shown_as(clock)),
        Column("attempts", lambda row: row.attempts),
        Column(
            "flags", lambda row: row.flags, ", ".join, lambda flags: len(flags) or None, is_number=False, is_long=True
        ),
        Column("why", lambda row: row.reason, key=lambda reason: reason or None, is_number=False, is_long=True),
    )


def name_skill(digest: str | None, skills: Mapping[str | None, str]) -> str:
    """What people call a skill."""
    return "no skill" if digest is None else skills.get(digest, digest)


def sort_rows(rows: Sequence[IndexRow], column: Column, *, descending: bool) -> Sequence[IndexRow]:
    """Rows in the order of a column. Rows without a value are last; equal ones keep the order of the plan."""
    read, key = column.read, column.key
    keyed = [(key(read(row)), row) for row in rows]
    known = [one for one in keyed if one[0] is not None]
    known.sort(key=lambda one: one[0], reverse=descending)
    rest = [row for value, row in keyed if value is None] if len(known) < len(keyed) else []
    return [*(row for _, row in known), *rest]


def _counted(read: Callable[[IndexRow], Any]) -> Callable[[IndexRow], Any]:
    """What only a rollout has that has a result, and whose calls were counted."""
    return lambda row: read(row) if row.attempt is not None and row.captured else None


def _shown_as(form: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: NOTHING if value is None else form(value)


def _show_cost(cost: tuple[float | None]) -> str:
    return price(cost[0])


def _cost_key(cost: tuple[float | None] | None) -> float | None:
    return cost[0] if cost else None


Judges = Mapping[str, float | None] | str | None
"""What each judge said; only its name if it alone made the score; None without any."""


def _read_judges(row: IndexRow) -> Judges:
    if row.judges and len(row.judges) == 1:
        ((name, value),) = row.judges.items()
        return name if value == row.value else row.judges
    return row.judges or None


def _count(flags: tuple[str, ...]) -> int | None:
    return len(flags) or None


def _first_score(judges: Judges) -> float | None:
    if judges is None or isinstance(judges, str):
        return None
    return next((value for value in judges.values() if value is not None), None)


def _show_judges(judges: Judges) -> str:
    if judges is None or isinstance(judges, str):
        return judges or NOTHING
    return ", ".join(f"{name} {score(value)}" for name, value in judges.items())
