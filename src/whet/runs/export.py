"""Exports the rollouts of a stored run: selects them, and writes them in one of the formats."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from whet.errors import UserError, did_you_mean
from whet.runs.episodes import best_of_each_task, episodes
from whet.runs.options import ExportOptions
from whet.runs.store.store import Store
from whet.trace.export import FORMATS, export
from whet.trace.export.filters import read_filter
from whet.trace.export.manifest import ExportManifest
from whet.trace.training.calls import Training
from whet.trace.training.episode import Episode

Track = Callable[[Sequence[Any]], Iterable[Any]]
"""Shows how far it is, while the rollouts pass through."""


def export_run(options: ExportOptions, track: Track = lambda rollouts: rollouts) -> ExportManifest:
    """Write the rollouts of a run to a new file or folder. The manifest says what was written and what was left out.

    >>> export_run(ExportOptions(run="runs/a", format="chat", out="a.jsonl", filter=["score>=1"]))  # doctest: +SKIP
    """
    if options.format not in FORMATS:
        raise UserError(f"`format` '{options.format}': unknown format; {did_you_mean(options.format, list(FORMATS))}")
    training = Training(
        options.compaction,
        options.subagents,
        options.sampling,
        options.max_tokens,
        options.truncated,
        options.discount,
    )
    manifest = ExportManifest()
    with Store.open_read(options.run) as store:
        selected = _select(store, options, manifest, track)
        return export(selected, FORMATS[options.format], options.out, training, manifest, distinct=options.distinct)


def _select(store: Store, options: ExportOptions, manifest: ExportManifest, track: Track) -> Iterator[Episode]:
    """The selected rollouts, groups together. The calls of each are read when it is its turn."""
    filters = [read_filter(text) for text in options.filter]
    every = sorted(episodes(store), key=lambda one: one[0].group)
    wanted = [one for one in every if all(condition.holds(one[0]) for condition in filters)]
    found = best_of_each_task(wanted, options.per_task) if options.per_task is not None else wanted
    manifest.leave_out("by `filter`", len(every) - len(wanted))
    manifest.leave_out("by `per_task`", len(wanted) - len(found))
    for episode, attempt in track(found):
        yield replace(episode, exchanges=store.each_exchange(attempt))
