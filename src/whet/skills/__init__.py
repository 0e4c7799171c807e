"""Skills: their documents and edits, the search for better ones, and the exam that proves them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.scoring import Cause
    from whet.skills.gate.standalone import BudgetSpent, Exam
    from whet.skills.measurement import Verdict

__all__ = ["BudgetSpent", "Cause", "Exam", "Verdict"]

_HOMES = {
    "Cause": "whet.scoring",
    "Exam": "whet.skills.gate.standalone",
    "BudgetSpent": "whet.skills.gate.standalone",
    "Verdict": "whet.skills.gate.sequential_test",
}


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: the command line must not wait for SciPy.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'whet.skills' has no attribute '{name}'")
