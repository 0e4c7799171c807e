"""One rollout: what came of it, before reading it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whet.look.numbers import brief_seconds, moment, number, price, score
from whet.rollout.result import Result
from whet.runs.index import IndexRow, RolloutState
from whet.runs.results import AttemptRecord
from whet.runs.rollout_words import (
    describe_calls,
    describe_phases,
    describe_replay,
    describe_skill,
    describe_speakers,
    describe_stop,
    explain_flag,
)
from whet.runs.stats.arms import short_names
from whet.scoring import Cause
from whet.view import addresses
from whet.view.columns import name_skill
from whet.view.page import Crumb, NotFoundError, Page, PageRequest, PageRoute, Part, Redirect, View
from whet.view.pages.attempt import OpenAttempt, open_attempt
from whet.view.pages.common import (
    Outcome,
    command_line,
    find_rollout,
    outcome_of,
    outcome_of_score,
    run_crumbs,
    state_words,
    whole_id,
)
from whet.view.pages.labels import make_label_box
from whet.view.pages.trace_summary import read_summary
from whet.view.rollout_filters import shuffle_rows
from whet.view.snapshot import Snapshot

WAIT_SEC = 0.3
"""How long the page waits for a trace that is not derived yet, to say a line of it."""
MOST_DOTS = 60
"""Samples of an arm that are drawn."""
NOW = "rollout-now"
"""The id of the element that the stream replaces."""
BLIND_TABS = ("Rollout", "Trace", "Diff")
"""Pages of an attempt that show neither its score nor its judges."""
KINDS = {Outcome.PASSED: "holds", Outcome.PARTIAL: "undecided", Outcome.FAILED: "fails", Outcome.MISSING: "missing"}
"""How the banner shows an outcome."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The first thing to know."""

    kind: str
    word: str
    sentence: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class TriedBefore:
    """One of several attempts."""

    number: int
    words: str
    address: str
    here: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """A rollout of the same task, as a dot."""

    outcome: str
    title: str
    address: str
    here: bool


def rollout_page(view: View, request: PageRequest) -> Page | Redirect:
    """What came of a rollout; of its last attempt, unless the address names another."""
    if (whole := _find_whole(view, request)) is not None:
        return Redirect(addresses.rollout(request.path["run"], whole))
    snapshot, row = find_rollout(view, request)
    if not row.attempts:
        return _not_run_page(view, request, snapshot, row)
    blind = bool(request.query.get("blind"))
    with open_attempt(view, request) as opened:
        box = make_label_box(view, opened, "rollout", blind=blind)
        hidden = blind and not box.is_labelled
        result = None if hidden else opened.attempt.result
        summary = None if hidden else read_summary(view, opened.entry, opened.store, opened.attempt, WAIT_SEC)
        part = None if hidden else now_part(opened, snapshot)
    arms = [] if hidden else find_samples(opened.run, snapshot, row)
    data = {
        "opened": opened,
        "row": row,
        "tabs": [tab for tab in opened.tabs if not hidden or tab[0] in BLIND_TABS],
        "hidden": hidden,
        "arm": [] if hidden else describe_arm(snapshot, row),
        "part": part,
        "stream": addresses.rollout_events(opened.run, opened.rollout)
        if opened.is_running and snapshot.running
        else "",
        "result": result,
        "summary": str(summary) if summary else "",
        "arms": arms,
        "box": box,
        "fork": None if hidden else describe_fork(opened, result),
        "neighbours": find_unlabelled(view, opened, snapshot) if blind else find_neighbours(opened.run, snapshot, row),
    }
    title = f"{row.rollout.task} {opened.words}".strip()
    return Page("rollout.html", title, data, opened.crumbs(), opened.command)


def parts(view: View, request: PageRequest) -> list[Part]:
    """What changes while the page is open."""
    snapshot, row = find_rollout(view, request)
    if not row.attempts:
        return [waiting_part(snapshot, row)]
    with open_attempt(view, request) as opened:
        return [now_part(opened, snapshot)]


def now_part(opened: OpenAttempt, snapshot: Snapshot) -> Part:
    """What is known of an attempt by now."""
    attempt, result = opened.attempt, opened.attempt.result
    data = {
        "opened": opened,
        "headline": describe_headline(attempt, running=snapshot.running),
        "figures": list_figures(opened, result),
        "facts": list_facts(result, snapshot) if result else [],
        "flags": [(flag, explain_flag(flag)) for flag in result.flags] if result else [],
        "attempts": _attempts(opened, running=snapshot.running),
        "judges": list(result.judgements.items()) if result else [],
        "failure": result.failure if result else None,
    }
    return Part(NOW, "rollout_now.html", data)


