"""The options of `whet serve`. Light, so that `--help` is quick."""

from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import Field

from whet.runs.config import Config
from whet.runs.options import RolloutOptions, RunOptions, SkillPath

DEFAULT_AGENT = "opencode"
"""The agent of requests that name none, if the operator names none either."""


class Mode(StrEnum):
    """What an OpenEnv client may do with the server."""

    SIMULATION = "simulation"
    """Also reset, step and state over plain HTTP."""
    PRODUCTION = "production"
    """Tools only."""


class ServeOptions(RolloutOptions):
    """What to serve, where, and to whom."""

    agents: tuple[str, ...] = ()
    """Agents that clients may name, the default first: a,b (default: all that are installed; the default one is that of
    whet.toml, else opencode)."""
    models: tuple[str, ...] = ()
    """Models of whet.toml that clients may name, the default first: a,b."""
    skills: tuple[SkillPath | None, ...] = ()
    """Skill folders that clients may name, the default first: a,b. 'none' in the first place: no skill unless a client
    names one."""
    out: Path = Path("served")
    """Folder of the server. A server that is started again on its folder continues it."""
    host: str = "127.0.0.1"
    """Address to listen on. Other than loopback needs tokens."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 picks a free one."""
    tokens: Path | None = None
    """TOML file with the bearer tokens of clients. A single one may be in the variable WHET_SERVE_TOKEN instead."""
    allow: tuple[str, ...] = ()
    """Hosts of models that clients may bring along: HOST, HOST:PORT, *.DOMAIN, a network such as 10.0.0.0/8, or * for
    every public address. Several: a,b (default: none)."""
    mode: Mode = Mode.SIMULATION
    """OpenEnv: simulation (reset, step and state also over plain HTTP), or production (tools only)."""
    queue: int = Field(default=10_000, ge=1)
    """Rollouts that may wait. Further requests are refused with 429."""
    max_sessions: int = Field(default=256, ge=1)
    """OpenEnv sessions that may be open at the same time."""
    session_idle_sec: float = Field(default=1800, gt=0)
    """Seconds after which an OpenEnv session without a call is closed."""
    done_after_rollout: bool = False
    """OpenEnv: report a step whose rollout has ended as the end of the episode."""
    drain_sec: float = Field(default=60, ge=0)
    """Seconds that running rollouts get to end after SIGTERM or Ctrl-C. Those that are left run again after the next
    start."""

    def complete(self, config: Config) -> Self:
        default = config.defaults.model
        return super().complete(config).fill({"models": (default,) if default else None})

    @property
    def rollouts(self) -> Path:
        """The run folder of the rollouts that clients request."""
        return self.out / "rollouts"

    @property
    def runs(self) -> Path:
        """The folder with the run folders of whole runs."""
        return self.out / "runs"

    def run_options(self, **changes: object) -> RunOptions:
        """The options of rollouts, of what the server and `whet run` share."""
        shared = {
            name: value
            for name, value in self.given().items()
            if name in RunOptions.model_fields and name not in {"out", "skills"}
        }
        return RunOptions(**{**shared, **changes})
