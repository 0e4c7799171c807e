"""whet.toml: the models and agents that a project names, and its defaults."""

import json
import os
import tomllib
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from whet.agents import CliAgent, DeclaredAgent, agent_named, place_beside
from whet.errors import UserError, did_you_mean
from whet.gateway import Model
from whet.gateway.model import Auth, CaptureKind
from whet.gateway.prices import Price, price_for
from whet.gateway.upstream.azure import AzureLogin
from whet.models import DEFAULT_CONTEXT, PROVIDERS, Engine, find_model, provider_settings, serve_model
from whet.rollout.login_model import serve_login
from whet.runs.labels import DEFAULT_SETS, NOTE
from whet.tasks import resolve_env
from whet.tasks.judges import JudgeSpec, asks_model
from whet.tasks.task import Allowed
from whet.testing import ScriptedModel, read_script
from whet.validation_errors import explain, user_error

FILE = "whet.toml"
SCRIPTED = "scripted:"
LOCAL = "local/"
LOGIN = "login/"
LOGINS = ("claude-code", "codex")
"""The agents whose login can answer the questions of judges and proposers in a sealed box."""
LOGIN_CONCURRENCY = 4
"""Every question to a login starts a program."""
NOT_CALLED = "http://127.0.0.1:9"
"""Stands for the address of a model that is never called."""
CONCURRENCY = 64
_FREE = MappingProxyType({"price_input": 0.0, "price_output": 0.0, "price_cache_read": None, "price_cache_write": None})
_ENDPOINTS_OWN = frozenset({"dialect", "capture", "auth", "key_env", "key", "headers"})


AGENTS_OWN = frozenset({"model", "messages", "input", "contents", "stream"})
"""Fields of a request that are not changed: what is asked, of whom, and how the answer is to come."""


def _may_be_changed(field: str) -> str:
    if field in AGENTS_OWN:
        raise ValueError(f"expected a field other than: {', '.join(sorted(AGENTS_OWN))}")
    return field


def _is_json(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError("expected a value that JSON can hold, so no date and no infinite number") from error
    return value


def _is_free(name: str) -> str:
    if name == NOTE:
        raise ValueError(f"is '{NOTE}', which every rollout can have; expected another name")
    return name


Url = Annotated[str, Field(pattern=r"^https?://[^/]")]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
RequestField = Annotated[str, AfterValidator(_may_be_changed)]
Json = Annotated[Any, AfterValidator(_is_json)]
LabelName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$"), AfterValidator(_is_free)]
LabelChoices = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=60)], ...], Field(min_length=1)]


NO_MODEL = Model(name="none", url="http://127.0.0.1:9", upstream_name="none", key=None)
"""Stands for the model of agents that call none."""


