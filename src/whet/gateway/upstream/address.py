"""One address of a model: where to connect to, and how the head of a request to it begins."""

import asyncio
from collections.abc import Mapping, Sequence

import aiohttp
from yarl import URL


class UpstreamAddress:
    """What all requests to one address share."""

    def __init__(self, text: str, http: aiohttp.ClientSession, connect_sec: float, connect_to: Sequence[str]) -> None:
        """`connect_to` are IP addresses; without any, DNS is asked. ValueError for what is not an address."""
        url = URL(text)
        if url.scheme not in {"http", "https"}:
            raise ValueError("not an HTTP address")
        places = [url.with_host(address) for address in connect_to] or [url]
        # They are never sent; they say where to connect to, and whose certificate is expected there.
        self.targets = [
            aiohttp.ClientRequest(
                "POST",
                place,
                loop=asyncio.get_running_loop(),
                session=http,
                server_hostname=url.raw_host if connect_to else None,
            )
            for place in places
        ]
        self.timeout = aiohttp.ClientTimeout(total=None, connect=connect_sec / len(places))
        credentials = self.targets[0].headers.get("Authorization")  # those in the address
        self._authorization = f"Authorization: {credentials}\r\n" if credentials else ""
        self._start = f"POST {url.raw_path_qs} HTTP/1.1\r\n"
        self._host = f"Host: {url.host_port_subcomponent}\r\n"

    def head(self, headers: Mapping[str, str], size: int) -> bytes:
        """The head of a request. ValueError for headers that would end it early."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
            raise ValueError("a header has several lines")
        host = "" if "Host" in headers else self._host
        authorization = "" if "Authorization" in headers else self._authorization
        text = f"{self._start}{host}{lines}{authorization}Content-Length: {size}\r\n\r\n"
        return text.encode("utf-8", "surrogateescape")
