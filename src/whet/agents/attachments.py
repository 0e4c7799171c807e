"""What a task attaches: images that an agent is handed, and files that it must find."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from whet.box import Box
from whet.tasks.task import Task

ATTACHMENTS = "ATTACHMENTS.md"
"""Names the attached files that an agent is not handed."""
IMAGES = frozenset({".gif", ".jpeg", ".jpg", ".png", ".webp"})


@dataclass(frozen=True, slots=True)
class AttachedImage:
    """An attached image."""

    path: str
    data: bytes = field(repr=False)

    @property
    def media_type(self) -> str:
        return f"image/{'jpeg' if self.path.endswith('.jpg') else self.path.rpartition('.')[2]}"


def attachments(task: Task, workdir: str, *, images: bool) -> tuple[tuple[AttachedImage, ...], list[str]]:
    """What of a task's attachments is handed over as images, and the paths of those that the agent must find."""
    shown, files = [], []
    for attachment in task.attachments:
        place = f"attachments/{attachment.name}"
        if images and attachment.suffix.lower() in IMAGES:
            shown.append(AttachedImage(f"{workdir}/{place}", attachment.read_bytes()))
        else:
            files.append(place)
    return tuple(shown), files


async def list_attachments(box: Box, files: Sequence[str]) -> None:
    """Tell an agent of the files that it must find itself."""
    if files:
        await box.write_file(ATTACHMENTS, list_of(files).encode())


def list_of(files: Sequence[str]) -> str:
    """The text of ATTACHMENTS.md."""
    return "\n".join(
        ["# Attachments", "", "The task comes with these files:", "", *(f"- `{file}`" for file in files), ""]
    )
