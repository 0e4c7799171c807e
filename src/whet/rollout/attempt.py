"""One attempt: one task, one agent, one model, one skill, one sample number; from an empty box to a score."""

import asyncio
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from whet.agents import Agent, AgentReport, Assignment, ModelEndpoint, StopReason
from whet.agents.skill_delivery import SkillSightings
from whet.agents.tools import LoggedUse, offer_tools
from whet.box import Box, Sandbox, SandboxError
from whet.errors import UserError
from whet.exchange import Exchange, Kind, Recorder, Usage
from whet.gateway import Gateway, Limits, Model, Session
from whet.gateway.dialects.neutral import Stop as ReplyStop
from whet.gateway.prices import cost, price_for
from whet.plain_text import plain_value
from whet.redact import Redactor, mask
from whet.rollout.blame import BLAMED, Blame, Blamed
from whet.rollout.endpoint import Keys
from whet.rollout.evidence import calls_asked, calls_logged
from whet.rollout.failures import failure_of, stop_reason
from whet.rollout.model_client import ModelClient
from whet.scoring import NO_VERDICT, Cause, Judge, Score, ToolUse, Work, combine, judges_of
from whet.scoring.leaks import Canaries
from whet.skill import Skill
from whet.tasks import Task, TaskLimits, resolve_env
from whet.trace.conversations.replies import reply_of
from whet.trace.replay.session import Prefix, ReplaySession
from whet.workspace import CHANGES_LIMIT, Change, changes

GATEWAY_LIMITS = {"turns", "input_tokens", "output_tokens", "total_tokens", "cost", "idle_sec", "concurrency"}
"""The limits of a task that the gateway holds a rollout to."""
SHARED = 4
"""From so many rollouts on, one that uses more than half of what all may use has taken the others' share."""
ENDING_SEC = 10.0
"""How long an agent that was killed may take to say so."""
NOT_CAPTURED = "not-captured"
"""Flag of a rollout whose agent called its own model: only its transcript is on record."""
PLANTED_REWARD = "planted-reward"
"""Flag of a rollout whose agent wrote into the verifier's folder. What it wrote was not read."""
CANARY = "canary"
"""Flag of a rollout in which a text was seen that is planted in what is hidden from agents."""
SELF_JUDGED = "self-judged"
"""Flag of a rollout that its own model has judged."""
MODEL_FAILED = "model-failed"
"""Flag of a rollout that was judged although its model failed, because the failure was its own."""
AGENT_FAILED = "agent-failed"
"""Flag of a rollout that was judged although its agent could not end by itself, because it had worked before."""
DRAINED = "drained-budget"
"""Flag of a rollout that was judged when a limit of the run ended it, because it used more than half of that limit."""
DIVERGED = "diverged"
"""Flag of a fork that went on although its agent did something else than was recorded."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """What is to be attempted."""

    id: str
    task: Task
    agent: Agent
    model: Model
    skill: Skill | None
    sample: int = 0
    """Rollouts of different numbers are independent: none is given the cached replies of another."""
    captured: bool = True
    """Whether the agent calls `model` through the gateway. Otherwise it calls whatever it is logged in to, unseen."""
    prefix: Prefix | None = None
    """The beginning of another rollout, which this one repeats before it goes on by itself."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all rollouts of a run share."""

    sandbox: Sandbox
    gateway: Gateway
    redactor: Redactor
    host_env: Mapping[str, str]
    """Where `${NAME}` in a task's variables is looked up."""
    idle_sec: float | None = None
    """How long an agent may go without a model call, where its task does not say."""
    judge_models: Mapping[str, Model] = field(default_factory=dict)
    """The models that judges ask, by their names."""
    judge_model: str | None = None
    """The one that is asked where a task names none."""
    rollouts: int = 1
    """How many rollouts share the limits of the run."""
    keys: Keys = field(default_factory=Keys)
    """Which models' keys were taken so far."""
    _proving: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    def proving(self, task: str) -> asyncio.Lock:
        """Held while a task's own solution is judged, so that it is done once."""
        return self._proving[task]


