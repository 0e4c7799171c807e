"""Writing files so that a killed process leaves the old file or the new one."""

from pathlib import Path


def write_atomic(file: Path, content: str | bytes) -> None:
    """Write a file in one step: a process that is killed leaves the old content or the new."""
    part = file.with_suffix(".part")
    part.write_bytes(content.encode() if isinstance(content, str) else content)
    part.replace(file)
