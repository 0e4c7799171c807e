"""whet runs real coding agents on tasks, records every model call, scores the work and sharpens their skills.

What is named here is the public API; nothing else is.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whet.errors import UserError
    from whet.exchange import Exchange
    from whet.rollout import Result
    from whet.runs.config import Config, read_config
    from whet.runs.run import Request, Started, run
    from whet.runs.scheduler import Ended
    from whet.runs.store import Store
    from whet.runs.summary import tally
    from whet.scoring import Cause, Score
    from whet.skill import Skill, read_skill
    from whet.tasks import Limits, Task, read_tasks

__version__ = "0.1.0"

__all__ = [
    "Cause",
    "Config",
    "Ended",
    "Exchange",
    "Limits",
    "Request",
    "Result",
    "Score",
    "Skill",
    "Started",
    "Store",
    "Task",
    "UserError",
    "__version__",
    "read_config",
    "read_skill",
    "read_tasks",
    "run",
    "tally",
]

_HOMES = (
    "whet.errors",
    "whet.exchange",
    "whet.tasks",
    "whet.skill",
    "whet.scoring",
    "whet.rollout",
    "whet.runs.config",
    "whet.runs.run",
    "whet.runs.scheduler",
    "whet.runs.store",
    "whet.runs.summary",
)


def __getattr__(name: str) -> Any:
    # Loaded when first asked for: `whet --version` must not wait for SciPy.
    if name in __all__:
        for home in _HOMES:
            module = import_module(home)
            if name in vars(module):
                return vars(module)[name]
    raise AttributeError(f"module 'whet' has no attribute '{name}'")