class Spending(BaseModel):
    """What an attempt cost, as the gateway counted it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    captured: bool = True
    """Whether calls were counted at all."""
    calls: int = 0
    speakers: dict[str, int] = Field(default_factory=dict)
    """How often the main thread spoke, each sub-agent, and each kind of helper."""
    input_tokens: int = 0
    output_tokens: int = 0
    from_record: int = 0
    """Of the calls, those that were answered as in the rollout that this is a fork of. Their tokens do not count."""
    uncounted_calls: int = 0
    """Calls whose reply did not say how many tokens it took."""
    cost: float | None = None
    """Dollars; None when the model's price or a call's tokens are not known."""

    def __add__(self, other: "Spending") -> "Spending":
        speakers = Counter(self.speakers)
        speakers.update(other.speakers)
        return Spending(
            captured=self.captured and other.captured,
            calls=self.calls + other.calls,
            speakers=dict(speakers),
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            from_record=self.from_record + other.from_record,
            uncounted_calls=self.uncounted_calls + other.uncounted_calls,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
        )


class SkillSeen(BaseModel):
    """What the calls to the model tell of a skill. None where its text has no words that could be looked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shown: bool | None
    """The agent's prompts named it."""
    read: bool | None
    """Its text was before the model."""


class Replay(BaseModel):
    """How a fork went through what it repeats."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: int
    """The call of the main thread that it was to begin at, from 1."""
    given: int
    """How many calls of the main thread were answered as they were."""
    live_from: int | None
    """The first call of the main thread for which the model was asked; None when it never was."""
    diverged: str | None
    """Where the agent did something else than was recorded."""
    unknown: int
    """Helper calls before that which are not on record. The model was asked for them."""


class Result(BaseModel):
    """What came of an attempt. A failure is a result too: a missing score with its cause."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    score: Score
    judgements: dict[str, Score] = Field(default_factory=dict)
    report: AgentReport | None = None
    limit: str | None = None
    """The limit that ended the agent's work, and what was used of it."""
    skill: SkillSeen | None = None
    changes: tuple[Change, ...] = ()
    """What is not as it was in the working directory when the agent began."""
    unseen: str | None = None
    """Why these are not all changes, if so."""
    tool_uses: tuple[LoggedUse, ...] = ()
    """The calls of the task's own tools, as the host answered them."""
    replay: Replay | None = None
    """Of a fork, how it went through what it repeats."""
    spending: Spending = Spending()
    judging: Spending | None = None
    """What the judges' own model calls cost, when there were any."""
    judged: int = 0
    """How often it was judged again since."""
    flags: tuple[str, ...] = ()
    seconds: dict[str, float] = Field(default_factory=dict)
    """Wall time of each phase."""


class SetupError(Exception):
    """A set-up command of the task failed."""


@dataclass(slots=True)
class _Progress:
    """What is known so far; becomes the result whatever happens next."""

    canaries: Canaries
    wants_calls: bool
    """Whether a judge asks which tools were called."""
    judgements: dict[str, Score] = field(default_factory=dict)
    report: AgentReport | None = None
    session: Session | None = None
    retelling: ReplaySession | None = None
    calls: list[ToolUse] = field(default_factory=list)
    judging: Spending | None = None
    sightings: SkillSightings | None = None
    last_words: Exchange | None = None
    """The last call of the main thread."""
    changes: tuple[Change, ...] = ()
    unseen: str | None = None
    tool_uses: list[LoggedUse] = field(default_factory=list)
    flags: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    def watching(self, record: Recorder) -> Recorder:
        """A recorder that looks at what it records."""

        async def look_and_record(exchange: Exchange) -> None:
            if self.sightings is not None:
                self.sightings.look(exchange.request)
            self.canaries.look(exchange.request, exchange.response)
            if self.wants_calls:
                self.calls += calls_asked(exchange)
            if exchange.speaker is not None and exchange.speaker.kind is Kind.MAIN:
                self.last_words = exchange
            await record(exchange)

        return look_and_record

    def note(self, blamed: Blamed) -> None:
        """Flag a rollout that is judged in spite of a failure, and count what it cost to find that out."""
        if blamed.probed is not None:
            self.judging = spending_of(blamed.probed, blamed.probed.model)
        if blamed.own:
            by_model = blamed.failure.cause in {Cause.MODEL, Cause.AUTH}
            self.flags += (MODEL_FAILED if by_model else AGENT_FAILED,)

    @property
    def model_declined(self) -> bool:
        """Whether the model's last reply to the main thread was a refusal."""
        reply = reply_of(self.last_words) if self.last_words else None
        return reply is not None and reply.stop is ReplyStop.REFUSED

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - started, 4)