def _is_live(opened: OpenAttempt, snapshot: Snapshot) -> bool:
    return opened.is_running and snapshot.running


def describe_headline(attempt: AttemptRecord, *, running: bool) -> Headline:
    """The score of an attempt and its reason, or what there is instead."""
    result = attempt.result
    if result is not None:
        outcome = outcome_of_score(result.score.value)
        word = (
            f"missing: {result.score.cause}" if outcome is Outcome.MISSING else f"{score(result.score.value)} {outcome}"
        )
        note = "Its score no longer counts: the rollout is run again." if attempt.is_superseded else ""
        return Headline(KINDS[outcome], word, result.score.reason, note)
    if attempt.row.ended is None and running:
        return Headline("undecided", "running", f"It began at {moment(attempt.row.started)} and has not ended.")
    # A process that was killed leaves its attempt open.
    return Headline("missing", f"missing: {attempt.cause or Cause.INTERRUPTED}", "It was stopped before its end.")


def list_figures(opened: OpenAttempt, result: Result | None) -> list[tuple[str, str]]:
    """Numbers and what they are."""
    if result is None:
        calls, usage = opened.attempt.usage()
        return [
            (number(calls), "model calls"),
            (number(usage.input), "tokens read"),
            (number(usage.output), "tokens sampled"),
        ]
    spent, seconds = result.spending, sum(result.seconds.values())
    counted = [
        (number(spent.calls), "model calls"),
        (number(spent.input_tokens), "tokens read"),
        (number(spent.output_tokens), "tokens sampled"),
        (price(spent.cost), "cost"),
    ]
    if not spent.captured:
        counted = [("unknown", "model calls, tokens and cost")]
    return [*counted, (brief_seconds(seconds), "time")]


def list_facts(result: Result, snapshot: Snapshot) -> list[tuple[str, str]]:
    """What else is to be said of a result, in the words of `whet show`."""
    fork = snapshot.facts.fork
    judging = result.judging
    found = [
        ("calls", describe_calls(result.spending) if describe_speakers(result.spending) else ""),
        ("phases", " · ".join(describe_phases(result))),
        ("ended", describe_stop(result.report, result.limit) if result.report else "the agent never ran"),
        ("skill", describe_skill(result).removeprefix("skill ")),
        ("judging", f"{describe_calls(judging)}, {price(judging.cost)}" if judging else ""),
        ("replay", describe_replay(result) if result.replay else ""),
        ("fork of", f"{fork['run']} {fork['rollout']} at call {fork['at']}" if fork else ""),
        ("judged again", f"{result.judged} times" if result.judged > 1 else "once" if result.judged else ""),
    ]
    return [(name, words) for name, words in found if words]


def describe_arm(snapshot: Snapshot, row: IndexRow) -> list[tuple[str, str]]:
    """Agent, model, skill and sample."""
    own = row.rollout
    skill = name_skill(own.skill, snapshot.facts.skills)
    return [("agent", own.agent), ("model", own.model), ("skill", skill), ("sample", str(own.sample))]


def describe_fork(opened: OpenAttempt, result: Result | None) -> tuple[int, str] | None:
    """How many calls of the main thread a fork can begin at, and the command for the last of them."""
    calls = result.spending.speakers.get("main", result.spending.calls) if result and result.spending.captured else 0
    return (calls, opened.fork_command(calls)) if calls else None


def find_samples(run: str, snapshot: Snapshot, row: IndexRow) -> list[tuple[str, list[Sample], int]]:
    """All rollouts of the same task, by arm: its name, the first samples, and how many more there are."""
    found: dict[Any, list[IndexRow]] = {}
    for one in snapshot.rows:
        if one.rollout.task == row.rollout.task:
            found.setdefault((one.rollout.agent, one.rollout.model, one.rollout.skill), []).append(one)
    names = short_names(found, snapshot.facts.skills)
    return [
        (names[arm], [_sample(run, one, row, snapshot) for one in rows[:MOST_DOTS]], max(0, len(rows) - MOST_DOTS))
        for arm, rows in found.items()
    ]


