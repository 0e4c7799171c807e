"""What all rollouts of a run share: sandbox, gateway, models and secrets, checked and open."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.agents import AnyAgent
from whet.box import Sandbox
from whet.gateway import Gateway, Limits, Model
from whet.rollout.endpoint import Endpoints
from whet.text.redact import Redactor, mask


@dataclass(frozen=True, slots=True)
class RunResources:
    """Checked and open. Rollouts take it whole."""

    sandbox: Sandbox
    gateway: Gateway
    redactor: Redactor
    host_env: Mapping[str, str]
    """Where `${NAME}` in a task's variables is looked up."""
    agents: Mapping[str, AnyAgent] = field(default_factory=dict)
    """By name."""
    models: Mapping[str, Model] = field(default_factory=dict)
    """By name."""
    judge_models: Mapping[str, Model] = field(default_factory=dict)
    """By name."""
    judge_model: str | None = None
    """The judge model of tasks that name none."""
    idle_sec: float | None = None
    """How long an agent may go without a model call, unless its task has a limit of its own."""
    limits: Limits = field(default_factory=Limits)
    """Of all rollouts together."""
    rollouts: int = 1
    """How many rollouts share the limits of the run."""
    endpoints: Endpoints = field(default_factory=Endpoints)
    """Which models have answered so far."""
    _proof_locks: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    def proof_lock(self, task: str) -> asyncio.Lock:
        """Held while a task's own solution is judged, so that this is done once per task."""
        return self._proof_locks[task]

    def dump_agents(self) -> dict[str, Any]:
        """The agents as JSON for the store, without secrets."""
        return {name: mask(agent.model_dump(mode="json"), self.redactor) for name, agent in self.agents.items()}