class ModelConfig(BaseModel):
    """A model: one endpoint or several somewhere, a script to be played, or weights to be served here."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    url: Url | None = None
    """Address of an endpoint."""
    urls: tuple[Url, ...] | None = Field(default=None, min_length=1)
    """Addresses of endpoints that serve the same model."""
    script: Path | None = None
    """File with the script of a scripted model, beside whet.toml."""
    local: str | None = None
    """A local model, as `whet models list` names it."""
    login: Literal["claude-code", "codex"] | None = None
    """An agent whose login answers, for judges and proposers. `url` then replaces the endpoint of the login."""
    context: int = Field(default=DEFAULT_CONTEXT, gt=0)
    """Tokens that a conversation with a local model may have."""
    name: str | None = None
    """What the endpoint calls the model; by default what whet.toml calls it."""
    dialect: Literal["chat", "responses", "messages", "gemini"] = "chat"
    """The API that the endpoint speaks."""
    auth: Auth = "key"
    key_env: str | None = None
    """Environment variable that holds the key."""
    key: SecretStr | None = Field(default=None, exclude=True)
    """The key itself, for a model that is made in Python. It is never stored; whet.toml may not hold it."""
    headers: dict[HeaderName, str] = Field(default_factory=dict)
    """Sent with every call. A whole-value `${NAME}` comes from the environment."""
    concurrency: int | None = Field(default=None, gt=0)
    """Rollouts, and calls, that an endpoint is given at once. By default 64, and 1 of a local model, which is then
    reproducible."""
    attempts: int = Field(default=4, gt=0)
    """How often one call is sent before its failure counts."""
    first_byte_sec: float | None = Field(default=None, gt=0)
    idle_sec: float = Field(default=600, gt=0)
    set: dict[RequestField, Json] = Field(default_factory=dict)
    """Fields of every request, and what replaces the agent's values."""
    drop: tuple[RequestField, ...] = ()
    """Fields that are taken out of every request."""
    max_tokens: int | None = Field(default=None, gt=0)
    """The most that a request may ask to be sampled; put in where it names no limit."""
    allow_fields: tuple[str, ...] = ()
    """Fields of requests, messages and their parts that pass unchecked, although they are on no list."""
    allow_tools: tuple[str, ...] = ()
    """Kinds of tools that pass as well."""
    allow_parts: tuple[str, ...] = ()
    """Types of message parts that pass as well."""
    allow: tuple[Allowed, ...] = ()
    """What the provider may do for every task, as `allow` of a task says it for one."""
    capture: CaptureKind = "none"
    """Which kind of server is asked for token ids and log-probabilities."""
    price_input: float | None = Field(default=None, ge=0)
    """Dollars per million tokens."""
    price_output: float | None = Field(default=None, ge=0)
    price_cache_read: float | None = Field(default=None, ge=0)
    price_cache_write: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = sum(source is not None for source in (self.url, self.urls, self.script, self.local))
        if given != 1 and not (self.login and not given):
            raise ValueError(
                f"has {given} of 'url', 'urls', 'script' and 'local'; expected exactly one of them, or 'login'"
            )
        return self

    @model_validator(mode="after")
    def _nothing_contradicts(self) -> Self:
        if len({*(self.urls or ())}) < len(self.urls or ()):
            raise ValueError("names an address twice in 'urls'; expected each of them once")
        if self.key is not None and self.key_env is not None:
            raise ValueError("has a 'key' and a 'key_env'; expected one of them")
        if self.auth == "own" and (self.key_env is not None or self.key is not None):
            raise ValueError("has auth = 'own' and a 'key_env'; expected the agent's own credentials or a key")
        if both := sorted(self.set.keys() & {*self.drop}):
            raise ValueError(f"sets and drops '{both[0]}'; expected one of them")
        return self

    @model_validator(mode="after")
    def _local_is_local(self) -> Self:
        if self.local is None and "context" in self.model_fields_set:
            raise ValueError("has 'context', which is for a local model only")
        if self.local is not None and (given := sorted(self.model_fields_set & _ENDPOINTS_OWN)):
            raise ValueError(f"has '{given[0]}', which is for an endpoint and not for a local model")
        return self


class Defaults(BaseModel):
    """What `whet run` takes when it is not told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: str | None = None
    model: str | None = None
    sandbox: str | None = None
    judge_model: str | None = None
    """Which model judges ask, where a task names none."""
    samples: int = Field(default=1, gt=0)
    concurrency: int = Field(default=4, gt=0)
    idle_sec: float | None = Field(default=None, gt=0)
    """How long an agent may go without a model call, where its task does not say."""


class RunLimits(BaseModel):
    """What all rollouts of a run together may use. At a limit the run stops, and can be resumed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cost: float | None = Field(default=None, gt=0)
    """Dollars."""
    turns: int | None = Field(default=None, gt=0)
    """Model calls."""
    input_tokens: int | None = Field(default=None, gt=0)
    output_tokens: int | None = Field(default=None, gt=0)
    total_tokens: int | None = Field(default=None, gt=0)
    wall_sec: float | None = Field(default=None, gt=0)
    """Since the run began or was resumed."""
    concurrency: int | None = Field(default=None, gt=0)
    """Model calls under way at once; further ones wait."""


class ViewSettings(BaseModel):
    """What `whet view` takes from whet.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: dict[LabelName, LabelChoices] = Field(default_factory=lambda: dict(DEFAULT_SETS), min_length=1)
    """The labels that people can set on rollouts: names, each with its choices."""


class Config(BaseModel):
    """The content of a whet.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: dict[str, ModelConfig] = Field(default_factory=dict)
    agents: dict[str, DeclaredAgent] = Field(default_factory=dict)
    defaults: Defaults = Defaults()
    limits: RunLimits = RunLimits()
    denied: tuple[Path, ...] = ()
    """Folders that no agent may be given anything of, beside whet.toml."""
    sleep: dict[str, Any] = Field(default_factory=dict)
    """The settings of `whet sleep` for this repository. sleep/options.py reads them."""
    view: ViewSettings = ViewSettings()


def find_config(start: Path) -> Path | None:
    """The whet.toml of this folder or the nearest one above."""
    return next((folder / FILE for folder in [start, *start.parents] if (folder / FILE).is_file()), None)


