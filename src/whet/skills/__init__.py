"""Skills: their documents and edits, the search for better ones, and the exam that proves them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.scoring import Cause
    from whet.skills.attempt import Verdict
    from whet.skills.public_exam import Exam, Spent

__all__ = ["Cause", "Exam", "Spent", "Verdict"]

_HOMES = {
    "Cause": "whet.scoring",
    "Exam": "whet.skills.public_exam",
    "Spent": "whet.skills.public_exam",
    "Verdict": "whet.skills.attempt",
}


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: the command line must not wait for SciPy.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'whet.skills' has no attribute '{name}'")
