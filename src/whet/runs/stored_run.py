"""A stored run as plain objects, for programs and notebooks: what `whet.load` returns."""

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from whet.errors import UserError
from whet.exchange import Exchange, Kind
from whet.gateway.dialects.neutral import Message
from whet.installers import require_parquet
from whet.rollout.result import Result
from whet.runs.episodes import episodes
from whet.runs.export import Records, collect_records
from whet.runs.options import RecordOptions
from whet.runs.results import ResultReader, RolloutRecord
from whet.runs.stats.arms import arm_fields
from whet.runs.stats.summary import Arm, Tally, UnevenArms, skill_names, tally, uneven_losses
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.scoring import Score
from whet.trace.conversations.graph import Graph, build

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class RecordFields(TypedDict, total=False):
    """The fields of RecordOptions that `rows` takes as keywords."""

    filter: tuple[str, ...]
    subagents: float
    compaction: bool
    sampling: Literal["strict", "any"]
    max_tokens: int | None
    truncated: bool
    discount: float
    per_task: int | None
    skip_equal: bool
    distinct: bool


_COUNTS = ("scored", "missing", "not run")


@dataclass(frozen=True, slots=True)
class StoredRollout:
    """One rollout, with what came of its last attempt."""

    id: str
    task: str
    agent: str
    model: str
    skill: str | None
    """Digest; None without one."""
    sample: int
    attempts: int
    """How often it was tried."""
    result: Result | None = field(repr=False)
    """None as long as no attempt has ended."""
    run: Path = field(repr=False)
    attempt: int | None = field(repr=False)
    """The attempt that counts, by its number in the store."""

    @property
    def score(self) -> Score | None:
        """Its value may be missing, with the cause; None as long as no attempt has ended."""
        return self.result.score if self.result else None

    def exchanges(self) -> list[Exchange]:
        """Every model call as it went over the wire."""
        with Store.open_read(self.run) as store:
            return [] if self.attempt is None else store.exchanges(self.attempt)

    def trace(self) -> Graph:
        """The conversations, as a graph."""
        with Store.open_read(self.run) as store:
            return build(() if self.attempt is None else store.each_exchange(self.attempt))

    def messages(self) -> list[Message]:
        """The main conversation as the model saw it in its last call, and its reply."""
        graph = self.trace()
        main = next((thread for thread in graph.threads if thread.kind is Kind.MAIN), None)
        return [node.message for node in graph.conversation(graph.turns[main.turns[-1]])] if main else []

    def logs(self) -> dict[str, bytes]:
        """What the agent and the judges printed, by name."""
        with Store.open_read(self.run) as store:
            return {} if self.attempt is None else store.logs(self.attempt)


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """Rollouts of a stored run that belong together: all samples of one task with one agent, model and skill."""

    folder: Path
    rollouts: tuple[StoredRollout, ...]

    def rows(self, target: str = "rows", /, **fields: Unpack[RecordFields]) -> Records:
        """Training rows, or the records of another format, without a file: what `whet export` writes for these
        rollouts. Other fields of `RecordOptions` are keywords, such as `max_tokens=8192`.

        >>> [row["reward"] for row in load("runs/quiz").rows("verl", skip_equal=True)]  # doctest: +SKIP
        """
        options = RecordOptions(format=target, **fields)
        return collect_records(self.folder, {rollout.id for rollout in self.rollouts}, options)