def project_config() -> Config:
    """The content of the whet.toml of the working directory or the nearest one above."""
    return read_config(find_config(Path.cwd()))


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
    if written := next((name for name, model in config.models.items() if model.key is not None), None):
        raise UserError(f"{path}: model '{written}' has a 'key'; expected 'key_env', the variable that holds the key")
    # A script, like an agent's files, is named relative to the file that names it.
    models = {
        name: model.model_copy(update={"script": path.parent / model.script}) if model.script else model
        for name, model in config.models.items()
    }
    agents = {name: place_beside(agent, path.parent) for name, agent in config.agents.items()}
    denied = tuple(path.parent / folder for folder in config.denied)
    return config.model_copy(update={"models": models, "agents": agents, "denied": denied})


def model_config(name: str, config: Config, env: Mapping[str, str] = os.environ) -> ModelConfig:
    """The model of this name: a configured one, `PROVIDER/MODEL`, `local/NAME`, `login/AGENT/MODEL` or
    `scripted:FILE`."""
    if name in config.models:
        return config.models[name]
    if name.startswith(LOCAL):
        return ModelConfig(local=name.removeprefix(LOCAL))
    if name.startswith(SCRIPTED):
        return ModelConfig(script=Path(name.removeprefix(SCRIPTED)))
    if name.startswith(LOGIN):
        return _login_model(name)
    if (settings := provider_settings(name, env)) is not None:
        return _provider_model(name, settings)
    ways = [*(f"{provider}/MODEL" for provider in PROVIDERS), "local/NAME", "login/AGENT/MODEL", "scripted:FILE"]
    known = did_you_mean(name, [*config.models, *ways])
    raise UserError(f"unknown model '{name}'; {known}; models are declared in {FILE} under [models.NAME]")


def _login_model(name: str) -> ModelConfig:
    agent, _, model = name.removeprefix(LOGIN).partition("/")
    if agent not in LOGINS or not model:
        known = " or ".join(f"login/{one}/MODEL" for one in LOGINS)
        raise UserError(f"model '{name}': expected {known}")
    return ModelConfig.model_validate({"login": agent, "name": model})


def _provider_model(name: str, settings: Mapping[str, str]) -> ModelConfig:
    try:
        return ModelConfig.model_validate(settings)
    except ValidationError as error:
        # The name and the table are whet's own; only an address comes from the environment.
        raise UserError(f"model '{name}': its address is '{settings['url']}'; expected http:// or https://") from error


def judge_model_configs(
    judges: Iterable[JudgeSpec], default: str | None, config: Config, env: Mapping[str, str] = os.environ
) -> dict[str, ModelConfig]:
    """The models that these judges ask. UserError when one names none and there is no default."""
    asking = [asked for judge in judges if (asked := asks_model(judge)) is not None]
    if default is None and any(asked.model is None for asked in asking):
        raise UserError(
            "a judge asks a model and names none; name one with `judge_model`, or 'judge_model' under [defaults] in "
            f"{FILE}; it should not be the model under test"
        )
    return {name: model_config(name, config, env) for asked in asking if (name := asked.model or default) is not None}


def model_key(name: str, model: ModelConfig, env: Mapping[str, str]) -> str | None:
    """The provider's key."""
    if model.key is not None:
        return _one_line(f"model '{name}': its key", model.key.get_secret_value())
    if model.key_env is None:
        return None
    if not env.get(model.key_env):
        raise UserError(f"model '{name}' needs its key in the environment variable {model.key_env}, which is not set")
    return _one_line(f"model '{name}': the key in {model.key_env}", env[model.key_env])


def model_headers(name: str, model: ModelConfig, env: Mapping[str, str]) -> dict[str, str]:
    """The headers that are sent with every call, with what the environment holds."""
    resolved = resolve_env(model.headers, env, f"model '{name}': headers")
    return {header: _one_line(f"model '{name}': header '{header}'", value) for header, value in resolved.items()}


def model_secrets(name: str, model: ModelConfig, env: Mapping[str, str]) -> list[str]:
    """What must be masked wherever it appears: the key, and headers out of the environment."""
    key, headers = model_key(name, model, env), model_headers(name, model, env)
    return [
        *([key] if key else []),
        *(_login_agent(model.login).login_secrets(env) if model.login else []),
        *(headers[header] for header, given in model.headers.items() if headers[header] != given),
    ]


def model_price(name: str, model: ModelConfig) -> Price | None:
    """What the tokens of a model cost, as far as that is known."""
    if model.script is not None or model.local is not None:
        return Price(0.0, 0.0)
    return price_for(_model(name, model.model_copy(update={"key_env": None, "headers": {}}), ("",), {}))


