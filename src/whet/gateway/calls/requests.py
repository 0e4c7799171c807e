"""What a call is made of before it begins: the agent's request, and where its reply will come from."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from whet.exchange import Exchange, Headers, Speaker
from whet.gateway.attribution.threads import Threads
from whet.gateway.buffers.memory import GatewayMemory
from whet.gateway.dialects import DIALECTS, Dialect
from whet.gateway.guards.screened import ScreenedBody, ScreenedRequests
from whet.gateway.limits import Allowance
from whet.gateway.model import Model
from whet.gateway.prices import Price
from whet.gateway.replay.cache import ReplySource, SessionCache
from whet.gateway.replay.recording import Recording
from whet.gateway.translate import Translation, choose_translation
from whet.gateway.upstream.client import Upstream
from whet.text.redact import Redactor


@dataclass(slots=True, eq=False)
class AgentRequest:
    """A request as the agent made it."""

    dialect: Dialect
    path: str
    headers: Headers
    body: bytes


class SessionSecrets:
    """Takes secrets out of what is recorded, and out of what a model's errors say to the agent."""

    def __init__(self, for_record: Redactor, for_agent: Redactor) -> None:
        self.for_record = for_record
        self.for_agent = for_agent

    def learn(self, *secrets: str) -> Redactor:
        """The redactor of the record, which knows these secrets too from now on."""
        self.for_record = self.for_record.also(*secrets)
        return self.for_record


@dataclass(frozen=True, slots=True)
class CallContext:
    """What all calls of one session share."""

    session: str
    affinity: str
    """Calls of the same affinity go to the same endpoint of a model; empty: to all of them in turn."""
    upstream: Upstream
    memory: GatewayMemory
    secrets: SessionSecrets
    price: Price | None
    commit: Callable[[Exchange, str, Allowance], Awaitable[None]]
    """Records an exchange whose response is in this dialect."""


@dataclass(slots=True, eq=False)
class PlannedCall:
    """One call as it is to be made."""

    index: int
    request: AgentRequest
    screened: ScreenedBody
    model: Model
    """The model that answers; for a recorded reply, one that would have replied in this form."""
    translation: Translation
    speaker: Speaker
    stored: ReplySource | None
    """Where a reply may be found before the model is called."""

    @property
    def dialect(self) -> Dialect:
        """The dialect of the reply."""
        return DIALECTS[self.model.dialect]


class CallPlanner:
    """Decides for one session's requests who makes a call, what is sent, and where the reply comes from."""

    def __init__(
        self,
        model: Model,
        memory: GatewayMemory,
        replay: SessionCache | None,
        recording: Recording | None,
        secrets: SessionSecrets,
    ) -> None:
        self._model = model
        self._secrets = secrets
        self._recording = recording
        self.replay = replay
        self.never_counts = False
        """The model's endpoint does not count tokens."""
        self.threads = Threads(memory.remembered)
        self._screened = ScreenedRequests(memory.remembered)

    @property
    def model_name(self) -> str:
        """The model's name as the agent knows it."""
        return self._recording.model_name if self._recording else self._model.upstream_name

    def screen(self, request: AgentRequest) -> ScreenedBody:
        """The body of a request, with what is known of it from earlier ones."""
        return self._screened.look(request.body, (request.dialect.NAME, self._model.dialect))

    def plan(self, request: AgentRequest, index: int) -> PlannedCall:
        """The call that a request makes. ValueError when the request cannot be read, or must not be sent."""
        model, dialect = self._model, request.dialect
        screened = self.screen(request)
        translation = choose_translation(dialect, request.path, screened, model)
        stored: ReplySource | None = self.replay.ask(translation.path, translation.body) if self.replay else None
        speaker = self.threads.place(index, dialect.NAME, request.path, request.headers, screened.body)
        if self._recording is not None:
            # What was recorded has no secrets in it.
            masked = self._secrets.for_record.bytes(request.body)
            recorded = self._recording.answer(speaker, dialect.NAME, request.path, masked)
            if recorded is not None:
                stored, model = recorded, recorded.stand_in(model)
                translation = choose_translation(dialect, request.path, screened, model)
        return PlannedCall(index, request, screened, model, translation, speaker, stored)

    def forget(self) -> None:
        """Keep nothing of earlier requests."""
        self._screened.forget()
        self.threads.forget()
