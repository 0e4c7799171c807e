"""Counts what the processes of a box do on its network, as the kernel counts it in the box's own namespace."""

import fcntl
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from whet.gateway import Session
from whet.sandbox.bubblewrap import sandbox

SIOCGSKNS = 0x894C
"""Asks a socket for its network namespace; linux/sockios.h."""
NS_GET_USERNS = 0xB701
"""Asks a namespace for the user namespace that owns it; linux/nsfs.h."""


class _Listener(socket.socket):
    """A listening socket that counts what it accepts."""

    accepted = 0

    def accept(self) -> tuple[socket.socket, Any]:
        pair = super().accept()
        self.accepted += 1
        return pair


@dataclass(frozen=True)
class Traffic:
    """What all processes of one namespace did while it existed."""

    to_model_port: int
    """Connections that the gateway accepted at the model port."""
    connections: int
    """TCP connections that were begun, wherever to."""
    datagrams: int
    """UDP datagrams that were sent. A look-up of a name is one."""
    without_route: int
    """What was to go to an address to which there is no way out of the box."""


class Watch:
    """The namespaces of the boxes that were opened while it was on."""

    def __init__(self) -> None:
        self._watched: list[tuple[int, _Listener]] = []

    def take(self, sock: socket.socket) -> socket.socket:
        """Hold the namespace of a model port: it lasts until it is let go, though its processes have ended."""
        listener = _Listener(fileno=sock.detach())
        self._watched.append((fcntl.ioctl(listener, SIOCGSKNS), listener))
        return listener

    def traffic(self) -> list[Traffic]:
        """What was done in each namespace, in the order in which they began."""
        return [_traffic(namespace, listener.accepted) for namespace, listener in self._watched]

    def let_go(self) -> None:
        for namespace, _ in self._watched:
            os.close(namespace)


@contextmanager
def watched_networks() -> Iterator[Watch]:
    """Watch the networks of all boxes that are opened from now on."""
    watch, serve = Watch(), Session.serve

    async def serve_watched(session: Session, sock: socket.socket) -> None:
        await serve(session, watch.take(sock))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "serve", serve_watched)
        # A box knows no names but its own, so that a look-up would go unseen. This one asks for them, at port 53 of
        # its loopback, where nobody answers.
        patch.setitem(sandbox.ETC, "nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
        try:
            yield watch
        finally:
            watch.let_go()


def _traffic(namespace: int, accepted: int) -> Traffic:
    counted = _counters(namespace)
    return Traffic(
        to_model_port=accepted,
        connections=counted["TcpActiveOpens"],
        datagrams=counted["UdpOutDatagrams"] + counted["Udp6OutDatagrams"],
        without_route=counted["IpOutNoRoutes"] + counted["Ip6OutNoRoutes"],
    )


def _counters(namespace: int) -> dict[str, int]:
    """The kernel's counters of a namespace, by their names."""
    owner = fcntl.ioctl(namespace, NS_GET_USERNS)
    try:
        enter = [
            "nsenter",
            "--preserve-credentials",
            f"--user=/proc/self/fd/{owner}",
            f"--net=/proc/self/fd/{namespace}",
        ]
        told = subprocess.run(
            [*enter, "cat", "/proc/net/snmp", "/proc/net/snmp6"],
            pass_fds=(owner, namespace),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    finally:
        os.close(owner)
    rows = [line.split() for line in told.splitlines()]
    tables = [row for row in rows if row[0].endswith(":")]
    of_both = {
        head[0][:-1] + name: int(value)
        for head, values in zip(tables[::2], tables[1::2], strict=True)
        for name, value in zip(head[1:], values[1:], strict=True)
    }
    return of_both | {row[0]: int(row[1]) for row in rows if len(row) == 2}
