"""HTTP to models: sends a call to an endpoint of its model, and to another one when that fails.

It uses aiohttp's connections without aiohttp's request and response objects, which cost more than all else that is
done for a short call. `test_upstream_client.py` fails when a new aiohttp no longer works like that.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_writer import StreamWriter
from multidict import CIMultiDict

from whet.errors import UserError
from whet.exchange import CallError
from whet.gateway.model import Model, address_at
from whet.gateway.upstream.address import UpstreamAddress
from whet.gateway.upstream.azure import AzureLogin
from whet.gateway.upstream.parameter_fixes import Repair
from whet.gateway.upstream.pool import RETRIED, EndpointPool, PoolEndpoint, retry_delay
from whet.gateway.upstream.reply import IncomingReply, ReceivedReply, UpstreamError

ONE_WRITE = 1 << 20
"""Bytes that are given to a connection at once. A longer body is written while the reply is awaited."""


@dataclass(slots=True, eq=False)
class OutgoingCall:
    """A call as it is sent to a model."""

    model: Model
    path: str
    headers: Mapping[str, str]
    body: bytes
    affinity: str = ""
    """Calls of the same affinity go to the same endpoint as long as it is healthy."""
    in_one_piece: bool = False
    """Whether the reply is not streamed, so that its first byte comes when all of it is written."""


class Upstream:
    """The connections to all models, shared by all sessions."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # Cookies would tie sessions together; the number of connections is limited per endpoint instead.
        self._connector = aiohttp.TCPConnector(limit=0)
        self._http = aiohttp.ClientSession(connector=self._connector, cookie_jar=aiohttp.DummyCookieJar())
        self._clock = clock
        self._pools: dict[Model, EndpointPool] = {}
        self._passing: WeakValueDictionary[Model, EndpointPool] = WeakValueDictionary()
        """Those of models that a client of `whet serve` brought along. Their keys must not outlive its rollouts."""
        self._azure = AzureLogin()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    def pool(self, model: Model) -> EndpointPool:
        """The endpoints of a model. Those with fixed IP addresses are forgotten when nobody holds them any more."""
        pools = self._passing if model.connect_to else self._pools
        if (pool := pools.get(model)) is None:
            pool = pools[model] = EndpointPool(model, self._clock)
        return pool

    async def send(
        self, call: OutgoingCall, received: ReceivedReply, check: Callable[[], None] = lambda: None
    ) -> IncomingReply:
        """Send a call, again if need be. The head of the reply is there when this returns; the caller closes it.

        UpstreamError when there is no reply. `check` is called each time that the call is about to be sent, and may
        raise.
        """
        model = call.model
        pool = self.pool(model)
        headers = await self._headers(call, received)
        repair = received.repair = Repair(pool.fixes[call.path], model, call.body)
        endpoint = pool.first(call.affinity)
        while True:
            await endpoint.slots.acquire()
            try:
                check()
                incoming = await self._attempt(call, endpoint, headers, received)
            except BaseException:
                endpoint.slots.release()
                raise
            if incoming is not None:
                incoming.accept_from(endpoint)
                try:
                    incoming.read_encoding()
                    if received.status != 400 or not await _learn_from_refusal(repair, incoming, received):
                        return incoming
                except BaseException as error:
                    incoming.__exit__(type(error), error, None)
                    raise
                incoming.close()
                received.forget()
                continue
            endpoint.slots.release()
            failed, endpoint = endpoint, pool.after(endpoint)
            if endpoint is failed or endpoint.rest_left_sec > 0:
                jitter = random.random()  # noqa: S311 - spreads retries, protects nothing
                await asyncio.sleep(retry_delay(received.attempts, model.backoff_sec, endpoint.retry_after, jitter))

    async def _attempt(
        self, call: OutgoingCall, endpoint: PoolEndpoint, headers: Mapping[str, str], received: ReceivedReply
    ) -> IncomingReply | None:
        """The answer of this endpoint. None when the call is to be sent again, UpstreamError when it is not."""
        model = call.model
        received.attempts += 1
        received.upstream = address_at(endpoint.url, call.path)
        last = received.attempts >= model.attempts
        try:
            incoming = await self._post(call, endpoint, headers, received)
        except UpstreamError as failure:
            endpoint.fail()
            received.unanswered += failure.error is CallError.TIMEOUT
            # A silence costs minutes, so a call bears no more of them than there are endpoints.
            elsewhere = failure.error is CallError.TIMEOUT and received.attempts < len(model.urls)
            if last or not (failure.error is CallError.REFUSED or elsewhere):
                raise
            return None
        if received.status not in RETRIED:
            endpoint.recover()
            return incoming
        endpoint.fail(next((value for name, value in received.headers if name.lower() == "retry-after"), None))
        if last:
            return incoming
        incoming.close()
        received.forget()
        return None

    async def _post(
        self, call: OutgoingCall, endpoint: PoolEndpoint, headers: Mapping[str, str], received: ReceivedReply
    ) -> IncomingReply:
        assert received.repair is not None
        body = received.repair.body
        try:
            address = self._address(endpoint, call.model, call.path)
            head = address.head(headers, len(body))
        except ValueError as error:
            raise UpstreamError(CallError.REFUSED) from error
        connection = await self._connect(address)
        incoming = IncomingReply(connection, call.model, received, in_one_piece=call.in_one_piece)
        try:
            protocol = connection.protocol
            assert protocol is not None
            protocol.set_response_params(read_until_eof=True, auto_decompress=False)  # here its memory is bounded
            if protocol.transport is None:
                raise UpstreamError(CallError.REFUSED)
            if len(body) <= ONE_WRITE:
                protocol.transport.writelines((head, body))
            else:
                protocol.transport.write(head)
                writer = StreamWriter(protocol, asyncio.get_running_loop())
                incoming.write_meanwhile(asyncio.create_task(_write(writer, body)))
            await incoming.read_head()
        except HttpProcessingError as error:
            incoming.close()
            raise UpstreamError(CallError.MALFORMED) from error
        except TimeoutError as error:
            incoming.close()
            raise UpstreamError(CallError.TIMEOUT) from error
        except (aiohttp.ClientError, OSError) as error:
            incoming.close()
            raise UpstreamError(CallError.REFUSED) from error
        except BaseException:
            incoming.close()
            raise
        return incoming

    def _address(self, endpoint: PoolEndpoint, model: Model, path: str) -> UpstreamAddress:
        known = endpoint.addresses.get(path)
        if known is None:
            known = UpstreamAddress(address_at(endpoint.url, path), self._http, model.connect_sec, endpoint.connect_to)
            endpoint.addresses[path] = known
        return known

    async def _connect(self, address: UpstreamAddress) -> Connection:
        """A connection to the first place of the address that accepts one."""
        *others, last = address.targets
        for target in others:
            with suppress(aiohttp.ClientError, TimeoutError, OSError):
                return await self._connector.connect(target, traces=[], timeout=address.timeout)
        try:
            return await self._connector.connect(last, traces=[], timeout=address.timeout)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UpstreamError(CallError.REFUSED) from error

    async def _headers(self, call: OutgoingCall, received: ReceivedReply) -> CIMultiDict[str]:
        """What is sent: the call's headers, the model's in place of them, and credentials of Azure."""
        model = call.model
        sent = CIMultiDict(call.headers)
        if model.headers:
            sent.update(model.headers)
        sent["Accept-Encoding"] = "identity"
        if "Accept" not in sent:
            sent["Accept"] = "*/*"
        if model.auth == "azure":
            sent.pop("Authorization", None)
            if model.key is not None:
                sent["api-key"] = model.key
            else:
                received.token = await self._azure_token()
                sent["Authorization"] = f"Bearer {received.token}"
        return sent

    async def _azure_token(self) -> str:
        try:
            return await self._azure.token()
        except UserError as error:
            raise UpstreamError(CallError.AUTH) from error


async def _write(writer: StreamWriter, body: bytes) -> None:
    """Write a long body piece by piece. Whoever reads the reply notices when the connection is lost."""
    try:
        for start in range(0, len(body), ONE_WRITE):
            await writer.write(body[start : start + ONE_WRITE])
    except (ConnectionError, aiohttp.ClientError):
        return


async def _learn_from_refusal(repair: Repair, incoming: IncomingReply, received: ReceivedReply) -> bool:
    """Whether the endpoint refuses one parameter, so that the call is to be sent again without it."""
    while await incoming.read():
        pass
    return repair.learn(received.body.read())
