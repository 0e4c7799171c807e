"""`whet clean`: remove what killed runs left behind."""

import typer


def clean() -> None:
    """Remove what killed runs left behind: sandboxes and their processes."""
    from whet.sandbox import remove_stale

    removed = remove_stale()
    for path in removed:
        typer.echo(f"removed {path}")
    typer.echo(f"{len(removed)} stale boxes removed")
