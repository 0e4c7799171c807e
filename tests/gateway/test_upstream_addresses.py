"""Models with fixed IP addresses: where calls connect to, under which name, and for how long they are remembered."""

import asyncio
import datetime as dt
import gc
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.gateway_world import PATIENCE, Handler, answer_unary, model, serving, session_for
from whet.exchange import CallError
from whet.gateway.buffers.memory import GatewayMemory
from whet.gateway.model import Model
from whet.gateway.upstream.client import OutgoingCall, Upstream
from whet.gateway.upstream.reply import ReceivedReply, UpstreamError

NAME = "model.example"
PATH = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def look_ups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that DNS was asked for. Every name leads to a place where nobody listens."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *args: Any, **options: Any) -> Any:
        if host.endswith(".example"):
            asked.append(host)
            host = "127.0.0.9"
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


@asynccontextmanager
async def at(address: str, handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A model server at an address of this machine; gives its port."""
    runner = web.ServerRunner(web.Server(handler, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, address, 0, ssl_context=tls)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def send(upstream: Upstream, to: Model) -> ReceivedReply:
    received = ReceivedReply(GatewayMemory().spool())
    async with asyncio.timeout(PATIENCE):
        with await upstream.send(OutgoingCall(to, PATH, {}, b"{}"), received) as incoming:
            while await incoming.read():
                pass
    return received


@asynccontextmanager
async def opened() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    try:
        yield upstream
    finally:
        await upstream.close()


async def test_a_call_connects_to_the_fixed_address_with_the_host_of_the_name(look_ups: list[str]) -> None:
    hosts: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        hosts.append(request.headers["Host"])
        return await answer_unary(request)

    async with at("127.0.0.2", handler) as port, opened() as upstream:
        received = await send(upstream, model(f"http://{NAME}:{port}", attempts=1, connect_to=(("127.0.0.2",),)))
        assert received.status == 200
        assert received.upstream == f"http://{NAME}:{port}{PATH}"
        assert hosts == [f"{NAME}:{port}"]
        assert look_ups == []
        with pytest.raises(UpstreamError):
            await send(upstream, model(f"http://{NAME}:{port}", attempts=1))
        assert look_ups == [NAME], "without fixed addresses, DNS is asked"


async def test_connections_are_not_shared_between_addresses_of_one_name() -> None:
    def named(name: str) -> Handler:
        async def handler(request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(text=name)

        return handler

    async with at("127.0.0.2", named("two")) as port, opened() as upstream:
        runner = web.ServerRunner(web.Server(named("three"), access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.3", port).start()
        for last, name in ((2, "two"), (3, "three"), (2, "two")):
            received = await send(upstream, model(f"http://{NAME}:{port}", connect_to=((f"127.0.0.{last}",),)))
            assert received.body.read().decode() == name
        await runner.cleanup()


async def test_the_next_address_is_used_when_one_refuses() -> None:
    async with at("127.0.0.2", answer_unary) as port, opened() as upstream:
        to = model(f"http://{NAME}:{port}", attempts=1, connect_to=(("127.0.0.9", "::1", "127.0.0.2"),))
        received = await send(upstream, to)
        assert (received.status, received.attempts) == (200, 1)
        with pytest.raises(UpstreamError) as error:
            await send(upstream, model(f"http://{NAME}:{port}", attempts=1, connect_to=(("127.0.0.9", "::1"),)))
        assert error.value.error is CallError.REFUSED


async def test_every_endpoint_has_addresses_of_its_own() -> None:
    async with at("127.0.0.2", answer_unary) as first, at("127.0.0.3", answer_unary) as second, opened() as upstream:
        to = model(
            f"http://{NAME}:{first}",
            replicas=(f"http://other.example:{second}",),
            connect_to=(("127.0.0.2",), ("127.0.0.3",)),
        )
        held = upstream.pool(to)
        answered = {(await send(upstream, to)).upstream for _ in range(2)}
        assert upstream.pool(to) is held
        assert answered == {f"http://{NAME}:{first}{PATH}", f"http://other.example:{second}{PATH}"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    followed: list[str] = []

    async def elsewhere(request: web.BaseRequest) -> web.StreamResponse:
        followed.append(request.path)
        return await answer_unary(request)

    async with at("127.0.0.3", elsewhere) as port:

        async def redirect(request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": f"http://127.0.0.3:{port}{PATH}"})

        async with serving(redirect) as url, session_for(url) as world, world.post(allow_redirects=False) as reply:
            assert reply.status >= 300
            await reply.read()
            assert "Location" not in reply.headers
    assert followed == []


async def test_the_certificate_must_be_that_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, client = make_tls(tmp_path, NAME)
    asked_for: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", client)
    async with at("127.0.0.2", answer_unary, server) as port, opened() as upstream:
        right = await send(upstream, model(f"https://{NAME}:{port}", attempts=1, connect_to=(("127.0.0.2",),)))
        assert right.status == 200
        for wrong in ("other.example", "127.0.0.2"):
            with pytest.raises(UpstreamError):
                await send(upstream, model(f"https://{wrong}:{port}", attempts=1, connect_to=(("127.0.0.2",),)))
    assert asked_for[:2] == [NAME, "other.example"]


async def test_a_model_with_fixed_addresses_is_forgotten_with_its_last_session() -> None:
    async with serving(answer_unary) as url, session_for(url) as world:
        port = int(url.rpartition(":")[2])
        brought = model(f"http://{NAME}:{port}", key="sk-of-a-client-0123456789", connect_to=(("127.0.0.1",),))
        upstream = world.gateway._upstream
        session = world.gateway.open_session("rollout-2", brought, world.records)
        pool = upstream.pool(brought)
        assert upstream.pool(model(f"http://{NAME}:{port}", key=brought.key, connect_to=brought.connect_to)) is pool
        await session.close()
        del session, pool
        gc.collect()
        assert [one.key for one in (*upstream._pools, *upstream._passing)] == [world.session.model.key]


def make_tls(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The TLS of a server with this name, and of a client that trusts its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cafile=str(file))
