"""Why a request to `whet serve` failed, as exceptions. Each carries the server's line."""

# ruff: noqa: N818 - they are named like the statuses of HTTP


class ServerError(Exception):
    """The server refused a request, failed, or cannot be reached. The text is one line.

    >>> str(error_for("not-found", "no rollout 'x'", 404)), type(error_for("not-found", "", 404)).__name__
    ("no rollout 'x'", 'NotFound')
    """

    def __init__(self, reason: str, *, code: str = "", status: int | None = None) -> None:
        super().__init__(reason)
        self.code = code
        """The server's word for it; empty if the reply is not the server's."""
        self.status = status
        """Of HTTP; None without a reply."""


class InvalidRequest(ServerError):
    """The request is wrong: a key, a value, an address."""


class Unauthorized(ServerError):
    """The server does not know the token, or needs one."""


class Forbidden(ServerError):
    """The token does not have the scope, or the server does not allow the address."""


class NotFound(ServerError):
    """There is no such thing, or it is another caller's."""


class Conflict(ServerError):
    """The idempotency key was used for another request, or the thing is in another state."""


class TooLarge(ServerError):
    """The request is larger than the server takes."""


class Busy(ServerError):
    """The queue is full, and stayed so for as long as the client tries."""


class Spent(ServerError):
    """The caller's limit is used up."""


class Draining(ServerError):
    """The server is about to stop, and did not come back for as long as the client tries."""


class Unreachable(ServerError):
    """No server answers at the address."""


_BY_CODE: dict[str, type[ServerError]] = {
    "invalid": InvalidRequest,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "not-found": NotFound,
    "conflict": Conflict,
    "too-large": TooLarge,
    "busy": Busy,
    "spent": Spent,
    "draining": Draining,
}


def error_for(code: str, reason: str, status: int) -> ServerError:
    """The exception for a refusal."""
    return _BY_CODE.get(code, ServerError)(reason, code=code, status=status)
