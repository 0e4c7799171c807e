"""Folders of sessions: the repository that one is in, and patterns that name some of them."""

import fnmatch
import os
from pathlib import Path


def matches(folder: Path, pattern: str, base: Path | None = None) -> bool:
    """Whether a folder, or one above it, has this path or name, or matches this pattern of it.

    A relative path starts at `base`, or else in the working directory.

    >>> matches(Path("/home/me/apps/shop"), "/home/me/apps/*"), matches(Path("/home/me/shop/src"), "sh?p")
    (True, True)
    >>> matches(Path("/home/me/shop2"), "/home/me/shop")
    False
    """
    by_name = "/" not in pattern and not pattern.startswith(("~", "."))
    if by_name:
        return any(fnmatch.fnmatchcase(name, pattern) for name in folder.parts)
    wanted = os.path.normpath((base or Path.cwd()) / Path(pattern).expanduser())
    return any(fnmatch.fnmatchcase(str(one), wanted) for one in (folder, *folder.parents))


def find_repository(cwd: str | None) -> Path | None:
    """The git repository that a folder is in, as far as it is still there."""
    if not cwd or not Path(cwd).is_absolute():
        return None
    return next((folder for folder in (Path(cwd), *Path(cwd).parents) if os.path.lexists(folder / ".git")), None)
