"""Exchange: one model call as it went over the wire. The gateway makes them; everything else derives from them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

CACHE = "cache"
"""Stands for the address of a call whose reply is replayed."""
RECORDED = "recorded"
"""Stands for the address of a call that is answered as the rollout was that it is a fork of."""
EXACT = "exact"
"""Says that the tokens of a call are all there."""


class CallError(StrEnum):
    """Why a call did not end well."""

    REFUSED = "refused"
    """No connection to the model's endpoint."""
    TIMEOUT = "timeout"
    """The endpoint was silent for too long."""
    STATUS = "status"
    """The endpoint answered with an error status."""
    AUTH = "auth"
    """The endpoint refused the key."""
    CUT = "cut"
    """The reply ended before its end."""
    MALFORMED = "malformed"
    """The reply is not what the dialect promises."""
    TOO_LARGE = "too_large"
    """The reply is larger than any model's should be; the rest was not received."""
    HUNG_UP = "hung_up"
    """The agent closed the connection before the reply was complete."""
    REJECTED = "rejected"
    """The gateway itself refused the request: nothing is at its address, it makes no sense, or a limit was reached."""
    NOT_CACHED = "not_cached"
    """Only replies out of the cache may be given, and there is none."""
    DIVERGED = "diverged"
    """The conversation is not what was recorded, so no recorded reply answers it."""
    SEALED = "sealed"
    """The session was closed while the call was under way."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or many calls. `input` is everything the model read, `output` everything it sampled."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    """Of the input, what came out of the provider's cache."""
    cache_write: int = 0
    """Of the input, what was put into it."""
    reasoning: int = 0
    """The part of the output that is thinking."""

    def __add__(self, other: "Usage") -> "Usage":
        # Field by field: a generic sum over the fields takes longer than all else that is counted for a call.
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
        )


class Kind(StrEnum):
    """The part that a call plays."""

    MAIN = "main"
    SUB = "sub"
    UTILITY = "utility"
    """A title, a summary, a compaction: not a step of the work."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who made a call, and how that is known."""

    kind: Kind
    thread: str
    """Name of the conversation within the session."""
    parent: str | None
    evidence: str
    """The header or field that says so, or the call that it continues."""
    name: str = ""
    """Which sub-agent, where that is known; of a helper call, what it is for."""

    @property
    def label(self) -> str:
        """Who it is, in a word or two.

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
    """Whether the content type says that the body is server-sent events."""
    return any(
        name.lower() == "content-type" and value.lower().startswith("text/event-stream") for name, value in headers
    )


@dataclass(frozen=True, slots=True)
class Exchange:
    """One model call, raw. Secrets are already taken out of headers and bodies."""

    session: str
    index: int
    """Counts the calls of a session from 0, in order of arrival."""
    dialect: str
    path: str
    request_headers: Headers
    request: bytes
    """The body as the agent meant it: decompressed, otherwise untouched."""
    upstream: str
    """Address the call was sent to. When it was not sent: `cache` if it was looked up among the replies of earlier
    calls, `recorded` if it was answered as it was in the rollout that this one is a fork of."""
    status: int | None
    """Status of the final reply; None when there was none."""
    response_headers: Headers
    response: bytes
    """The body as received, to its end or to where it was cut."""
    attempts: int
    """How often it was sent: more than 1 after retries, 0 when the reply is replayed."""
    error: CallError | None
    started: float
    """Seconds since the epoch."""
    first_byte: float | None
    ended: float
    usage: Usage | None
    """None when the reply does not say."""
    sent: bytes | None = None
    """The body that went to the model; None when it was the request as it is."""
    delivered: bytes | None = None
    """The body that went to the agent; None when it was the response as it is."""
    warnings: tuple[str, ...] = ()
    """What was withheld, replaced, or could not be carried over between the dialects of agent and model."""
    speaker: Speaker | None = None
    """Who made the call; None when its headers do not tell."""
    arrivals: tuple[tuple[float, int], ...] = ()
    """When the pieces of the response came: seconds since it was asked for, and bytes received by then."""
    tokens: str | None = None
    """Of a model that was asked for tokens: EXACT when the response holds the ids of prompt and reply and a
    log-probability for each token of the reply, otherwise what is wrong. None when it tells nothing of them."""

    @property
    def streamed(self) -> bool:
        """Whether the reply came as server-sent events."""
        return is_event_stream(self.response_headers)

    @property
    def replayed(self) -> bool:
        """Whether no model was asked, only the cache or a record. Such a call costs nothing."""
        return self.upstream in {CACHE, RECORDED}

    @property
    def from_record(self) -> bool:
        """Whether the reply is that of another rollout, which this one is a fork of."""
        return self.upstream == RECORDED


Recorder = Callable[[Exchange], Awaitable[None]]
"""Commits an exchange; the terminal event goes out when it returns."""
