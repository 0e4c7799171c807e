"""Compare runs or arms: which is better, whether that is real, and on which tasks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from whet.errors import UserError
from whet.look.numbers import points, points_range
from whet.look.plots.drawing import NARROW, WIDE, Figure, Tone
from whet.look.plots.intervals import IntervalRow, draw_intervals
from whet.runs.stats.compare import Comparison, Key, ReadRun, Verdict
from whet.runs.stats.compared import ComparedArms, in_words
from whet.runs.stats.paired import Difference
from whet.runs.stats.summary import Arm
from whet.runs.stats.words import comparison_notes, interval_level
from whet.skills.run_folders import RunKind
from whet.view import addresses
from whet.view.comparisons import PairOfArms
from whet.view.page import Crumb, NotFoundError, Page, PageRequest, PageRoute, View
from whet.view.pages.attempt import read_choice, read_number
from whet.view.pages.common import command_line
from whet.view.pages.compare_arms import KINDS, name_side, show_arms, show_lifts
from whet.view.pages.compare_tasks import ONLY_WORDS, ROWS, SORTS, Only, choose_tasks, list_tasks, show_tasks

BY = ("", *(key.value for key in Key))
MOST_ARMS = 24
"""Arms of a run that are all compared with each other while the reader waits."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A run of the address, and perhaps one of its arms."""

    run: str
    arm: Arm | None = None


def compare_page(view: View, request: PageRequest) -> Page:
    """Two runs or arms, or all arms of a run. Without runs, a form that chooses them."""
    by = read_choice(request, "by", BY)
    texts = [str(request.query.get(name) or "") for name in ("a", "b")]
    data: dict[str, Any] = {"problem": "", "kind": "none"}
    chosen: list[Chosen] = []
    try:
        chosen = [_find(view, text) for text in texts if text]
        if chosen:
            data |= _compare(view, request, chosen, Key(by) if by else None)
    except UserError as error:
        data["problem"] = str(error)
    data["fields"] = _fields(view, texts, by, chosen)
    data["several"] = [] if chosen else list(_find_several(view))
    names = list(dict.fromkeys(one.run for one in chosen))
    paths = [view.library.entry(name).path for name in names]
    by = Key.SKILL if data["kind"] == "lifts" else by
    command = command_line("compare", *paths, *(("--by", by) if by else ())) if data["kind"] != "none" else ""
    title = " against ".join(reversed(names)) or "Compare"
    crumbs = (Crumb("Compare", addresses.compare()), Crumb(title)) if names else ()
    return Page("compare.html", title, data, crumbs, command, section="compare")


def _find(view: View, text: str) -> Chosen:
    """What `run` or `run@arm` names. Names of runs and of skills may have an @ in them."""
    places = [place for place, letter in enumerate(text) if letter == "@"]
    known = {name for entry in view.library.entries() for name in (entry.name, *entry.parts)}
    for end in (len(text), *reversed(places)):
        if text[:end] in known:
            run, words = text[:end], text[end + 1 :]
            return Chosen(run, _find_arm(view.comparisons.read(run), words) if words else None)
    raise NotFoundError(f"There is no run '{text[:80]}' here. It may have been renamed or deleted.")


def _find_arm(run: ReadRun, words: str) -> Arm:
    found = [arm for arm in run.arms if " / ".join(run.words(arm)) == words]
    if len(found) != 1:
        raise UserError(f"{run}: has no arm '{words[:80]}'; expected one of {_list_arms(run)}")
    return found[0]


def _list_arms(run: ReadRun) -> str:
    return ", ".join(" / ".join(run.words(arm)) for arm in run.arms)


def _compare(view: View, request: PageRequest, chosen: Sequence[Chosen], by: Key | None) -> dict[str, Any]:
    first, second = chosen[0], chosen[-1]
    if first.arm is None and second.arm is None:
        entry = view.library.entry(first.run)
        if first == second and entry.kind is RunKind.TRANSFER and by in (None, Key.SKILL):
            return show_lifts(view, entry)
        other = None if first == second else second.run
        if other is None:
            _check_arms(view, first.run)
        whole = view.comparisons.compare(first.run, other, by)
        if len(whole.comparisons) > 1:
            return show_arms(view, whole, by, one_run=other is None)
        return _show_pair(view, request, _only_pair(whole), by)
    if len(chosen) == 1:
        raise UserError(f"{first.run}: one arm is chosen; choose what to compare it with")
    sides = [(one.run, _complete(view, one, other)) for one, other in ((first, second), (second, first))]
    if sides[0] == sides[1]:
        raise UserError(f"{first.run}: the same arm is chosen twice; choose another to compare it with")
    return _show_pair(view, request, view.comparisons.pair(sides[0], sides[1], by), by)


def _check_arms(view: View, run: str) -> None:
    count = len(view.library.snapshot(run).arms)
    if count > MOST_ARMS:
        raise UserError(
            f"{run}: has {count} arms, and at most {MOST_ARMS} are compared with each other here; choose two of them, "
            "or use the command line"
        )


def _only_pair(whole: ComparedArms) -> PairOfArms:
    (found,) = whole.comparisons
    return PairOfArms(found, whole.arms[found.first], whole.arms[found.second])


def _complete(view: View, one: Chosen, other: Chosen) -> Arm:
    """The arm of a side that names none: the only one, or the one that the other side names."""
    if one.arm is not None:
        return one.arm
    run = view.comparisons.read(one.run)
    if len(run.arms) == 1:
        return next(iter(run.arms))
    if other.arm in run.arms:
        assert other.arm is not None
        return other.arm
    raise UserError(f"{run}: has several arms; choose one of {_list_arms(run)}")


