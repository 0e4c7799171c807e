"""Runs proposers that use a model or an agent. Their calls go through the gateway of the run, so the same limits and
the same ledger cover them; every proposal is a rollout in the store `proposals`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from whet.agents import AgentReport, StopReason, agent_named
from whet.errors import UserError
from whet.exchange import Exchange
from whet.rollout.judging import client_spending
from whet.rollout.model_client import ModelClient, number_calls
from whet.rollout.resources import RunResources
from whet.rollout.result import Result, Rollout
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.plan import task_rows
from whet.runs.scheduler import run_until_scored, store_result
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.sandbox import sandbox_named
from whet.scoring import Cause, JudgeError, Score
from whet.skills.measurement import RolloutKey, RunPart
from whet.skills.proposers.agent import AgentProposer
from whet.skills.proposers.base import NoProposal, Proposal, ProposalContext
from whet.skills.proposers.llm import ChatMessage, LlmProposer
from whet.skills.rollouts.runner import AgentSetup, RolloutRunner
from whet.tasks import Task

GIVEN = "given "
"""Prefix of the logs that hold the files which an agent was given."""


@dataclass(frozen=True, slots=True)
class ProposerSpec:
    """A proposer that uses a model or an agent. None stands for the model or agent under test."""

    kind: Literal["llm", "agent"]
    model: str | None = None
    agent: str | None = None

    def add_to(self, options: RunOptions) -> RunOptions:
        """The options with the model and agent of the proposer added; those under test stay first."""
        agents = (*options.agents, self.agent or options.agents[0])
        models = (*options.models, self.model or options.models[0])
        both = {"agents": tuple(dict.fromkeys(agents)), "models": tuple(dict.fromkeys(models))}
        return options.model_copy(update=both)

    def check(self, options: RunOptions, config: Config) -> None:
        """UserError when the proposer cannot edit files, or could read the exams."""
        if self.kind == "llm":
            return
        name = self.agent or options.agents[0]
        if not agent_named(name, config.agents).in_box:
            raise UserError(
                f"agent '{name}' cannot edit files, so it cannot propose; choose another with `proposer_agent`"
            )
        if not sandbox_named(options.sandbox).own_root:
            raise UserError(
                f"`proposer` is 'agent': in sandbox '{options.sandbox}' the agent could read the exams of the run; "
                "set `sandbox` to bubblewrap, or `proposer` to llm"
            )

    def open(self, runner: RolloutRunner, check_prompt: Callable[[str], None] = lambda _: None) -> "ProposerRuntime":
        """The proposer, ready to work in a run."""
        arm, refuse = runner.agent_setup(self.agent, self.model), partial(runner.account.refuse, RunPart.SEARCH)
        return ProposerRuntime(self.kind, arm, runner.resources, runner.writer(RunPart.PROPOSALS), refuse, check_prompt)


@dataclass(frozen=True, slots=True)
class ProposerRuntime:
    """Runs the model or agent of a proposer, and records what it does."""

    kind: Literal["llm", "agent"]
    arm: AgentSetup
    resources: RunResources
    recorder: StoreWriter
    refuse_spent: Callable[[], None]
    """Raises OutOfBudget when no budget is left for a proposal."""
    check_prompt: Callable[[str], None]
    """Raises an error on a prompt that must not be sent."""

    async def propose(self, context: ProposalContext) -> Proposal:
        """NoProposal when the model or the agent fails."""
        self.refuse_spent()
        try:
            return await (self._reflect(context) if self.kind == "llm" else self._let_edit(context))
        except NoProposal:
            self.refuse_spent()
            raise

    async def _reflect(self, context: ProposalContext) -> Proposal:
        """Ask the model, and record every call."""
        row = await self._add_row(Task(id=_name(context), instruction="Propose edits of the skill."), "llm")
        started, clock = time.time(), time.monotonic()
        attempt = await self.recorder.do(lambda store: store.start_attempt(row.id, started))

        async def record(exchange: Exchange) -> None:
            await self.recorder.do(lambda store: store.add_exchange(attempt, exchange))

        gateway, model = self.resources.gateway, self.arm.model
        async with ModelClient(gateway, {model.name: model}, model.name, number_calls(record), "writer") as client:
            proposal = await self._ask_model(client, context)
        seconds = round(time.monotonic() - clock, 4)
        result = Result(
            score=_score(proposal, interrupted=gateway.exhausted() is not None),
            report=_report(proposal, seconds),
            spending=client_spending(client),
            seconds={"agent": seconds},
        )
        ended = time.time()
        await self.recorder.do(lambda store: store_result(store, attempt, result, ended))
        if isinstance(proposal, NoProposal):
            raise proposal
        return proposal

    async def _ask_model(self, client: ModelClient, context: ProposalContext) -> Proposal | NoProposal:
        async def ask(messages: Sequence[ChatMessage]) -> str:
            for message in messages:
                self.check_prompt(str(message["content"]))
            try:
                # The reply is stored, and may become part of the skill.
                return self.resources.redactor.text(await client.ask(None, messages))
            except JudgeError as error:
                raise NoProposal(str(error)) from error

        try:
            return await LlmProposer(ask).propose(context)
        except NoProposal as nothing:
            return nothing

    async def _let_edit(self, context: ProposalContext) -> Proposal:
        """Let the agent edit the skill, and record the files that it was given."""

        async def attempt(task: Task) -> Result:
            task = task.model_copy(update={"id": _name(context)})
            row = await self._add_row(task, self.arm.agent)
            rollout = Rollout(row.id, task, self.arm.program, self.arm.model, skill=None)
            result = await run_until_scored(row, rollout, self.resources, self.recorder, lambda _: None)
            await self.recorder.do(lambda store: _keep_given(store, row, task))
            return result

        return await AgentProposer(attempt).propose(context)

    async def _add_row(self, task: Task, agent: str) -> RolloutRow:
        row = RolloutRow(
            RolloutKey.proposal(task.id).rollout_id, 0, task.id, agent, self.arm.model.name, skill=None, sample=0
        )

        def plan(store: Store) -> None:
            store.add_tasks(task_rows([task]))
            store.add_rollouts([replace(row, ordinal=len(store.rollouts()))])

        await self.recorder.do(plan)
        return row


def _name(context: ProposalContext) -> str:
    return f"draft-{len(context.past) + 1:04}"


def _score(proposal: Proposal | NoProposal, *, interrupted: bool) -> Score:
    if isinstance(proposal, NoProposal):
        return Score.missing(Cause.INTERRUPTED if interrupted else Cause.MODEL, str(proposal))
    return Score.of(1.0 if proposal.edits else 0.0, proposal.reason)


def _report(proposal: Proposal | NoProposal, seconds: float) -> AgentReport:
    if isinstance(proposal, NoProposal):
        return AgentReport(stop=StopReason.CRASHED, exit_code=None, text="", seconds=seconds, error=str(proposal))
    return AgentReport(stop=StopReason.FINISHED, exit_code=None, text=proposal.raw, seconds=seconds)


def _keep_given(store: Store, row: RolloutRow, task: Task) -> None:
    attempt = store.attempts_of(row.id)[-1].id
    for path, content in task.files.items():
        store.add_log(attempt, f"{GIVEN}{path}", content.encode() if isinstance(content, str) else content)
