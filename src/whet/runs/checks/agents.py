"""Proves that agents work here: each does one small task, for real, in the sandbox, with a model that is scripted."""

import os
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from whet.agents import CliAgent, agent_named
from whet.agents.cli import ON_PATH
from whet.agents.install.run import find_install, installs_root, on_path
from whet.box import Sandbox
from whet.errors import UserError
from whet.exchange import Exchange
from whet.gateway import Gateway, Model
from whet.rollout.attempt import attempt
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, Rollout
from whet.runs.config import Config
from whet.skill import Skill, read_skill
from whet.tasks import Task, TaskLimits
from whet.testing import Scene, Script, ScriptedModel, call, say
from whet.text.redact import Redactor

ANSWER = "The file is written."
SKILL = """\
---
name: rehearsal
description: "How a small rehearsal of a coding agent is done. Use it for every task."
---

# Rehearsal

Write what you are asked for, once, and say so in one sentence of plain English.
"""
TASK = Task(
    id="rehearsal",
    instruction="Write the word ready to the file made.txt, as the skill rehearsal says.",
    verify=("grep -qx ready made.txt",),
    limits=TaskLimits(agent_sec=120, idle_sec=60),
)


@dataclass(frozen=True, slots=True)
class AgentCheck:
    """What was proved of an agent."""

    agent: str
    version: str
    proofs: Mapping[str, bool]
    """What it must do, and whether it did."""
    seconds: float
    reason: str
    """What went wrong, in a line."""

    @property
    def passed(self) -> bool:
        return all(self.proofs.values())


class Checked(BaseModel):
    """What is remembered of a check."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    passed: bool
    sandbox: str
    on: str
    """The day."""


def agent_to_check(name: str, config: Config) -> CliAgent:
    """The command-line agent of this name: of whet.toml, a plug-in, or a built-in one. UserError if it is none, or if
    its program is not there. Without an install, the program on PATH is checked."""
    agent = agent_named(name, config.agents)
    if not isinstance(agent, CliAgent):
        raise UserError(f"agent '{name}' has no program of its own to check; expected a command-line agent")
    if (
        agent.version is None
        and agent.program is None
        and find_install(agent.package) is None
        and on_path(agent.package)
    ):
        agent = agent.model_copy(update={"version": ON_PATH})
    agent.check()
    return agent


async def check_agents(
    agents: Sequence[CliAgent], sandbox: Sandbox, env: Mapping[str, str] = os.environ
) -> AsyncGenerator[AgentCheck, None]:
    """Prove each agent, in order."""
    await sandbox.check()
    redactor = Redactor([])
    with tempfile.TemporaryDirectory(prefix="whet-") as parent:
        skill = _skill(Path(parent, "rehearsal"))
        async with Gateway(redactor) as gateway:
            for agent in agents:
                check = await _check(agent, RunResources(sandbox, gateway, redactor, env), skill)
                _remember(check, sandbox.name)
                yield check


def last_check(agent: str, version: str) -> Checked | None:
    """How the last check of this version went on this machine; None when there was none."""
    try:
        return Checked.model_validate_json(_memory(agent, version).read_bytes())
    except (OSError, ValidationError):
        return None


async def _check(agent: CliAgent, resources: RunResources, skill: Skill) -> AgentCheck:
    started = time.monotonic()
    # An agent that knows no skills has its text in the task already.
    load = (call("skill", name=skill.name),) if agent.traits.skills else ()
    script = Script(scenes=(Scene(replies=(*load, call("bash", command="echo ready > made.txt"), say(ANSWER))),))
    async with ScriptedModel(script) as scripted:
        model = Model("scripted", scripted.url, "scripted", key=None, dialect=agent.traits.dialect)
        result = await attempt(Rollout("check", TASK, agent, model, skill), resources, _ignore)
    report = result.report
    return AgentCheck(
        agent=agent.kind,
        version=report.version if report else agent.version or agent.package.version,
        proofs=_proofs(result, agent),
        seconds=time.monotonic() - started,
        reason=result.score.reason if result.score.value is None or report is None else report.error or "",
    )


def _proofs(result: Result, agent: CliAgent) -> dict[str, bool]:
    report, skill = result.report, result.skill
    kept = {"keeps a transcript": report is not None and bool(report.transcript)} if agent.traits.transcripts else {}
    return {
        "starts": report is not None and report.exit_code == 0,
        "calls the model": result.spending.calls > 0,
        "runs a tool": result.score.value == 1,
        "sees the skill": skill is not None and skill.shown is True,
        "reads the skill": skill is not None and skill.read is True,
        "answers": report is not None and report.text == ANSWER,
        **kept,
    }


def _skill(folder: Path) -> Skill:
    folder.mkdir()
    (folder / "SKILL.md").write_text(SKILL)
    return read_skill(folder)


def _remember(check: AgentCheck, sandbox: str) -> None:
    checked = Checked(passed=check.passed, sandbox=sandbox, on=datetime.now(UTC).date().isoformat())
    file = _memory(check.agent, check.version)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(checked.model_dump_json())


def _memory(agent: str, version: str) -> Path:
    return installs_root() / agent / f".checked-{version}.json"


async def _ignore(exchange: Exchange) -> None:
    """The record of a rehearsal is of no use."""
