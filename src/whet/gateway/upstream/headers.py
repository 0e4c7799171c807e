"""The headers of a call to a model: those of the agent that may pass, and credentials."""

from collections.abc import Mapping
from types import MappingProxyType

from whet.exchange import Headers
from whet.gateway.dialects import DIALECTS
from whet.gateway.model import Model

REQUEST_HEADERS = frozenset({"accept", "user-agent"})
"""The agent's headers that go to every model. Its content type does not: with another character set, a server would
read another request than the one that was checked."""
BODY_TYPE = MappingProxyType({"Content-Type": "application/json"})
DIALECT_HEADERS = REQUEST_HEADERS | {"anthropic-version", "anthropic-beta", "openai-beta"}
"""The agent's headers that go to a model of the agent's own dialect."""
OWN_CREDENTIALS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "chatgpt-account-id"})
"""The headers that belong to a login. A ChatGPT login is a token and the account that it is for."""


def headers_for_model(headers: Headers, model: Model, *, translated: bool) -> dict[str, str]:
    """What is sent with a call that an agent made with these headers."""
    kept = REQUEST_HEADERS if translated else DIALECT_HEADERS
    sent = BODY_TYPE | {name: value for name, value in headers if name.lower() in kept}
    if expected := DIALECTS[model.dialect].DEFAULT_HEADERS:
        present = {name.lower() for name in sent}
        sent |= {name: value for name, value in expected.items() if name.lower() not in present}
    return sent | _credentials(headers, model)


def secrets_for_model(headers: Headers, model: Model) -> list[str]:
    """The agent's own credentials, where they go to the model: they must not be recorded."""
    return credential_secrets(own_credentials(headers)) if model.auth == "own" else []


def own_credentials(headers: Headers) -> dict[str, str]:
    """The agent's own credentials among its headers, for a model with `auth = "own"`.

    >>> own_credentials((("Authorization", "Bearer abc"), ("Accept", "*/*")))
    {'Authorization': 'Bearer abc'}
    """
    return {name: value for name, value in headers if name.lower() in OWN_CREDENTIALS}


def credential_secrets(credentials: Mapping[str, str]) -> list[str]:
    """What must be masked of these credentials: the values, with and without the scheme in front.

    >>> credential_secrets({"Authorization": "Bearer abc"})
    ['Bearer abc', 'abc']
    """
    return [secret for value in credentials.values() for secret in (value, value.rpartition(" ")[2])]


def _credentials(headers: Headers, model: Model) -> dict[str, str]:
    if model.auth == "own":
        return own_credentials(headers)
    # Credentials of Azure are added where they are fetched.
    return DIALECTS[model.dialect].credentials(model.key) if model.key and model.auth == "key" else {}
