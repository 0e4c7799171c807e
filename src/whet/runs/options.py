"""What to run, as a user names it: one options model that the command line and the Python API both build."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from whet.gateway import Limits
from whet.runs.reply_cache import CacheUse
from whet.sandbox import DEFAULT


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What to run, as a user names it."""

    tasks: Path
    out: Path
    agents: tuple[str, ...]
    models: tuple[str, ...]
    skills: tuple[Path | None, ...] = (None,)
    samples: int = 1
    concurrency: int = 4
    sandbox: str = DEFAULT
    resume: bool = False
    cache: str = CacheUse.OFF
    capture: bool = True
    """Whether agents call the models through the gateway, or, unseen, what they are logged in to."""
    home: Literal["fresh", "own"] | None = None
    """What settings agents start with; None is as they are declared."""
    judge_model: str | None = None
    """Which model judges ask, where a task names none."""
    limits: Limits = field(default_factory=Limits)
    """Of the whole run. What is None here is as whet.toml says."""
