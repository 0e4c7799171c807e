"""Images of a trace: only kinds that cannot hold a script, known by their first bytes, and of bounded size."""

import struct
from dataclasses import dataclass

from whet.view.derive.trace_file import TraceFile
from whet.view.page import Download, NotFoundError, PageRequest, PageRoute, View
from whet.view.pages.attempt import open_attempt
from whet.view.pages.trace import LONG_WAIT_SEC, open_trace, path_number

MOST_BYTES = 10 << 20
MOST_PIXELS = 50_000_000
_PNG, _GIF, _JPEG, _WEBP = "image/png", "image/gif", "image/jpeg", "image/webp"
_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers of a JPEG file that tell its size."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What the first bytes of an image say."""

    media_type: str
    width: int
    height: int

    @property
    def ending(self) -> str:
        """Of a file name."""
        return self.media_type.removeprefix("image/")


def image_page(view: View, request: PageRequest) -> Download:
    """An image of a step, in a page of its own without any rights."""
    step, place = path_number(request, "step"), path_number(request, "number")
    with open_attempt(view, request) as opened, open_trace(view, opened, LONG_WAIT_SEC) as trace:
        if not isinstance(trace, TraceFile):
            raise NotFoundError("The trace is not read yet; reload the page.")
        try:
            found = trace.image(trace.block(step, place, 0, 0).digest)
        except KeyError:
            raise NotFoundError(f"Step {step} has no part {place}.") from None
    if found is None:
        raise NotFoundError("This image is not kept: it is too large, or only its address was sent.")
    facts = check_image(found[1])
    return Download(found[1], f"{opened.rollout}-step-{step}-{place}.{facts.ending}", facts.media_type, inline=True)


def check_image(body: bytes) -> ImageFacts:
    """What an image is, by its bytes. NotFoundError when it is none that may be shown."""
    facts = _read(body)
    if facts is None:
        raise NotFoundError("These bytes are no PNG, JPEG, GIF or WebP image. The call shows them as they are.")
    if len(body) > MOST_BYTES or facts.width * facts.height > MOST_PIXELS:
        size = f"{len(body):,} bytes, {facts.width:,} × {facts.height:,} pixels"
        raise NotFoundError(f"The image is too large to be shown: {size}.")
    return facts


def _read(body: bytes) -> ImageFacts | None:
    try:
        if body.startswith(b"\x89PNG\r\n\x1a\n") and body[12:16] == b"IHDR":
            return ImageFacts(_PNG, *struct.unpack(">II", body[16:24]))
        if body.startswith((b"GIF87a", b"GIF89a")):
            return ImageFacts(_GIF, *struct.unpack("<HH", body[6:10]))
        if body.startswith(b"\xff\xd8\xff"):
            return _read_jpeg(body)
        if body.startswith(b"RIFF") and body[8:12] == b"WEBP":
            return _read_webp(body)
    except struct.error:  # it ends too early
        return None
    return None


def _read_jpeg(body: bytes) -> ImageFacts | None:
    at = 2
    while at + 9 <= len(body) and body[at] == 0xFF:
        marker, length = body[at + 1], int.from_bytes(body[at + 2 : at + 4])
        if marker in _JPEG_SIZES:
            height, width = struct.unpack(">HH", body[at + 5 : at + 9])
            return ImageFacts(_JPEG, width, height)
        at += 2 + max(2, length)
    return None


def _read_webp(body: bytes) -> ImageFacts | None:
    kind = body[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(body[at : at + 3], "little") + 1 for at in (24, 27))
    elif kind == b"VP8L":
        packed = int.from_bytes(body[21:25], "little")
        width, height = (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        width, height = (value & 0x3FFF for value in struct.unpack("<HH", body[26:30]))
    else:
        return None
    return ImageFacts(_WEBP, width, height)


ROUTES = (PageRoute("/runs/{run}/rollouts/{id}/trace/steps/{step}/images/{number}", image_page),)