@dataclass(frozen=True, slots=True, repr=False)
class StoredRun(RolloutGroup):
    """A run as it was when it was loaded. Shown, it is a table with a line per arm."""

    arms: Mapping[Arm, Tally]
    """By agent, model and skill."""
    skills: Mapping[str | None, str]
    """Names of skills by their digests."""

    def __getitem__(self, beginning: str) -> StoredRollout:
        """The rollout whose id begins so."""
        found = [rollout for rollout in self.rollouts if rollout.id.startswith(beginning)]
        if len(found) != 1:
            raise UserError(
                f"{self.folder}: {len(found)} rollouts have an id that begins with '{beginning}'; expected one"
            )
        return found[0]

    def frame(self) -> "pd.DataFrame":
        """A data frame of pandas, a line per rollout. What is missing is NaN, never zero."""
        try:
            import pandas as pd
        except ImportError as error:
            raise UserError("data frames need pandas; install it: pip install pandas") from error
        return pd.DataFrame(self.records())

    def records(self) -> list[dict[str, Any]]:
        """A dict per rollout: what `frame()`, `whet show --format json` and `--format csv` hold."""
        return [rollout_record(rollout, self.skills) for rollout in self.rollouts]

    def document(self, *, running: bool) -> dict[str, Any]:
        """The run for programs: what `whet show --format json` prints."""
        arms = [arm_fields(key, arm) for key, arm in self.arms.items()]
        state = "running" if running else "ended"
        return {"run": self.folder, "state": state, "arms": arms, "rollouts": self.records()}

    def tables(self) -> "dict[str, pa.Table]":
        """Arrow tables of rollouts, exchanges and scores, as `whet export --format parquet` writes them."""
        require_parquet()
        import pyarrow as pa

        from whet.trace.export.tables import arrow_schemas, records
        from whet.trace.training.calls import Training
        from whet.trace.training.rows import harvest

        schemas = arrow_schemas()
        rows: dict[str, list[Any]] = {name: [] for name in schemas}
        with Store.open_read(self.folder) as store:
            harvests = (
                harvest(replace(episode, exchanges=store.each_exchange(attempt)), Training())
                for episode, attempt in episodes(store)
            )
            for name, row in records(harvests):
                rows[name].append(row)
        return {name: pa.Table.from_pylist(rows[name], schema) for name, schema in schemas.items()}

    def __repr__(self) -> str:
        lines = list(self._lines())
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = ("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join([f"{self.folder}: {len(self.rollouts)} rollouts", *(line.rstrip() for line in padded)])

    def _repr_html_(self) -> str:
        heading, *lines = ([html.escape(word) for word in line] for line in self._lines())
        head = "".join(f"<th>{word}</th>" for word in heading)
        body = "".join(f"<tr>{''.join(f'<td>{word}</td>' for word in line)}</tr>" for line in lines)
        caption = f"{html.escape(str(self.folder))}: {len(self.rollouts)} rollouts"
        return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _lines(self) -> Iterator[tuple[str, ...]]:
        bounded = any(arm.bounds() for arm in self.arms.values())
        yield "agent", "model", "skill", "score [95 %]", *(["missing at 0, at 1"] if bounded else []), *_COUNTS
        for (agent, model, skill), arm in self.arms.items():
            bounds = arm.bounds()
            shown = f"{bounds[0]:.1%}, {bounds[1]:.1%}" if bounds else "-"
            counts = (arm.measured, arm.missing.total(), arm.not_run)
            mean = str(arm.mean() or "-")
            yield agent, model, self.skills[skill], mean, *([shown] if bounded else []), *map(str, counts)

    @property
    def uneven(self) -> list[UnevenArms]:
        """Every two arms that lose scores unevenly, so that their means may not be comparable."""
        return uneven_losses(self.arms)


def load(folder: Path | str) -> StoredRun:
    """Load a stored run, also one that is still running.

    >>> load("runs/quiz").rollouts[0].score.value  # doctest: +SKIP
    1.0
    """
    folder = Path(folder)
    with Store.open_read(folder) as store:
        return StoredRun(folder, tuple(_rollouts(folder, store)), tally(store), skill_names(store))


GroupKey = tuple[str, str, str, str]
"""Task, agent, model, and digest of the skill."""


def group_key(row: RolloutRow) -> GroupKey:
    return row.task, row.agent, row.model, row.skill or ""


def unfinished_groups(folder: Path) -> dict[GroupKey, set[str]]:
    """Every group of a run, with the ids of its rollouts that have no score yet."""
    with Store.open_read(folder) as store:
        groups: dict[GroupKey, set[str]] = {group_key(row): set() for row in store.rollouts()}
        for row in store.pending():
            groups[group_key(row)].add(row.id)
        return groups


def load_group(folder: Path, key: GroupKey) -> RolloutGroup:
    """One group of a run."""
    with Store.open_read(folder) as store:
        reader = ResultReader(store)
        rows = [row for row in store.rollouts() if group_key(row) == key]
        return RolloutGroup(folder, tuple(_rollout(folder, reader.rollout(row.id)) for row in rows))


def load_rollout(folder: Path, name: str) -> StoredRollout:
    """One rollout of a run, by its whole id."""
    with Store.open_read(folder) as store:
        return _rollout(folder, ResultReader(store).rollout(name))


def _rollouts(folder: Path, store: Store) -> Iterator[StoredRollout]:
    return (_rollout(folder, rollout) for rollout in ResultReader(store))


def _rollout(folder: Path, rollout: RolloutRecord) -> StoredRollout:
    row, counting = rollout.row, rollout.counting
    return StoredRollout(
        id=row.id,
        task=row.task,
        agent=row.agent,
        model=row.model,
        skill=row.skill,
        sample=row.sample,
        attempts=len(rollout.attempts),
        result=rollout.result,
        run=folder,
        attempt=counting.id if counting else None,
    )


def rollout_record(rollout: StoredRollout, skills: Mapping[str | None, str]) -> dict[str, Any]:
    """A rollout as a line of a data frame. What is not known is None."""
    result = rollout.result
    line: dict[str, Any] = {
        "rollout": rollout.id,
        "task": rollout.task,
        "agent": rollout.agent,
        "model": rollout.model,
        "skill": skills[rollout.skill] if rollout.skill else None,
        "sample": rollout.sample,
        "attempts": rollout.attempts,
    }
    if result is None:
        return line
    spent, report = result.spending, result.report
    return line | {
        "score": result.score.value,
        "cause": result.score.cause,
        "reason": result.score.reason,
        **{f"judge {name}": score.value for name, score in result.judgements.items()},
        "stop": report.stop if report else None,
        "exit_code": report.exit_code if report else None,
        "limit": result.limit,
        "seconds": round(sum(result.seconds.values()), 3),
        "calls": spent.calls if spent.captured else None,
        "tools": result.tools,
        "speakers": spent.speakers if spent.captured else None,
        # Runs of earlier versions do not have them.
        "speaker_tokens": {who: list(tokens) for who, tokens in spent.tokens.items()} if spent.tokens else None,
        "input_tokens": spent.input_tokens if spent.captured else None,
        "output_tokens": spent.output_tokens if spent.captured else None,
        "cost": spent.cost,
        "flags": list(result.flags),
    }
