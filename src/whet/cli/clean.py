"""`whet clean`: remove what killed runs left behind."""

import typer


def clean() -> None:
    """Remove the boxes of runs that were killed, with what is left of their processes."""
    from whet.sandbox import remove_stale

    removed = remove_stale()
    for path in removed:
        typer.echo(f"removed {path}")
    typer.echo(f"{len(removed)} stale boxes removed")
