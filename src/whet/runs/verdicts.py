"""Missing scores that count after all, because other rollouts show that the rollout itself was the reason.

- A judge that came to no verdict counts 0 once it has shown that it can decide: by a verdict on another rollout of the
  task in the same run, or on the task's own solution, which is judged once per task and run, and only when needed.
- An agent that ended before any model call counts by its judges' verdicts once it has worked in another rollout.

What was shown is kept in the store. So the same rollouts count in whatever order they end, and also when the run is
killed and resumed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.agents import StopReason
from whet.exchange import Exchange, Recorder
from whet.rollout.failures import describe_ending
from whet.rollout.resources import RunResources
from whet.rollout.result import Flag, Result, Rollout, encode_result
from whet.runs.checks.tasks import attempt_with
from whet.runs.results import ResultReader
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.scoring import NO_VERDICT, Cause, Score, TaskJudge, combine, judges_of
from whet.tasks import Task

UNDECIDED = frozenset({Cause.JUDGE, Cause.SANDBOX, Cause.INTERNAL})
"""Causes of a missing judgement that the work itself may have brought about."""
AT_ONCE = frozenset({Cause.JUDGE, Cause.INTERNAL})
"""Those after which a rollout is not tried again, so that it can be settled while others are under way."""
_DECIDES = "verdicts of "
"""How the keys begin under which a run keeps the names of a task's judges that gave a verdict."""
_PROVED = "proof of "
"""How the keys begin under which a run keeps which judges gave a verdict on a task's own solution."""


Arm = tuple[str, str]
"""An agent and its model."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A rollout whose score was missing counts now."""

    row: RolloutRow
    cause: Cause
    """Why it was missing."""
    result: Result


def settle(
    result: Result, judges: Sequence[TaskJudge], deciding: Collection[str], *, agent_works: bool = False
) -> Result:
    """A result with 0 for each judge that came to no verdict on it, though it decides elsewhere. It stays as it is when
    its score would still be missing. `agent_works`: the agent has worked in another rollout."""
    not_started = result.score.cause is Cause.AGENT
    if result.score.value is not None or (not_started and not agent_works):
        return result
    judgements = {
        name: _zero(score) if name in deciding and is_open(score) else score
        for name, score in result.judgements.items()
    }
    if not judgements or (judgements == result.judgements and not not_started):
        return result
    ending = describe_ending(result.report, result.limit, result.changes)
    score = combine(judgements, {judge.name: judge.weight for judge in judges}, ending)
    if score.value is None:
        return result
    added = [
        *([Flag.AGENT_FAILED] if not_started else []),
        *([NO_VERDICT] if judgements != result.judgements else []),
    ]
    flags = (*(flag for flag in result.flags if flag not in added), *added)
    return result.model_copy(update={"score": score, "judgements": judgements, "flags": flags})


def is_open(score: Score) -> bool:
    """Whether a judge came to no verdict, and the work may be the reason."""
    return score.cause in UNDECIDED and not score.details.get("unrelated")


def _zero(score: Score) -> Score:
    reason = f"no verdict, though this judge decides on other work: {score.reason}"
    return Score.undecided(reason, **{**score.details, "cause": score.cause, "soft": 0.0, "hard": False})


def find_deciding_judges(store: Store, task: str) -> set[str]:
    """The judges of a task that have given a verdict in this run."""
    return {*(store.get(f"{_DECIDES}{task}") or ()), *(store.get(f"{_PROVED}{task}") or ())}


def note_verdicts(store: Store, task: str, result: Result) -> None:
    """Keep which judges gave a verdict."""
    known = set(store.get(f"{_DECIDES}{task}") or ())
    found = {name for name, score in result.judgements.items() if score.value is not None and not score.is_undecided}
    if not found <= known:
        store.set(f"{_DECIDES}{task}", sorted(known | found))


async def prove_if_needed(
    rollout: Rollout, result: Result, resources: RunResources, writer: StoreWriter, record: Recorder
) -> Result:
    """Have the task's own solution judged, where that can settle a result and was not done. The result, with what it
    cost."""
    task = rollout.task
    open_ones = {name for name, score in result.judgements.items() if is_open(score)}
    if result.score.value is not None or not open_ones or task.solution is None:
        return result
    async with resources.proof_lock(task.id):
        key = f"{_PROVED}{task.id}"
        deciding, proved = await writer.do(lambda store: (find_deciding_judges(store, task.id), store.get(key)))
        if proved is not None or open_ones <= deciding:
            return result

        async def record_proof(exchange: Exchange) -> None:
            await record(replace(exchange, session=f"proof {exchange.session}"))

        proof = await attempt_with("oracle", task, resources, record_proof)
        found = [name for name, score in proof.judgements.items() if score.value is not None]
        await writer.do(lambda store: store.set(key, found))
    if proof.judging is None:
        return result
    judging = proof.judging if result.judging is None else result.judging + proof.judging
    return result.model_copy(update={"judging": judging})


def settle_task(
    store: Store, task: Task, causes: Collection[Cause] = UNDECIDED, working: Collection[Arm] = ()
) -> list[Settled]:
    """Settle the rollouts of a task that are missing for one of these causes and can be settled by now. `working`: the
    agents that are known to work."""
    deciding, judges = find_deciding_judges(store, task.id), judges_of(task)
    found = []
    for attempt in ResultReader(store).missing_of(task.id, causes) if deciding else ():
        if (before := attempt.result) is None or attempt.cause is None:
            continue
        after = settle(before, judges, deciding, agent_works=_arm(store.rollout(attempt.row.rollout)) in working)
        if after.score.value is not None:
            store.replace_result(attempt.id, encode_result(after), value=after.score.value, cause=None)
            found.append(Settled(store.rollout(attempt.row.rollout), attempt.cause, after))
    return found


def settle_anew(store: Store, tasks: Mapping[str, Task]) -> list[Settled]:
    """Settle a run whose rollouts were all judged again: what other judges of the same names showed is forgotten."""
    for task in tasks:
        store.set(f"{_DECIDES}{task}", None)
        store.set(f"{_PROVED}{task}", None)
    return settle_all(store, tasks)


def settle_all(store: Store, tasks: Mapping[str, Task]) -> list[Settled]:
    """Settle what can be in a whole run, also one that was made before there was this rule. No rollout may be under
    way."""
    working: set[Arm] = set()
    for rollout in ResultReader(store):
        if rollout.last and rollout.row.task in tasks and (result := rollout.last.result) is not None:
            note_verdicts(store, rollout.row.task, result)
            if _has_worked(result):
                working.add(_arm(rollout.row))
    causes = UNDECIDED | {Cause.AGENT}
    return [settled for task in tasks.values() for settled in settle_task(store, task, causes, working)]


def _arm(row: RolloutRow) -> Arm:
    return row.agent, row.model


def _has_worked(result: Result) -> bool:
    """Whether a rollout shows that its agent's program can be started."""
    finished = result.report is not None and result.report.stop is StopReason.FINISHED
    ended_well = result.score.value is not None or result.score.cause is Cause.UNJUDGED
    return ended_well and (finished or result.spending.calls > 0)