async def _forget(exchange: Exchange) -> None:
    pass


async def attempt(
    rollout: Rollout,
    workshop: Workshop,
    record: Recorder,
    record_judge: Recorder = _forget,
    blame: Blame | None = None,
) -> Result:
    """Attempt a rollout once. Only a failing recorder raises: a run that cannot be recorded must stop.

    The model calls of the judges, and other questions of whet's own, are given to `record_judge`. Without `blame`, no
    failure is taken for the rollout's own.
    """
    judges = judges_of(rollout.task)
    progress = _Progress(Canaries(rollout.task), any(judge.spec.needs_calls for judge in judges))
    try:
        score = await _attempt(rollout, workshop, record, record_judge, judges, progress, blame)
    except SandboxError as error:
        score = Score.missing(Cause.SANDBOX, str(error))
    except (SetupError, UserError) as error:
        score = Score.missing(Cause.SETUP, str(error))
    except Exception as error:  # noqa: BLE001 - a defect must not end the run; it is kept, whole, as data
        score = Score.missing(Cause.INTERNAL, repr(error), traceback=traceback.format_exc())
    if progress.session is not None and progress.session.record_error is not None:
        raise progress.session.record_error
    result = Result(
        score=score,
        judgements=progress.judgements,
        report=progress.report,
        limit=str(ended_by) if progress.session and (ended_by := progress.session.ended_by) else None,
        skill=SkillSeen(shown=seen.shown, read=seen.read) if (seen := progress.sightings) else None,
        changes=progress.changes,
        unseen=progress.unseen,
        tool_uses=tuple(progress.tool_uses),
        replay=_replay(rollout.prefix, progress.retelling),
        spending=spending_of(progress.session, rollout.model) if rollout.captured else Spending(captured=False),
        judging=progress.judging,
        flags=progress.flags,
        seconds=progress.seconds,
    )
    secrets = [rollout.model.key or "", progress.session.secret if progress.session else ""]
    return redacted(result, workshop.redactor.also(*secrets))


def result_body(result: Result) -> bytes:
    """A result as it is stored, without the logs."""
    logs = {"report": {"stdout", "stderr", "transcript"}}
    return Result.model_validate(plain_value(result.model_dump())).model_dump_json(exclude=logs).encode()


def redacted(result: Result, redactor: Redactor) -> Result:
    """A result without secrets, and with nothing in it that cannot be stored."""
    return Result.model_validate(mask(plain_value(result.model_dump()), redactor))


