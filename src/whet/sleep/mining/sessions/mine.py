"""`whet sleep mine`: the sessions of a repository become rules and proved tasks, or are lost with a cause."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from whet.errors import UserError
from whet.ids import digest
from whet.paths import user_data
from whet.rollout.resources import RunResources
from whet.runs.checks.tasks import open_resources
from whet.sandbox import sandbox_named
from whet.sleep.bank import BankTask, name_family
from whet.sleep.harvest.filters import Filters
from whet.sleep.mining.proof import Loss, Proof, prove
from whet.sleep.mining.sessions.candidates import Candidate, Safe, mine_session
from whet.sleep.options import SleepOptions
from whet.sleep.redaction import Redaction
from whet.sleep.repository import Lost
from whet.sleep.repository_settings import read_settings
from whet.sleep.rules.find import find_rules
from whet.sleep.rules.meanings import make_recaller
from whet.sleep.rules.rule import Dropped, Rule
from whet.sleep.rules.sentences import normalise
from whet.sleep.session import Session
from whet.sleep.store import BANK, SleepStore
from whet.tasks.skeleton import write_task

_UNPROVED = ".unproved"
_AGAIN = frozenset({Loss.ENVIRONMENT, Loss.TIMEOUT, Loss.UNREADABLE})
"""Causes that may be gone another time."""


class LostSession(BaseModel):
    """A session that became no task."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    session: str
    digest: str
    """Of the transcript: a session that went on is tried again."""
    repository: str
    cause: str


class SessionsReport(BaseModel):
    """What came of the sessions of one repository."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    repository: str
    rules: tuple[Rule, ...]
    dropped: tuple[Dropped, ...]
    """Corrections that are no rules."""
    tasks: tuple[BankTask, ...]
    """Proved tasks, those of earlier times too."""
    lost: tuple[LostSession, ...]
    problem: str = ""
    """Why the repository was left out."""

    def count_causes(self) -> Counter[str]:
        """How many sessions were lost, by cause."""
        return Counter(one.cause.partition(":")[0] for one in self.lost)


async def mine_repositories(
    options: SleepOptions,
    store: SleepStore,
    now: datetime,
    env: Mapping[str, str],
    home: Path,
    watch: Callable[[str], None] = lambda _: None,
) -> list[SessionsReport]:
    """Mine the sessions of every repository that the options include, in boxes. No model is called."""
    wanted = Filters.of(options, now)
    repositories = [one for one in store.repositories() if not wanted.skips(one)]
    sandbox = sandbox_named("bubblewrap")
    reports = []
    async with open_resources(sandbox, env) as resources:
        for repository in repositories:
            try:
                patterns = read_settings(repository, options).redact_extra
            except UserError as error:
                reports.append(leave_out(repository, error))
                continue
            safe = _Safe(Redaction(env, home, [repository], patterns))
            data = user_data(env).parent
            miner = SessionMiner(store, repository, resources, data, safe, scripts=options.all_origins)
            reports.append(await miner.mine(options.since(now), watch=watch))
    return reports


def leave_out(repository: Path, error: UserError) -> SessionsReport:
    """The report of a repository that is not mined, because its whet.toml is wrong."""
    return SessionsReport(repository=str(repository), rules=(), dropped=(), tasks=(), lost=(), problem=str(error))


class _Safe:
    """Whether the content of a file holds no secret. Each content is looked at once."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._known: dict[str, bool] = {}

    def __call__(self, content: bytes) -> bool:
        key = digest(content)
        if key not in self._known:
            self._known[key] = not self._redaction.scan_file(content)
        return self._known[key]


