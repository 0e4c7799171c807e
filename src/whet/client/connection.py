"""What both clients do alike: how they connect, and how they follow a stream of events."""

from collections.abc import Callable
from inspect import Parameter, signature
from ssl import SSLContext
from typing import Any, get_args
from urllib.parse import quote

import httpx2

from whet.client.attempts import Answer, Attempts, Retries
from whet.client.models import Event
from whet.client.operations import PULSE_SEC, Operation
from whet.errors import UserError
from whet.version import __version__

RETRY_SEC = 60.0
"""How long an operation is tried after its first failure: a server that is started again is back by then."""
CONNECT_SEC = 10.0


def http_settings(url: str, token: str | None, verify: SSLContext | bool) -> dict[str, Any]:
    """The settings of a client of httpx2."""
    if not url.startswith(("http://", "https://")):
        raise UserError(f"`url` is '{url}'; expected the address of a server, such as http://127.0.0.1:8000")
    headers = {"User-Agent": f"whet/{__version__}"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    # A trainer waits for hundreds of rollouts at the same time.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    # Without TLS, the certificates of the system need not be loaded.
    verify = verify and url.startswith("https://")
    return {"base_url": url, "headers": headers, "verify": verify, "limits": limits}


def request_settings(operation: Operation[Any]) -> dict[str, Any]:
    """The request of an operation."""
    return {
        "method": operation.method,
        "url": operation.path,
        "params": operation.query,
        "content": operation.body,
        "headers": operation.headers,
        "timeout": httpx2.Timeout(CONNECT_SEC, read=operation.silence_sec, write=operation.silence_sec, pool=None),
    }


class EventStream:
    """The events of a rollout over as many connections as it takes."""

    def __init__(self, name: str, after: int, retries: Retries) -> None:
        self._path = f"/v1/rollouts/{quote(name, safe='')}/events"
        self._last = after
        self._attempts = Attempts(retries)
        self.ended = False

    def request(self) -> dict[str, Any]:
        """The request that continues after the last event."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self._last)}
        return request_settings(Operation("GET", self._path, bytes, headers=headers, silence_sec=PULSE_SEC))

    def read(self, found: httpx2.ServerSentEvent) -> Event | None:
        """The event in a message. None for one that was there before, and for a message without an event."""
        if not found.data:
            return None
        event = Event.model_validate_json(found.data)
        if event.id <= self._last:
            return None
        self._attempts.succeed()
        self._last = event.id
        self.ended = event.type == "done"
        return event

    def delay(self, answer: Answer) -> float:
        """Seconds to wait before it is continued after this answer. Raises the error that ends it."""
        if isinstance(answer, httpx2.Response) and answer.is_success:
            answer = httpx2.RemoteProtocolError("the stream of events ended early", request=answer.request)
        return self._attempts.delay(answer)


def describe_method(call: Callable[..., Any], flow: Callable[..., Any]) -> None:
    """Give a method of a client the name, the description and the parameters of its flow, for `help`."""
    own = signature(flow)
    parameters = [Parameter("self", Parameter.POSITIONAL_ONLY), *own.parameters.values()]
    returned = get_args(own.return_annotation)[-1]
    shown = own.replace(parameters=[one for one in parameters if one.name != "retries"], return_annotation=returned)
    call.__dict__["__signature__"] = shown
    call.__name__, call.__doc__ = flow.__name__, flow.__doc__
