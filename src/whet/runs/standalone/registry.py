"""The gateways that this user runs: where they listen and with which key, in files that nobody else can read.

A gateway keeps its file locked for as long as it lives, so a file that a killed one left behind is known by that.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from whet.errors import UserError
from whet.gateway.client_recipes import Address
from whet.gateway.model import Auth
from whet.paths import user_state

PATTERN = "gateway-*.json"


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """A gateway that takes calls."""

    url: str
    port: int
    secret: str
    model: str
    """What the model is called in requests."""
    auth: Auth
    """Whose credentials calls carry. Where they are the client's own, the secret is part of the address."""

    @property
    def address(self) -> Address:
        """What clients are given."""
        own = self.auth == "own"
        url = f"{self.url}/s/{self.secret}" if own else self.url
        return Address(url, None if own else self.secret, self.model)


@contextmanager
def announce(gateway: RunningGateway, env: Mapping[str, str]) -> Iterator[None]:
    """Let other programs of this user find the gateway, for as long as this lasts."""
    folder = user_state(env)
    path = folder / f"gateway-{gateway.port}.json"
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}; name another place: XDG_STATE_HOME") from error
    with os.fdopen(file, "w") as out:
        fcntl.flock(out, fcntl.LOCK_EX)
        json.dump(asdict(gateway), out)
        out.flush()
        draft.replace(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def running(env: Mapping[str, str]) -> list[RunningGateway]:
    """The gateways that take calls now."""
    files = sorted(user_state(env).glob(PATTERN))
    return [gateway for file in files if (gateway := _read(file)) is not None]


def find(port: int | None, env: Mapping[str, str]) -> RunningGateway:
    """The gateway at this port, or the only one. UserError when there is none, or no telling which."""
    gateways = running(env)
    found = [gateway for gateway in gateways if port in {None, gateway.port}]
    if len(found) == 1:
        return found[0]
    if not gateways:
        raise UserError("no gateway runs; start one in another terminal: whet gateway --model NAME")
    ports = ", ".join(str(gateway.port) for gateway in gateways)
    given = "several gateways run; name one with `port`" if port is None else f"`port` is {port}; no gateway runs there"
    raise UserError(f"{given} (running: {ports})")


def _read(path: Path) -> RunningGateway | None:
    """What the file says; None when its gateway is gone."""
    try:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return RunningGateway(**json.load(file))
    except FileNotFoundError:  # it ends just now
        pass
    return None
