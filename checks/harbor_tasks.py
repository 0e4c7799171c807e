"""Loads task folders with Harbor's own model, in the environment of `make check-exports`, and prints their number."""

import sys
import typing
from pathlib import Path

if not hasattr(typing, "override"):  # Harbor wants Python 3.12; its models need nothing else of it
    typing.override = lambda method: method  # type: ignore[attr-defined]

from harbor.models.task.task import Task

if __name__ == "__main__":
    folders = [Path(name) for name in sys.argv[1:]]
    for folder in folders:
        assert Task.is_valid_dir(folder), folder
        assert Task(folder).instruction.strip(), folder
    print(len(folders))
