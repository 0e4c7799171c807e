"""The developer's consent that a model endpoint may see the files of their repositories. It is asked for once."""

import os
from collections.abc import Mapping
from datetime import datetime

from pydantic import AwareDatetime, BaseModel, ConfigDict

from whet.errors import UserError
from whet.runs.config import Config, model_config
from whet.sleep.store import SleepStore


class Consent(BaseModel):
    """That the developer agreed to an endpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str
    at: AwareDatetime


class NoConsentError(UserError):
    """Nobody has agreed yet that an endpoint may see files."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(
            f"the night would send files of your repositories to {endpoint}, and you have not agreed to that yet; "
            "agree once with `whet sleep run --consent`"
        )
        self.endpoint = endpoint


def find_endpoint(name: str, config: Config, env: Mapping[str, str] = os.environ) -> str | None:
    """Where a model gets what it is asked. None if nothing leaves the machine."""
    model = model_config(name, config, env)
    if model.login:
        return f"the provider of your {model.login} login"
    # Without its path: the consent is to a host, whatever the model.
    hosts = ["/".join(url.split("/")[:3]) for url in model.urls or ((model.url,) if model.url else ())]
    return ", ".join(hosts) or None


def refuse_without_consent(store: SleepStore, endpoint: str | None) -> None:
    """NoConsentError unless the developer agreed to this endpoint."""
    if endpoint is not None and store.get("consent", endpoint, Consent) is None:
        raise NoConsentError(endpoint)


def give_consent(store: SleepStore, endpoint: str, now: datetime) -> None:
    """Record that the developer agrees to an endpoint."""
    store.put("consent", endpoint, Consent(endpoint=endpoint, at=now))
