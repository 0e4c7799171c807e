"""One attempt at a rollout, top to bottom: from an empty box to a score."""

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from whet.agents import Agent, AgentReport, Assignment, ModelEndpoint, StopReason
from whet.agents.skill_delivery import SkillSightings
from whet.agents.tools import LoggedUse, offer_tools
from whet.box import Box, SandboxError
from whet.errors import UserError
from whet.exchange import Exchange, Kind, Recorder
from whet.gateway import Limits, Session
from whet.gateway.dialects.neutral import Stop as ReplyStop
from whet.rollout.failures import OWN_CAUSES, Blame, describe_ending, find_failure, stop_reason
from whet.rollout.judging import Judgement, find_requested_calls, judge_work, list_logged_calls
from whet.rollout.observer import Phase, RolloutObserver
from whet.rollout.resources import RunResources
from whet.rollout.result import (
    CommandResult,
    Flag,
    ForkReplay,
    Result,
    Rollout,
    SkillSeen,
    Spending,
    redact_result,
    session_spending,
)
from whet.rollout.setup import SetupError, set_up, show_instruction
from whet.scoring import Cause, ObservedCall, Score, Work, combine, judges_of
from whet.scoring.leaks import Canaries
from whet.tasks import resolve_env
from whet.trace.conversations.replies import reply_of
from whet.trace.replay.session import ReplaySession
from whet.workspace import CHANGES_LIMIT, Change, Snapshot, changes, show_path

GATEWAY_LIMITS = {"turns", "input_tokens", "output_tokens", "total_tokens", "cost", "idle_sec", "concurrency"}
"""The limits of a task that the gateway enforces."""
SHARED = 4
"""With this many rollouts or more, one that uses more than half of a limit of the run has taken the others' share."""
FILES_LIMIT, FILE_ROOM, FILES_ROOM = 100, 64 << 10, 1 << 20
"""How many files of the agent are kept with a rollout, and how many bytes of one and of all of them."""
UNJUDGED = "the task has nothing that judges it: no tests, verify command, answer or judge"
DEPTH, OTHERS_LIMIT = 2, 32
"""How deep the files are, and how many at most, that are kept though the agent did not change them."""
ENDING_SEC = 10.0
"""How long a killed agent may take to report."""


async def _discard(exchange: Exchange) -> None:
    pass


async def attempt(
    rollout: Rollout,
    resources: RunResources,
    record: Recorder,
    record_judge: Recorder = _discard,
    blame: Blame | None = None,
    observer: RolloutObserver | None = None,
) -> Result:
    """Attempt a rollout once. Only a failing recorder raises: a run that cannot be recorded must stop.

    Model calls of judges, and other questions that whet itself asks, go to `record_judge`. Without `blame`, every
    failure makes the score missing.
    """
    one = _Attempt(rollout, resources, record, record_judge, blame, observer)
    try:
        score = await one.run()
    except SandboxError as error:
        score = Score.missing(Cause.SANDBOX, str(error))
    except (SetupError, UserError) as error:
        score = Score.missing(Cause.SETUP, str(error))
    except Exception as error:  # noqa: BLE001 - a defect must not end the run; it is kept, whole, as data
        score = Score.missing(Cause.INTERNAL, repr(error), traceback=traceback.format_exc())
    if one.session is not None and one.session.record_error is not None:
        raise one.session.record_error
    secrets = [rollout.model.key or "", one.session.secret if one.session else ""]
    # In a thread: transcripts can be long, and other rollouts wait for their model calls meanwhile.
    return await asyncio.to_thread(redact_result, one.result(score), resources.redactor.also(*secrets))


@dataclass(frozen=True, slots=True)
class _Ended:
    """How the agent's part ended."""

    report: AgentReport
    session: Session
    broken: Score | None
    """What broke outside the agent's program, if anything did."""


