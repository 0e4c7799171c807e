"""What is kept of a command that a task runs: for set-up, or to judge."""

from typing import Any

from whet.box import Finished

TAIL = 4000
"""Characters that are kept of the output of a command."""
STREAM_TAIL = 2000
"""Characters that are kept of each of its streams apart."""


def command_result(command: str, done: Finished) -> dict[str, Any]:
    """What is kept of a command."""
    stdout, stderr = done.stdout.text, done.stderr.text
    return {
        "command": command,
        "exit_code": done.exit_code,
        "output": (stdout + stderr)[-TAIL:],
        "stdout": stdout[-STREAM_TAIL:],
        "stderr": stderr[-STREAM_TAIL:],
        "seconds": round(done.seconds, 3),
        "timed_out": done.timed_out,
    }
