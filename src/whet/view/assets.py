"""The static files of the pages: read once, hashed, packed, and served under names that are listed here."""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import whet.look

STATIC = Path(__file__).parent / "static"
VENDOR = STATIC / "vendor"
LOOK = Path(whet.look.__file__).parent

SOURCES: Mapping[str, tuple[Path, ...]] = {
    "whet.css": (
        *(LOOK / name for name in ("tokens.css", "look.css", "markup.css", "plots/plots.css")),
        STATIC / "view.css",
    ),
    # One file, so that htmx never starts before its guards are there.
    "htmx.js": (VENDOR / "htmx.min.js", VENDOR / "hx-csp.min.js", VENDOR / "hx-sse.min.js", STATIC / "gate.js"),
    "icon.svg": (STATIC / "icon.svg",),
    "theme.js": (STATIC / "theme.js",),
    "view.js": (STATIC / "view.js",),
    "inter.woff2": (VENDOR / "inter-latin-wght-normal.woff2",),
}
"""What is served, and the files that it is made of."""

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_FOREVER = "private, max-age=31536000, immutable"
_REFERENCE = re.compile(rb"url\(\s*[\"']?([\w.-]+)[\"']?\s*\)")


@dataclass(frozen=True)
class Asset:
    """One file as it is served."""

    name: str
    body: bytes

    @property
    def content_type(self) -> str:
        """The value of its Content-Type header."""
        return _TYPES[Path(self.name).suffix]

    @cached_property
    def digest(self) -> str:
        """A hash of its content, for its address."""
        return hashlib.sha256(self.body).hexdigest()[:16]

    @cached_property
    def packed(self) -> bytes | None:
        """Its content compressed, if that saves anything."""
        if self.name.endswith(".woff2"):
            return None
        return gzip.compress(self.body, 9, mtime=0)

    @property
    def address(self) -> str:
        """Its logical address, which changes when its content does."""
        return f"/static/{self.name}?v={self.digest}"


class Assets:
    """All static files, in memory.

    >>> Assets().address("htmx.js").startswith("/static/htmx.js?v=")
    True
    """

    def __init__(self, sources: Mapping[str, tuple[Path, ...]] = SOURCES) -> None:
        raw = {name: b"\n".join(path.read_bytes() for path in paths) for name, paths in sources.items()}
        plain = {name: Asset(name, body) for name, body in raw.items() if not name.endswith(".css")}
        styles = {name: Asset(name, _add_digests(raw[name], plain)) for name in raw.keys() - plain.keys()}
        self._assets = plain | styles

    def address(self, name: str) -> str:
        """The logical address of a file. Raise KeyError if no such file is served."""
        return self._assets[name].address

    def body(self, name: str) -> bytes:
        """The content of a file, for exports that carry it along."""
        return self._assets[name].body

    async def serve(self, request: Request) -> Response:
        """Answer a request for /static/{name}."""
        asset = self._assets.get(request.path_params["name"])
        if asset is None:
            return PlainTextResponse("There is no such file.\n", status_code=404)
        return _reply(asset, request)


def _reply(asset: Asset, request: Request) -> Response:
    is_current = request.query_params.get("v") == asset.digest
    headers = {
        "Cache-Control": _FOREVER if is_current else "no-store",
        "Content-Type": asset.content_type,
        "Vary": "Accept-Encoding",
    }
    if asset.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, headers=headers | {"Content-Encoding": "gzip"})
    return Response(asset.body, headers=headers)


def _add_digests(style: bytes, assets: Mapping[str, Asset]) -> bytes:
    """Let a style sheet refer to other files by the address that holds their hash: `url(inter.woff2)`."""

    def replace(match: re.Match[bytes]) -> bytes:
        asset = assets.get(match[1].decode())
        return match[0] if asset is None else f'url("{asset.name}?v={asset.digest}")'.encode()

    return _REFERENCE.sub(replace, style)
