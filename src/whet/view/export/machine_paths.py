"""Leave out where files lie on the machine that exports. Paths that agents saw in their boxes stay: they are evidence.

Only folders that whet itself names are replaced, and only long ones: `/root` or `/tmp` may be an agent's own words.
"""

from collections.abc import Iterator
from html import escape
from pathlib import Path

from whet.errors import UserError
from whet.view.library import Library

_LEAST_PARTS = 3
"""Of a folder that tells something about the machine, its root included: `/home/ana`."""


class MachinePaths:
    """The folders of this machine that pages would name, and what stands for each."""

    def __init__(self, library: Library) -> None:
        found = {path: name for path, name in _find(library) if _is_telling(path)}
        # The longest first, because a folder can be inside another one.
        ordered = sorted(found.items(), key=lambda one: len(str(one[0])), reverse=True)
        self._names = [(form, name) for path, name in ordered for form in dict.fromkeys((str(path), escape(str(path))))]

    def hide(self, html: str) -> str:
        """A page without them."""
        for path, name in self._names:
            if path in html:
                html = html.replace(f"{path}/", f"{name}/" if name else "").replace(path, name or ".")
        return html


def _is_telling(path: Path) -> bool:
    return path.is_absolute() and len(path.parts) >= _LEAST_PARTS


def _find(library: Library) -> Iterator[tuple[Path, str]]:
    for entry in library.entries():
        for folder in (entry.path.absolute(), entry.path.resolve()):
            yield folder, entry.name
        for name in entry.stores:
            for task in _task_files(library, name):
                yield task.parent, ""
    for folder in (*library.roots, Path.cwd()):
        yield folder.absolute(), ""
    yield Path.home(), "~"


def _task_files(library: Library, name: str) -> Iterator[Path]:
    try:
        yield from map(Path, library.count(name).facts.tasks)
    except UserError:  # it cannot be read, so no page names its tasks
        return
