"""Opens what rollouts need: checks what a user requests, then opens models and gateway."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import pairwise
from types import MappingProxyType

from whet.agents import AnyAgent, CliAgent, agent_named
from whet.agents.command import CommandAgent
from whet.errors import UserError
from whet.gateway import Gateway, Limits, Model
from whet.gateway.prices import price_for
from whet.rollout.resources import RunResources
from whet.runs.config import (
    LOGIN,
    NO_MODEL,
    Config,
    ModelConfig,
    judge_model_configs,
    model_config,
    model_secrets,
    never_called,
    open_models,
)
from whet.runs.options import RunOptions
from whet.runs.plan import check_tasks
from whet.runs.store.reply_cache import CacheUse, cache_use, open_cache
from whet.sandbox import remove_stale, sandbox_named
from whet.scoring.leaks import refuse_denied
from whet.tasks import Task
from whet.text.redact import Redactor, is_secret, secrets_in
from whet.trace.training.calls import TRAINING_FIELDS, find_sampling_faults

OWN = "own"
"""Stands for whatever model an agent is logged in to."""
OWN_MODEL = Model(name=OWN, url="http://127.0.0.1:9", upstream_name=OWN, key=None)


@asynccontextmanager
async def open_resources(
    request: RunOptions,
    tasks: Sequence[Task],
    config: Config,
    env: Mapping[str, str] = os.environ,
    *,
    more_tasks: bool = False,
) -> AsyncIterator[RunResources]:
    """Check all that is requested, then open the models and the gateway. UserError before anything is spent. With
    `more_tasks`, tasks that come later may have judges that call the judge model."""
    sandbox = sandbox_named(request.sandbox)
    check_tasks(tasks, sandbox, env)
    agents = {name: _agent(name, request, config, env) for name in request.agents}
    _check_capture(request)
    own = [path for agent in agents.values() if isinstance(agent, CommandAgent) for path in agent.inputs]
    refuse_denied(tasks, [*(path for path in request.skills if path), *own], config.denied)
    judge_model = request.judge_model or config.defaults.judge_model
    judge_configs = judge_model_configs((judge for task in tasks for judge in task.judge), judge_model, config, env)
    if more_tasks and judge_model is not None:
        judge_configs[judge_model] = model_config(judge_model, config, env)
    model_configs = {name: _model(name, agents, config, env) for name in request.models} if request.record else {}
    use = cache_use(request.cache)
    if use is CacheUse.REPLAY_ONLY:
        model_configs = {name: never_called(model, env) for name, model in model_configs.items()}
        judge_configs = {name: never_called(model, env) for name, model in judge_configs.items()}
    limits = limits_of(request, config)
    called = model_configs | judge_configs
    known = [secret for name, model in called.items() for secret in model_secrets(name, model, env)]
    redactor = Redactor(
        [*known, *secrets_in(env), *(one for agent in agents.values() for one in secrets_of(agent, env))]
    )
    _refuse_secret_names(agents, redactor)
    await sandbox.check()
    if request.resume:
        # Most runs are resumed because they were killed.
        await asyncio.to_thread(remove_stale)
    async with open_cache(use, env) as cache, open_models(called, env) as opened:
        _check_prices(limits, opened.values())
        async with Gateway(redactor, limits, cache) as gateway:
            yield RunResources(
                sandbox,
                gateway,
                redactor,
                env,
                agents=agents,
                models={name: opened[name] for name in model_configs} or _stand_in(request),
                judge_models={name: opened[name] for name in judge_configs},
                judge_model=judge_model,
                idle_sec=config.defaults.idle_sec,
                limits=limits,
            )


def _stand_in(request: RunOptions) -> dict[str, Model]:
    model = NO_MODEL if request.record else OWN_MODEL
    return {model.name: model}


def find_changed_keys(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """What is not as it was in an agent. A key that an earlier version did not store is not compared.

    >>> find_changed_keys({"kind": "loop", "max_turns": 50}, {"kind": "loop", "max_turns": 9, "newer": True})
    ['max_turns']
    """
    files = ["the content of its files"] if before.get("digest") != now.get("digest") else []
    return files + [key for key in before if key != "digest" and before[key] != now.get(key)]


def limits_of(request: RunOptions, config: Config) -> Limits:
    """The limits of the request; where it sets none, those of whet.toml."""
    given = {name: value for name, value in asdict(request.limits).items() if value is not None}
    return Limits(**config.limits.model_dump() | given)


def _check_prices(limits: Limits, models: Iterable[Model]) -> None:
    """UserError when a limit on money could not hold."""
    for model in models:
        if limits.cost is not None and price_for(model) is None:
            raise UserError(
                f"model '{model.name}': its price is not known, so a limit on cost cannot hold; "
                "give it price_input and price_output in whet.toml, or limit tokens"
            )


def find_sampling_warnings(name: str, model: ModelConfig) -> list[str]:
    """What will keep the calls of a captured model out of training rows, as far as its settings say so."""
    returns_ids = model.capture in {"vllm", "sglang", "llamacpp"}
    # Every local model is captured; whoever sets how it samples wants rows of it.
    if not returns_ids and not (model.local is not None and model.set.keys() & TRAINING_FIELDS):
        return []
    faults = find_sampling_faults(model.set)
    return [f"model '{name}': {'; '.join(faults)}; training rows leave such calls out"] if faults else []


def _agent(name: str, request: RunOptions, config: Config, env: Mapping[str, str]) -> AnyAgent:
    """The agent of this name, as the request wants it; UserError when it cannot run here."""
    agent = agent_named(name, config.agents)
    if not isinstance(agent, CliAgent):
        needs = {"`user_config`": request.user_config, "`login`": request.login, "`record=False`": not request.record}
        for option, is_set in needs.items():
            if is_set:
                raise UserError(f"agent '{name}' has no settings and no login of its own; run it without {option}")
        return agent
    agent.check()
    if request.user_config is not None:
        agent = agent.model_copy(update={"home": "own" if request.user_config else "fresh"})
    if request.login:
        agent = agent.model_copy(update={"home": "login"})
    if agent.home == "login":
        agent.login(env)
        if request.record and agent.traits.login_url is None:
            raise UserError(
                f"agent '{name}' sends its login to one endpoint only, so its calls cannot be recorded; "
                "set `record=False` and `sandbox` to 'local', or give it a model with a key"
            )
    return agent


def _model(name: str, agents: Mapping[str, AnyAgent], config: Config, env: Mapping[str, str]) -> ModelConfig:
    """The model of this name. For agents that use their login, it is the model of this name at the login's endpoint."""
    logins = {agent.traits for agent in agents.values() if isinstance(agent, CliAgent) and agent.home == "login"}
    if not logins or name.startswith(LOGIN):
        return model_config(name, config, env)
    (traits, *others) = logins
    if others or any(getattr(agent, "home", None) != "login" for agent in agents.values()):
        raise UserError("agents with a login of their own cannot share a model with other agents; run them apart")
    declared = config.models.get(name) or ModelConfig(url=traits.login_url, name=name.rpartition("/")[2])
    return declared.model_copy(update={"auth": "own", "key_env": None, "key": None, "dialect": traits.dialect})


