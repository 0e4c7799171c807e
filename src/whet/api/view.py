"""Pages about runs."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.event_loop import run_coroutine
from whet.view.options import ViewOptions

if TYPE_CHECKING:
    from whet.view.export.site import Exported
    from whet.view.serving import Viewing


def run_view(
    *runs: Path | str,
    options: ViewOptions | None = None,
    watch: "Callable[[Viewing], None]" = lambda _: None,
    **fields: Any,
) -> None:
    """Show runs in a browser, until this is interrupted. `watch` gets the address once the server listens.

    >>> whet.run_view("runs", watch=lambda viewing: print(viewing.url))  # doctest: +SKIP
    """
    from whet.view.serving import serve_view

    given = options or ViewOptions(**({"runs": tuple(map(Path, runs))} if runs else {}), **fields)
    run_coroutine(serve_view(given, watch))


def export_pages(
    to: Path | str,
    *runs: Path | str,
    options: ViewOptions | None = None,
    rollout: str | None = None,
    labels: bool = False,
) -> "Exported":
    """Write the pages of runs into a new folder, which any web server can show; or one rollout into an .html file.

    >>> whet.export_pages("pages", "runs/quiz").pages  # doctest: +SKIP
    41
    """
    from whet.view.export.export import export

    given = options or ViewOptions(**({"runs": tuple(map(Path, runs))} if runs else {}))
    return export(given, Path(to), rollout, labels=labels)
