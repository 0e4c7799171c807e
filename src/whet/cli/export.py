"""`whet export`: write the rollouts of a run as training rows, conversations, spans or tables."""

from collections.abc import Iterable, Sequence
from typing import Any

from whet.cli.options import Layout, takes
from whet.runs.options import ExportOptions


@takes(ExportOptions, Layout(arguments=("run",), whole=("filter",)))
def export(options: ExportOptions) -> None:
    """Export a run for training or analysis."""
    from rich.progress import track

    from whet.cli.tables import terminal
    from whet.runs.export import export_run
    from whet.trace.export import FORMATS

    console = terminal()

    def show(rollouts: Sequence[Any]) -> Iterable[Any]:
        return track(rollouts, "exporting", console=console, transient=True, disable=not console.is_terminal)

    manifest = export_run(options, show)
    lines = manifest.lines(FORMATS[options.format].needs_ids)
    title = "nothing is written; it would hold:" if options.dry_run else str(options.out)
    console.say("\n".join([title, *lines]))