def _check_capture(request: RunOptions) -> None:
    if request.record:
        return
    if request.sandbox != "local":
        raise UserError(
            f"`record=False` needs the network, which sandbox '{request.sandbox}' does not have; "
            "set `sandbox` to 'local'"
        )
    if request.models:
        raise UserError(
            f"`model` is '{','.join(request.models)}', but with `record=False` agents call the model that they are "
            "logged in to"
        )


def _refuse_secret_names(agents: Iterable[str], redactor: Redactor) -> None:
    """An agent's name is printed and stored all over a run."""
    for name in agents:
        masked = redactor.text(name)
        if masked != name:
            raise UserError(
                f"agent '{masked}': a secret is in its command line; "
                "declare the agent in whet.toml, and give it the secret in 'env' as '${NAME}'"
            )


_NAMED = re.compile(r"([\w-]+)=(\S+)")
_CREDENTIALS = re.compile(r"\b(?:[Bb]earer|[Bb]asic) +(\S+)")


def secrets_of(agent: AnyAgent, env: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """What looks like a secret in an agent's command line and variables, and the login that it uses.

    >>> secrets_of(agent_named("command:solve --api-key 0123456789abcdef --header='Bearer fedcba9876543210'", {}))
    ['0123456789abcdef', 'fedcba9876543210']
    >>> secrets_of(agent_named("command:sh -c 'curl -H \\"Authorization: Bearer $OPENAI_API_KEY\\"'", {}))
    []
    """
    words = [*getattr(agent, "argv", ()), *getattr(agent, "args", ())]
    options = [value for option, value in pairwise(words) if option.startswith("-") and is_secret(option, value)]
    named = [value for word in words for name, value in _NAMED.findall(word) if is_secret(name, value)]
    headers = [value for word in words for value in _CREDENTIALS.findall(word)]
    # `$NAME` names a variable of the box; its value is not in the command line.
    given = [value for value in (*options, *named, *headers) if not value.startswith("$")]
    login = agent.login_secrets(env) if isinstance(agent, CliAgent) else []
    return [*given, *secrets_in(getattr(agent, "env", {})), *login]
