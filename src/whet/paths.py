"""The folders that whet keeps between runs, the lock that lets one process at a time write to one of them, and writing
a file in one step."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path


def install_folder(kind: str) -> Path:
    """The folder of everything installed of one kind, such as `agents`; the variable WHET_AGENTS overrides it."""
    if chosen := os.environ.get(f"WHET_{kind.upper()}"):
        return Path(chosen).absolute()
    if os.getuid() == 0:
        # Not below root's home: boxes that root opens run as another user, who cannot enter it.
        return Path("/var/cache/whet", kind)
    return user_cache(os.environ) / kind


def user_cache(env: Mapping[str, str]) -> Path:
    """The user's cache folder.

    >>> str(user_cache({"XDG_CACHE_HOME": "/var/cache/me"}))
    '/var/cache/me/whet'
    """
    return _user_folder(env, "XDG_CACHE_HOME", Path.home() / ".cache")


def user_state(env: Mapping[str, str]) -> Path:
    """The folder of what whet must remember for this user.

    >>> str(user_state({"XDG_STATE_HOME": "/var/state/me"}))
    '/var/state/me/whet'
    """
    return _user_folder(env, "XDG_STATE_HOME", Path.home() / ".local" / "state")


def user_data(env: Mapping[str, str]) -> Path:
    """The folder of what whet keeps for this user.

    >>> str(user_data({"XDG_DATA_HOME": "/home/me/data"}))
    '/home/me/data/whet'
    """
    return _user_folder(env, "XDG_DATA_HOME", Path.home() / ".local" / "share")


def user_config(env: Mapping[str, str]) -> Path:
    """The folder of the user's settings.

    >>> str(user_config({"XDG_CONFIG_HOME": "/home/me/etc"}))
    '/home/me/etc/whet'
    """
    return _user_folder(env, "XDG_CONFIG_HOME", Path.home() / ".config")


def _user_folder(env: Mapping[str, str], variable: str, default: Path) -> Path:
    # The XDG specification says to ignore a relative path.
    named = Path(env.get(variable, ""))
    return (named if named.is_absolute() else default) / "whet"


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder's lock. It blocks until no other process holds it."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_atomic(file: Path, content: str | bytes) -> None:
    """Write a file in one step: a process that is killed leaves the old content or the new."""
    part = file.with_suffix(".part")
    part.write_bytes(content.encode() if isinstance(content, str) else content)
    part.replace(file)
