"""How many proposals of `whet sleep` wait for a decision: counted again only when its store has changed."""

import os
import threading

from whet.errors import UserError
from whet.sleep.store import FILE, sleep_folder
from whet.view.library import read_file_stamp
from whet.view.page import View
from whet.view.pages.inbox import count_waiting
from whet.view.snapshot import Stamp


class Waiting:
    """The number of proposals. Safe to use from several threads."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._file = (view.options.sleep_store or sleep_folder(os.environ)) / FILE
        self._lock = threading.Lock()
        self._counted: tuple[Stamp, int] | None = None

    def count(self) -> int:
        """How many wait now. 0 when the store cannot be read: the inbox says why."""
        with self._lock:
            stamp = tuple(read_file_stamp(self._file.with_name(FILE + suffix)) for suffix in ("", "-wal"))
            if self._counted is None or self._counted[0] != stamp:
                try:
                    found = count_waiting(self._view)
                except UserError:
                    found = 0
                self._counted = stamp, found
            return self._counted[1]
