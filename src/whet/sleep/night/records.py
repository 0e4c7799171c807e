"""What goes on record about a night: its beginning, what was read, and what came of it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from whet.skills.certificates.certificate import ExamRecord
from whet.skills.certificates.guard_text import format_both_scores
from whet.skills.measurement import Verdict
from whet.skills.results import SharpenResult
from whet.sleep.exam import MARGIN
from whet.sleep.harvest import HarvestReport
from whet.sleep.report import NightRecord, Outcome
from whet.sleep.store import SleepStore


class Trial(BaseModel):
    """That a night tried a rule: each further trial has half the error rate. The digest of a rule is all that is kept,
    so it stays when the rule and its sessions are forgotten."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: str
    night: str

    @property
    def name(self) -> str:
        return f"{self.rule}-{self.night}"


def find_unfinished(store: SleepStore) -> NightRecord | None:
    """The last night, if it was killed, or if its window ended while it tried rules."""
    last = max(store.list("night", NightRecord), key=lambda one: one.started, default=None)
    if last is None:
        return None
    out_of_time = last.outcome is Outcome.NO_TIME and last.rules
    return last.model_copy(update={"ended": None}) if last.ended is None or out_of_time else None


def begin_night(store: SleepStore) -> NightRecord:
    """A new night, named by its date."""
    now = datetime.now(UTC)
    names = {one.id for one in store.list("night", NightRecord)}
    day = f"{now.astimezone():%Y-%m-%d}"
    name = next(free for free in (day, *(f"{day}-{n}" for n in range(2, len(names) + 3))) if free not in names)
    return NightRecord(id=name, started=now, outcome=Outcome.NO_SESSIONS)


def describe_harvest(read: HarvestReport) -> dict[str, Any]:
    """The fields of the record that say what was read."""
    unknown = {f"{group.cli} {group.version or ''}".rstrip(): len(group.unknown) for group in read.groups}
    return {
        "unknown": {name: number for name, number in unknown.items() if number},
        "expiring": dict(read.expiring),
        "notes": tuple(_notes(read)),
    }


def _notes(read: HarvestReport) -> Iterator[str]:
    yield from read.warnings()
    yield from read.failures


def describe_proof(record: ExamRecord, tasks: int) -> str:
    """What the exam found, in one line."""
    found = record.findings
    return (
        f"{format_both_scores(record)} on {tasks} exam tasks; at least {found.at_least * 100:+.0f} points, "
        f"work not worse by more than {MARGIN * 100:g} points, error at most {record.terms.level:.3g}"
    )


def explain_outcome(result: SharpenResult) -> Outcome:
    """Why nothing was certified."""
    if not result.certificate.records:
        return Outcome.NOTHING_TO_IMPROVE
    verdict = result.certificate.records[-1].findings.verdict
    return Outcome.NOISE if verdict is Verdict.UNDECIDED else Outcome.NOTHING_TO_IMPROVE
