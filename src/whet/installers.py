"""Runs pip and npm to fetch packages, with the user's own registry settings and without prompts; and names the extra
of whet that a missing package belongs to."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from whet.errors import UserError

PIP_OPTIONS = ("--quiet", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:")


def pip_program(needed_by: str) -> list[str]:
    """The command that starts pip; UserError if pip is not installed."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    for name in ("pip", "pip3"):
        if found := shutil.which(name):
            return [found]
    raise UserError(f"{needed_by} needs pip; install it: apt-get install python3-pip")


def run_fetcher(argv: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run pip or npm in a folder. Blocks."""
    # In a separate folder: the user's current project may have settings that are meant for that project only.
    return subprocess.run(
        argv,
        cwd=folder,
        env={**os.environ, "PIP_REQUIRE_VIRTUALENV": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )


def reason_of_pip(done: subprocess.CompletedProcess[str]) -> str:
    """Why pip failed, in one line."""
    output = done.stderr
    if wrong := re.search(r"DO NOT MATCH THE HASHES.*\n\s+(\S+)", output):
        return f"{wrong[1]} does not match the hash in its lock"
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    reason = errors[-1] if errors else last_line(output) or f"pip ended with exit code {done.returncode}"
    if broken := re.search(r"connection broken by '(.*)':", output):
        cause = re.split(": ", broken[1])[-1].rstrip("\"')")  # the end of an exception's repr
        return f"{reason} ({cause})"
    return reason


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def require_extra(module: str, extra: str, what: str) -> None:
    """UserError when this module is not installed.

    >>> require_extra("json", "parquet", "JSON files")
    >>> require_extra("no_such_module", "parquet", "Parquet files")
    Traceback (most recent call last):
    whet.errors.UserError: Parquet files need one more package: pip install 'whet[parquet]'
    """
    if importlib.util.find_spec(module) is None:
        raise UserError(f"{what} need one more package: pip install 'whet[{extra}]'")


def require_parquet() -> None:
    """UserError when Parquet files cannot be read and written."""
    require_extra("pyarrow", "parquet", "Parquet files and Arrow tables")
