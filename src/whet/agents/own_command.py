"""Instructions for Gemini CLI and Qwen Code, which take `@name` for a file and `/name` for a command, and put a space
into `a@b`. They leave alone what a command of the user's own says, so such an instruction is made into one."""

import json

from whet.agents.cli import Launch

NAME = "the-task"
MARKS = ("@{", "!{", "{{args}}")
"""What they interpret in a command."""


def command_files(launch: Launch, folder: str) -> dict[str, str]:
    """The file of the command in the folder of commands, when the instruction is to be one."""
    return {f"{folder}/{NAME}.toml": f"prompt = {_toml(launch.instruction)}\n"} if _becomes_command(launch) else {}


def prompt_argument(launch: Launch) -> str:
    """The argument of the program: the instruction after its images, or the name of the command that holds it."""
    images = "".join(f"@{image.path}\n" for image in launch.images)
    return f"/{NAME}" if _becomes_command(launch) else images + launch.instruction


def _becomes_command(launch: Launch) -> bool:
    text = launch.instruction
    interpreted = "@" in text or text.lstrip().startswith("/")
    return interpreted and not launch.images and not any(mark in text for mark in MARKS)


def _toml(text: str) -> str:
    """A text as a string of TOML. It is like JSON's, but TOML has no surrogates, and takes no DEL.

    >>> print(_toml('a "fox": 🦊'))
    "a \\"fox\\": 🦊"
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