async def _attempt(
    rollout: Rollout,
    workshop: Workshop,
    record: Recorder,
    record_judge: Recorder,
    judges: Sequence[Judge],
    progress: _Progress,
    blame: Blame | None,
) -> Score:
    task, where = rollout.task, f"task '{rollout.task.id}'"
    env = resolve_env(task.env, workshop.host_env, where)
    verify_env = {**env, **resolve_env(task.verify_env, workshop.host_env, where)}
    async with workshop.sandbox.open(task.limits, task.workdir) as box:
        with progress.phase("setup"):
            await prepare(box, task, env)
            await offer_tools(box, task, env, progress.tool_uses)
            before = await box.snapshot()
        held_to = GATEWAY_LIMITS if rollout.captured else set()
        limits = Limits(**{"idle_sec": workshop.idle_sec if held_to else None, **_given(task.limits, held_to)})
        model = replace(rollout.model, allow=rollout.model.allow | frozenset(task.allow))
        if rollout.skill is not None and rollout.captured:
            progress.sightings = SkillSightings(rollout.skill)
        watched = progress.watching(record)
        progress.retelling = retelling = ReplaySession(rollout.prefix) if rollout.prefix else None
        progress.session = session = workshop.gateway.open_session(
            rollout.id, model, watched, limits, rollout.sample, retelling
        )
        try:
            with progress.phase("agent"):
                url = await (box.connect(session.serve) if rollout.agent.in_box else session.listen())
                endpoint = ModelEndpoint(url, session.secret, session.model_name) if rollout.captured else None
                assignment = Assignment(task, box, endpoint, rollout.skill, env, workshop.host_env)
                report, broken = await _run_agent(rollout.agent, assignment, session)
        finally:
            await session.close()
        if session.answered:
            workshop.keys.accept(rollout.model.name)
        stop = stop_reason(report, session, must_call=rollout.agent.needs_model and rollout.captured)
        if stop in {StopReason.FINISHED, StopReason.CRASHED} and progress.model_declined:
            stop = StopReason.REFUSED
        progress.report = report = report.model_copy(update={"stop": stop})
        planted = await box.seal(show_logs=task.agent_logs)
        after = await box.snapshot()
        found = await asyncio.to_thread(changes, before, after)
        progress.changes, unseen = found[:CHANGES_LIMIT], before.unseen or after.unseen
        more = len(found) - len(progress.changes)
        progress.unseen = unseen or (f"{more} more changes are not on record" if more else None)
        progress.canaries.look(report.text, *(change.diff for change in found))
        progress.flags = (
            *((PLANTED_REWARD,) if planted else ()),
            *(() if rollout.captured else (NOT_CAPTURED,)),
            *((CANARY,) if progress.canaries.seen else ()),
            *((DIVERGED,) if retelling and retelling.diverged and retelling.live_from else ()),
        )
        failure = broken or failure_of(report, session, retelling)
        if session.ended_with_run and workshop.rollouts >= SHARED and session.used_most:
            failure, progress.flags = None, (*progress.flags, DRAINED)
        if failure is not None and blame is not None and failure.cause in BLAMED:
            blamed = await blame.decide(failure, session, record_judge)
            progress.note(blamed)
            failure = None if blamed.own else blamed.failure
        if failure is not None:
            return failure
        with progress.phase("judge"):
            work = Work(
                task,
                box,
                report.text,
                verify_env,
                structured=report.answer,
                calls=(*progress.calls, *calls_logged(progress.tool_uses)),
                captured=rollout.captured,
                changes=progress.changes,
                diffs=partial(changes, before, after, whole=True),
                unseen=unseen,
                stop=report.stop,
            )
            await _judge(rollout, workshop, record_judge, judges, work, progress)
        return combine(progress.judgements, {judge.name: judge.weight for judge in judges})


async def _judge(
    rollout: Rollout,
    workshop: Workshop,
    record: Recorder,
    judges: Sequence[Judge],
    work: Work,
    progress: _Progress,
) -> None:
    name, models = "judge", workshop.judge_models
    async with ModelClient(workshop.gateway, models, workshop.judge_model, record, name, rollout.sample) as referee:
        for judge in judges:
            progress.judgements[judge.name] = await judge.judge(replace(work, referee=referee))
    for score in progress.judgements.values():
        progress.flags += tuple(score.details.get("flags", ()))
    if referee.sessions:
        progress.judging = judging_cost(referee) + (progress.judging or Spending(cost=0))
    if rollout.captured and rollout.model.name in referee.sessions:
        progress.flags += (SELF_JUDGED,)
    if any(score.is_undecided for score in progress.judgements.values()):
        progress.flags += (NO_VERDICT,)


