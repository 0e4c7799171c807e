"""Which addresses a client may make the server call: the operator's list, and DNS that is asked once.

`AddressRules.check` is the one way in. What it returns holds the addresses that the gateway connects to, so that a name
cannot point elsewhere after it was checked.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Literal

from whet.errors import UserError
from whet.gateway import Model
from whet.serve.problems import Code, Refused

RESOLVE_SEC = 10.0
RESOLVE_AGAIN_SEC = 0.5
MOST_ADDRESSES = 8
"""Addresses of a name that are used: the first ones."""
_NAT64 = IPv6Network("64:ff9b::/96")
"""IPv6 addresses with an IPv4 address in their last 32 bits, to which a translator forwards."""
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
"""A host whose last part is a number. Resolvers read many forms as IPv4 addresses: 127.1, 0x7f000001, 017700000001."""
_HOST = r"\[[0-9a-f:.]+\]|[^\[\]:/?#@]+"
_REST = r"[/?][!$&-;=?-Z_a-z~%]*"
_URL = re.compile(rf"(https?)://({_HOST})(?::([0-9]{{1,5}}))?({_REST})?", re.IGNORECASE | re.ASCII)
_BARE_IPV6 = r"[0-9a-f.]*:[0-9a-f.]*:[0-9a-f:.]*"
_ENTRY = re.compile(rf"({_HOST}|{_BARE_IPV6})(/[0-9]{{1,3}})?(?::([0-9]{{1,5}}|\*))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Port = int | Literal["any", "of-scheme"]
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a name, as text."""


@dataclass(frozen=True, slots=True)
class PinnedAddress:
    """An address that was checked, and where to connect to for it."""

    url: str
    """In its normal form."""
    addresses: tuple[str, ...]
    """IP addresses, in the order of preference."""


def place_model(model: Model, at: Sequence[PinnedAddress]) -> Model:
    """The model at these addresses. Calls connect to the IP addresses that were checked, without asking DNS again."""
    first, *others = at
    return replace(
        model, url=first.url, replicas=tuple(one.url for one in others), connect_to=tuple(one.addresses for one in at)
    )


@dataclass(frozen=True, slots=True)
class _Rule:
    """One entry of the list."""

    host: str | Network | None
    """A name, `*.domain`, or a network; None: any public address."""
    port: Port

    def allows_port(self, port: int, scheme: str) -> bool:
        return self.port in {"any", port} or (self.port == "of-scheme" and port == _DEFAULT_PORTS[scheme])

    def allows_name(self, name: str) -> bool:
        if self.host is None:
            return True
        if not isinstance(self.host, str):
            return False
        return name.endswith(self.host[1:]) if self.host.startswith("*.") else name == self.host

    def lists(self, address: Address) -> bool:
        """Whether the entry is this address, or a network with it."""
        return isinstance(self.host, IPv4Network | IPv6Network) and address in self.host

    def allows_address(self, address: Address) -> bool:
        return _is_public(address) if self.host is None else self.lists(address)


class AddressRules:
    """The operator's list. Nothing is allowed that is not on it.

    >>> rules = AddressRules(["api.example.com", "10.0.0.5:8000"])
    >>> asyncio.run(rules.check("http://10.0.0.5:8000/v1"))
    PinnedAddress(url='http://10.0.0.5:8000/v1', addresses=('10.0.0.5',))
    """

    def __init__(self, entries: Iterable[str], own: Iterable[str] = (), resolve: Resolve | None = None) -> None:
        """Entries are HOST, HOST:PORT, HOST:*, *.DOMAIN, an IP address or network, or * for every public address.

        Without a port, a host is allowed on the port of the scheme, and a network on all ports. `own` are addresses
        that the operator configured for clients: their hosts are allowed as they are, also in private networks.
        """
        self._rules = [rule for entry in entries for rule in _read_entry(entry)]
        self._own = {place for url in own if (place := _find_place(url)) is not None}
        self._resolve = resolve or _ask_dns

    async def check(self, url: str) -> PinnedAddress:
        """The address in its normal form, with the IP addresses to connect to. Refused when it is not allowed."""
        scheme, host, port, rest = _split(url)
        is_own = (scheme, host, port) in self._own
        rules = [rule for rule in self._rules if rule.allows_port(port, scheme)]
        shown = f"[{host}]" if isinstance(host, IPv6Address) else str(host)
        normal = f"{scheme}://{shown}{'' if port == _DEFAULT_PORTS[scheme] else f':{port}'}{rest}"
        if not isinstance(host, str):
            if not is_own and not any(rule.allows_address(host) for rule in rules):
                raise _not_allowed(shown, port)
            return PinnedAddress(normal, (str(host),))
        if not is_own and not any(rule.allows_name(host) for rule in rules):
            raise _not_allowed(host, port)
        found = await self._look_up(host, port)
        if not is_own and not all(_is_public(one) or any(rule.lists(one) for rule in rules) for one in found):
            # The address itself is not shown: it may be of a network that the caller cannot see.
            raise Refused(
                Code.FORBIDDEN,
                f"'{host}' is in a private or reserved network; the operator of this server must allow its address too",
            )
        return PinnedAddress(normal, tuple(dict.fromkeys(map(str, found)))[:MOST_ADDRESSES])

    async def _look_up(self, host: str, port: int) -> list[Address]:
        try:
            async with asyncio.timeout(RESOLVE_SEC):
                found = [_without_mapping(ip_address(one)) for one in await self._resolve_soon(host, port)]
        except (OSError, TimeoutError, UnicodeError, ValueError):
            found = []
        if not found:
            raise Refused(Code.INVALID, f"'{host}' has no address: its name cannot be resolved")
        return found

    async def _resolve_soon(self, host: str, port: int) -> list[str]:
        """The addresses of a name, also when DNS has no answer at first."""
        while True:
            try:
                return await self._resolve(host, port)
            except socket.gaierror as error:
                if error.errno != socket.EAI_AGAIN:
                    raise
            await asyncio.sleep(RESOLVE_AGAIN_SEC)


