"""The attachments of a task: images that are passed to an agent, and files that it must open itself."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.box import Box
from whet.tasks.task import Task

ATTACHMENTS = "ATTACHMENTS.md"
"""Lists the attached files that are not passed to an agent."""
IMAGES = frozenset({".gif", ".jpeg", ".jpg", ".png", ".webp"})


@dataclass(frozen=True, slots=True)
class AttachedImage:
    path: str
    data: bytes = field(repr=False)

    @property
    def media_type(self) -> str:
        return f"image/{'jpeg' if self.path.endswith('.jpg') else self.path.rpartition('.')[2]}"


def attachments(task: Task, workdir: str, *, images: bool) -> tuple[tuple[AttachedImage, ...], list[str]]:
    """The attachments that are passed as images, and the paths of those that the agent must open itself."""
    shown, files = [], []
    for attachment in task.attachments:
        place = f"attachments/{attachment.name}"
        if images and attachment.suffix.lower() in IMAGES:
            shown.append(AttachedImage(f"{workdir}/{place}", attachment.read_bytes()))
        else:
            files.append(place)
    return tuple(shown), files


def image_part(image: AttachedImage) -> dict[str, Any]:
    """The image as a part of a message of the chat dialect."""
    data = base64.b64encode(image.data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{data}"}}


async def list_attachments(box: Box, files: Sequence[str]) -> None:
    """Point the agent to the files that it must open itself."""
    if files:
        await box.write_file(ATTACHMENTS, list_of(files).encode())


def mention_list(instruction: str, files: Sequence[str]) -> str:
    """Add to an instruction where the agent finds the list of its files.

    >>> mention_list("Describe them.", ["attachments/a.csv"])
    'Describe them.\\n\\nThe file ATTACHMENTS.md lists the files that are attached to this task.'
    """
    return (
        f"{instruction}\n\nThe file {ATTACHMENTS} lists the files that are attached to this task."
        if files
        else instruction
    )


def list_of(files: Sequence[str]) -> str:
    """The text of ATTACHMENTS.md."""
    return "\n".join(
        ["# Attachments", "", "The task comes with these files:", "", *(f"- `{file}`" for file in files), ""]
    )
