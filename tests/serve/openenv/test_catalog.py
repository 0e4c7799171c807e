"""The endpoint catalog, in the words of OpenEnv's own server."""

import re

import pytest

from whet.serve.openenv.catalog import NEITHER, ResolvedEndpoint, resolve

NAMED = "('vllm', 'openai', 'hf_router')"


def look_up(kind: str, env: dict[str, str] | None = None, **given: str) -> ResolvedEndpoint:
    fields = {"base_url": "", "api_key": "", "model": "", **given}
    return resolve(kind, **fields, env=env or {})


def test_defaults_of_each_kind() -> None:
    vllm = look_up("vllm", {"VLLM_URL": "http://10.0.0.7:8000/"})
    assert (vllm.base_url, vllm.api_key, vllm.model) == ("http://10.0.0.7:8000/v1", "intercepted", "Qwen/Qwen3.5-4B")
    assert vllm.disable_thinking
    openai = look_up("openai", {"OPENAI_API_KEY": "sk-own-key"})
    assert (openai.base_url, openai.model) == ("https://api.openai.com/v1", "gpt-4o-mini")
    assert not openai.disable_thinking
    router = look_up("hf_router", {"HF_ROUTER_API_KEY": "hf-own-key"})
    assert (router.base_url, router.model) == ("https://router.huggingface.co/v1", "Qwen/Qwen3-4B-Instruct-2507:nscale")


def test_an_argument_comes_before_a_variable_and_that_before_the_default() -> None:
    env = {"OPENAI_API_KEY": "sk-own-key", "OPENAI_MODEL": "gpt-env", "OPENAI_BASE_URL": "https://proxy.example/v1/"}
    assert look_up("openai", env).model == "gpt-env"
    assert look_up("openai", env).base_url == "https://proxy.example/v1"
    assert look_up("openai", env, model="gpt-arg", api_key="sk-arg").model == "gpt-arg"
    assert look_up("openai", env, api_key="sk-arg").api_key == "sk-arg"
    assert look_up("openai", {"OPENAI_API_KEY": "sk-own-key", "OPENAI_MODEL": ""}).model == "gpt-4o-mini"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bogus", f"unknown endpoint kind: 'bogus'; expected one of {NAMED}"),
        ("openai", "openai: no api_key (set OPENAI_API_KEY env var or pass api_key=...)"),
        ("hf_router", "hf_router: no api_key (set HF_ROUTER_API_KEY env var or pass api_key=...)"),
        ("vllm", "vllm: no base_url (set VLLM_URL env var or pass base_url=...)"),
        (
            "",
            f"must provide either ``endpoint`` (one of {NAMED}) or all of base_url + api_key + model",
        ),
    ],
)
def test_what_is_missing_is_named_as_openenv_names_it(kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        look_up(kind)


def test_explicit_fields_need_no_kind() -> None:
    found = look_up("", base_url="http://10.0.0.7:8000", api_key="any", model="m")
    assert (found.base_url, found.disable_thinking, found.is_own) == ("http://10.0.0.7:8000/v1", False, False)
    with pytest.raises(ValueError, match=r"^must provide either") as error:
        look_up("", base_url="http://10.0.0.7:8000", model="m")
    assert str(error.value) == NEITHER


def test_the_servers_key_is_not_sent_to_an_address_of_the_caller() -> None:
    env = {"OPENAI_API_KEY": "sk-own-key"}
    with pytest.raises(ValueError, match=r"^openai: no api_key .*own key is not sent"):
        look_up("openai", env, base_url="https://evil.example/v1")
    assert look_up("openai", env, base_url="https://api.openai.com").api_key == "sk-own-key"