def _find_place(url: str) -> tuple[str, str | Address, int] | None:
    """Scheme, host and port. None for what clients could not name."""
    try:
        return _split(url)[:3]
    except Refused:
        return None


def _not_allowed(host: str, port: int) -> Refused:
    return Refused(Code.FORBIDDEN, f"'{host}:{port}' is not allowed; the operator of this server must allow it")


def _split(url: str) -> tuple[str, str | Address, int, str]:
    """Scheme, host, port, and the rest of an address. Whatever another reader could read differently is refused."""
    match = _URL.fullmatch(url)
    if match is None:
        raise _bad_address("expected http://HOST[:PORT][/PATH] in ASCII, without user name, password or fragment")
    scheme = match[1].lower()
    try:
        port = _read_port(match[3]) if match[3] else _DEFAULT_PORTS[scheme]
        return scheme, _read_host(match[2]), port, match[4] or ""
    except ValueError as error:
        raise _bad_address(str(error)) from None


def _bad_address(expected: str) -> Refused:
    return Refused(Code.INVALID, f"not an address of a model; {expected}")


def _read_port(text: str) -> int:
    if not 0 < int(text) < 65536:
        raise ValueError("expected a port from 1 to 65535")
    return int(text)


def _read_host(text: str) -> str | Address:
    """A host name in its normal form, or an address. ValueError says what was expected."""
    if not text.isascii():
        raise ValueError("expected a host name in ASCII; an international one begins with xn--")
    text = text.lower().removesuffix(".")
    if text.startswith("["):
        try:
            return _without_mapping(IPv6Address(text[1:-1]))
        except ValueError:
            raise ValueError("expected an IPv6 address between the brackets") from None
    if _NUMBER.fullmatch(text):
        try:
            return IPv4Address(text)
        except ValueError:
            raise ValueError("expected an IPv4 address as four decimal numbers") from None
    if not _NAME.fullmatch(text):
        raise ValueError("expected a host name of letters, digits, '-' and '.'")
    return text


def _without_mapping(address: Address) -> Address:
    """An IPv6 address that stands for an IPv4 address, as that one: the system connects to it."""
    return getattr(address, "ipv4_mapped", None) or address


def _is_public(address: Address) -> bool:
    """Whether everyone on the internet may reach this address."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return _is_public(IPv4Address(int(address) & 0xFFFFFFFF))
        if address.sixtofour is not None or address.teredo is not None or address.is_site_local:
            return False
    return address.is_global and not (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )


def _read_entry(entry: str) -> list[_Rule]:
    match = _ENTRY.fullmatch(entry.strip().lower())
    if match is None:
        raise _bad_entry(entry, "expected HOST, HOST:PORT, HOST:*, *.DOMAIN, or a network such as 10.0.0.0/8")
    text, prefix, port_text = match.groups()
    port: Port = "any" if port_text == "*" or prefix or text == "*" else "of-scheme"
    try:
        if port_text not in {None, "*"}:
            port = _read_port(port_text)
        return [_Rule(host, port) for host in _read_entry_hosts(text, prefix)]
    except ValueError as error:
        raise _bad_entry(entry, str(error)) from None


def _read_entry_hosts(text: str, prefix: str | None) -> list[str | Network | None]:
    if text == "*" and not prefix:
        return [None]
    wildcard = text.startswith("*.")
    host = _read_host(text[2:] if wildcard else f"[{text}]" if ":" in text and text[0] != "[" else text)
    if not isinstance(host, str):
        if wildcard:
            raise ValueError("expected a domain after '*.'")
        return [ip_network(f"{host}{prefix or ''}")]
    if prefix:
        raise ValueError("expected an IP address before '/'")
    if host == "localhost":
        return [host, ip_network("127.0.0.1"), ip_network("::1")]
    return [f"*.{host}" if wildcard else host]


def _bad_entry(entry: str, expected: str) -> UserError:
    return UserError(f"`allow` has '{entry}'; {expected}")


async def _ask_dns(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(where[0]) for *_, where in found]
