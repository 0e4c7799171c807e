"""`--model PROVIDER/MODEL`: the address, the dialect and the key, with the provider's own environment variables."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from support.gateway_world import answer_unary, serving
from support.whet_program import new_project
from whet.errors import UserError
from whet.exchange import Exchange
from whet.gateway import Gateway
from whet.models import PROVIDERS
from whet.rollout.model_client import ModelClient
from whet.runs.config import Config, ModelConfig, model_config, model_key, open_model
from whet.testing import Scene, Script, ScriptedModel, say
from whet.text.redact import Redactor

KEY = "sk-0123456789abcdef"
SCRIPT = Script(scenes=(Scene(replies=(say("OK."),)),))
WIRE = {
    "anthropic/claude-x": ("ANTHROPIC_BASE_URL", "", "ANTHROPIC_API_KEY", "/v1/messages", "x-api-key"),
    "openai/gpt-x": ("OPENAI_BASE_URL", "/v1", "OPENAI_API_KEY", "/v1/chat/completions", "authorization"),
    "google/gemini-x": (
        "GOOGLE_GEMINI_BASE_URL",
        "/v1beta",
        "GEMINI_API_KEY",
        "/v1beta/models/gemini-x:generateContent",
        "x-goog-api-key",
    ),
    "openrouter/anthropic/claude-x": (
        "OPENROUTER_BASE_URL",
        "/v1",
        "OPENROUTER_API_KEY",
        "/v1/chat/completions",
        "authorization",
    ),
    "hf/org/model": ("HF_BASE_URL", "/v1", "HF_TOKEN", "/v1/chat/completions", "authorization"),
    "vllm/org/model": ("VLLM_BASE_URL", "/v1", "VLLM_API_KEY", "/v1/chat/completions", "authorization"),
    "ollama/qwen3:8b": ("OLLAMA_HOST", "", "OLLAMA_API_KEY", "/v1/chat/completions", "authorization"),
}
"""By model: the variable of the address and what it ends with, the variable of the key, path and header of a call."""


async def ask(name: str, env: Mapping[str, str]) -> str:
    """The reply of a model that is named like this, asked through the gateway."""

    async def ignore(_: Exchange) -> None:
        pass

    async with (
        open_model(name, model_config(name, Config(), env), env) as model,
        Gateway(Redactor([KEY])) as gateway,
        ModelClient(gateway, {name: model}, name, ignore, "test") as client,
    ):
        return await client.ask(None, [{"role": "user", "content": "Say OK."}])


def test_every_provider_is_tested_on_the_wire() -> None:
    assert {name.partition("/")[0] for name in WIRE} | {"azure"} == set(PROVIDERS)


@pytest.mark.parametrize("name", WIRE)
async def test_a_provider_is_called_as_it_expects(name: str) -> None:
    url_env, suffix, key_env, path, header = WIRE[name]
    async with ScriptedModel(SCRIPT, tokens=name.startswith("vllm/")) as stand_in:
        assert await ask(name, {url_env: stand_in.url + suffix, key_env: KEY}) == "OK."
        (call,) = stand_in.requests
    assert (call.path, call.headers[header]) == (path, f"Bearer {KEY}" if header == "authorization" else KEY)
    assert json.loads(call.body).get("model", "gemini-x") == name.partition("/")[2]


@pytest.mark.parametrize(
    ("endpoint", "version", "expected"),
    [
        ("", {}, "/openai/v1/chat/completions"),
        ("/openai/v1/", {}, "/openai/v1/chat/completions"),
        (
            "/",
            {"OPENAI_API_VERSION": "2024-10-21"},
            "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21",
        ),
    ],
)
async def test_azure_is_called_at_the_addresses_it_has(endpoint: str, version: dict[str, str], expected: str) -> None:
    calls: list[tuple[str, str | None, bool]] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        calls.append((request.path_qs, request.headers.get("api-key"), "Authorization" in request.headers))
        return await answer_unary(request)

    async with serving(answer) as url:
        await ask("azure/my-gpt", {"AZURE_OPENAI_ENDPOINT": url + endpoint, "AZURE_OPENAI_API_KEY": KEY, **version})
    assert calls == [(expected, KEY, False)]


def test_without_variables_of_ones_own_the_providers_are_at_their_public_addresses() -> None:
    found = {name: model_config(f"{name}/m", Config(), {}) for name in PROVIDERS if name != "azure"}
    assert found["openai"].dialect == "responses", "some models of OpenAI have no other API"
    assert {name for name, model in found.items() if str(model.url).startswith("http://127.0.0.1:")} == {
        "vllm",
        "ollama",
    }
    assert all(model.key_env for name, model in found.items() if name not in ("vllm", "ollama"))


@pytest.mark.parametrize(
    ("name", "env", "expected"),
    [
        ("anthropic/m", {}, "model 'anthropic/m' needs its key in the environment variable ANTHROPIC_API_KEY"),
        ("google/m", {}, "model 'google/m' needs its key in the environment variable GEMINI_API_KEY"),
        ("azure/m", {}, "model 'azure/m' needs the environment variable AZURE_OPENAI_ENDPOINT, which is not set"),
        ("openai/m", {"OPENAI_BASE_URL": "host:1"}, "model 'openai/m': its address is 'host:1'; expected http"),
        ("antropic/m", {}, r"unknown model 'antropic/m'; did you mean 'anthropic/MODEL'\?"),
        ("anthropic/", {}, "unknown model 'anthropic/'"),
    ],
)
def test_what_is_missing_is_said_in_one_line(name: str, env: dict[str, str], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        model_key(name, model_config(name, Config(), env), env)


def test_googles_other_key_counts_too() -> None:
    env = {"GOOGLE_API_KEY": KEY}
    assert model_key("google/m", model_config("google/m", Config(), env), env) == KEY


def test_a_model_of_whet_toml_wins() -> None:
    own = ModelConfig(url="http://127.0.0.1:9")
    assert model_config("openai/gpt-5", Config(models={"openai/gpt-5": own}), {}) is own


async def test_a_run_needs_no_whet_toml(tmp_path: Path) -> None:
    async with ScriptedModel(SCRIPT, key=KEY) as stand_in:
        env = {"ANTHROPIC_BASE_URL": stand_in.url, "ANTHROPIC_API_KEY": KEY}
        with new_project(tmp_path) as project:
            tasks = project.rows("t.jsonl", {"id": "t", "instruction": "Say OK.", "answer": "OK."})
            words = ["run", tasks, "--agent", "chat", "--model", "anthropic/m", "--out", "out"]
            done = await asyncio.to_thread(replace(project, env=env).run, *words)
    assert done.returncode == 0, done.stderr
    assert [call.path for call in stand_in.requests] == ["/v1/messages"]
