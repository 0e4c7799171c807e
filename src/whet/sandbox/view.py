"""What the commands of one party in a box see, and how folders change owner between parties."""

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = "/run/programs"
"""Where a box with its own root shows programs of the host."""


@dataclass(frozen=True, slots=True)
class View:
    """The user of commands, and the host folders that they see, by path."""

    user: int | None
    """User id of the host; None is the user of whet."""
    home: str
    tmp: str
    places: dict[str, Path]
    """Paths as commands see them -> writable host folders."""
    shown: dict[str, Path] = field(default_factory=dict)
    """Paths as commands see them -> read-only host folders and files."""
    protected: set[str] = field(default_factory=set)
    """Those of `places` that are not writable after all."""
    env: dict[str, str] = field(default_factory=dict)
    """Variables of every command."""
    ends_first: bool = False
    """When memory runs out, the kernel kills its processes before those of the others."""
    programs: list[str] = field(default_factory=list)
    """Program folders at the beginning of PATH, in order."""

    def sees(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{place}/") for place in (*self.places, *self.shown))


def hand_over(folders: Iterable[Path], user: int | None) -> None:
    """Give folders and their contents to a user, with access. No process of another user may be left."""
    for folder in folders:
        if folder.is_symlink() or not folder.is_dir():  # a command of a local box may have removed it
            folder.unlink(missing_ok=True)
            folder.mkdir()
        # chown, because a program can nest folders deeper than any path reaches. Links are changed, not followed.
        if user is not None:
            owner = f"{user}:{user}"
            argv = ["chown", "-R", "-h", "-P", owner, "--", str(folder)]
            subprocess.run(argv, stderr=subprocess.DEVNULL, check=False)
        mode = folder.stat().st_mode & 0o7777
        if mode & 0o700 != 0o700:
            folder.chmod(mode | 0o700)


def remove_links(folder: Path) -> None:
    """Remove entries that are neither files nor folders, so that later writes do not follow a link."""
    argv = ["find", str(folder), "-mindepth", "1", "!", "-type", "f", "!", "-type", "d", "-delete"]
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def names_in(folder: Path) -> tuple[str, ...]:
    """The names in a folder whose permissions the agent may have removed; the own name of one that it replaced."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return (folder.name,)
    if not folder.exists():
        return ()
    folder.chmod(0o755)
    return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - names, not paths
