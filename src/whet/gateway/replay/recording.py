"""Replies of an earlier rollout, given again in place of a model's."""

from dataclasses import dataclass, replace
from typing import Protocol

from whet.exchange import RECORDED, CallError, Exchange, Headers, Speaker
from whet.gateway.model import Model
from whet.gateway.replay.cache import StoredReply
from whet.gateway.upstream.reply import ReceivedReply, UpstreamError


@dataclass(frozen=True, slots=True)
class RecordedReply:
    """What a model replied to a call that was made once before; or that the call is not the one that was made."""

    status: int | None
    """None when there is no reply, because the conversation is not the one that was recorded."""
    headers: Headers = ()
    body: bytes = b""
    dialect: str | None = None
    """Of the body; None when there is none."""
    reshaped: bool = False
    """The agent gets it in another form than it is in: without its tokens, or as a stream."""

    def stand_in(self, model: Model) -> Model:
        """A model that replies in this form, so that its reply is translated like any other."""
        if self.dialect is None:
            return model
        return replace(model, dialect=self.dialect, capture="vllm" if self.reshaped else "none")

    async def find(self, received: ReceivedReply) -> StoredReply:
        received.upstream = RECORDED
        if self.status is None:
            raise UpstreamError(CallError.DIVERGED)
        received.begin(self.status, self.headers)
        return StoredReply(self.body, received)

    async def settle(self, exchange: Exchange, *, good: bool) -> None:
        """It is on record already."""


class Recording(Protocol):
    """The calls of an earlier rollout, as one session goes through them again."""

    model_name: str
    """The model's name as the agent knows it."""

    def answer(self, speaker: Speaker, dialect: str, path: str, body: bytes) -> RecordedReply | None:
        """The reply to a call, whose body has no secrets in it; None when the call goes to the model."""
        ...
