"""whet.toml: found from below, read strictly, and turned into models."""

from pathlib import Path

import pytest

from whet.agents import agent_named
from whet.errors import UserError
from whet.runs.config import Config, ModelConfig, find_config, model_config, model_key, open_model, read_config

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


def test_everything_that_can_be_said_is_read(tmp_path: Path) -> None:
    config = read_config(
        write(
            tmp_path,
            """
            [defaults]
            agent = "mine"
            model = "small"
            sandbox = "local"
            samples = 3
            concurrency = 8

            [models.small]
            url = "http://127.0.0.1:8000"
            name = "small-2"
            key_env = "SMALL_KEY"
            concurrency = 2
            attempts = 1
            first_byte_sec = 10
            idle_sec = 5.5
            price_input = 0.15
            price_output = 0.6

            [agents.mine]
            kind = "command"
            argv = ["my-agent", "{task}"]
            """,
        )
    )
    assert config.defaults.model_dump() == {
        "agent": "mine",
        "model": "small",
        "sandbox": "local",
        "samples": 3,
        "concurrency": 8,
    }
    assert config.models["small"].idle_sec == 5.5
    assert agent_named("mine", config.agents).model_dump()["argv"] == ("my-agent", "{task}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[models.m]\n", "key 'models.m' has both or neither of 'url' and 'script'; expected exactly one of them"),
        ('[models.m]\nurl = "http://x"\nscript = "y"\n', "key 'models.m' has both or neither of 'url' and 'script'"),
        ('[models.m]\nurl = "x"\n', "key 'models.m.url' is 'x'; expected"),
        (
            '[models.m]\nurl = "http://x"\nconcurrency = 0\n',
            "key 'models.m.concurrency' is 0; expected a number greater",
        ),
        ('[models.m]\nurl = "http://x"\nattempts = "4x"\n', "key 'models.m.attempts' is '4x'; expected a whole number"),
        (
            '[models.m]\nurl = "http://x"\nprice_input = -1\n',
            "key 'models.m.price_input' is -1; expected a number of at",
        ),
        ("[defaults]\nsamples = 0\n", "key 'defaults.samples' is 0; expected a number greater than 0"),
        ('[agents.a]\nkind = "command"\nargv = []\n', "expected at least 1"),
        ("models = 3\n", "key 'models' is 3; expected a table of keys and values"),
        ("[models\n", "not TOML"),
    ],
)
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


async def test_an_endpoint_is_given_its_key_and_its_own_name_for_the_model() -> None:
    settings = ModelConfig(url="http://127.0.0.1:9", name="small-2", key_env="K", price_input=1, price_output=2)
    async with open_model("small", settings, {"K": "sk-0123456789"}) as model:
        assert (model.url, model.key, model.upstream_name) == ("http://127.0.0.1:9", "sk-0123456789", "small-2")
        assert (model.price_input, model.price_output) == (1, 2)


@pytest.mark.parametrize("env", [{}, {"K": ""}])
def test_a_key_that_is_not_there_is_asked_for(env: dict[str, str]) -> None:
    with pytest.raises(UserError, match="model 'small' needs its key in the environment variable K, which is not set"):
        model_key("small", ModelConfig(url="http://127.0.0.1:9", key_env="K"), env)


def test_an_unknown_model_is_refused_with_the_nearest_name() -> None:
    config = Config(models={"small": ModelConfig(url="http://127.0.0.1:9")})
    with pytest.raises(UserError, match=r"unknown model 'smal'; did you mean 'small'\?"):
        model_config("smal", config)
