"""Model: where calls are sent, with which credentials, how patiently, and what is changed in them on the way."""

import re
from dataclasses import dataclass, field
from typing import Literal

from whet.tasks.task import Allowed

Auth = Literal["key", "own", "azure"]
"""Whose credentials a call carries: the provider's key, the agent's own, or those of an Azure resource."""
CaptureKind = Literal["none", "vllm", "sglang", "llamacpp", "openai"]
"""The kind of server, for requests for token ids and log-probabilities."""
_UNVERSIONED = re.compile(r"/openai/deployments/[^/]+$|/backend-api/codex$")


@dataclass(frozen=True, slots=True)
class Model:
    """A model: one endpoint, or several that serve the same.

    >>> Model(name="small", url="http://127.0.0.1:8000/v1", upstream_name="qwen", key=None).address("/v1/models")
    'http://127.0.0.1:8000/v1/models'
    """

    name: str
    """What the user calls it."""
    url: str
    """Root address of its endpoint; a /v1 at its end is tolerated, and a query is kept."""
    upstream_name: str
    """The model's name at the endpoint. Agents use the same name."""
    key: str | None = field(repr=False)
    """The provider's key. It is neither recorded nor shown to an agent."""
    replicas: tuple[str, ...] = ()
    """Root addresses of further endpoints that serve the same model."""
    connect_to: tuple[tuple[str, ...], ...] = ()
    """For each of `urls`, the IP addresses to connect to in place of those that DNS gives. The Host header and the
    certificate are still those of the name."""
    auth: Auth = "key"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent with every call, in place of headers of the same name. They may hold secrets."""
    dialect: str = "chat"

    concurrency: int = 64
    """Calls under way at once at each endpoint."""
    attempts: int = 4
    """How often a call is sent before its failure is passed on."""
    backoff_sec: float = 0.5
    """Mean wait before the second attempt at an endpoint; it doubles with every further one."""
    connect_sec: float = 30
    first_byte_sec: float | None = None
    """Longest wait for the first byte. None: 10 minutes for a stream, an hour for a reply that comes in one piece."""
    idle_sec: float = 600
    """Longest silence inside a reply."""

    set: tuple[tuple[str, bytes], ...] = ()
    """Top-level fields of every request, and the JSON that replaces what the agent put there. In Gemini's API a `seed`
    is inside generationConfig, and is put there."""
    drop: tuple[str, ...] = ()
    """Top-level fields that are taken out of every request."""
    max_tokens: int | None = None
    """The most that a request may ask to be sampled; put in where it names no limit."""
    capture: CaptureKind = "none"
    allow_fields: frozenset[str] = frozenset()
    """Fields of requests, messages and their parts that pass unchecked, although they are on no list."""
    allow_tools: frozenset[str] = frozenset()
    """Kinds of tools that pass as well."""
    allow_parts: frozenset[str] = frozenset()
    """Types of message parts that pass as well."""
    allow: frozenset[Allowed] = field(default=frozenset(), compare=False)
    """Of what is otherwise kept from the provider, what the task lets pass. It makes no other model."""

    price_input: float | None = None
    """Dollars per million tokens. None of the four: the public price, if it is known."""
    price_output: float | None = None
    price_cache_read: float | None = None
    price_cache_write: float | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """The root addresses of all its endpoints."""
        return self.url, *self.replicas

    def address(self, path: str) -> str:
        """The address of a path that begins with its version, at the first endpoint."""
        return address_at(self.url, path)


def address_at(root: str, path: str) -> str:
    """The address of a path that begins with its version, below this root.

    An address of an Azure deployment has no version in its path; what it has is in its query. The endpoint of a ChatGPT
    login has none either.

    >>> address_at("https://api.example.com/v1", "/v1/chat/completions")
    'https://api.example.com/v1/chat/completions'
    >>> address_at("https://x.azure.com/openai/deployments/gpt?api-version=2024-10-21", "/v1/chat/completions")
    'https://x.azure.com/openai/deployments/gpt/chat/completions?api-version=2024-10-21'
    """
    base, _, query = root.partition("?")
    base = base.rstrip("/").removesuffix("/v1")
    if _UNVERSIONED.search(base):
        path = path.removeprefix("/v1")
    return f"{base}{path}{'&' if '?' in path else '?'}{query}" if query else base + path
