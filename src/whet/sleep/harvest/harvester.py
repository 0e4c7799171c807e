"""Reads transcripts, masks them, and keeps the sessions in the store. Nothing of the user's is changed.

A file that did not change since it was read is skipped. One that did is read again from its start: programs append to
their transcripts, but they also rewrite them, and a place in a file that was rewritten means nothing.
"""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from whet.errors import UserError
from whet.ids import digest
from whet.sleep.harvest.filters import BY_OPTIONS, BY_TIME, Filters, Skip
from whet.sleep.harvest.report import HarvestReport, count_expiring, find_newer
from whet.sleep.harvest.tally import Tally
from whet.sleep.harvest.workers import divide, run_parts
from whet.sleep.options import SleepOptions
from whet.sleep.places import find_repository
from whet.sleep.readers.jsonl import clip
from whet.sleep.readers.reader import Reader, Source
from whet.sleep.readers.registry import READERS, reader_named
from whet.sleep.redaction import Redaction
from whet.sleep.repository_settings import AllSettings, RepositorySettings
from whet.sleep.session import Session
from whet.sleep.store import SleepStore, SourceRow
from whet.version import __version__

OUTPUT_LIMIT = 16 << 10
"""Characters that are kept of a command's output: its first and last part."""
PARALLEL_BYTES = 32 << 20
"""Less than this is read in one process: starting others would take longer."""
MOST_PROCESSES = 4
"""Each takes about 80 MB."""
UNREADABLE = (OSError, sqlite3.Error, UserError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What a reader may raise on a file that is not as its program writes it. The report names the file."""
EXPIRES = "claude-code"
"""The agent that deletes its transcripts after a while."""


@dataclass(frozen=True, slots=True)
class Job:
    """A source to read, as it looked before it was read."""

    cli: str
    source: Source
    look: str
    written: datetime
    size: int
    """Bytes; a part of them where one file holds several sessions."""


@dataclass(frozen=True, slots=True)
class Harvester:
    """Reads sources with the options of one harvest. Each process has its own."""

    filters: Filters
    home: Path
    env: Mapping[str, str]
    repositories: AllSettings
    settings: str
    """Digest of what decides how sessions are stored."""
    all_settings: str
    """Digest of that, and of what decides which sessions are stored."""
    redactions: dict[Path | None, Redaction] = field(default_factory=dict)

    def read(self, jobs: Iterable[Job], store: SleepStore) -> Tally:
        """Read sources, and keep what is wanted of them."""
        tally = Tally()
        forgotten = store.forgotten()
        for job in jobs:
            try:
                reading = reader_named(job.cli).read(job.source)
            except UNREADABLE as error:
                tally.fail(job.cli, f"{job.source.path}: cannot be read: {_explain(error)}")
                continue
            tally.note_unknown(job.cli, reading)
            # Where a file holds several sessions, its time says nothing about one of them.
            shared = bool(job.source.key) or len(reading.sessions) > 1
            reasons = {
                self._keep(
                    session, replace(job, written=(shared and session.ended) or job.written), store, forgotten, tally
                )
                for session in reading.sessions
            }
            if not reasons & BY_TIME:
                settings = self.all_settings if reasons & BY_OPTIONS else self.settings
                store.put_source(SourceRow(str(job.source.path), job.source.key, job.look, settings))
        return tally

    def _keep(
        self, session: Session, job: Job, store: SleepStore, forgotten: frozenset[tuple[str, str]], tally: Tally
    ) -> Skip | None:
        """Store a session, unless there is a reason against it."""
        repository = find_repository(session.cwd)
        reason = self.filters.reason_to_skip(session, repository, job.written)
        own = None
        if reason is None and repository is not None:
            try:
                own = self.repositories.of(repository)
            except UserError as error:
                reason = Skip.SETTINGS
                tally.leave_out(str(error))
            else:
                reason = Skip.IGNORED if own.excludes(session.cwd) else None
        content = digest(session.digest.encode(), self._settings_of(own).encode())
        if (session.cli, session.id) in forgotten:
            reason = Skip.FORGOTTEN
        elif reason is None and store.session_digest(session.cli, session.id) == content:
            reason = Skip.UNCHANGED
        if reason is None:
            redaction = self._redaction(repository)
            before = redaction.count
            masked = _shorten(redaction.redact_session(session))
            if store.put_session(masked, repository=repository, path=job.source.path, digest=content):
                tally.keep(session, redaction.count - before)
                return None
            reason = Skip.DUPLICATE
        tally.skip(session.cli, session.version, reason)
        return reason

    def _settings_of(self, own: RepositorySettings | None) -> str:
        """Digest of what decides how the sessions of a repository are stored."""
        return _digest(self.settings, own.own_patterns) if own and own.own_patterns else self.settings

    def _redaction(self, repository: Path | None) -> Redaction:
        if repository not in self.redactions:
            repositories, extra = [], self.repositories.options.redact_extra
            if repository is not None:
                repositories, extra = [repository], self.repositories.of(repository).redact_extra
            self.redactions[repository] = Redaction(self.env, self.home, repositories, extra)
        return self.redactions[repository]


class Masking(BaseModel):
    """With which patterns of its own the sessions of a repository were masked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repository: str
    patterns: str
    """Their digest."""


def harvest(
    options: SleepOptions,
    store: SleepStore,
    now: datetime,
    *,
    home: Path,
    env: Mapping[str, str],
    watch: Callable[[int, int], None] = lambda _files, _bytes: None,
) -> HarvestReport:
    """Read the sessions that are new or have changed. The options must be complete.

    Args:
        home: The user's home folder; variables of `env` may name other folders.
        watch: Called with the number of files that will be read, and their bytes.
    """
    readers = [reader_named(cli) for cli in options.clis] or list(READERS)
    _check_home(home)
    filters = Filters.of(options, now)
    settings = _digest(__version__, options.redact_extra)
    chosen = (options.include, options.exclude, options.lookback, options.all_origins)
    repositories = AllSettings(options)
    harvester = Harvester(filters, home, env, repositories, settings, _digest(settings, chosen))
    dropped = dict(_drop_denied(store, filters))
    tally = Tally()
    for repository in store.repositories():
        try:
            own = repositories.of(repository)
        except UserError as error:
            tally.leave_out(str(error))
            continue
        _read_again_if_masked_otherwise(store, repository, own)
        for folder in filter(own.excludes, store.folders(repository)):
            dropped[folder] = store.drop_sessions(repository, folder)
    found = [job for reader in readers for job in _find_jobs(reader, home, env, tally)]
    jobs = list(_select(found, store, harvester, tally))
    watch(len(jobs), sum(job.size for job in jobs))
    tally.add(_read_all(harvester, jobs, store))
    groups = tuple(tally.groups())
    expiring = count_expiring([job.written for job in found if job.cli == EXPIRES], now, home, env)
    return HarvestReport(
        groups=groups,
        origins=tally.origins,
        secrets=tally.secrets.total(),
        broken=tally.broken,
        failures=tuple(tally.failures),
        newer=tuple(find_newer(groups, readers)),
        expiring={EXPIRES: expiring} if expiring else {},
        dropped=dropped,
    )


def _check_home(home: Path) -> None:
    try:
        next(home.iterdir(), None)
    except OSError as error:
        raise UserError(f"{home}: the home folder cannot be read: {error.strerror}") from error


def _digest(*parts: object) -> str:
    return digest(repr(parts).encode())


def _drop_denied(store: SleepStore, filters: Filters) -> Iterator[tuple[str, int]]:
    """Delete what is kept of repositories that the user excludes by now."""
    for repository in store.repositories():
        if filters.is_denied(None, repository):
            yield str(repository), store.drop_sessions(repository)


def _read_again_if_masked_otherwise(store: SleepStore, repository: Path, own: RepositorySettings) -> None:
    """If the repository's own patterns are others than last time, have its transcripts read again."""
    name, patterns = str(repository), _digest(own.own_patterns)
    known = store.get("masking", name, Masking)
    if (known.patterns if known else _digest(())) != patterns:
        store.drop_sources(repository)
        store.put("masking", name, Masking(repository=name, patterns=patterns))


def _find_jobs(reader: Reader, home: Path, env: Mapping[str, str], tally: Tally) -> list[Job]:
    jobs: list[Job] = []
    try:
        jobs += filter(None, (_look_at(reader.cli, source) for source in reader.find(home, env)))
    except UNREADABLE as error:
        tally.fail(reader.cli, f"{reader.cli}: its transcripts cannot be listed: {_explain(error)}")
    shares = Counter(job.source.path for job in jobs)
    return [replace(job, size=job.size // shares[job.source.path]) for job in jobs]


def _look_at(cli: str, source: Source) -> Job | None:
    """How a source looks now; None if it was deleted since it was found."""
    # SQLite writes to a second file first.
    paths = [source.path, source.path.with_name(f"{source.path.name}-wal")]
    seen = [one for path in paths if (one := _stat(path)) is not None]
    if not seen:
        return None
    look = source.mark or " ".join(f"{one.st_ino}:{one.st_size}:{one.st_mtime_ns}" for one in seen)
    written = datetime.fromtimestamp(max(one.st_mtime for one in seen), UTC)
    return Job(cli, source, look, written, sum(one.st_size for one in seen))


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _select(jobs: Sequence[Job], store: SleepStore, harvester: Harvester, tally: Tally) -> Iterator[Job]:
    """The sources that must be read: those that are new, that changed, or that other options were applied to."""
    known = store.sources()
    for job in jobs:
        row = known.get((str(job.source.path), job.source.key))
        if row and row.look == job.look and row.settings in {harvester.settings, harvester.all_settings}:
            tally.skip(job.cli, None, Skip.UNCHANGED)
        elif not job.source.key and job.written < harvester.filters.since:
            tally.skip(job.cli, None, Skip.OLD)
        else:
            yield job


def _read_all(harvester: Harvester, jobs: Sequence[Job], store: SleepStore) -> Tally:
    parts = min(os.cpu_count() or 1, MOST_PROCESSES, len(jobs))
    if parts < 2 or sum(job.size for job in jobs) < PARALLEL_BYTES:
        return harvester.read(jobs, store)
    whole = Tally()
    divided = divide(jobs, parts, lambda job: job.size)
    for tally in run_parts([partial(_read_part, harvester, store.folder, part) for part in divided]):
        whole.add(tally)
    return whole


def _read_part(harvester: Harvester, folder: Path, jobs: Sequence[Job]) -> Tally:
    parent = os.getppid()
    with SleepStore(folder) as store:
        # When the process that waits for this one was killed, nobody would stop it.
        return harvester.read(takewhile(lambda _: os.getppid() == parent, jobs), store)


def _shorten(session: Session) -> Session:
    """A session whose outputs are short enough to keep. It is masked before: a secret that is cut is not found."""
    turns = tuple(
        turn.model_copy(
            update={
                "steps": tuple(
                    step.model_copy(update={"output": clip(step.output, OUTPUT_LIMIT)}) for step in turn.steps
                )
            }
        )
        for turn in session.turns
    )
    return session.model_copy(update={"turns": turns})


def _explain(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())
    return text if isinstance(error, sqlite3.Error | UserError) else f"{type(error).__name__}: {text[:200]}"
