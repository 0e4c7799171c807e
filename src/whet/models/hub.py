"""Downloads a file of the Hugging Face hub to disk; an interrupted download is resumed."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

import aiohttp

from whet.errors import UserError
from whet.ids import digest
from whet.models.catalog import PART

ENDPOINT = "https://huggingface.co"
_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)/(?P<file>[^?#]+\.gguf)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOVES = 5
"""How many redirects of a renamed repository are followed."""
_PATIENCE = aiohttp.ClientTimeout(total=None, connect=30, sock_read=60)
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class _Offer:
    """The hub's description of a file, before it is downloaded."""

    url: str
    version: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class HubFile:
    """A GGUF file of the hub."""

    repo: str
    file: str
    endpoint: str
    token: str | None

    @property
    def text(self) -> str:
        return f"hf:{self.repo}/{self.file}"

    @property
    def default_name(self) -> str:
        return Path(self.file).stem.lower()

    def fetch(self, home: Path, progress: Callable[[int, int | None], None]) -> tuple[Path, str | None]:
        """Download the file, or the rest of it. UserError when that fails. It blocks."""
        return asyncio.run(self._fetch(home, progress))

    async def _fetch(self, home: Path, progress: Callable[[int, int | None], None]) -> tuple[Path, str | None]:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        part: Path | None = None
        try:
            async with aiohttp.ClientSession(headers=headers, timeout=_PATIENCE, auto_decompress=False) as http:
                offer = await self._request(http)
                part = home / f"{PART}{digest(self.text.encode(), offer.version.encode())}"
                await self._download(http, offer.url, part, progress)
        except (aiohttp.ClientError, TimeoutError) as error:
            here = part.stat().st_size if part is not None and part.exists() else 0
            again = f"; {here / 1e6:.0f} MB were downloaded; the same command fetches the rest" if here else ""
            raise UserError(
                f"{self.text} cannot be pulled: {str(error) or 'the hub does not answer'}{again}"
            ) from error
        return part, offer.sha256

    async def _request(self, http: aiohttp.ClientSession) -> _Offer:
        """Ask for the file's version and hash, which the hub itself says, not the storage that it then leads to."""
        url = f"{self.endpoint}/{self.repo}/resolve/main/{quote(self.file)}"
        for _ in range(_MOVES):
            async with http.head(url, allow_redirects=False) as reply:
                self._refuse_failure(reply.status)
                place = reply.headers.get("Location", "")
                tag = (reply.headers.get("X-Linked-Etag") or reply.headers.get("ETag") or "").strip('W/"')
                if place and not urlsplit(place).netloc and not tag:
                    url = urljoin(url, place)
                    continue
                return _Offer(url, tag, tag if _SHA256.fullmatch(tag) else None)
        raise UserError(f"{self.text} cannot be pulled: too many redirects")

    async def _download(
        self, http: aiohttp.ClientSession, url: str, part: Path, progress: Callable[[int, int | None], None]
    ) -> None:
        here = part.stat().st_size if part.exists() else 0
        async with http.get(url, headers={"Range": f"bytes={here}-"} if here else {}) as reply:
            if reply.status == 416:  # all of it is here
                return
            self._refuse_failure(reply.status)
            here = here if reply.status == 206 else 0
            total = here + reply.content_length if reply.content_length is not None else None
            with part.open("ab" if here else "wb") as written:
                async for piece in reply.content.iter_chunked(_PIECE):
                    here += written.write(piece)
                    progress(here, total)

    def _refuse_failure(self, status: int) -> None:
        if status in {401, 403}:
            raise UserError(
                f"{self.text} cannot be pulled: access denied; set HF_TOKEN to a token that can read this repository"
            )
        if status == 404:
            raise UserError(f"{self.text} cannot be pulled: the hub has no such file")
        if status >= 400:
            raise UserError(f"{self.text} cannot be pulled: the hub answers with status {status}")


def read_hub_name(name: str, env: Mapping[str, str]) -> HubFile:
    """
    >>> read_hub_name("hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf", {}).default_name
    'qwen2.5-0.5b-instruct-q4_k_m'
    """
    if not (found := _NAME.fullmatch(name)):
        raise UserError(f"{name}: expected hf:OWNER/REPO/FILE.gguf")
    endpoint = (env.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    return HubFile(found["repo"], found["file"], endpoint, env.get("HF_TOKEN") or None)
