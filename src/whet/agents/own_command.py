"""Instructions for Gemini CLI and Qwen Code, which read `@name` as a file and `/name` as a command, and put a space
into `a@b`. They do not change the text of a user-defined command, so whet turns such an instruction into one."""

import json

from whet.agents.launch import Launch

NAME = "the-task"
MARKS = ("@{", "!{", "{{args}}")
"""What they interpret in a command."""


def command_files(launch: Launch, folder: str) -> dict[str, str]:
    """The command file, if the instruction must become a command."""
    return {f"{folder}/{NAME}.toml": f"prompt = {_toml(launch.instruction)}\n"} if _becomes_command(launch) else {}


def prompt_argument(launch: Launch) -> str:
    """The program's argument: the instruction after its images, or the name of the command that holds it."""
    images = "".join(f"@{image.path}\n" for image in launch.images)
    return f"/{NAME}" if _becomes_command(launch) else images + launch.instruction


def _becomes_command(launch: Launch) -> bool:
    text = launch.instruction
    interpreted = "@" in text or text.lstrip().startswith("/")
    return interpreted and not launch.images and not any(mark in text for mark in MARKS)


def _toml(text: str) -> str:
    """Write a text as a TOML string. Unlike JSON, TOML has no surrogates and does not allow DEL.

    >>> print(_toml('a "fox": 🦊'))
    "a \\"fox\\": 🦊"
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