class _Attempt:
    """One attempt under way. What is known so far becomes the result, whatever happens next."""

    def __init__(
        self,
        rollout: Rollout,
        resources: RunResources,
        record: Recorder,
        record_judge: Recorder,
        blame: Blame | None,
        observer: RolloutObserver | None,
    ) -> None:
        self.rollout, self.resources, self.task = rollout, resources, rollout.task
        self._record, self._record_judge, self._blame = record, record_judge, blame
        self._observer = observer
        self._observer_error: Exception | None = None
        self.judges = judges_of(rollout.task)
        self.calls_seen = _CallReader(rollout, wants_calls=any(judge.spec.needs_calls for judge in self.judges))
        self.session: Session | None = None
        self.replay: ReplaySession | None = None
        self.report: AgentReport | None = None
        self.changes: tuple[Change, ...] = ()
        self.files: dict[str, bytes] = {}
        self.files_left_out: tuple[str, ...] = ()
        self.unseen: str | None = None
        self.tool_uses: list[LoggedUse] = []
        self.setup: list[CommandResult] = []
        self.judgement = Judgement()
        self.probing: Spending | None = None
        self.failure: Score | None = None
        self.flags: tuple[str, ...] = ()
        self.seconds: dict[str, float] = {}

    async def run(self) -> Score:
        """Set up, run the agent, seal the box, judge."""
        task, where = self.task, f"task '{self.task.id}'"
        env = resolve_env(task.env, self.resources.host_env, where)
        verify_env = {**env, **resolve_env(task.verify_env, self.resources.host_env, where)}
        async with self.resources.sandbox.open(task.limits, task.workdir) as box:
            with self.phase("setup"):
                await set_up(box, task, env, self.setup)
                await offer_tools(box, task, env, self.tool_uses)
                before = await box.snapshot()
            ended = await self.run_agent(box, env)
            planted = await box.seal(show_logs=task.agent_logs)
            after = await box.snapshot()
            found = await self.find_changes(before, after)
            self.files, self.files_left_out = await read_small_files(box, self.paths_to_keep(found, after))
            self.add_flags(ended.report, found, planted=bool(planted))
            failure = await self.find_failure(ended)
            if failure is not None and not self.may_count_later(failure):
                return failure
            limit = str(ended.session.limits.ended_by) if ended.session.limits.ended_by else None
            ending = describe_ending(ended.report, limit, self.changes)
            if not self.judges:
                return failure or Score.missing(Cause.UNJUDGED, "; ".join(filter(None, (ending, UNJUDGED))))
            work = self.make_work(box, ended.report, verify_env, before, after)
            with self.phase("judge"):
                await show_instruction(box, task)
                await judge_work(work, self.judges, self.rollout, self.resources, self._record_judge, self.judgement)
            return failure or combine(
                self.judgement.scores, {judge.name: judge.weight for judge in self.judges}, ending
            )

    async def run_agent(self, box: Box, env: Mapping[str, str]) -> _Ended:
        """Run the agent to its end, with a session of the gateway of its own."""
        rollout, resources = self.rollout, self.resources
        self.session = session = self.open_session()
        try:
            with self.phase("agent"):
                url = await (box.connect(session.serve) if rollout.agent.in_box else session.listen())
                endpoint = ModelEndpoint(url, session.secret, session.model_name) if rollout.captured else None
                assignment = Assignment(self.task, box, endpoint, rollout.skill, env, resources.host_env)
                report, broken = await _run_agent(rollout.agent, assignment, session)
        finally:
            await session.close()
        if self._observer_error is not None:
            raise self._observer_error
        if session.totals.answered:
            resources.endpoints.accept(rollout.model.name)
        stop = stop_reason(report, session, must_call=self.must_call)
        if stop in {StopReason.FINISHED, StopReason.CRASHED} and self.calls_seen.model_declined:
            stop = StopReason.REFUSED
        self.report = report.model_copy(update={"stop": stop})
        return _Ended(self.report, session, broken)

    @property
    def must_call(self) -> bool:
        """Whether the agent has not started as long as it called no model."""
        return self.rollout.agent.needs_model and self.rollout.captured

    def open_session(self) -> Session:
        rollout = self.rollout
        enforced = GATEWAY_LIMITS if rollout.captured else set()
        given = self.task.limits.model_dump(include=enforced, exclude_none=True)
        limits = Limits(**{"idle_sec": self.resources.idle_sec if enforced else None, **given})
        model = replace(rollout.model, allow=rollout.model.allow | frozenset(self.task.allow))
        self.replay = ReplaySession(rollout.prefix) if rollout.prefix else None
        record = self._record if self._observer is None else self._record_and_report
        session = self.resources.gateway.open_session(rollout.id, model, record, limits, rollout.sample, self.replay)
        session.on_exchange(self.calls_seen.look)
        return session

    async def _record_and_report(self, exchange: Exchange) -> None:
        assert self._observer is not None
        await self._record(exchange)
        try:
            self._observer.on_exchange(exchange)
        except Exception as error:  # noqa: BLE001 - raised below: the call itself went well, and the agent gets its reply
            self._observer_error = error

    async def find_changes(self, before: Snapshot, after: Snapshot) -> tuple[Change, ...]:
        found = await asyncio.to_thread(changes, before, after)
        self.changes, more = found[:CHANGES_LIMIT], len(found[CHANGES_LIMIT:])
        unrecorded = f"{more} more changes are not on record" if more else None
        self.unseen = before.unseen or after.unseen or unrecorded
        return found

    def paths_to_keep(self, found: tuple[Change, ...], after: Snapshot) -> list[str]:
        """What of the working directory is kept with the rollout: what the agent added or changed and, if the task asks
        for it, other files near the top."""
        changed = [change.path for change in found if change.kind != "removed"][:FILES_LIMIT]
        if self.task.keep == "changes":
            return changed
        small = (path for path, entry in after.entries.items() if path.count("/") < DEPTH and entry.size < FILE_ROOM)
        known = {*changed}
        others = (shown for path in small if (shown := show_path(path)) not in known)
        return [*changed, *islice(others, OTHERS_LIMIT)]

    def add_flags(self, report: AgentReport, found: tuple[Change, ...], *, planted: bool) -> None:
        canaries, replay = self.calls_seen.canaries, self.replay
        canaries.look(report.text, *(change.diff for change in found))
        conditions = {
            Flag.PLANTED_REWARD: planted,
            Flag.NOT_CAPTURED: not self.rollout.captured,
            Flag.CANARY: canaries.seen,
            Flag.EMPTY_REPLY: report.reminders > 0,
            Flag.DIVERGED: replay is not None and replay.diverged and replay.live_from,
        }
        self.flags = tuple(flag for flag, holds in conditions.items() if holds)

    async def find_failure(self, ended: _Ended) -> Score | None:
        """Why the score is missing; None when the work is judged. A failure that the rollout caused is judged."""
        session = ended.session
        if session.limits.ended_with_run and self.resources.rollouts >= SHARED and session.limits.used_most:
            self.flags += (Flag.DRAINED,)
            return None
        failure = ended.broken or find_failure(ended.report, session, self.replay, must_call=self.must_call)
        if failure is None and ended.report.stop is StopReason.CRASHED:
            self.flags += (Flag.AGENT_FAILED,)
        if failure is None or self._blame is None or failure.cause not in OWN_CAUSES:
            return failure
        blamed = await self._blame.decide(failure, session, self._record_judge)
        if blamed.probed is not None:
            self.probing = session_spending(blamed.probed, blamed.probed.model)
        if not blamed.own:
            return blamed.failure
        self.failure = blamed.failure
        by_model = blamed.failure.cause in {Cause.MODEL, Cause.AUTH}
        self.flags += (Flag.MODEL_FAILED if by_model else Flag.AGENT_FAILED,)
        return None

    def may_count_later(self, failure: Score) -> bool:
        """Whether to judge the work although its score is missing for now: it counts once the same agent has worked
        in another rollout of the run, for then the program itself is not what failed."""
        return self._blame is not None and self._blame.is_last and bool(failure.details.get("before_any_call"))

    def make_work(
        self, box: Box, report: AgentReport, env: Mapping[str, str], before: Snapshot, after: Snapshot
    ) -> Work:
        return Work(
            self.task,
            box,
            report.text,
            env,
            structured=report.answer,
            calls=(*self.calls_seen.calls, *list_logged_calls(self.tool_uses)),
            captured=self.rollout.captured,
            changes=self.changes,
            diffs=partial(changes, before, after, whole=True),
            unseen=before.unseen or after.unseen,
            stop=report.stop,
            skill_read=self._has_read_skill(),
        )

    def _has_read_skill(self) -> bool | None:
        if self.rollout.skill is None:
            return False
        sightings = self.calls_seen.sightings
        return sightings.read if sightings else None

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Report that a phase begins, and measure its wall time."""
        if self._observer is not None:
            self._observer.on_phase(name)
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - started, 4)

    def result(self, score: Score) -> Result:
        """The result with this score."""
        rollout, session, sightings = self.rollout, self.session, self.calls_seen.sightings
        costs = [one for one in (self.judgement.spending, self.probing) if one is not None]
        return Result(
            score=score,
            judgements=self.judgement.scores,
            failure=self.failure,
            report=self.report,
            limit=str(session.limits.ended_by) if session and session.limits.ended_by else None,
            skill=SkillSeen(shown=sightings.shown, read=sightings.read) if sightings and session else None,
            changes=self.changes,
            files=self.files,
            files_left_out=self.files_left_out,
            unseen=self.unseen,
            tools=dict(self.calls_seen.tools.most_common()) if rollout.captured else None,
            tool_uses=tuple(self.tool_uses),
            setup=tuple(self.setup),
            replay=self._replay_result(),
            spending=session_spending(session, rollout.model) if rollout.captured else Spending(captured=False),
            judging=sum(costs[1:], start=costs[0]) if costs else None,
            flags=(*self.flags, *self.judgement.flags),
            seconds=self.seconds,
        )

    def _replay_result(self) -> ForkReplay | None:
        prefix, replay = self.rollout.prefix, self.replay
        if prefix is None or replay is None:
            return None
        return ForkReplay(
            at=prefix.at,
            given=replay.given,
            live_from=replay.live_from,
            diverged=str(replay.diverged) if replay.diverged else None,
            unknown=replay.unknown,
        )


class _CallReader:
    """Reads the agent's model calls as they are recorded."""

    def __init__(self, rollout: Rollout, *, wants_calls: bool) -> None:
        """`wants_calls`: whether a judge needs to know which tools were called."""
        self.canaries = Canaries(rollout.task)
        self.sightings = SkillSightings(rollout.skill) if rollout.skill and rollout.captured else None
        self.calls: list[ObservedCall] = []
        self.tools: Counter[str] = Counter()
        self._wants_calls = wants_calls
        self._last: Exchange | None = None

    def look(self, exchange: Exchange) -> None:
        if self.sightings is not None:
            self.sightings.look(exchange.request)
        self.canaries.look(exchange.request, exchange.response)
        requested = find_requested_calls(exchange)
        self.tools.update(call.name for call in requested)
        if self._wants_calls:
            self.calls += requested
        if exchange.speaker is not None and exchange.speaker.kind is Kind.MAIN:
            self._last = exchange

    @property
    def model_declined(self) -> bool:
        """Whether the model's last reply to the main thread was a refusal."""
        reply = reply_of(self._last) if self._last else None
        return reply is not None and reply.stop is ReplyStop.REFUSED


