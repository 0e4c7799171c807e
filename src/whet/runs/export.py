"""Exports the rollouts of a stored run: selects them, and writes them in one of the formats."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whet.errors import UserError, did_you_mean
from whet.runs.episodes import best_of_each_task, episodes
from whet.runs.labels import Label, RunLabels, group_by_attempt
from whet.runs.options import ExportOptions, RecordOptions
from whet.runs.store.store import Store
from whet.trace.export import FORMATS, ExportFormat, export, make_records
from whet.trace.export.filters import read_filter
from whet.trace.export.manifest import ExportManifest
from whet.trace.training.calls import Training
from whet.trace.training.episode import Episode

Track = Callable[[Sequence[Any]], Iterable[Any]]
"""Shows how far it is, while the rollouts pass through."""


class Records(list[Any]):
    """The records of an export, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.apart: list[Any] = []
        """Truncated rows, each with the reason in `apart`."""
        self.manifest = ExportManifest()
        """What the records hold, and what was left out."""


def export_run(options: ExportOptions, track: Track = lambda rollouts: rollouts) -> ExportManifest:
    """Write the rollouts of a run to a new file or folder. The manifest says what was written and what was left out.
    With `dry_run` nothing is written.

    >>> export_run(ExportOptions(run="runs/a", format="chat", out="a.jsonl", filter=["score>=1"]))  # doctest: +SKIP
    """
    target, manifest = _format(options), ExportManifest()
    with Store.open_read(options.run) as store:
        # All are read first: the advantage of a rollout is relative to its whole group.
        chosen = _choose(_add_labels(episodes(store), options, target), options, manifest)
        selected, training = _select(chosen, store, options, manifest, track), _training_options(options)
        if options.out is not None and not options.dry_run:
            return export(selected, target, options.out, training, manifest, distinct=options.distinct)
        for _ in make_records(selected, target, training, manifest, lambda _: None, distinct=options.distinct):
            pass
        return manifest


def _add_labels(
    every: Sequence[tuple[Episode, int]], options: ExportOptions, target: ExportFormat
) -> Sequence[tuple[Episode, int]]:
    """The rollouts with what people said of them, if the options ask for it."""
    if not options.labels:
        return every
    if not target.has_labels:
        places = ", ".join(name for name, one in FORMATS.items() if one.has_labels)
        raise UserError(f"`labels`: format '{target.name}' has no place for them; expected one of {places}")
    found = group_by_attempt(RunLabels(options.run).current())
    return [
        (replace(one, labels=[_record(label) for label in found.get(attempt, ())]), attempt) for one, attempt in every
    ]


def _record(label: Label) -> dict[str, Any]:
    names = ("author", "at", "name", "value", "note", "step")
    return {name: getattr(label, name) for name in names}


def _choose(
    every: Sequence[tuple[Episode, int]], options: ExportOptions, manifest: ExportManifest
) -> Sequence[tuple[Episode, int]]:
    """The rollouts that `rollout` names; all if it names none."""
    if not options.rollout:
        return every
    for beginning in options.rollout:
        if not any(one.rollout.startswith(beginning) for one, _ in every):
            raise UserError(f"`rollout` '{beginning}': no rollout of {options.run} that was run has such an id")
    chosen = [one for one in every if one[0].rollout.startswith(options.rollout)]
    manifest.leave_out("by `rollout`", len(every) - len(chosen))
    return chosen


def collect_records(
    run: Path,
    rollouts: Collection[str],
    options: RecordOptions,
    *,
    baseline: Collection[str] | None = None,
    substituted: Collection[str] = (),
) -> Records:
    """The records that `export_run` writes, of these rollouts of a run. Advantages are relative to the rewards of
    `baseline`, by default of the same rollouts. A missing reward of `substituted` ones is 0, and so marked."""
    target, found = _format(options), Records()
    with Store.open_read(run) as store:
        chosen = episodes(store, rollouts, baseline=baseline, substituted=substituted)
        selected = _select(chosen, store, options, found.manifest, lambda every: every)
        found += make_records(
            selected, target, _training_options(options), found.manifest, found.apart.append, distinct=options.distinct
        )
    return found


def _format(options: RecordOptions) -> ExportFormat:
    if options.format not in FORMATS:
        raise UserError(f"`format` '{options.format}': unknown format; {did_you_mean(options.format, list(FORMATS))}")
    return FORMATS[options.format]


def _training_options(options: RecordOptions) -> Training:
    return Training(
        options.compaction,
        options.subagents,
        options.sampling,
        options.max_tokens,
        options.truncated,
        options.discount,
    )


def _select(
    every: Sequence[tuple[Episode, int]],
    store: Store,
    options: RecordOptions,
    manifest: ExportManifest,
    track: Track,
) -> Iterator[Episode]:
    """The selected rollouts, groups together. The calls of each are read when it is its turn."""
    filters = [read_filter(text) for text in options.filter]
    every = sorted(every, key=lambda one: one[0].group)
    wanted = [one for one in every if all(condition.holds(one[0]) for condition in filters)]
    telling = _groups_with_variance(every) if options.skip_equal else {one[0].group for one in every}
    varied = [one for one in wanted if one[0].group in telling]
    found = best_of_each_task(varied, options.per_task) if options.per_task is not None else varied
    manifest.leave_out("by `filter`", len(every) - len(wanted))
    manifest.leave_out("by `skip_equal`", len(wanted) - len(varied))
    manifest.leave_out("by `per_task`", len(varied) - len(found))
    for episode, attempt in track(found):
        yield replace(episode, exchanges=store.each_exchange(attempt))


def _groups_with_variance(every: Iterable[tuple[Episode, int]]) -> set[str]:
    rewards: dict[str, set[float]] = defaultdict(set)
    for episode, _ in every:
        if episode.reward is not None:
            rewards[episode.group].add(episode.reward)
    return {group for group, different in rewards.items() if len(different) > 1}