def judging_cost(referee: ModelClient) -> Spending:
    """What all questions to the judges' models cost."""
    each = [spending_of(session, session.model) for session in referee.sessions.values()]
    return sum(each, start=Spending(cost=0))


async def prepare(box: Box, task: Task, env: Mapping[str, str]) -> None:
    """Put into the box what the agent starts with: files and attachments; then run the task's set-up."""
    if task.workspace is not None:
        await box.upload(task.workspace, box.workdir)
    for name, content in task.files.items():
        await box.write_file(name, content.encode() if isinstance(content, str) else content)
    for attachment in task.attachments:
        await box.write_file(f"attachments/{attachment.name}", attachment.read_bytes())
    deadline = time.monotonic() + task.limits.setup_sec
    for command in task.setup:
        left = max(0.001, deadline - time.monotonic())
        done = await box.exec(["bash", "-c", command], env=env, timeout=left)
        if done.exit_code != 0:
            ending = "ran out of time" if done.timed_out else f"exit code {done.exit_code}"
            raise SetupError(f"set-up command {command!r}: {ending}: {done.stderr.text.strip()[-500:]}")


async def run_within_limits(agent: Agent, assignment: Assignment, session: Session) -> AgentReport:
    """Run an agent to its end, or until the session says that it must end."""
    started = time.monotonic()
    running = asyncio.ensure_future(agent.run(assignment))
    over = asyncio.ensure_future(session.over(assignment.box.has_started_since))
    try:
        await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            # What it printed until then is in its report, which it gives when its processes are gone.
            await assignment.box.kill()
            await session.close()
            await asyncio.wait([running], timeout=ENDING_SEC)
        if running.done():
            return running.result()
        return AgentReport(stop=StopReason.LIMIT, exit_code=None, text="", seconds=time.monotonic() - started)
    finally:
        for task in (running, over):
            task.cancel()
        await asyncio.wait([running, over])


async def _run_agent(agent: Agent, assignment: Assignment, session: Session) -> tuple[AgentReport, Score | None]:
    """Run an agent to its end. What breaks after its model has answered is a failure for `Blame`, not an error."""
    started = time.monotonic()
    try:
        return await run_within_limits(agent, assignment, session), None
    except Exception as error:
        if not session.answered or isinstance(error, UserError):
            raise
        report = AgentReport(stop=StopReason.CRASHED, exit_code=None, text="", seconds=time.monotonic() - started)
        if isinstance(error, SandboxError):
            return report, Score.missing(Cause.SANDBOX, str(error))
        return report, Score.missing(Cause.INTERNAL, repr(error), traceback=traceback.format_exc())


def _given(limits: TaskLimits, names: set[str]) -> dict[str, Any]:
    return limits.model_dump(include=names, exclude_none=True)


def spending_of(session: Session | None, model: Model) -> Spending:
    if session is None:
        return Spending()
    return Spending(
        calls=session.calls,
        speakers=dict(session.speakers),
        input_tokens=session.usage.input,
        output_tokens=session.usage.output,
        from_record=session.from_record,
        uncounted_calls=session.calls_without_usage,
        cost=None if session.calls_without_usage else cost_of(session.charged, model),
    )


def _replay(prefix: Prefix | None, retelling: ReplaySession | None) -> Replay | None:
    if prefix is None or retelling is None:
        return None
    return Replay(
        at=prefix.at,
        given=retelling.given,
        live_from=retelling.live_from,
        diverged=str(retelling.diverged) if retelling.diverged else None,
        unknown=retelling.unknown,
    )


def cost_of(usage: Usage, model: Model) -> float | None:
    """Dollars for these tokens; None when the model's price is not known."""
    price = price_for(model)
    return cost(usage, price) if price else None