def never_called(model: ModelConfig, env: Mapping[str, str]) -> ModelConfig:
    """A model whose replies are all on record: it needs neither a key nor a login nor an engine. A key that is there is
    masked."""
    key_env = model.key_env if model.key_env and env.get(model.key_env) else None
    elsewhere = {**_local_settings(model), "local": None, "url": NOT_CALLED} if model.local is not None else {}
    auth = "key" if model.auth == "azure" else model.auth
    return model.model_copy(update={"key_env": key_env, "auth": auth, **elsewhere})


@asynccontextmanager
async def open_models(models: Mapping[str, ModelConfig], env: Mapping[str, str]) -> AsyncIterator[dict[str, Model]]:
    """The models as the gateway calls them. Local and scripted ones are served as long as the context lasts, a local
    one that has several names only once."""
    engines = {name: _engine(model) for name, model in models.items() if model.local is not None}
    async with AsyncExitStack() as opened:
        serving = {engine: await opened.enter_async_context(serve_model(engine)) for engine in {*engines.values()}}
        urls = {name: serving[engine].url for name, engine in engines.items()}
        yield {
            name: await opened.enter_async_context(_open(name, model, urls.get(name), env))
            for name, model in models.items()
        }


@asynccontextmanager
async def open_model(name: str, model: ModelConfig, env: Mapping[str, str] = os.environ) -> AsyncIterator[Model]:
    """One model as the gateway calls it, for as long as the context lasts."""
    async with open_models({name: model}, env) as opened:
        yield opened[name]


@asynccontextmanager
async def _open(name: str, model: ModelConfig, engine: str | None, env: Mapping[str, str]) -> AsyncIterator[Model]:
    if engine is not None:
        yield _model(name, model.model_copy(update=_local_settings(model)), (engine,), env)
        return
    if model.script is not None:
        async with ScriptedModel(read_script(model.script)) as scripted:
            yield _model(name, model.model_copy(update=_FREE), (scripted.url,), env)
        return
    if model.login is not None:
        agent, inner = _open_login(name, model)
        async with serve_login(agent, inner, env) as url:
            served = model.model_copy(update={"concurrency": model.concurrency or LOGIN_CONCURRENCY})
            yield _model(name, served, (url,), env)
        return
    if model.auth == "azure" and model.key_env is None and model.key is None:
        await _check_azure_login(name)
    yield _model(name, model, model.urls or (model.url or "",), env)


def _open_login(name: str, model: ModelConfig) -> tuple[CliAgent, Model]:
    """The agent that answers, and the model as that agent calls it."""
    agent = _login_agent(model.login or "")
    agent.check()
    url = model.url or agent.traits.login_url or ""
    return agent, Model(name, url, model.name or name, key=None, auth="own", dialect=agent.traits.dialect)


def _login_agent(kind: str) -> CliAgent:
    agent = agent_named(kind, {})
    assert isinstance(agent, CliAgent)
    return agent.model_copy(update={"home": "login", "args": agent.traits.toolless})


def _engine(model: ModelConfig) -> Engine:
    return Engine(find_model(model.local or ""), model.concurrency or 1, model.context)


def _local_settings(model: ModelConfig) -> dict[str, object]:
    """What is known of a local model because whet serves it."""
    named = {"name": model.name or model.local, "concurrency": model.concurrency or 1}
    return {**_FREE, **named, "capture": "vllm"}


def _model(name: str, model: ModelConfig, urls: tuple[str, ...], env: Mapping[str, str]) -> Model:
    return Model(
        name=name,
        url=urls[0],
        replicas=urls[1:],
        upstream_name=model.name or name.partition(":")[0],
        dialect=model.dialect,
        auth=model.auth,
        key=model_key(name, model, env),
        headers=tuple(model_headers(name, model, env).items()),
        concurrency=model.concurrency or CONCURRENCY,
        attempts=model.attempts,
        first_byte_sec=model.first_byte_sec,
        idle_sec=model.idle_sec,
        set=tuple((field, json.dumps(value).encode()) for field, value in model.set.items()),
        drop=model.drop,
        max_tokens=model.max_tokens,
        allow_fields=frozenset(model.allow_fields),
        allow_tools=frozenset(model.allow_tools),
        allow_parts=frozenset(model.allow_parts),
        allow=frozenset(model.allow),
        capture=model.capture,
        price_input=model.price_input,
        price_output=model.price_output,
        price_cache_read=model.price_cache_read,
        price_cache_write=model.price_cache_write,
    )


async def _check_azure_login(name: str) -> None:
    """Whoever is not logged in should know before anything is run."""
    try:
        await AzureLogin().token()
    except UserError as error:
        raise UserError(f"model '{name}': {error}") from error


def _one_line(what: str, value: str) -> str:
    if any(character in value for character in "\r\n\0"):
        raise UserError(f"{what} has a line break or a NUL character in it; expected one line")
    return value
