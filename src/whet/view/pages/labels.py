"""Labels of people: the box on the page of a rollout, what all of them say together, and the forms that set them."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from whet.errors import UserError
from whet.runs.index import IndexRow
from whet.runs.labels import NOTE, Label, LabelSets, NewLabel, RunLabels
from whet.runs.results import AttemptRecord, ResultReader
from whet.runs.stats.agreement import Agreement, measure_agreement
from whet.runs.store.store import Store
from whet.view import addresses
from whet.view.labels import LabelIndex, digest_result, tag_of
from whet.view.page import Action, Crumb, NotFoundError, Page, PageRequest, PageRoute, Redirect, View
from whet.view.pages.attempt import OpenAttempt
from whet.view.pages.common import Outcome, command_line, outcome_of, outcome_of_score, run_crumbs

COMPARED = (Outcome.PASSED, Outcome.PARTIAL, Outcome.FAILED, Outcome.MISSING)
"""What a judge can say."""


@dataclass(frozen=True, slots=True)
class LabelBox:
    """What people say of an attempt, and the form to say more."""

    address: str
    """Where the form is sent."""
    shown_on: str
    """The page that it stands on: rollout or judges."""
    attempt: int
    result: str
    """The digest of the result that the reader sees, as hex; empty without one."""
    labels: Sequence[tuple[Label, bool]]
    """Each with whether its author saw another result than this one."""
    sets: LabelSets
    mine: frozenset[str]
    """What the reader has said of the whole, as filters name it."""
    author: str
    chosen: int | None
    """The number of the attempt, where the address names it."""
    blind: bool = False

    @property
    def is_labelled(self) -> bool:
        """Whether the reader has set a label."""
        return bool(self.mine)


def make_label_box(view: View, opened: OpenAttempt, shown_on: str, *, blind: bool = False) -> LabelBox:
    """The box of an attempt whose store is open."""
    seen = digest_result(opened.store.result_body(opened.attempt.row))
    labels = view.run_labels.of(opened.entry).by_attempt.get(opened.attempt.id, ())
    mine = (one for one in labels if one.author == view.author and one.step is None and not one.is_note)
    return LabelBox(
        addresses.rollout_labels(opened.run, opened.rollout),
        shown_on,
        opened.attempt.id,
        seen.hex() if seen else "",
        [(one, one.result not in (None, seen)) for one in labels],
        view.label_sets,
        frozenset(map(tag_of, mine)),
        view.author,
        opened.chosen,
        blind,
    )


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """One kind of label in a run: how often it was set, how far people agree, and how far judges agree with them."""

    name: str
    counts: Sequence[tuple[str, int, str]]
    """Each value, how many rollouts have it, and their address."""
    agreement: Agreement | None
    disputed: Sequence[tuple[str, str, str]]
    """Rollouts on which people disagree: task, what they say, address."""
    tables: Sequence[tuple[str, Sequence[tuple[str, Sequence[tuple[int, str]]]]]]
    """For all judges together and for each: its name, and by label how many rollouts it gave each outcome, with their
    address."""


def labels_page(view: View, request: PageRequest) -> Page:
    """What people say of the rollouts of a run."""
    entry = view.library.entry(request.path["run"])
    snapshot, labels = view.library.snapshot(entry.name), view.run_labels.of(entry)
    rows = {row.attempt: row for row in snapshot.rows if row.attempt is not None}
    names = [*view.label_sets, *sorted({one.name for one in labels.labels} - {*view.label_sets, NOTE})]
    data = {
        "run": entry.name,
        "sets": [found for name in names if (found := _read_set(entry.name, name, labels, rows)) is not None],
        "outcomes": COMPARED,
        "notes": [_note(entry.name, one, rows) for one in reversed(labels.labels) if one.note][:200],
        "notes_total": sum(bool(one.note) for one in labels.labels),
        "authors": sorted({one.author for one in labels.labels}),
        "judge_file": describe_judge_file(*next(iter(view.label_sets.items()))),
        "write": command_line("view", entry.path, "--write"),
        "rejudge": command_line("rejudge", entry.path, "--judge", "labels.toml"),
    }
    return Page("labels.html", f"Labels of {entry.name}", data, run_crumbs(entry, Crumb("labels")))


def describe_judge_file(name: str, values: Sequence[str]) -> str:
    """A file that makes a score of labels, as an example: the first choice is worth 1, the second 0.

    >>> print(describe_judge_file("verdict", ["good", "bad", "unsure"]))
    [[human]]
    label = "verdict"
    scores = { "good" = 1, "bad" = 0 }
    """
    worth = ", ".join(f"{json.dumps(value)} = {1 - place}" for place, value in enumerate(values[:2]))
    return f'[[human]]\nlabel = "{name}"\nscores = {{ {worth} }}'


def _read_set(run: str, name: str, labels: LabelIndex, rows: Mapping[int, IndexRow]) -> LabelledSet | None:
    """A label of a single step says nothing of the whole, and one of an attempt that no longer counts says nothing of
    the result: both are left out."""
    given: dict[int, dict[str, str]] = defaultdict(dict)
    for one in labels.labels:
        if one.name == name and one.step is None and one.value is not None and one.attempt in rows:
            given[one.attempt][one.author] = one.value
    if not given:
        return None
    counts = Counter(value for said in given.values() for value in set(said.values()))
    disputed = [(rows[attempt], said) for attempt, said in given.items() if len(set(said.values())) > 1]
    judges = list(dict.fromkeys(judge for attempt in given for judge in rows[attempt].judges or ()))
    return LabelledSet(
        name,
        [(value, count, addresses.rollouts(run, label=f"{name}:{value}")) for value, count in counts.most_common()],
        measure_agreement(given.values()),
        [(row.rollout.task, _say(said), addresses.rollout(run, row.rollout.id)) for row, said in disputed],
        [(judge, _confusion(run, name, judge, given, rows)) for judge in ("", *judges)],
    )


def _say(said: Mapping[str, str]) -> str:
    return ", ".join(f"{value} ({author})" for author, value in said.items())


def _confusion(
    run: str, name: str, judge: str, given: Mapping[int, Mapping[str, str]], rows: Mapping[int, IndexRow]
) -> list[tuple[str, list[tuple[int, str]]]]:
    """By label: how many of its rollouts a judge gave each outcome; without a judge, the whole score."""
    counts: Counter[tuple[str, Outcome]] = Counter()
    for attempt, said in given.items():
        row = rows[attempt]
        if judge and judge not in (row.judges or {}):
            continue
        outcome = outcome_of_score((row.judges or {})[judge]) if judge else outcome_of(row)
        counts.update((value, outcome) for value in set(said.values()))

    def address(value: str, outcome: Outcome) -> str:
        where = {"judge": f"{judge}:{outcome}"} if judge else {"outcome": outcome.value}
        return addresses.rollouts(run, label=f"{name}:{value}", **where)

    values = dict.fromkeys(value for value, _ in sorted(counts))
    return [(value, [(counts[value, one], address(value, one)) for one in COMPARED]) for value in values]


def _note(run: str, label: Label, rows: Mapping[int, IndexRow]) -> tuple[Label, str, str]:
    row = rows.get(label.attempt)
    rollout = row.rollout.id if row else label.rollout
    return label, row.rollout.task if row else label.rollout, addresses.rollout(run, rollout)


def set_label(view: View, request: PageRequest) -> Redirect:
    """Set a label or a note on an attempt, or take one back."""
    entry, form = view.library.entry(request.path["run"]), _form(request)
    with view.library.open(entry.name) as store:
        rollout, attempt = _find_attempt(store, request.path["id"], form.get("attempt", ""))
        seen = digest_result(store.result_body(attempt.row))
    labels = RunLabels(entry.path)
    if form.get("withdraw"):
        labels.withdraw(_whole(form, "withdraw"), view.author, time.time())
    else:
        result = _read_digest(form.get("result", ""), seen)
        step = _whole(form, "step") if form.get("step") else None
        labels.add([_read_label(view, form, rollout, attempt.id, result, step)], time.time())
    blind = 1 if form.get("blind") else None
    chosen = _whole(form, "chosen") if form.get("chosen") else None
    if form.get("shown_on") == "judges":
        return Redirect(addresses.judges(entry.name, rollout, attempt=chosen))
    if chosen is not None:
        return Redirect(addresses.attempt(entry.name, rollout, chosen, blind=blind))
    return Redirect(addresses.rollout(entry.name, rollout, blind=blind))


def set_labels(view: View, request: PageRequest) -> Redirect:
    """Set a label or a note on many rollouts, all or none."""
    entry, form = view.library.entry(request.path["run"]), _form(request)
    picked = [str(one) for one in request.form.getlist("pick")] if request.form else []
    if not picked:
        raise UserError("no rollout is chosen; tick some in the table first")
    with view.library.open(entry.name) as store:
        found = [_find_attempt(store, name, "") for name in dict.fromkeys(picked)]
        new = [
            _read_label(view, form, name, attempt.id, digest_result(store.result_body(attempt.row)), None)
            for name, attempt in found
        ]
    RunLabels(entry.path).add(new, time.time())
    return Redirect(addresses.rollouts(entry.name, **dict(parse_qsl(form.get("back", "")))))


def _form(request: PageRequest) -> dict[str, str]:
    names = ("attempt", "result", "label", "note", "step", "withdraw", "blind", "chosen", "shown_on", "back")
    return {name: str(value) for name in names if request.form and (value := request.form.get(name))}


def _find_attempt(store: Store, name: str, attempt: str) -> tuple[str, AttemptRecord]:
    """The attempt with this id in the store; without one, the attempt that counts, or else the last."""
    try:
        record = ResultReader(store).rollout(name)
    except KeyError:
        raise NotFoundError(f"The run has no rollout '{name[:80]}'.") from None
    chosen: Iterable[AttemptRecord | None] = (record.counting, record.last)
    if attempt:
        chosen = (one for one in record.attempts if str(one.id) == attempt)
    found = next((one for one in chosen if one is not None), None)
    if found is None:
        raise UserError(f"rollout '{name}' has no such attempt to label; it may not have been run yet")
    return name, found


def _read_label(
    view: View, form: Mapping[str, str], rollout: str, attempt: int, result: bytes | None, step: int | None
) -> NewLabel:
    name, _, value = form.get("label", "").partition(":")
    note = form.get("note", "").strip()
    if not name:
        if not note:
            raise UserError("`note` is empty; write one, or choose a label")
        return NewLabel(view.author, rollout, attempt, NOTE, "", note, step, result)
    if value not in view.label_sets.get(name, ()):
        known = "; ".join(f"{one}: {', '.join(values)}" for one, values in view.label_sets.items())
        raise UserError(f"`label` is '{form['label'][:80]}'; expected one of {known}")
    return NewLabel(view.author, rollout, attempt, name, value, note, step, result)


def _read_digest(text: str, seen: bytes | None) -> bytes | None:
    """The digest of the result that the reader saw. It may have been judged again meanwhile."""
    try:
        return bytes.fromhex(text)[:16] or None
    except ValueError:
        return seen


def _whole(form: Mapping[str, str], name: str) -> int:
    text = form[name]
    if not (text.isascii() and text.isdigit()) or len(text) > 15:
        raise UserError(f"`{name}` is '{text[:40]}'; expected a whole number")
    return int(text)


ROUTES = (PageRoute("/runs/{run}/labels", labels_page),)
ACTIONS = (
    Action("/runs/{run}/labels", set_labels),
    Action("/runs/{run}/rollouts/{id}/labels", set_label),
)
