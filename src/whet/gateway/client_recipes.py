"""How to make well-known programs call a gateway: variables to set, arguments, and notes."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from whet.errors import UserError, did_you_mean

KEY = "WHET_GATEWAY_KEY"
"""The variable that holds the key, for programs whose configuration names one."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a gateway, its key, and its model."""

    url: str
    """Without version. It holds the gateway's secret where the program's own credentials go to the model."""
    key: str | None
    """None when the program brings its own credentials."""
    model: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """What makes a program call the gateway."""

    variables: Mapping[str, str | None]
    """None is left as it is."""
    command: tuple[str, ...] = ()
    """The program and the arguments that it needs; empty when the variables do."""
    notes: tuple[str, ...] = ()

    def shell(self) -> str:
        """Lines for a POSIX shell, to be evaluated. A program that needs arguments becomes a function of its name."""
        lines = [f"export {name}={shlex.quote(value)}" for name, value in self.variables.items() if value is not None]
        if self.command:
            program, *arguments = self.command
            lines.append(f'{program}() {{ command {program} {shlex.join(arguments)} "$@"; }}')
        return "".join(f"{line}\n" for line in (*(f"# {note}" for note in self.notes), *lines))


def recipe_for(agent: str, address: Address) -> Recipe:
    """The recipe for a program. UserError when there is none for it.

    >>> print(recipe_for("mini-swe-agent", Address("http://127.0.0.1:8300", None, "m")).shell().splitlines()[-1])
    mini() { command mini -m openai/m "$@"; }
    """
    if agent not in RECIPES:
        raise UserError(f"`agent` is '{agent}'; {did_you_mean(agent, RECIPES)}")
    return RECIPES[agent](address)


def any_client(address: Address) -> Recipe:
    """The variables that the providers' own libraries read, and with them most clients."""
    return Recipe(
        {
            "OPENAI_BASE_URL": f"{address.url}/v1",
            "OPENAI_API_KEY": address.key,
            "ANTHROPIC_BASE_URL": address.url,
            "ANTHROPIC_API_KEY": address.key,
            "GOOGLE_GEMINI_BASE_URL": address.url,
            "GEMINI_API_KEY": address.key,
            "MODEL": address.model,
        }
    )


def _claude_code(address: Address) -> Recipe:
    tiers = ("", "SMALL_FAST_", "DEFAULT_OPUS_", "DEFAULT_SONNET_", "DEFAULT_HAIKU_")
    return Recipe(
        {
            "ANTHROPIC_BASE_URL": address.url,
            "ANTHROPIC_API_KEY": address.key,
            **{f"ANTHROPIC_{tier}MODEL": address.model for tier in tiers},
            "CLAUDE_CODE_SUBAGENT_MODEL": address.model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
    )


def _codex(address: Address) -> Recipe:
    # Its address can be set by no variable, and a provider named OpenAI would compact at the provider.
    provider = {"name": "whet", "base_url": f"{address.url}/v1", "wire_api": "responses"}
    credentials = "requires_openai_auth=true" if address.key is None else f"env_key={json.dumps(KEY)}"
    fields = ",".join([*(f"{name}={json.dumps(value)}" for name, value in provider.items()), credentials])
    settings = {
        "model": json.dumps(address.model),
        "model_provider": '"whet"',
        "model_providers.whet": f"{{{fields}}}",
    }
    flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    return Recipe({KEY: address.key}, ("codex", *flags))


def _opencode(address: Address) -> Recipe:
    options = {"baseURL": f"{address.url}/v1"} | ({} if address.key is None else {"apiKey": f"{{env:{KEY}}}"})
    name = f"whet/{address.model}"
    # Another id than "openai", which would mean Responses.
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "whet",
        "options": options,
        "models": {address.model: {"name": address.model}},
    }
    config = {"model": name, "small_model": name, "provider": {"whet": provider}}
    return Recipe({KEY: address.key, "OPENCODE_CONFIG_CONTENT": json.dumps(config)})


def _copilot(address: Address) -> Recipe:
    return Recipe(
        {
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_WIRE_API": "completions",
            "COPILOT_PROVIDER_BASE_URL": f"{address.url}/v1",
            "COPILOT_PROVIDER_API_KEY": address.key,
            "COPILOT_MODEL": address.model,
            "COPILOT_OFFLINE": "true",
        }
    )


def _gemini(address: Address) -> Recipe:
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    return Recipe(
        {"GOOGLE_GEMINI_BASE_URL": address.url, "GEMINI_API_KEY": address.key},
        ("gemini", "-m", address.model),
        (f"~/.gemini/settings.json must hold: {json.dumps(settings)}",),
    )


def _qwen(address: Address) -> Recipe:
    return Recipe(
        {"OPENAI_BASE_URL": f"{address.url}/v1", "OPENAI_API_KEY": address.key, "OPENAI_MODEL": address.model},
        ("qwen", "--auth-type", "openai"),
    )


def _pi(address: Address) -> Recipe:
    provider = {"baseUrl": f"{address.url}/v1", "api": "openai-completions", "apiKey": KEY}
    models = {"providers": {"whet": {**provider, "models": [{"id": address.model}]}}}
    return Recipe(
        {KEY: address.key},
        ("pi", "--provider", "whet", "--model", address.model),
        (f"~/.pi/agent/models.json must hold: {json.dumps(models)}",),
    )


def _mini_swe_agent(address: Address) -> Recipe:
    return Recipe(
        {
            "OPENAI_API_BASE": f"{address.url}/v1",
            "OPENAI_API_KEY": address.key,
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
        },
        ("mini", "-m", f"openai/{address.model}"),
    )


RECIPES: Mapping[str, Callable[[Address], Recipe]] = MappingProxyType(
    {
        "claude-code": _claude_code,
        "codex": _codex,
        "opencode": _opencode,
        "copilot": _copilot,
        "gemini": _gemini,
        "qwen": _qwen,
        "pi": _pi,
        "mini-swe-agent": _mini_swe_agent,
    }
)
