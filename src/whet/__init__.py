"""whet runs real coding agents on tasks, records every model call, scores the work and sharpens their skills.

What is named here is the public API; nothing else is.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whet.version import __version__

if TYPE_CHECKING:
    from whet.api import run, sharpen, transfer
    from whet.errors import UserError
    from whet.exchange import Exchange
    from whet.gateway import Limits
    from whet.rollout.result import Result
    from whet.runs.config import Config, read_config
    from whet.runs.stats.compare import Comparison, compare_arms, compare_runs
    from whet.runs.stored_run import StoredRollout, StoredRun, load
    from whet.scoring import Cause, Score
    from whet.skill import Skill, read_skill
    from whet.tasks import Task, read_tasks
    from whet.trace.conversations.graph import Graph

__all__ = [
    "Cause",
    "Comparison",
    "Config",
    "Exchange",
    "Graph",
    "Limits",
    "Result",
    "Score",
    "Skill",
    "StoredRollout",
    "StoredRun",
    "Task",
    "UserError",
    "__version__",
    "compare_arms",
    "compare_runs",
    "load",
    "read_config",
    "read_skill",
    "read_tasks",
    "run",
    "sharpen",
    "transfer",
]

_HOMES = {
    "whet.api": {"run", "sharpen", "transfer"},
    "whet.errors": {"UserError"},
    "whet.exchange": {"Exchange"},
    "whet.gateway": {"Limits"},
    "whet.rollout.result": {"Result"},
    "whet.runs.stats.compare": {"Comparison", "compare_arms", "compare_runs"},
    "whet.runs.config": {"Config", "read_config"},
    "whet.runs.stored_run": {"StoredRollout", "StoredRun", "load"},
    "whet.scoring": {"Cause", "Score"},
    "whet.skill": {"Skill", "read_skill"},
    "whet.tasks": {"Task", "read_tasks"},
    "whet.trace.conversations.graph": {"Graph"},
}


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: `whet --version` must not wait for SciPy.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'whet' has no attribute '{name}'")
