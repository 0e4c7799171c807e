"""whet.toml: the models and agents that a project names, and its defaults."""

import os
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from whet.agents import AnyAgent
from whet.errors import UserError, did_you_mean
from whet.explain import explain, user_error
from whet.gateway import Model
from whet.testing import ScriptedModel, read_script

FILE = "whet.toml"
SCRIPTED = "scripted:"


class ModelConfig(BaseModel):
    """A model: an endpoint somewhere, or a script to be played."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(default=None, pattern=r"^https?://[^/]")
    """Address of an OpenAI-compatible endpoint."""
    script: Path | None = None
    """File with the script of a scripted model, beside whet.toml."""
    name: str | None = None
    """What the endpoint calls the model; by default what whet.toml calls it."""
    key_env: str | None = None
    """Environment variable that holds the key."""
    concurrency: int = Field(default=64, gt=0)
    """Rollouts, and calls, that the endpoint is given at once."""
    attempts: int = Field(default=4, gt=0)
    """How often one call is sent before its failure counts."""
    first_byte_sec: float = Field(default=300, gt=0)
    idle_sec: float = Field(default=120, gt=0)
    price_input: float | None = Field(default=None, ge=0)
    """Dollars per million tokens."""
    price_output: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.url is None) == (self.script is None):
            raise ValueError("has both or neither of 'url' and 'script'; expected exactly one of them")
        return self


class Defaults(BaseModel):
    """What `whet run` takes when it is not told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: str | None = None
    model: str | None = None
    sandbox: str | None = None
    samples: int = Field(default=1, gt=0)
    concurrency: int = Field(default=4, gt=0)


class Config(BaseModel):
    """The content of a whet.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: dict[str, ModelConfig] = Field(default_factory=dict)
    agents: dict[str, AnyAgent] = Field(default_factory=dict)
    defaults: Defaults = Defaults()


def find_config(start: Path) -> Path | None:
    """The whet.toml of this folder or the nearest one above."""
    return next((folder / FILE for folder in [start, *start.parents] if (folder / FILE).is_file()), None)


def read_config(path: Path | None) -> Config:
    """Read a whet.toml; an empty config without one."""
    if path is None:
        return Config()
    try:
        config = Config.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not TOML: {error}") from error
    except ValidationError as error:
        raise user_error(explain(error, str(path), Config)) from error
    # A script is named relative to the file that names it.
    models = {
        name: model.model_copy(update={"script": path.parent / model.script}) if model.script else model
        for name, model in config.models.items()
    }
    return config.model_copy(update={"models": models})


def model_config(name: str, config: Config) -> ModelConfig:
    """The model of this name: a configured one, or `scripted:FILE`."""
    if name in config.models:
        return config.models[name]
    if name.startswith(SCRIPTED):
        return ModelConfig(script=Path(name.removeprefix(SCRIPTED)))
    known = did_you_mean(name, [*config.models, "scripted:FILE"])
    raise UserError(f"unknown model '{name}'; {known}; models are declared in {FILE} under [models.NAME]")


def model_key(name: str, model: ModelConfig, env: Mapping[str, str]) -> str | None:
    """The provider's key."""
    if model.key_env is None:
        return None
    if not env.get(model.key_env):
        raise UserError(f"model '{name}' needs its key in the environment variable {model.key_env}, which is not set")
    return env[model.key_env]


@asynccontextmanager
async def open_model(name: str, model: ModelConfig, env: Mapping[str, str] = os.environ) -> AsyncIterator[Model]:
    """The model as the gateway calls it. A scripted one is served as long as the context lasts."""
    key = model_key(name, model, env)
    if model.script is None:
        assert model.url is not None
        yield _model(name, model, model.url, key)
        return
    free = model.model_copy(update={"price_input": 0.0, "price_output": 0.0})
    async with ScriptedModel(read_script(model.script)) as scripted:
        yield _model(name, free, scripted.url, key)


def _model(name: str, model: ModelConfig, url: str, key: str | None) -> Model:
    return Model(
        name=name,
        url=url,
        upstream_name=model.name or name.partition(":")[0],
        key=key,
        concurrency=model.concurrency,
        attempts=model.attempts,
        first_byte_sec=model.first_byte_sec,
        idle_sec=model.idle_sec,
        price_input=model.price_input,
        price_output=model.price_output,
    )
