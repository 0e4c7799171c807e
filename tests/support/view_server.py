"""`whet view` for tests: a real server in a thread, and a client that has opened its address."""

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from whet.view.options import ViewOptions
from whet.view.serving import open_server

_FORM_TOKEN = re.compile(r'name="form_token" value="(\w+)"')


@dataclass(frozen=True, slots=True)
class ServedView:
    """A server that listens."""

    url: str
    """With the token, for a browser."""
    client: httpx2.Client
    """Has the cookie already."""

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def get(self, address: str, status: int = 200) -> str:
        """The page at an address."""
        reply = self.client.get(address)
        assert reply.status_code == status, f"{address}: {reply.status_code}\n{reply.text}"
        return reply.text

    def post(self, address: str, page: str, **fields: Any) -> httpx2.Response:
        """Send a form that stands on a page, as a browser does."""
        token = _FORM_TOKEN.search(self.get(page))
        data = {"form_token": token[1] if token else "", **fields}
        return self.client.post(address, data=data, headers={"Origin": self.origin})


@contextmanager
def serve_view(*runs: Path, **options: Any) -> Iterator[ServedView]:
    """`whet view` of these folders at a free port, until the end of the block."""
    given = ViewOptions(runs=runs, port=0, **options)
    started, urls = threading.Event(), []
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        try:
            async with open_server(given) as (_, viewing):
                urls.append(viewing.url)
                started.set()
                await stop.wait()
        finally:
            started.set()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    started.wait(30)
    try:
        (url,) = urls
        with httpx2.Client(base_url=url.partition("/?")[0], timeout=60) as client:
            client.get(url, follow_redirects=True)
            yield ServedView(url, client)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()
