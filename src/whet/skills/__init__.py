"""Skills: their documents and edits, the search for better ones, and the exam that proves them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.skills.attempt import Lost, Verdict
    from whet.skills.public_exam import Exam, Spent

__all__ = ["Exam", "Lost", "Spent", "Verdict"]

_HOMES = {"Exam": "public_exam", "Spent": "public_exam", "Lost": "attempt", "Verdict": "attempt"}


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: the command line must not wait for SciPy.
    if name in _HOMES:
        return getattr(import_module(f"whet.skills.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'whet.skills' has no attribute '{name}'")
