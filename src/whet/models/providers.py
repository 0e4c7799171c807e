"""Providers by name: what `--model PROVIDER/MODEL` means, with the environment variables that people have set anyway.

One row of `PROVIDERS` per provider. A model that whet.toml names comes before all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from whet.errors import UserError


@dataclass(frozen=True, slots=True)
class Provider:
    """Where a provider's models are, and which environment variables name address and key."""

    name: str
    url: str
    """Address, where no variable names one; empty where there is none."""
    dialect: str
    url_env: tuple[str, ...]
    """Variables that name another address. The first that is set counts."""
    key_env: tuple[str, ...]
    """Variables that may hold the key. The first that is set counts."""
    needs_key: bool = True
    elsewhere: str | None = None
    """The dialect at an address that a variable names, if it is another one."""
    auth: str = "key"
    capture: str = "none"
    note: str = ""
    usual_model: str = ""
    """What `whet init` takes if nobody names a model; empty where that depends on the user's own server."""
    agent: str = "opencode"
    """The agent that the provider makes, or one that works with all."""


_ROWS = (
    Provider(
        "anthropic",
        "https://api.anthropic.com",
        "messages",
        ("ANTHROPIC_BASE_URL",),
        ("ANTHROPIC_API_KEY",),
        usual_model="claude-sonnet-4-5",
        agent="claude-code",
    ),
    Provider(
        "openai",
        "https://api.openai.com/v1",
        # All models of OpenAI have the Responses API, and some have no other. Most other servers have chat completions.
        "responses",
        ("OPENAI_BASE_URL",),
        ("OPENAI_API_KEY",),
        elsewhere="chat",
        note="chat completions if OPENAI_BASE_URL is set",
        usual_model="gpt-5",
        agent="codex",
    ),
    Provider(
        "google",
        "https://generativelanguage.googleapis.com",
        "gemini",
        ("GOOGLE_GEMINI_BASE_URL",),
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        usual_model="gemini-2.5-pro",
        agent="gemini",
    ),
    Provider(
        "openrouter",
        "https://openrouter.ai/api/v1",
        "chat",
        ("OPENROUTER_BASE_URL",),
        ("OPENROUTER_API_KEY",),
        usual_model="anthropic/claude-sonnet-4.5",
    ),
    Provider(
        "azure",
        "",
        "chat",
        ("AZURE_OPENAI_ENDPOINT",),
        ("AZURE_OPENAI_API_KEY",),
        needs_key=False,
        auth="azure",
        note="MODEL is your deployment; without a key, your Azure login",
    ),
    Provider("hf", "https://router.huggingface.co/v1", "chat", ("HF_BASE_URL",), ("HF_TOKEN",)),
    Provider(
        "vllm",
        "http://127.0.0.1:8000/v1",
        "chat",
        ("VLLM_BASE_URL",),
        ("VLLM_API_KEY",),
        needs_key=False,
        capture="vllm",
        note="with token ids",
    ),
    Provider("ollama", "http://127.0.0.1:11434", "chat", ("OLLAMA_HOST",), ("OLLAMA_API_KEY",), needs_key=False),
)
PROVIDERS: Mapping[str, Provider] = MappingProxyType({row.name: row for row in _ROWS})
AZURE_VERSION_ENV = ("AZURE_OPENAI_API_VERSION", "OPENAI_API_VERSION")
"""With one of these, Azure's models are called at addresses of their deployments; without, at Azure's v1 API."""
_OLLAMA_PORT = 11434


def provider_settings(name: str, env: Mapping[str, str]) -> dict[str, str] | None:
    """The keys of a model in whet.toml that `PROVIDER/MODEL` stands for; None when there is no such provider.

    >>> provider_settings("anthropic/claude-sonnet-4-5", {})["url"]
    'https://api.anthropic.com'
    """
    prefix, _, model = name.partition("/")
    provider = PROVIDERS.get(prefix)
    if provider is None or not model:
        return None
    given = first_set(provider.url_env, env)
    url = env[given].strip() if given else provider.url
    if not url:
        raise UserError(f"model '{name}' needs the environment variable {provider.url_env[0]}, which is not set")
    key = first_set(provider.key_env, env) or (provider.key_env[0] if provider.needs_key else None)
    return {
        "name": model,
        "url": _address(provider.name, url, model, env),
        "dialect": provider.elsewhere if provider.elsewhere and given else provider.dialect,
        "auth": provider.auth,
        "capture": provider.capture,
        **({"key_env": key} if key else {}),
    }


def first_set(names: tuple[str, ...], env: Mapping[str, str]) -> str | None:
    """The first of these environment variables that is set and not empty."""
    return next((name for name in names if env.get(name)), None)


def _address(provider: str, url: str, model: str, env: Mapping[str, str]) -> str:
    """The root address of a model, of an address as this provider's variables hold it."""
    if provider == "azure":
        return _azure_address(url.rstrip("/"), model, first_set(AZURE_VERSION_ENV, env), env)
    if provider == "ollama":
        return _ollama_address(url)
    return url.rstrip("/").removesuffix("/v1beta") if provider == "google" else url


def _azure_address(url: str, deployment: str, version_env: str | None, env: Mapping[str, str]) -> str:
    """
    >>> _azure_address("https://name.openai.azure.com", "my-gpt", None, {})
    'https://name.openai.azure.com/openai/v1'
    >>> _azure_address("https://name.openai.azure.com", "my-gpt", "VERSION", {"VERSION": "2024-10-21"})
    'https://name.openai.azure.com/openai/deployments/my-gpt?api-version=2024-10-21'
    """
    root = url.removesuffix("/v1").removesuffix("/openai")
    if version_env is None:
        return f"{root}/openai/v1"
    return f"{root}/openai/deployments/{deployment}?api-version={env[version_env]}"


def _ollama_address(host: str) -> str:
    """
    >>> _ollama_address("0.0.0.0:8080"), _ollama_address("gpu-box"), _ollama_address("https://gpu-box")
    ('http://127.0.0.1:8080', 'http://gpu-box:11434', 'https://gpu-box')
    """
    if "://" in host:
        return host
    address, _, port = host.partition(":")
    # A server listens at 0.0.0.0; nobody can call it there.
    return f"http://{'127.0.0.1' if address in ('', '0.0.0.0') else address}:{port or _OLLAMA_PORT}"  # noqa: S104
