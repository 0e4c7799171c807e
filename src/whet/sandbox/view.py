"""What the commands of one party in a box meet, and how folders go from one party to another."""

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = "/run/programs"
"""Where a box with a root of its own shows programs of the host."""


@dataclass(frozen=True, slots=True)
class View:
    """As whom commands run, and which folders of the host they see at which paths."""

    user: int | None
    """User id of the host, or None for our own."""
    home: str
    tmp: str
    places: dict[str, Path]
    """Paths as commands see them -> folders that they can write."""
    shown: dict[str, Path] = field(default_factory=dict)
    """Paths as commands see them -> what they can only read."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables of every command."""
    ends_first: bool = False
    """When memory runs out, the kernel ends its processes before those of the others."""
    programs: list[str] = field(default_factory=list)
    """Folders of programs that are found before all others, in the order of their finding."""

    def sees(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{place}/") for place in (*self.places, *self.shown))


def hand_over(folders: Iterable[Path], user: int | None) -> None:
    """Give folders with all that is in them to a user, and open them to it. No process of another user may be left."""
    for folder in folders:
        if folder.is_symlink() or not folder.is_dir():  # a command of a local box can have removed it
            folder.unlink(missing_ok=True)
            folder.mkdir()
        # chown, because a program can nest folders deeper than any path reaches. Links are given, not followed.
        if user is not None:
            owner = f"{user}:{user}"
            argv = ["chown", "-R", "-h", "-P", owner, "--", str(folder)]
            subprocess.run(argv, stderr=subprocess.DEVNULL, check=False)
        mode = folder.stat().st_mode & 0o7777
        if mode & 0o700 != 0o700:
            folder.chmod(mode | 0o700)


def remove_links(folder: Path) -> None:
    """Remove what is neither a file nor a folder: whoever writes under a known name must not write through a link."""
    argv = ["find", str(folder), "-mindepth", "1", "!", "-type", "f", "!", "-type", "d", "-delete"]
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def names_in(folder: Path) -> tuple[str, ...]:
    """The names in a folder that the agent may have closed, or replaced by something else, which is named itself."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return (folder.name,)
    if not folder.exists():
        return ()
    folder.chmod(0o755)
    return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - names, not paths
