"""`whet clean`: remove what killed runs left behind."""

from whet.cli.output import say


def clean() -> None:
    """Remove what killed runs left behind: sandboxes and their processes."""
    from whet.sandbox import remove_stale

    removed = remove_stale()
    for path in removed:
        say(f"removed {path}")
    say(f"{len(removed)} stale boxes removed")
