"""What a call carries to its endpoint besides its body: declared headers, keys, tokens, the agent's own credentials."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from support.gateway_world import answer_unary, model, serving
from whet.errors import UserError
from whet.exchange import CallError
from whet.gateway import Model
from whet.gateway.buffers.memory import GatewayMemory
from whet.gateway.upstream.azure import AzureLogin
from whet.gateway.upstream.client import OutgoingCall, Upstream
from whet.gateway.upstream.headers import credential_secrets, own_credentials
from whet.gateway.upstream.reply import ReceivedReply
from whet.gateway.upstream.reply import UpstreamError as CallFailedError

KEY = "azure-key-0123456789"
IDENTITY = """
import types
from azure.core.exceptions import ClientAuthenticationError

granted = []
refused = False
ends = 10**10

class DefaultAzureCredential:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def get_token(self, scope):
        if refused:
            raise ClientAuthenticationError("Please run az login\\nTo troubleshoot, visit a page")
        granted.append(scope)
        return types.SimpleNamespace(token=f"token-{len(granted)}-0123456789", expires_on=ends)
"""
ERRORS = """
class AzureError(Exception): ...
class ClientAuthenticationError(AzureError): ...
"""


def _without_azure(patch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "azure"]:
        patch.delitem(sys.modules, name)


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for Azure's package, which needs an account to do anything."""
    for module, text in {
        "identity/__init__.py": IDENTITY,
        "core/__init__.py": "",
        "core/exceptions.py": ERRORS,
    }.items():
        file = tmp_path / "azure" / module
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    _without_azure(monkeypatch)
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("azure.identity").identity
    _without_azure(monkeypatch)


async def sent(to: dict[str, Any], headers: dict[str, str], calls: int = 1) -> tuple[dict[str, str], ReceivedReply]:
    """What arrives at the endpoint of a model with these settings."""
    arrived: dict[str, str] = {}

    async def endpoint(request: web.BaseRequest) -> web.StreamResponse:
        arrived.update({name.lower(): value for name, value in request.headers.items()})
        return await answer_unary(request)

    received = [ReceivedReply(GatewayMemory().spool()) for _ in range(calls)]
    async with serving(endpoint) as url:
        upstream = Upstream()
        try:
            await asyncio.gather(*(_call(upstream, model(url, **to), headers, one) for one in received))
        finally:
            await upstream.close()
    return arrived, received[-1]


async def _call(upstream: Upstream, to: Model, headers: dict[str, str], received: ReceivedReply) -> None:
    with await upstream.send(OutgoingCall(to, "/v1/chat/completions", headers, b"{}"), received) as incoming:
        await incoming.read()


async def test_declared_headers_are_sent_in_place_of_those_of_the_call() -> None:
    declared = (("x-team", "blue"), ("USER-AGENT", "whet"), ("accept-encoding", "gzip"))
    arrived, _ = await sent({"headers": declared}, {"User-Agent": "agent/1.0", "Accept": "*/*"})
    assert (arrived["x-team"], arrived["user-agent"], arrived["accept"]) == ("blue", "whet", "*/*")
    assert arrived["accept-encoding"] == "identity"


async def test_an_azure_key_is_sent_as_azure_expects_it() -> None:
    arrived, received = await sent({"auth": "azure", "key": KEY}, {"Authorization": f"Bearer {KEY}"})
    assert arrived["api-key"] == KEY
    assert "authorization" not in arrived
    assert received.token == ""


async def test_without_a_key_calls_share_one_token_of_the_login(azure: Any) -> None:
    arrived, received = await sent({"auth": "azure", "key": None}, {}, calls=5)
    assert azure.granted == ["https://cognitiveservices.azure.com/.default"]
    assert arrived["authorization"] == "Bearer token-1-0123456789"
    assert "api-key" not in arrived
    assert received.token == "token-1-0123456789"
    assert "token-1" not in repr(received)


async def test_a_token_is_replaced_five_minutes_before_it_ends(azure: Any) -> None:
    azure.ends = 10_000
    times = iter([0.0, 9_699.0, 9_700.0])
    login = AzureLogin(clock=lambda: next(times))
    tokens = [await login.token() for _ in range(3)]
    assert [token[:7] for token in tokens] == ["token-1", "token-1", "token-2"]


async def test_a_login_that_is_refused_says_why(azure: Any) -> None:
    azure.refused = True
    with pytest.raises(
        UserError, match=r"^Azure gave no token: Please run az login; log in, for example with 'az login'$"
    ):
        await AzureLogin().token()
    with pytest.raises(CallFailedError) as failure:
        await sent({"auth": "azure", "key": None}, {})
    assert failure.value.error is CallError.AUTH


async def test_a_login_without_the_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure", None)
    monkeypatch.setitem(sys.modules, "azure.identity", None)
    with pytest.raises(UserError, match=r"pip install 'whet\[azure\]'"):
        await AzureLogin().token()


def test_the_agents_own_credentials_are_found_whatever_their_case_and_masked_whole() -> None:
    headers = (("AUTHORIZATION", "Bearer abc-123"), ("X-Api-Key", "k-1"), ("x-goog-api-key", "g-1"), ("Cookie", "c"))
    own = own_credentials(headers)
    assert own == dict(headers[:3])
    assert {"abc-123", "k-1", "g-1"} <= {*credential_secrets(own)}


def test_the_text_form_of_a_model_hides_its_headers() -> None:
    assert "s3cret" not in repr(model("http://h", headers=(("X-Key", "s3cret"),)))
