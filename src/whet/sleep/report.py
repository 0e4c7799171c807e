"""The morning report: one screen, whose first line says what the user has to do."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from whet.sleep.staging import Proposal, State

WIDTH = 80
_INDENT = 13


class Outcome(StrEnum):
    """How a night ended. All but the first name the constraint that kept it from a proposal."""

    PROPOSED = "proposed"
    NO_SESSIONS = "no sessions"
    NO_STATE = "no replayable state"
    NO_JUDGE = "no proven judge"
    NO_RULE = "no recurring correction"
    NOISE = "noise too high"
    BUDGET = "budget"
    NO_TIME = "no time"
    NOTHING_TO_IMPROVE = "nothing to improve"
    FAILED = "failed"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cost(_Record):
    """What a night spent."""

    rollouts: int = 0
    tokens: int = 0
    minutes: float = 0
    dollars: float | None = None
    """None if no price is known."""


class NightRecord(_Record):
    """What one night read, spent and found."""

    id: str
    """Its date, such as 2026-11-16; a second night of that date has a suffix."""
    started: AwareDatetime
    ended: AwareDatetime | None = None
    """None while it runs, or if it was killed."""
    sessions: Mapping[str, int] = Field(default_factory=dict)
    """Sessions read, by agent."""
    not_used: Mapping[str, int] = Field(default_factory=dict)
    """Sessions that gave no task and no rule, by cause."""
    unknown: Mapping[str, int] = Field(default_factory=dict)
    """Record types that no reader knows, by agent and version, such as `gemini 0.62`."""
    expiring: Mapping[str, int] = Field(default_factory=dict)
    """Transcripts that their program deletes within a week, by agent."""
    secrets_masked: int = 0
    rules: tuple[str, ...] = ()
    """Ids of the rules that it tries."""
    proposals: tuple[str, ...] = ()
    """Ids of the proposals that it staged."""
    notes: tuple[str, ...] = ()
    """What the user should know and need not decide, one line each."""
    cost: Cost = Cost()
    outcome: Outcome
    detail: str = ""
    """The figures behind the outcome, in one line, such as the smallest effect that the exam could have found."""


CONSTRAINTS = {
    Outcome.NO_SESSIONS: "there were no new sessions",
    Outcome.NO_STATE: "no session has a state of its repository that can be restored",
    Outcome.NO_JUDGE: "no task has a check that is proven",
    Outcome.NO_RULE: "no correction recurred",
    Outcome.NOISE: "the exam could not tell a small improvement from chance",
    Outcome.BUDGET: "the budget ended first",
    Outcome.NO_TIME: "the window ended first",
    Outcome.NOTHING_TO_IMPROVE: "the agents did it right already",
    Outcome.FAILED: "the night failed",
}
"""Why a night has no proposal."""
NEVER = "whet sleep: no night has been run yet; start one with `whet sleep run`"


def render_report(night: NightRecord | None, proposals: Sequence[Proposal]) -> str:
    """The report of the last night, and all proposals that wait for a decision: what `whet sleep status` prints."""
    waiting = [one for one in proposals if one.state is State.STAGED]
    if night is None:
        return "\n".join([f"whet sleep: {_ask(waiting)}" if waiting else NEVER, *_list(waiting)]) + "\n"
    parts = [_ask(waiting) if waiting else _explain_nothing(night, proposals)]
    if night.notes:
        parts.append(_count(len(night.notes), "note", "notes"))
    first = f"whet sleep, night of {_day(night.started)}: {', '.join(parts)}"
    lines = [*textwrap.wrap(first, WIDTH, subsequent_indent=" "), *_list(waiting), *_tell(night)]
    return "\n".join(lines) + "\n"


def _ask(waiting: Sequence[Proposal]) -> str:
    certified = sum(one.certified for one in waiting)
    shown = "certified" if certified == len(waiting) else f"{certified} certified" if certified else "not certified"
    return f"{_count(len(waiting), 'proposal', 'proposals')} to review ({shown})"


def _explain_nothing(night: NightRecord, proposals: Sequence[Proposal]) -> str:
    decided = [one for one in proposals if one.id in night.proposals]
    if decided:
        return "nothing to review, " + ", ".join(f"proposal {one.id} is {one.state}" for one in decided)
    if night.ended is None and night.outcome is not Outcome.FAILED:
        return "nothing to review, it has not ended"
    constraint = CONSTRAINTS.get(night.outcome, "nothing was proposed")
    return f"nothing to review: {constraint}" + (f" ({night.detail})" if night.detail else "")


def _list(waiting: Sequence[Proposal]) -> Iterator[str]:
    for one in waiting:
        yield from _entry(f"proposal {one.id}", f"whet sleep show {one.id} | adopt {one.id} | reject {one.id}")
        yield from describe(one)


def describe(proposal: Proposal) -> Iterator[str]:
    """What a proposal changes, why, and what proves it."""
    for target in proposal.targets:
        names = dict.fromkeys(_shorten(path, proposal.repository) for path in (target.path, target.real))
        yield from _entry("  file", " -> ".join(names))
    size = " ".join(f"{sign}{number}" for sign, number in (("+", proposal.added), ("-", proposal.removed)) if number)
    yield from _entry("  edit", f'{size} lines: "{proposal.edit}"')
    if proposal.sessions:
        where = ", ".join(f"{one.cli} {_moment(one.at)}".strip() for one in proposal.sessions)
        yield from _entry("  why", f"{_count(len(proposal.sessions), 'session', 'sessions')} asked for it: {where}")
    if proposal.why:
        yield from _entry("  why", proposal.why)
    yield from _entry("  proof", proposal.proof or "none; it is not certified")
    if proposal.merged:
        yield from _entry("  note", "the file changed later and the edit was merged; the proof is about the old text")


def _tell(night: NightRecord) -> Iterator[str]:
    """What a night spent and read."""
    cost = night.cost
    money = f", ${cost.dollars:.2f}" if cost.dollars is not None else ""
    spent = f"{_count(cost.rollouts, 'rollout', 'rollouts')}, {_tokens(cost.tokens)}, {cost.minutes:.0f} min{money}"
    yield from _entry("cost", spent)
    if night.not_used:
        causes = sorted(night.not_used.items(), key=lambda one: -one[1])
        number = _count(sum(night.not_used.values()), "session", "sessions")
        yield from _entry("not used", f"{number}: " + ", ".join(f"{count} {cause}" for cause, count in causes))
    yield from _entry("read", ", ".join(_describe_reading(night)))
    for note in night.notes:
        yield from _entry("note", note)


def _describe_reading(night: NightRecord) -> Iterator[str]:
    clis = [name for name, number in night.sessions.items() if number]
    number = _count(sum(night.sessions.values()), "session", "sessions")
    yield f"{number} of {_count(len(clis), 'agent', 'agents')}" if clis else "no sessions"
    if night.unknown:
        kinds = _count(sum(night.unknown.values()), "unknown record type", "unknown record types")
        yield f"{kinds} ({', '.join(night.unknown)})"
    yield f"{_count(night.secrets_masked, 'secret', 'secrets')} masked"
    for cli, count in night.expiring.items():
        yield _count(count, f"{cli} transcript expires within 7 days", f"{cli} transcripts expire within 7 days")


def _entry(label: str, text: str) -> list[str]:
    """A line with a label; what does not fit stands below the text."""
    first, indent = f" {label}".ljust(_INDENT), " " * _INDENT
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _shorten(path: Path, repository: Path | None) -> str:
    """A file by the name of its repository, or from the home folder."""
    if repository is not None and path.is_relative_to(repository):
        return str(path.relative_to(repository.parent))
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _tokens(number: int) -> str:
    return f"{number / 1e6:.1f} M tokens" if number >= 1e6 else f"{number:,} tokens"


def _day(at: datetime) -> str:
    return f"{at.astimezone():%-d %b}"


def _moment(at: datetime | None) -> str:
    return f"{at.astimezone():%-d %b %H:%M}" if at else ""
