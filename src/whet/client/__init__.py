"""Clients of `whet serve`, and the models of what they send and get.

`models.py` is the wire. `client.py` and `async_client.py` hold the clients; they share `operations.py`, which says how
each operation is sent and read, and `attempts.py`, which says when it is sent again. `openenv.py` is the client of
OpenEnv's tool.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whet.installers import require_extra

if TYPE_CHECKING:
    from whet.client.async_client import AsyncClient
    from whet.client.client import Client
    from whet.client.errors import ServerError
    from whet.client.openenv import AsyncOpenCodeEnv, OpenCodeEnv

__all__ = ["AsyncClient", "AsyncOpenCodeEnv", "Client", "OpenCodeEnv", "ServerError"]

_HOMES = {
    "AsyncClient": "whet.client.async_client",
    "AsyncOpenCodeEnv": "whet.client.openenv",
    "Client": "whet.client.client",
    "OpenCodeEnv": "whet.client.openenv",
    "ServerError": "whet.client.errors",
}


def __getattr__(name: str) -> Any:
    # Loaded at first use: the server needs the models, and nothing of httpx2.
    if name not in _HOMES:
        raise AttributeError(f"module 'whet.client' has no attribute '{name}'")
    require_extra("httpx2", "client", "clients of `whet serve`")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
