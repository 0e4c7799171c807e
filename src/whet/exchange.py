"""Exchange: one model call as it went over the wire. The gateway creates them; traces derive from them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

CACHE = "cache"
"""Replaces the address of a call whose reply comes from the cache."""
RECORDED = "recorded"
"""Replaces the address of a call whose reply comes from the rollout that was forked."""
EXACT = "exact"
"""Marks a call with complete token data."""


class CallError(StrEnum):
    """Why a call failed."""

    REFUSED = "refused"
    """No connection to the model's endpoint."""
    TIMEOUT = "timeout"
    """The endpoint was silent for too long."""
    STATUS = "status"
    """The endpoint answered with an error status."""
    AUTH = "auth"
    """The endpoint refused the key."""
    CUT = "cut"
    """The reply is incomplete."""
    MALFORMED = "malformed"
    """The reply does not follow the dialect."""
    TOO_LARGE = "too_large"
    """The reply exceeds the size limit; the rest was not received."""
    HUNG_UP = "hung_up"
    """The agent closed the connection before the reply was complete."""
    REJECTED = "rejected"
    """The gateway refused the request: unknown path, invalid body, or a limit was reached."""
    NOT_CACHED = "not_cached"
    """Only cached replies are allowed, and the cache has none for this call."""
    DIVERGED = "diverged"
    """The conversation differs from the recording, so no recorded reply fits."""
    SEALED = "sealed"
    """The session was closed while the call was under way."""


@dataclass(slots=True, unsafe_hash=True)  # not frozen: frozen fields take three times as long to set
class Usage:
    """Tokens of one or many calls. `input` is everything the model read, `output` everything it sampled."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    """The part of the input that was read from the provider's cache."""
    cache_write: int = 0
    """The part of the input that was written to the provider's cache."""
    reasoning: int = 0
    """The part of the output that is thinking."""

    def __add__(self, other: "Usage") -> "Usage":
        # Field by field: a generic sum over the fields takes longer than the rest of the accounting for a call.
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
        )


class Kind(StrEnum):
    """The role of a call in a rollout."""

    MAIN = "main"
    SUB = "sub"
    UTILITY = "utility"
    """A title, a summary or a compaction, which is not a step of the work."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who made a call, and how that is known."""

    kind: Kind
    thread: str
    """Id of the conversation within the session."""
    parent: str | None
    evidence: str
    """The header or field that identifies the speaker, or the call that this one continues."""
    name: str = ""
    """The name of the sub-agent, if known; for a helper call, its purpose."""

    @property
    def label(self) -> str:
        """A short name for the speaker.

        >>> Speaker(Kind.SUB, "ses_2", "ses_1", "x-parent-session-id", "explore").label
        'sub explore'
        """
        match self.kind:
            case Kind.SUB:
                return f"{self.kind} {self.name}".rstrip()
            case Kind.UTILITY:
                return self.name or self.kind
        return self.kind


Headers = tuple[tuple[str, str], ...]


def is_event_stream(headers: Headers) -> bool:
    """Whether the content type is that of server-sent events."""
    return any(
        name.lower() == "content-type" and value.lower().startswith("text/event-stream") for name, value in headers
    )


@dataclass(slots=True, unsafe_hash=True)  # not frozen: frozen fields take three times as long to set
class Exchange:
    """One raw model call. Secrets are already removed from headers and bodies."""

    session: str
    index: int
    """Position among the calls of the session, from 0, in order of arrival."""
    dialect: str
    path: str
    request_headers: Headers
    request: bytes
    """The body from the agent, decompressed and otherwise unchanged."""
    upstream: str
    """Address the call was sent to. If it was not sent: `cache` if the reply comes from the cache, `recorded` if it
    comes from the rollout that was forked."""
    status: int | None
    """Status of the final reply; None without a reply."""
    response_headers: Headers
    response: bytes
    """The body as received, possibly incomplete."""
    attempts: int
    """Number of times the call was sent: more than 1 after retries, 0 if the reply is replayed."""
    error: CallError | None
    started: float
    """Seconds since the epoch."""
    first_byte: float | None
    ended: float
    usage: Usage | None
    """None if the reply does not state its usage."""
    sent: bytes | None = None
    """The body that was sent to the model; None if it was the unchanged request."""
    delivered: bytes | None = None
    """The body that was sent to the agent; None if it was the unchanged response."""
    warnings: tuple[str, ...] = ()
    """What was withheld, replaced or lost in translation between the dialects of agent and model."""
    speaker: Speaker | None = None
    """Who made the call; None if the headers do not identify the speaker."""
    arrivals: tuple[tuple[float, int], ...] = ()
    """When the pieces of the response arrived: seconds since the request was sent, and bytes received by then."""
    tokens: str | None = None
    """For a model that was requested to return tokens: EXACT if the response holds the ids of prompt and reply and a
    log-probability for each token of the reply, otherwise the problem. None without any token data."""

    @property
    def streamed(self) -> bool:
        """Whether the reply came as server-sent events."""
        return is_event_stream(self.response_headers)

    @property
    def replayed(self) -> bool:
        """Whether the reply comes from the cache or a recording. Such a call costs nothing."""
        return self.upstream in {CACHE, RECORDED}

    @property
    def from_record(self) -> bool:
        """Whether the reply comes from the rollout that was forked."""
        return self.upstream == RECORDED


Recorder = Callable[[Exchange], Awaitable[None]]
"""Commits an exchange. The gateway sends the terminal event when it returns."""
