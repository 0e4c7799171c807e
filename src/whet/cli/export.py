"""`whet export`: the rollouts of a run as training rows, conversations, spans or tables."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from whet.runs.store.store import Store
    from whet.trace.export.filters import Filter
    from whet.trace.export.manifest import ExportManifest
    from whet.trace.training.episode import Episode


def export(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    to: Annotated[str, typer.Option(help="Format; docs/export.md lists them.")],
    out: Annotated[Path, typer.Option(help="New file or folder.")],
    where: Annotated[
        list[str] | None,
        typer.Option("--filter", help="Only rollouts with score>=0.5, agent=NAME, tag=NAME ...; all must hold."),
    ] = None,
    subagents: Annotated[float, typer.Option(help="Weight of a sub-agent's row; 0 leaves them out.", min=0)] = 1.0,
    compaction: Annotated[bool, typer.Option(help="Train the calls that write summaries.")] = False,
    sampling: Annotated[
        Literal["strict", "any"], typer.Option(help="strict: only calls sampled at a known temperature, unconstrained.")
    ] = "strict",
    max_tokens: Annotated[int | None, typer.Option(help="Longest row that the trainer takes.", min=1)] = None,
    truncated: Annotated[bool, typer.Option(help="Truncated rows among the others, not apart.")] = False,
    discount: Annotated[
        float, typer.Option(help="areal-individual: the reward's share for a call before the last.", min=0, max=1)
    ] = 1.0,
    per_task: Annotated[
        int | None, typer.Option(help="At most so many rollouts of a task, the best ones.", min=1)
    ] = None,
    distinct: Annotated[bool, typer.Option(help="chat: no conversation that an earlier line has already.")] = False,
) -> None:
    """Export a run for training or analysis."""
    from whet.cli.tables import terminal
    from whet.errors import UserError, did_you_mean
    from whet.runs.store.store import Store
    from whet.trace.export import FORMATS
    from whet.trace.export import export as write
    from whet.trace.export.filters import read_filter
    from whet.trace.export.manifest import ExportManifest
    from whet.trace.training.calls import Training

    if to not in FORMATS:
        raise UserError(f"--to '{to}': unknown format; {did_you_mean(to, list(FORMATS))}")
    filters = [read_filter(text) for text in where or ()]
    training = Training(compaction, subagents, sampling, max_tokens, truncated, discount)
    console, manifest = terminal(), ExportManifest()
    with Store.open_read(run) as store:
        episodes = _episodes(console, store, filters, per_task, manifest)
        write(episodes, FORMATS[to], out, training, manifest, distinct=distinct)
    console.print("\n".join([str(out), *manifest.lines(FORMATS[to].needs_ids)]), soft_wrap=True)


def _episodes(
    console: "Console", store: "Store", filters: "Sequence[Filter]", per_task: int | None, manifest: "ExportManifest"
) -> "Iterator[Episode]":
    """The rollouts that are wanted, groups together, each with its calls while it is looked at."""
    from dataclasses import replace

    from rich.progress import track

    from whet.runs.episodes import best_of_each_task, episodes

    every = sorted(episodes(store), key=lambda one: one[0].group)
    wanted = [one for one in every if all(condition.holds(one[0]) for condition in filters)]
    found = best_of_each_task(wanted, per_task) if per_task is not None else wanted
    manifest.leave_out("by --filter", len(every) - len(wanted))
    manifest.leave_out("by --per-task", len(wanted) - len(found))
    shown = track(found, "exporting", console=console, transient=True, disable=not console.is_terminal)
    for episode, attempt in shown:
        yield replace(episode, exchanges=store.each_exchange(attempt))
