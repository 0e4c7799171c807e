"""Checks that a model of a provider answers: one short call through the gateway."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from whet.errors import UserError
from whet.exchange import Exchange
from whet.gateway import Gateway
from whet.gateway.prices import cost_of, price_for
from whet.rollout.model_client import QUESTION, ModelClient
from whet.runs.config import LOCAL, Config, model_config, model_secrets, open_model
from whet.scoring import JudgeError
from whet.text.redact import Redactor, secrets_in


@dataclass(frozen=True, slots=True)
class EndpointCheck:
    """What came back of one call."""

    exchange: Exchange
    dialect: str
    """Of the endpoint."""
    text: str
    failure: str
    """What went wrong, in the provider's own words; empty if the model answered."""
    cost: float | None
    """Dollars; None when the price is not known."""


def find_local(name: str, config: Config) -> str | None:
    """The local model that this name stands for; None for any other model.

    >>> find_local("local/smollm2", Config()), find_local("openai/gpt-5", Config())
    ('smollm2', None)
    """
    if name in config.models:
        return config.models[name].local
    if name.startswith(LOCAL):
        return name.removeprefix(LOCAL)
    return None if "/" in name or ":" in name else name


async def check_endpoint(name: str, config: Config, env: Mapping[str, str] = os.environ) -> EndpointCheck:
    """Make one call, once. UserError when it cannot be made, for example without a key."""
    declared = model_config(name, config, env).model_copy(update={"attempts": 1})
    redactor = Redactor([*model_secrets(name, declared, env), *secrets_in(env)])
    exchanges: list[Exchange] = []

    async def record(exchange: Exchange) -> None:
        exchanges.append(exchange)

    text = failure = ""
    async with open_model(name, declared, env) as model, Gateway(redactor) as gateway:
        async with ModelClient(gateway, {name: model}, name, record, "check", cached=False) as client:
            try:
                text = await client.ask(None, QUESTION)
            except JudgeError as error:
                failure = str(error)
        if not exchanges:
            raise UserError(failure)
        return EndpointCheck(exchanges[-1], model.dialect, text, failure, cost_of(exchanges[-1], price_for(model)))
