"""whet.toml: found from below, read strictly, and turned into models."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from whet.agents import agent_named
from whet.errors import UserError
from whet.runs.config import (
    Config,
    ModelConfig,
    RunLimits,
    find_config,
    model_config,
    model_key,
    model_secrets,
    open_model,
    read_config,
)

SCRIPT = '[[scene]]\n[[scene.reply]]\ntext = "Hello."\n'


def write(folder: Path, text: str) -> Path:
    file = folder / "whet.toml"
    file.write_text(text)
    return file


def test_the_nearest_file_above_is_found(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    outer = write(tmp_path, "")
    assert find_config(deep) == outer
    inner = write(tmp_path / "a", "")
    assert find_config(deep) == inner
    assert read_config(None) == Config()


def test_everything_that_can_be_said_is_read() -> None:
    config = read_config(Path(__file__).parent / "golden" / "everything.toml")
    assert config.defaults.model_dump() == {
        "agent": "mine",
        "model": "small",
        "sandbox": "local",
        "judge_model": "large",
        "samples": 3,
        "concurrency": 8,
        "idle_sec": 60,
    }
    assert config.limits == RunLimits(
        cost=5, turns=100, input_tokens=1000, output_tokens=1000, total_tokens=1500, wall_sec=3600, concurrency=16
    )
    assert config.models["small"].idle_sec == 5.5
    assert config.models["large"].capture == "vllm"
    assert agent_named("mine", config.agents).model_dump()["argv"] == ("my-agent", "{task}")


MISTAKES = json.loads((Path(__file__).parent / "golden" / "config.json").read_text())


@pytest.mark.parametrize(("text", "message"), MISTAKES["whet.toml, and what is said of it"])
def test_a_mistake_names_the_file_the_key_and_what_was_expected(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(UserError) as refused:
        read_config(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert message in str(refused.value)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "whet.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not TOML"):
        read_config(tmp_path / "whet.toml")


async def test_a_script_is_found_beside_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "script.toml").write_text(SCRIPT)
    config = read_config(write(tmp_path, '[models.m]\nscript = "script.toml"\n'))
    async with open_model("m", config.models["m"], {}) as model:
        assert model.url.startswith("http://127.0.0.1:")
        assert (model.name, model.upstream_name, model.key) == ("m", "m", None)
        assert (model.price_input, model.price_output) == (0.0, 0.0)


async def test_a_script_can_be_named_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "script.toml").write_text(SCRIPT)
    name = f"scripted:{tmp_path / 'script.toml'}"
    async with open_model(name, model_config(name, Config()), {}) as model:
        assert (model.name, model.upstream_name) == (name, "scripted")


async def test_an_endpoint_is_given_its_key_and_model_name() -> None:
    settings = ModelConfig(url="http://127.0.0.1:9", name="small-2", key_env="K", price_input=1, price_output=2)
    async with open_model("small", settings, {"K": "sk-0123456789"}) as model:
        assert (model.url, model.key, model.upstream_name) == ("http://127.0.0.1:9", "sk-0123456789", "small-2")
        assert (model.price_input, model.price_output) == (1, 2)


async def test_what_is_declared_reaches_the_gateway() -> None:
    settings = ModelConfig(
        urls=("http://h1", "http://h2/v1"),
        dialect="messages",
        headers={"X-Team": "${TEAM}", "X-Title": "skills"},
        set={"temperature": 0, "reasoning": {"effort": "low"}, "seed": None},
        drop=("top_k",),
        max_tokens=8192,
        allow_fields=("own",),
        allow_tools=("webby",),
        allow_parts=("odd",),
        allow=("remote-media",),
        capture="sglang",
        price_input=3,
        price_output=15,
        price_cache_read=0.3,
        price_cache_write=3.75,
    )
    async with open_model("large", settings, {"TEAM": "blue-0123"}) as model:
        assert model.urls == ("http://h1", "http://h2/v1")
        assert (model.dialect, model.auth, model.capture, model.max_tokens) == ("messages", "key", "sglang", 8192)
        assert model.headers == (("X-Team", "blue-0123"), ("X-Title", "skills"))
        assert model.set == (("temperature", b"0"), ("reasoning", b'{"effort": "low"}'), ("seed", b"null"))
        assert model.drop == ("top_k",)
        widened = [*model.allow_fields, *model.allow_tools, *model.allow_parts]
        assert widened == ["own", "webby", "odd"]
        assert model.allow == {"remote-media"}
        assert (model.price_cache_read, model.price_cache_write) == (0.3, 3.75)
        assert hash(model)


def test_secrets_are_the_key_and_the_headers_out_of_the_environment() -> None:
    settings = ModelConfig(
        url="http://h", key_env="K", headers={"X-Team": "${TEAM}", "X-Title": "skills", "X-Mode": "${MODE:-fast}"}
    )
    env = {"K": "sk-0123456789", "TEAM": "blue-0123"}
    assert model_secrets("m", settings, env) == ["sk-0123456789", "blue-0123", "fast"]
    assert model_secrets("m", ModelConfig(url="http://h"), {}) == []


async def test_a_header_whose_variable_is_not_set_is_asked_for() -> None:
    settings = ModelConfig(url="http://h", headers={"X-Team": "${TEAM}"})
    with pytest.raises(UserError, match=r"model 'm': headers: variable 'X-Team' is '\$\{TEAM\}', but TEAM is not set"):
        async with open_model("m", settings, {}):
            pass


@pytest.mark.parametrize("settings", [{"key_env": "V"}, {"headers": {"X-Team": "${V}"}}])
async def test_what_does_not_fit_into_a_header_is_refused_without_being_shown(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="has a line break or a NUL character in it; expected one line") as refused:
        async with open_model("m", ModelConfig(url="http://h", **settings), {"V": "sk-0123\nsk-4567"}):
            pass
    assert "sk-0123" not in str(refused.value)


async def test_azure_without_a_key_needs_a_login_before_anything_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure", None)
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(UserError, match=r"model 'm': .*pip install 'whet\[azure\]'"):
        async with open_model("m", ModelConfig(url="http://h", auth="azure"), {}):
            pass
    async with open_model("m", ModelConfig(url="http://h", auth="azure", key_env="K"), {"K": "sk-0123456789"}) as model:
        assert (model.auth, model.key) == ("azure", "sk-0123456789")


@pytest.mark.parametrize("env", [{}, {"K": ""}])
def test_a_key_that_is_not_there_is_asked_for(env: dict[str, str]) -> None:
    with pytest.raises(UserError, match="model 'small' needs its key in the environment variable K, which is not set"):
        model_key("small", ModelConfig(url="http://127.0.0.1:9", key_env="K"), env)


def test_an_unknown_model_is_refused_with_the_nearest_name() -> None:
    config = Config(models={"small": ModelConfig(url="http://127.0.0.1:9")})
    with pytest.raises(UserError, match=r"unknown model 'smal'; did you mean 'small'\?"):
        model_config("smal", config)
