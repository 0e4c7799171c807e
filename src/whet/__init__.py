"""whet runs real coding agents on tasks, records every model call, scores the work and sharpens their skills.

What is named here is the public API; nothing else is. See docs/python.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from whet.version import __version__

if TYPE_CHECKING:
    from whet.agents import Agent, AgentReport, Assignment, CliAgent, StopReason
    from whet.agents.claude_code import ClaudeCode
    from whet.agents.codex import Codex
    from whet.agents.command import CommandAgent
    from whet.agents.opencode import OpenCode
    from whet.api import (
        adopt,
        adopt_proposal,
        certify,
        compare,
        export_pages,
        forget,
        fork,
        groups,
        harvest,
        mine_tasks,
        plan_night,
        proposals,
        reject_proposal,
        rejudge,
        roll_back_proposal,
        run,
        run_async,
        run_night,
        run_server,
        run_task,
        run_view,
        sharpen,
        sharpen_async,
        transfer,
    )
    from whet.errors import UserError
    from whet.exchange import Exchange
    from whet.gateway import Limits
    from whet.rollout.result import Result
    from whet.runs.config import Config, read_config
    from whet.runs.config import ModelConfig as Model
    from whet.runs.export import export_run
    from whet.runs.options import ExportOptions, ForkOptions, RejudgeOptions, RunOptions
    from whet.runs.run import Started
    from whet.runs.scheduler import ArmStopped, Began, Ended, Stopped
    from whet.runs.stats.compare import Comparison, compare_arms, compare_runs
    from whet.runs.stored_run import RolloutGroup, StoredRollout, StoredRun, load
    from whet.runs.verdicts import Settled
    from whet.scoring import Cause, Judge, JudgeError, Score, Work
    from whet.serve.options import ServeOptions
    from whet.skill import Skill, read_skill
    from whet.skills.certificates.certificate import Certificate
    from whet.skills.documents.edits import Edit
    from whet.skills.gate.gate import ExamResult
    from whet.skills.gate.standalone import BudgetSpent, Exam
    from whet.skills.measurement import NotMeasured
    from whet.skills.options import AdoptOptions, CertifyOptions, SharpenOptions, TransferOptions
    from whet.skills.proposers.base import NoProposal, Proposal, ProposalContext, Proposer, ScoredRollout, SearchStep
    from whet.skills.results import SharpenResult
    from whet.skills.sharpen.adopt import Adoption
    from whet.skills.sharpen.events import AuditFinished, SharpenEvent, SharpenStarted
    from whet.skills.sharpen.transfer import Lifts
    from whet.sleep.harvest import HarvestReport
    from whet.sleep.mining.mine import MineReport
    from whet.sleep.mining.options import MineOptions
    from whet.sleep.options import SleepOptions
    from whet.tasks import Task, read_tasks
    from whet.testing import Reply, Scene, Script, ScriptedModel, read_script
    from whet.trace.conversations.graph import Graph
    from whet.view.options import ViewOptions

__all__ = [
    "AdoptOptions",
    "Adoption",
    "Agent",
    "AgentReport",
    "ArmStopped",
    "Assignment",
    "AuditFinished",
    "Began",
    "BudgetSpent",
    "Cause",
    "Certificate",
    "CertifyOptions",
    "ClaudeCode",
    "CliAgent",
    "Codex",
    "CommandAgent",
    "Comparison",
    "Config",
    "Edit",
    "Ended",
    "Exam",
    "ExamResult",
    "Exchange",
    "ExportOptions",
    "ForkOptions",
    "Graph",
    "HarvestReport",
    "Judge",
    "JudgeError",
    "Lifts",
    "Limits",
    "MineOptions",
    "MineReport",
    "Model",
    "NoProposal",
    "NotMeasured",
    "OpenCode",
    "Proposal",
    "ProposalContext",
    "Proposer",
    "RejudgeOptions",
    "Reply",
    "Result",
    "RolloutGroup",
    "RunOptions",
    "Scene",
    "Score",
    "ScoredRollout",
    "Script",
    "ScriptedModel",
    "SearchStep",
    "ServeOptions",
    "Settled",
    "SharpenEvent",
    "SharpenOptions",
    "SharpenResult",
    "SharpenStarted",
    "Skill",
    "SleepOptions",
    "Started",
    "StopReason",
    "Stopped",
    "StoredRollout",
    "StoredRun",
    "Task",
    "TransferOptions",
    "UserError",
    "ViewOptions",
    "Work",
    "__version__",
    "adopt",
    "adopt_proposal",
    "certify",
    "compare",
    "compare_arms",
    "compare_runs",
    "export_pages",
    "export_run",
    "forget",
    "fork",
    "groups",
    "harvest",
    "load",
    "mine_tasks",
    "plan_night",
    "proposals",
    "read_config",
    "read_script",
    "read_skill",
    "read_tasks",
    "reject_proposal",
    "rejudge",
    "roll_back_proposal",
    "run",
    "run_async",
    "run_night",
    "run_server",
    "run_task",
    "run_view",
    "sharpen",
    "sharpen_async",
    "transfer",
]

_HOMES = {
    "whet.agents": "Agent AgentReport Assignment CliAgent StopReason",
    "whet.agents.claude_code": "ClaudeCode",
    "whet.agents.codex": "Codex",
    "whet.agents.command": "CommandAgent",
    "whet.agents.opencode": "OpenCode",
    "whet.api": "adopt adopt_proposal certify compare export_pages forget fork groups harvest mine_tasks plan_night "
    "proposals reject_proposal rejudge roll_back_proposal run run_async run_night run_server run_task run_view "
    "sharpen sharpen_async transfer",
    "whet.errors": "UserError",
    "whet.exchange": "Exchange",
    "whet.gateway": "Limits",
    "whet.rollout.result": "Result",
    "whet.runs.config": "Config read_config",
    "whet.runs.export": "export_run",
    "whet.runs.options": "ExportOptions ForkOptions RejudgeOptions RunOptions",
    "whet.runs.run": "Started",
    "whet.runs.scheduler": "ArmStopped Began Ended Stopped",
    "whet.runs.stats.compare": "Comparison compare_arms compare_runs",
    "whet.runs.stored_run": "RolloutGroup StoredRollout StoredRun load",
    "whet.runs.verdicts": "Settled",
    "whet.scoring": "Cause Judge JudgeError Score Work",
    "whet.serve.options": "ServeOptions",
    "whet.skill": "Skill read_skill",
    "whet.skills.certificates.certificate": "Certificate",
    "whet.skills.documents.edits": "Edit",
    "whet.skills.gate.gate": "ExamResult",
    "whet.skills.gate.standalone": "BudgetSpent Exam",
    "whet.skills.measurement": "NotMeasured",
    "whet.skills.options": "AdoptOptions CertifyOptions SharpenOptions TransferOptions",
    "whet.skills.proposers.base": "NoProposal Proposal ProposalContext Proposer ScoredRollout SearchStep",
    "whet.skills.results": "SharpenResult",
    "whet.skills.sharpen.adopt": "Adoption",
    "whet.skills.sharpen.events": "AuditFinished SharpenEvent SharpenStarted",
    "whet.skills.sharpen.transfer": "Lifts",
    "whet.sleep.harvest": "HarvestReport",
    "whet.sleep.mining.mine": "MineReport",
    "whet.sleep.mining.options": "MineOptions",
    "whet.sleep.options": "SleepOptions",
    "whet.tasks": "Task read_tasks",
    "whet.testing": "Reply Scene Script ScriptedModel read_script",
    "whet.trace.conversations.graph": "Graph",
    "whet.view.options": "ViewOptions",
}
_RENAMED = {
    "Model": ("whet.runs.config", "ModelConfig"),
}
"""Names that are shorter here than in their module."""


def __getattr__(name: str) -> Any:
    # Loaded at first use: `whet --version` must not wait for SciPy.
    if name in _RENAMED:
        home, name = _RENAMED[name]
        return getattr(import_module(home), name)
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'whet' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
