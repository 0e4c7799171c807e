"""The endpoint catalog: which model the words vllm, openai and hf_router stand for, by the server's environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from whet.gateway.model import CaptureKind

_KEY_OF_ANOTHER_HOST = "the server's own key is not sent to an address that a caller names"


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the catalog."""

    prefix: str
    """Of its environment variables."""
    url_env: str
    url: str
    key: str
    model: str
    disable_thinking: bool
    capture: CaptureKind


_OPENAI_HOST, _HF_HOST = "api.openai.com", "router.huggingface.co"
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "vllm": Kind("VLLM", "VLLM_URL", "", "intercepted", "Qwen/Qwen3.5-4B", True, "vllm"),
        "openai": Kind("OPENAI", "OPENAI_BASE_URL", f"https://{_OPENAI_HOST}/v1", "", "gpt-4o-mini", False, "openai"),
        "hf_router": Kind(
            "HF_ROUTER",
            "HF_ROUTER_BASE_URL",
            f"https://{_HF_HOST}/v1",
            "",
            "Qwen/Qwen3-4B-Instruct-2507:nscale",
            False,
            "openai",
        ),
    }
)
NEITHER = (
    f"must provide either ``endpoint`` (one of {tuple(KINDS)}) or all of base_url + api_key + model"  # OpenEnv's words
)


@dataclass(frozen=True, slots=True)
class ResolvedEndpoint:
    """Where a rollout's model calls go."""

    base_url: str
    api_key: str
    model: str
    disable_thinking: bool
    capture: CaptureKind
    is_own: bool
    """The address is the server's, not the caller's."""


def resolve(kind: str, *, base_url: str, api_key: str, model: str, env: Mapping[str, str]) -> ResolvedEndpoint:
    """The endpoint of a call. ValueError, in OpenEnv's words, when something is missing.

    >>> resolve("vllm", base_url="", api_key="", model="", env={"VLLM_URL": "http://10.0.0.7:8000/"}).base_url
    'http://10.0.0.7:8000/v1'
    """
    if not kind:
        if not (base_url and api_key and model):
            raise ValueError(NEITHER)
        return ResolvedEndpoint(_with_version(base_url), api_key, model, False, capture_at(base_url), False)
    row = KINDS.get(kind)
    if row is None:
        raise ValueError(f"unknown endpoint kind: {kind!r}; expected one of {tuple(KINDS)}")
    own_url = env.get(row.url_env) or row.url
    url = base_url or own_url
    if not url:
        raise ValueError(f"{kind}: no base_url (set {row.url_env} env var or pass base_url=...)")
    url, is_own = _with_version(url), not base_url or _with_version(base_url) == _with_version(own_url)
    key_env, model_env = f"{row.prefix}_API_KEY", f"{row.prefix}_MODEL"
    own_key = env.get(key_env, "")
    key = api_key or (own_key if is_own else "") or row.key
    if not key:
        why = f"; {_KEY_OF_ANOTHER_HOST}" if own_key else ""
        raise ValueError(f"{kind}: no api_key (set {key_env} env var or pass api_key=...){why}")
    name = model or env.get(model_env) or row.model
    if not name:
        raise ValueError(f"{kind}: no model (set {model_env} env var or pass model=...)")
    return ResolvedEndpoint(url, key, name, row.disable_thinking, row.capture, is_own)


def own_addresses(env: Mapping[str, str]) -> tuple[str, ...]:
    """The addresses of the catalog. Callers may use them, also where they are private."""
    return tuple(_with_version(url) for row in KINDS.values() if (url := env.get(row.url_env) or row.url))


def capture_at(base_url: str) -> CaptureKind:
    """How a server at this address is asked for tokens. The two public services refuse or ignore a request for ids; any
    other address is taken for an engine of the caller's.

    >>> capture_at("https://api.openai.com/v1"), capture_at("http://10.0.0.7:8000/v1")
    ('openai', 'vllm')
    """
    return "openai" if urlsplit(base_url).hostname in {_OPENAI_HOST, _HF_HOST} else "vllm"


def _with_version(url: str) -> str:
    root = url.rstrip("/")
    return root if root.endswith("/v1") else f"{root}/v1"