async def read_small_files(box: Box, paths: Sequence[str]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The content of files of the working directory as far as they are small, and the paths of the others."""
    kept: dict[str, bytes] = {}
    left_out: list[str] = []
    room = FILES_ROOM
    for path in paths:
        try:
            content = await box.read_file(path, min(room, FILE_ROOM))
        except (FileNotFoundError, SandboxError):
            left_out.append(path)  # a link, a name that is no text, or too large
            continue
        kept[path] = content
        room -= len(content)
    return kept, tuple(left_out)


async def run_within_limits(agent: Agent, assignment: Assignment, session: Session) -> AgentReport:
    """Run an agent until it ends, or until the session says that it must end."""
    started = time.monotonic()
    running = asyncio.ensure_future(agent.run(assignment))
    over = asyncio.ensure_future(session.limits.wait_until_over(assignment.box.has_started_since))
    try:
        await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            # Its report, with what it printed so far, comes when its processes are gone.
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
        if not session.totals.answered or isinstance(error, UserError):
            raise
        report = AgentReport(stop=StopReason.CRASHED, exit_code=None, text="", seconds=time.monotonic() - started)
        if isinstance(error, SandboxError):
            return report, Score.missing(Cause.SANDBOX, str(error))
        return report, Score.missing(Cause.INTERNAL, repr(error), traceback=traceback.format_exc())