def _show_pair(view: View, request: PageRequest, pair: PairOfArms, by: Key | None) -> dict[str, Any]:
    found = pair.found
    runs = [view.comparisons.read(side.run) for side in pair.sides]
    sides = [name_side(run, side.arm) for run, side in zip(runs, pair.sides, strict=True) if side.arm]
    query: dict[str, object] = {"by": by}
    together = None
    if found.comparisons > 1:
        together = addresses.compare(runs[0].name, runs[1].name if runs[1].name != runs[0].name else None, by=by)
    return {
        "kind": "pair",
        "found": found,
        "tone": KINDS[found.verdict],
        "words": in_words(found),
        "level": interval_level(found),
        "notes": list(comparison_notes(found)),
        "figure": draw_differences(found),
        "sides": list(zip("AB", (found.first, found.second), (pair.first.run, pair.second.run), strict=True)),
        "swapped": addresses.compare(sides[1], sides[0], **query),
        "together": together,
        **_show_tasks(view, request, pair, {"a": sides[0], "b": sides[1], **query}),
    }


def draw_differences(found: Comparison) -> Figure | None:
    """The difference of the scores, and of the pass rates by the number of samples; None without paired tasks."""
    if found.difference is None:
        return None
    measured = [("score", found.difference)]
    for point in found.passes:
        measured.append((f"pass@{point.k}", point.any_of_k))
        if point.k > 1:
            measured.append((f"pass^{point.k}", point.all_of_k))
    decided = found.verdict in (Verdict.BETTER, Verdict.WORSE)
    wide, narrow = (
        draw_intervals(
            "Difference, B minus A, with its interval",
            [_row(name, one, decided=decided, width=width) for name, one in measured],
            width,
        )
        for width in (WIDE, NARROW)
    )
    return Figure(wide, narrow)


def _row(name: str, difference: Difference, *, decided: bool, width: float) -> IntervalRow:
    tone: Tone = "quiet"
    if decided and difference.excludes_zero:
        tone = "better" if difference.mean > 0 else "worse"
    ranged = f" {points_range(difference.low, difference.high)}" if width == WIDE else ""
    words = f"{points(difference.mean)}{ranged}"
    return IntervalRow(name, words, (difference.low, difference.high), difference.mean, tone)


def _show_tasks(view: View, request: PageRequest, pair: PairOfArms, kept: Mapping[str, object]) -> dict[str, Any]:
    sort = read_choice(request, "sort", tuple(SORTS))
    only = read_choice(request, "only", ("", *Only))
    text = str(request.query.get("task") or "")
    every = list_tasks(view.comparisons, pair)
    rows = choose_tasks(every, text, Only(only) if only else None, sort)
    page, pages = read_number(request, "page") or 1, max(1, -(-len(rows) // ROWS))
    if page > pages:
        raise NotFoundError(f"There are {pages} pages of tasks, not {page}.")
    state = {**kept, "task": text, "only": only, "sort": None if sort == next(iter(SORTS)) else sort}

    def address(number: int) -> str:
        return addresses.compare(**{**state, "page": number if number > 1 else None})  # type: ignore[arg-type]

    options = [("", "all tasks"), *((one.value, words) for one, words in ONLY_WORDS.items())]
    return {
        "rows": show_tasks(view.library, pair, rows[(page - 1) * ROWS : page * ROWS]),
        "matching": len(rows),
        "total": len(every),
        "sampled": any(row.noise is not None for row in every),
        "kept": [(name, value) for name, value in kept.items() if value],
        "filters": [
            {"name": "task", "label": "task", "value": text, "options": None},
            {"name": "only", "label": "show", "value": only, "options": options},
            {"name": "sort", "label": "sort", "value": sort, "options": [(key, one[0]) for key, one in SORTS.items()]},
        ],
        "page_number": page,
        "pages": pages,
        "previous": address(page - 1) if page > 1 else "",
        "following": address(page + 1) if page < pages else "",
    }


def _fields(view: View, texts: Sequence[str], by: str, chosen: Sequence[Chosen]) -> list[dict[str, object]]:
    """The form that chooses runs. Arms are listed of the runs that are chosen already."""
    arms = [text for one in dict.fromkeys(one.run for one in chosen) for text in _arm_options(view, one)]
    options = [(name, name) for name in sorted({*_list_stores(view), *arms, *filter(None, texts)})]
    keys = [("", "anything"), *((key.value, key.value) for key in Key)]
    return [
        {"name": "a", "label": "A", "value": texts[0], "options": [("", "choose a run"), *options]},
        {"name": "b", "label": "B", "value": texts[1], "options": [("", "the arms of A"), *options]},
        {"name": "by", "label": "arms that differ only in", "value": by, "options": keys},
    ]


def _find_several(view: View) -> Iterator[tuple[str, int]]:
    """The runs that have several arms, and how many."""
    for name in _list_stores(view):
        with suppress(UserError):
            arms = len(view.library.snapshot(name).arms)
            if arms > 1:
                yield name, arms


def _list_stores(view: View) -> list[str]:
    """Everything that has rollouts which may be read."""
    return [name for entry in view.library.entries() for name in entry.stores if not view.library.entry(name).hidden]


def _arm_options(view: View, name: str) -> list[str]:
    try:
        run = view.comparisons.read(name)
    except UserError:
        return []
    return [name_side(run, arm) for arm in run.arms]


ROUTES = (PageRoute("/compare", compare_page),)
