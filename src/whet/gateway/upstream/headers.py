"""What goes to a model beside the body: those headers of the agent that may pass, and credentials."""

from types import MappingProxyType

from whet.exchange import Headers
from whet.gateway.dialects import DIALECTS
from whet.gateway.model import Model
from whet.gateway.upstream.client import credential_secrets, own_credentials

REQUEST_HEADERS = frozenset({"accept", "user-agent"})
"""The headers of the agent that go to every model. Its content type does not: with another character set, a server
would read another request than the one that was checked."""
BODY_TYPE = MappingProxyType({"Content-Type": "application/json"})
DIALECT_HEADERS = REQUEST_HEADERS | {"anthropic-version", "anthropic-beta", "openai-beta"}
"""Those that go to a model of the agent's own dialect."""


def headers_for_model(headers: Headers, model: Model, *, translated: bool) -> dict[str, str]:
    """What is sent with a call that an agent made with these headers."""
    kept = REQUEST_HEADERS if translated else DIALECT_HEADERS
    passed = {name: value for name, value in headers if name.lower() in kept}
    given = {name.lower() for name in passed}
    expected = DIALECTS[model.dialect].DEFAULT_HEADERS
    defaults = {name: value for name, value in expected.items() if name.lower() not in given}
    return BODY_TYPE | passed | defaults | _credentials(headers, model)


def secrets_for_model(headers: Headers, model: Model) -> list[str]:
    """The agent's own credentials, where they go to the model: they must not be recorded."""
    return credential_secrets(own_credentials(headers)) if model.auth == "own" else []


def _credentials(headers: Headers, model: Model) -> dict[str, str]:
    if model.auth == "own":
        return own_credentials(headers)
    # Credentials of Azure are added where they are fetched.
    return DIALECTS[model.dialect].credentials(model.key) if model.key and model.auth == "key" else {}