def _sample(run: str, one: IndexRow, row: IndexRow, snapshot: Snapshot) -> Sample:
    said = score(one.value) if one.value is not None else f"missing: {one.cause}" if one.cause else ""
    words = said or state_words(one, running=snapshot.running) or f"missing: {Cause.INTERRUPTED}"
    title = f"sample {one.rollout.sample}: {words}"
    return Sample(outcome_of(one), title, addresses.rollout(run, one.rollout.id), one.rollout.id == row.rollout.id)


def find_neighbours(run: str, snapshot: Snapshot, row: IndexRow) -> tuple[str, str, tuple[str, str]]:
    """The samples before and after this one, of the same task and arm, and what the links say."""
    own = row.rollout
    arm = (own.task, own.agent, own.model, own.skill)
    same = [
        one.rollout.id
        for one in snapshot.rows
        if (one.rollout.task, one.rollout.agent, one.rollout.model, one.rollout.skill) == arm
    ]
    place = same.index(own.id)
    before = addresses.rollout(run, same[place - 1]) if place else ""
    after = addresses.rollout(run, same[place + 1]) if place + 1 < len(same) else ""
    return before, after, ("previous sample", "next sample")


def find_unlabelled(view: View, opened: OpenAttempt, snapshot: Snapshot) -> tuple[str, str, tuple[str, str]]:
    """The next rollout that the reader has not labelled, in the order of the blind table."""
    labels = view.run_labels.of(opened.entry).by_attempt
    rows = [row for row in shuffle_rows(snapshot.rows) if row.attempt is not None]
    place = next((at for at, row in enumerate(rows) if row.rollout.id == opened.rollout), -1)
    for row in (*rows[place + 1 :], *rows[: max(place, 0)]):
        own = (one for one in labels.get(row.attempt or 0, ()) if one.author == view.author and not one.is_note)
        if next(own, None) is None:
            return "", addresses.rollout(opened.run, row.rollout.id, blind=1), ("", "next without your label")
    return "", "", ("", "")


def _attempts(opened: OpenAttempt, *, running: bool) -> Sequence[TriedBefore]:
    """All attempts, when there are several."""
    records = opened.record.attempts
    if len(records) < 2:
        return ()
    return [
        TriedBefore(
            one.row.number,
            _describe_attempt(one, running=running),
            addresses.attempt(opened.run, opened.rollout, one.row.number),
            one.id == opened.attempt.id,
        )
        for one in records
    ]


def _describe_attempt(one: AttemptRecord, *, running: bool) -> str:
    said = describe_headline(one, running=running)
    return f"{said.word} · {said.sentence}" if said.sentence else said.word


def _find_whole(view: View, request: PageRequest) -> str | None:
    """The whole id that the address has only the beginning of; None when the id is whole, or not clear."""
    try:
        find_rollout(view, request)
    except NotFoundError:
        return whole_id(view, request.path)
    return None


def _not_run_page(view: View, request: PageRequest, snapshot: Snapshot, row: IndexRow) -> Page:
    """A rollout that was never run."""
    run, own = request.path["run"], row.rollout
    entry = view.library.entry(run)
    crumbs = run_crumbs(entry, Crumb("rollouts", addresses.rollouts(run)), Crumb(f"{own.task} {own.id}"))
    data = {
        "run": run,
        "row": row,
        "arm": describe_arm(snapshot, row),
        "part": waiting_part(snapshot, row),
        "stream": addresses.rollout_events(run, own.id) if snapshot.running else "",
        "arms": find_samples(run, snapshot, row),
        "neighbours": find_neighbours(run, snapshot, row),
    }
    return Page("rollout_not_run.html", own.task, data, crumbs, command_line("show", entry.path, own.id))


def waiting_part(snapshot: Snapshot, row: IndexRow) -> Part:
    """The line of the plan of a rollout that was never run, and its place in the queue. When it runs, what is known of
    it takes the place of this."""
    waiting = [one.rollout.id for one in snapshot.rows if one.state is RolloutState.NOT_RUN]
    data = {
        "running": snapshot.running,
        "place": waiting.index(row.rollout.id) + 1,
        "waiting": len(waiting),
        "ordinal": row.rollout.ordinal + 1,
        "planned": len(snapshot.rows),
    }
    return Part(NOW, "rollout_waiting.html", data)


ROUTES = (
    PageRoute("/runs/{run}/rollouts/{id}", rollout_page),
    PageRoute("/runs/{run}/rollouts/{id}/attempts/{attempt}", rollout_page),
)
