"""Writing files so that a killed process leaves the old file or the new one."""

from pathlib import Path


def write_atomic(file: Path, text: str) -> None:
    """Write a file all at once: whoever is killed leaves the old one or the new one."""
    apart = file.with_suffix(".part")
    apart.write_text(text, encoding="utf-8")
    apart.replace(file)