class SessionMiner:
    """Mines the sessions of one repository into a store."""

    def __init__(
        self, store: SleepStore, repository: Path, resources: RunResources, data: Path, safe: Safe, *, scripts: bool
    ) -> None:
        self._store, self._repository, self._resources = store, repository, resources
        self._data, self._safe, self._scripts = data, safe, scripts

    async def mine(
        self, since: datetime | None = None, watch: Callable[[str], None] = lambda _: None
    ) -> SessionsReport:
        """Find rules and prove tasks. What was proved or lost before is not tried again."""
        sessions = [_without_content(one) for one in self._store.sessions(self._repository, since)]
        found = await find_rules(
            sessions, str(self._repository), scripts=self._scripts, interpret=make_recaller(self._store)
        )
        for rule in found.rules:
            self._store.put("rule", rule.id, rule)
        lost: list[LostSession] = []
        for session in self._store.sessions(self._repository, since):
            watch(f"{session.key}")
            if (cause := await self._take(session)) is not None:
                lost.append(cause)
        tasks = [one for one in self._store.list("task", BankTask) if one.repository == str(self._repository)]
        return SessionsReport(
            repository=str(self._repository),
            rules=found.rules,
            dropped=found.dropped,
            tasks=tuple(tasks),
            lost=tuple(lost),
        )

    async def _take(self, session: Session) -> LostSession | None:
        """Make a task of a session. None if it is one, now or before."""
        known = self._store.get("loss", session.key, LostSession)
        if known is not None and known.digest == session.digest:
            return known
        if any(session.key in one.sessions for one in self._store.list("task", BankTask)):
            return None
        candidates = await asyncio.to_thread(
            mine_session, session, self._repository, self._data, scripts=self._scripts, safe=self._safe
        )
        if isinstance(candidates, Lost):
            return self._lose(session, candidates.cause)
        if session.started is None:
            return self._lose(session, "the transcript does not say when it was")
        return await self._prove_one(session, candidates, session.started)

    async def _prove_one(self, session: Session, candidates: list[Candidate], at: datetime) -> LostSession | None:
        """Keep the first candidate that a box proves. Without one, the session is lost for the cause of the first."""
        text = normalise(candidates[0].parts.instruction)
        name = f"session-{digest(str(self._repository).encode(), text.encode())[:10]}"
        same = self._store.get("task", name, BankTask)
        if same is not None:  # two sessions with the same text are one task
            self._store.put("task", name, same.model_copy(update={"sessions": (*same.sessions, session.key)}))
            return None
        failures: list[Proof] = []
        for candidate in candidates:
            proof = await self._prove(name, candidate)
            if proof.cause is None:
                self._store.put("task", name, self._describe(name, candidate, session, proof, at))
                return None
            failures.append(proof)
        first = failures[0]
        cause = ": ".join(part for part in (f"not proved ({first.cause})", first.detail) if part)
        return self._lose(session, cause, remember=all(one.cause not in _AGAIN for one in failures))

    def _lose(self, session: Session, cause: str, *, remember: bool = True) -> LostSession:
        lost = LostSession(session=session.key, digest=session.digest, repository=str(self._repository), cause=cause)
        if remember:
            self._store.put("loss", session.key, lost)
        return lost

    async def _prove(self, name: str, candidate: Candidate) -> Proof:
        """Write a task apart, prove it, and move it into the bank if it holds."""
        made = self._store.folder / BANK / _UNPROVED / name
        await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)
        try:
            await asyncio.to_thread(write_task, made, candidate.parts)
            proof = await prove(made, self._resources)
            if proof.cause is None:
                made.rename(self._store.folder / BANK / name)
            return proof
        finally:
            await asyncio.to_thread(shutil.rmtree, made, ignore_errors=True)

    def _describe(self, name: str, candidate: Candidate, session: Session, proof: Proof, at: datetime) -> BankTask:
        runs = len(proof.nothing)
        return BankTask(
            id=name,
            kind=candidate.kind,
            repository=str(self._repository),
            family=name_family(str(self._repository), candidate.paths),
            sessions=(session.key,),
            at=at,
            folder=self._store.folder / BANK / name,
            proof=f"fails untouched and passes with the known work, {runs} times each",
            agreement=candidate.agreement,
        )


def _without_content(session: Session) -> Session:
    """A session without what its steps read, wrote and printed: rules need none of it, and it is most of a session."""
    turns = []
    for turn in session.turns:
        steps = [
            step.model_copy(update={"output": "", "before": None, "after": "" if step.is_edit else None})
            for step in turn.steps
        ]
        turns.append(turn.model_copy(update={"steps": tuple(steps)}))
    return session.model_copy(update={"turns": tuple(turns)})


def drop_task(store: SleepStore, name: str) -> BankTask:
    """Remove a task from the bank. Its sessions do not become a task again."""
    task = find_task(store, name)
    for key in task.sessions:
        session = next((one for one in store.sessions(Path(task.repository)) if one.key == key), None)
        if session is not None:
            cause = "the task was dropped by a person"
            lost = LostSession(session=key, digest=session.digest, repository=task.repository, cause=cause)
            store.put("loss", key, lost)
    store.delete("task", name)
    shutil.rmtree(task.folder, ignore_errors=True)
    return task


def find_task(store: SleepStore, name: str) -> BankTask:
    """The task of this id. UserError if there is none."""
    task = store.get("task", name, BankTask)
    if task is None:
        raise UserError(f"the bank has no task '{name}'; {_name_some(store.list('task', BankTask))}")
    return task


def _name_some(tasks: Iterable[BankTask]) -> str:
    names = [one.id for one in tasks]
    return f"it has: {', '.join(names[:10])}" if names else "it is empty; run `whet sleep mine` first"
