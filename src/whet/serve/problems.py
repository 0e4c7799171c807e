"""Why the service refuses a request. Each protocol has its own form for these."""

from enum import StrEnum


class Code(StrEnum):
    """A word for programs, with the HTTP status that it means."""

    INVALID = "invalid"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not-found"
    CONFLICT = "conflict"
    """The idempotency key was used for another request, or the thing is in another state."""
    TOO_LARGE = "too-large"
    BUSY = "busy"
    """The queue of the caller or of the server is full. Try again later."""
    SPENT = "spent"
    """The caller's limit is used up."""
    DRAINING = "draining"
    """The server is about to stop."""

    @property
    def status(self) -> int:
        return _STATUS[self]


_STATUS = {
    Code.INVALID: 422,
    Code.UNAUTHORIZED: 401,
    Code.FORBIDDEN: 403,
    Code.NOT_FOUND: 404,
    Code.CONFLICT: 409,
    Code.TOO_LARGE: 413,
    Code.BUSY: 429,
    Code.SPENT: 402,
    Code.DRAINING: 503,
}


class Refused(Exception):  # noqa: N818 - what it refuses is the point
    """The service refuses a request. The text is one line for the caller."""

    def __init__(self, code: Code, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.retry_after = retry_after
        """Seconds after which another try may succeed."""
