"""The sandboxes: `bubblewrap`, and `local`, which isolates nothing.

Read `whet/box.py` first: the interface of both. `hostbox.py` is their common base.
"""

from whet.box import Sandbox
from whet.errors import UserError, did_you_mean
from whet.sandbox.bubblewrap.sandbox import Bubblewrap
from whet.sandbox.disk.folder import remove_stale
from whet.sandbox.local import Local

DEFAULT = "bubblewrap"

__all__ = ["DEFAULT", "remove_stale", "sandbox_named"]


def sandbox_named(name: str) -> Sandbox:
    """The sandbox of this name.

    >>> sandbox_named("bubblewrap").own_root
    True
    """
    kinds: dict[str, type[Bubblewrap | Local]] = {"bubblewrap": Bubblewrap, "local": Local}
    if name not in kinds:
        raise UserError(f"unknown sandbox '{name}'; {did_you_mean(name, kinds)}")
    return kinds[name]()
