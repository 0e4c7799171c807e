"""The whole night: read sessions, find rules, try each rule on tasks of its repository, stage what is certified.

Every step keeps what it found in the store, and every rollout is in the run folder of its rule. So a night that was
killed continues when it is started again, and pays for nothing twice.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.stats.use import RolloutUse, Unit
from whet.skills.certificates.certificate import CERTIFICATE
from whet.skills.measurement import NotMeasured
from whet.skills.proposers.base import Proposer
from whet.skills.results import SharpenResult
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.spending import LimitReachedError
from whet.skills.run_folders import describe_verdict
from whet.skills.sharpen.estimate import estimate_use
from whet.skills.sharpen.options import read_preferences
from whet.skills.sharpen.proposer_runtime import ProposerSpec
from whet.skills.sharpen.run import SharpenRequest, sharpen_skill
from whet.sleep.exam import fewest_rollouts, night_request, propose_rules
from whet.sleep.harvest import harvest
from whet.sleep.night.clock import NightClock
from whet.sleep.night.consent import find_endpoint, give_consent, refuse_without_consent
from whet.sleep.night.expiry import last_needed
from whet.sleep.night.reading import SentenceReader
from whet.sleep.night.records import (
    Trial,
    begin_night,
    describe_harvest,
    describe_proof,
    explain_outcome,
    find_unfinished,
)
from whet.sleep.night.repositories import RepositoryCheck, refuse_unrecorded
from whet.sleep.night.spending import Allowance, add_costs, find_allowance, find_share, read_call_cost, read_cost
from whet.sleep.night.targets import find_targets, write_start
from whet.sleep.night.tasks import TooFewTasksError, find_tasks, write_carriers
from whet.sleep.options import SleepOptions
from whet.sleep.redaction import Redaction, SecretFoundError
from whet.sleep.report import Cost, NightRecord, Outcome, render_report
from whet.sleep.repository_settings import RepositorySettings
from whet.sleep.review.adopt import adopt_alone
from whet.sleep.rules.find import find_rules
from whet.sleep.rules.meanings import make_recaller
from whet.sleep.rules.model_corrections import Interpret
from whet.sleep.rules.rule import Rule
from whet.sleep.schedule import hold_lock
from whet.sleep.schedule.machine import local_time, look_at_machine
from whet.sleep.schedule.rules import WAITS, Reason, must_end, wait_to_start
from whet.sleep.session import Session
from whet.sleep.staging import (
    Draft,
    Evidence,
    Sighting,
    State,
    expire_rules,
    is_rejected,
    list_proposals,
    stage,
)
from whet.sleep.store import NIGHTS, READING, REPORT, SleepStore
from whet.tasks.git import GitError

READING_SHARE = 0.1
"""Of the budgets of a night: what reading sentences may use."""
AT_AN_END_SEC = 1.0
"""A budget with less time left is used up: timers do not end to the point."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a night works."""

    options: SleepOptions
    """Complete."""
    config: Config
    home: Path
    env: Mapping[str, str]
    watch: Callable[[str], None] = lambda _: None
    """Told what the night is doing, line by line."""


@dataclass(frozen=True, slots=True)
class NightPlan:
    """What a night would do. Finding it out calls no model."""

    sessions: int
    rules: tuple[Rule, ...]
    allowance: Allowance
    agent: str
    model: str
    endpoint: str | None
    """Where the model is, if not on this machine."""
    use: RolloutUse
    """What one rollout may use."""
    left_out: tuple[str, ...] = ()
    """Repositories that the night would leave out, and why."""


async def plan_night(setting: Setting, store: SleepStore) -> NightPlan:
    """Read the transcripts, and find out what a night would try and what that may cost."""
    with hold_lock(store, datetime.now(UTC)):
        night = Night(setting, store, on_record=False)
        night.harvest()
        night.choose_repositories()
        rules = tuple(await night.find_rules())
    run = night.run_options(night.folder / "run")
    model = run.models[0]
    return NightPlan(
        sum(night.record.sessions.values()),
        rules,
        night.allowance(),
        run.agents[0],
        model,
        find_endpoint(model, setting.config, setting.env),
        estimate_use(run, setting.config),
        night.left_out,
    )


def agree(setting: Setting, store: SleepStore) -> None:
    """Record the developer's consent that the endpoints of a night may see files of their repositories."""
    for endpoint in Night(setting, store, on_record=False).endpoints():
        give_consent(store, endpoint, datetime.now(UTC))


async def run_night(setting: Setting, store: SleepStore, *, scheduled: bool = False) -> NightRecord:
    """Run a night, or continue the one that was cut short. A scheduled one waits until the machine is idle, and ends
    with its window."""
    with hold_lock(store, datetime.now(UTC)):
        night = Night(setting, store)
        refuse_unrecorded(night.agent(), setting.options, setting.config)
        for endpoint in night.endpoints():
            refuse_without_consent(store, endpoint)
        if scheduled and (reason := await night.wait()) is not None:
            return night.skip(reason)
        end = asyncio.timeout(night.time_left(scheduled=scheduled))
        try:
            async with end, night.count_time():
                await night.run()
        except TimeoutError:
            if not end.expired():
                raise
            night.run_out_of_time()
        except NotMeasured as error:
            night.fail(error)
        except UserError as error:
            night.fail(error)
            raise
        return night.end()


@dataclass(slots=True)
class Night:
    """The steps of a night, and what they found so far."""

    setting: Setting
    store: SleepStore
    on_record: bool = True
    """Whether the night takes place. If not, it is only planned."""
    record: NightRecord = field(init=False)
    folder: Path = field(init=False)
    repositories: dict[Path, RepositorySettings] = field(init=False, default_factory=dict)
    """Those that the night works on, and how."""
    left_out: tuple[str, ...] = field(init=False, default=())
    """Why other repositories are left out."""
    _preferences: str = field(init=False)
    _clock: NightClock = field(init=False)

    def __post_init__(self) -> None:
        self._preferences = read_preferences(self.setting.options.preferences)
        self.record = find_unfinished(self.store) or begin_night(self.store)
        self.folder = self.store.folder / NIGHTS / self.record.id
        self._clock = NightClock(self.record.cost.minutes)

    def endpoints(self, agent: str | None = None) -> list[str]:
        """Where files of the repositories would be sent."""
        setting = self.setting
        models = [*self.run_options(self.folder / "run", agent=agent).models, setting.options.proposer_model]
        found = [find_endpoint(one, setting.config, setting.env) for one in models if one]
        return [one for one in dict.fromkeys(found) if one]

    async def wait(self) -> Reason | None:
        """Wait until a scheduled night may start; else the reason why it may not."""
        setting = self.setting
        look = partial(look_at_machine, setting.home, setting.env)
        nights = [one for one in self.store.list("night", NightRecord) if one.outcome is not Outcome.NO_TIME]
        last = max((one.started for one in nights if one.ended is not None), default=None)
        return await wait_to_start(setting.options, look, local_time, asyncio.sleep, last)

    def time_left(self, *, scheduled: bool) -> float | None:
        """Seconds until the budgets of time end, and the window of a scheduled night. None without any end."""
        left = self.allowance().seconds
        if not scheduled:
            return left
        now = local_time()
        window = (must_end(self.setting.options, now).astimezone(UTC) - now.astimezone(UTC)).total_seconds()
        return window if left is None else min(window, left)

    @asynccontextmanager
    async def count_time(self) -> AsyncIterator[None]:
        """Count all time that passes, whatever it is used for, also in case the night is killed."""
        async with self._clock.run(lambda minutes: self._set_cost(minutes=minutes)):
            try:
                yield
            finally:
                self._set(cost=self._spent())

    def _set_cost(self, **changes: float) -> None:
        self._set(cost=self.record.cost.model_copy(update=changes))

    def run_out_of_time(self) -> None:
        """End with the budget of time, or leave the rest to the next night, which continues this one."""
        left = self.allowance().seconds
        if left is not None and left < AT_AN_END_SEC:
            self._set(outcome=Outcome.BUDGET, detail=f"the night took {Budget(60 * self._clock.minutes, Unit.SECONDS)}")
        else:
            self._set(outcome=Outcome.NO_TIME, detail="the next night continues")

    def skip(self, reason: Reason) -> NightRecord:
        """Leave a night out. It is on record only if it was to take place."""
        self.on_record = reason in WAITS
        self.setting.watch(f"no night now: {reason}")
        self._set(outcome=Outcome.NO_TIME, detail=str(reason))
        return self.end()

    async def run(self) -> None:
        self.harvest()
        self.choose_repositories()
        self.propose_removals()
        rules = await self.find_rules()
        # Which rules a night tries is fixed once: they share its error rate, also after it was killed.
        self._set(rules=self.record.rules or tuple(one.id for one in rules))
        for rule in rules:
            if rule.id not in self.record.rules:
                continue
            if (short := self._find_shortage(rule)) is not None:
                self._set(outcome=Outcome.BUDGET, detail=short)
                return
            with self._stop_at_secrets(self._own(rule)):
                await self.learn(rule)

    @contextmanager
    def _stop_at_secrets(self, own: RepositorySettings) -> Iterator[None]:
        """A secret in a prompt ends the night. If a repository added patterns of its own, it ends only its own part."""
        try:
            yield
        except SecretFoundError as error:
            if not own.own_patterns:
                raise
            self._note(f"{own.file}: [sleep]: `redact_extra` stopped the work on this repository: {error}")

    def _find_shortage(self, rule: Rule) -> str | None:
        """Why the budget does not reach for a rule."""
        allowance, fewest = self.allowance(rule), fewest_rollouts()
        if allowance.empty is not None:
            return f"{allowance.empty} are left"
        if allowance.rollouts < fewest:
            return f"{allowance.rollouts} rollouts are left; a rule takes at least {fewest}"
        return None

    def harvest(self) -> None:
        """Read what is new in the transcripts."""
        setting, now = self.setting, datetime.now(UTC)
        self.setting.watch("reading transcripts")
        read = harvest(setting.options, self.store, now, home=setting.home, env=setting.env)
        sessions = list(self._sessions())
        self._set(
            sessions=Counter(one.cli for one in sessions),
            secrets_masked=self.record.secrets_masked + read.secrets,
            **describe_harvest(read),
            outcome=Outcome.NO_RULE if sessions else Outcome.NO_SESSIONS,
            detail="none of them was in a git repository" if sessions and not self.store.repositories() else "",
        )

    def choose_repositories(self) -> None:
        """Read the settings of every repository. One whose settings are wrong is left out, and the report says so."""
        setting = self.setting
        check = RepositoryCheck(
            setting.options,
            setting.config,
            self.endpoints,
            self.agent,
            setting.home,
            self.store,
            consent=self.on_record,
        )
        self.repositories, self.left_out = check.choose(self.store.repositories())
        for line in self.left_out:
            if line not in self.record.notes:
                self._note(line)

    def _own(self, rule: Rule) -> RepositorySettings:
        return self.repositories[Path(rule.repository)]

    def propose_removals(self) -> None:
        """Propose to remove rules that no session needed for a long time."""
        for repository, own in self.repositories.items():
            rules = [one for one in self.store.list("rule", Rule) if one.repository == str(repository)]
            needed = last_needed(rules, self.store.sessions(repository))
            for target in find_targets(repository, own.targets, self.agent(own)):
                text = target.read_text(encoding="utf-8") if target.is_file() else ""
                shorter = expire_rules(self.store, text, needed, datetime.now(UTC))
                if shorter != text and not self._is_staged(target):
                    why = "no session needed these rules for 90 days"
                    self._stage(repository, [target], text, shorter, evidence=Evidence.EXPIRY, why=why)

    def _is_staged(self, target: Path) -> bool:
        waiting = [one for one in list_proposals(self.store) if one.state is State.STAGED]
        return any(place.path == target for one in waiting for place in one.targets)

    async def find_rules(self) -> list[Rule]:
        """The rules that enough sessions ask for, and that nobody rejected; those with most support first."""
        found: list[Rule] = []
        dropped: Counter[str] = Counter()
        for repository, own in self.repositories.items():
            sessions = list(self._sessions(repository))
            interpret, scripts = self._interpret(repository), self.setting.options.all_origins
            with self._stop_at_secrets(own):
                rules = await find_rules(sessions, str(repository), scripts=scripts, interpret=interpret)
                for rule in rules.rules:
                    self.store.put("rule", rule.id, rule)
                dropped.update(one.cause for one in rules.dropped)
                found += rules.rules
        self._set(not_used=dropped, cost=self._spent())
        wanted = [one for one in found if self._is_wanted(one)]
        return sorted(wanted, key=lambda one: (-len(one.sessions), one.id))

    def _interpret(self, repository: Path) -> Interpret:
        """How sentences are read that the grammar does not read: by the model that writes rules, if there is one. A
        night that is only planned asks no model."""
        model, setting = self.setting.options.proposer_model, self.setting
        if model is None or not self.on_record:
            return make_recaller(self.store)
        folder = self.folder / READING
        run = RunOptions(agents=("loop",), models=(model,), out=folder).complete(setting.config)
        refuse = partial(self._redaction(repository).refuse_secrets, what="a prompt of the night")
        reader = SentenceReader(
            self.store, folder, run, setting.config, setting.env, self._reading_allowance, refuse, self._note
        )
        return reader.interpret

    def _reading_allowance(self) -> Allowance:
        """What reading sentences may still use: a share of the night, and no more than the night has left."""
        nightly, spent = self.setting.options.night_budgets(), read_call_cost(self.folder / READING)
        return find_share(nightly, READING_SHARE, spent) & self.allowance()

    def _is_wanted(self, rule: Rule) -> bool:
        known = {one.rule for one in list_proposals(self.store) if one.state is not State.REJECTED}
        enough = len(rule.sessions) >= self._own(rule).min_support
        return enough and rule.id not in known and not is_rejected(self.store, rule.id, rule.sessions)

    async def learn(self, rule: Rule) -> None:
        """Try a rule in the memory file of its repository, and stage it if that is certified."""
        repository, folder = Path(rule.repository), self.folder / rule.id
        self.setting.watch(f"{repository.name}: {rule.text}")
        if not (folder / "tasks").is_dir():
            data = self.setting.home / ".local/share"
            try:
                mined = await find_tasks(self.store, repository, self._redaction(repository), data)
                self._set(not_used={**self.record.not_used, **mined.count_causes()})
                await asyncio.to_thread(write_carriers, mined.tasks, rule, folder / "tasks")
            except (TooFewTasksError, GitError) as error:
                self._set(outcome=Outcome.NO_JUDGE, detail=str(error))
                return
        own = self._own(rule)
        targets = find_targets(repository, own.targets, self.agent(own))
        start = write_start(targets, folder / "start")
        redaction = self._redaction(repository)
        redaction.refuse_secrets(start.read_text(encoding="utf-8"), str(targets[0]))
        redaction.refuse_private("\n".join((rule.text, *rule.said)), f"rule {rule.id}")
        request = self._request(rule, start, folder, self.allowance(rule))
        trial = Trial(rule=rule.id, night=self.record.id)
        self.store.put("trial", trial.name, trial)
        try:
            result = await sharpen_skill(request, self._proposer(rule), self.setting.config, env=self.setting.env)
        except LimitReachedError as reached:
            self._set(outcome=Outcome.BUDGET, detail=str(reached).partition(";")[0])
            return
        finally:
            self._set(cost=self._spent())
        self._judge(rule, targets, result)

    def _request(self, rule: Rule, start: Path, folder: Path, allowance: Allowance) -> SharpenRequest:
        """What to sharpen: the memory file, on the tasks of a rule, with the work as guard."""
        own = self._own(rule)
        run = self.run_options(folder / "run", folder / "tasks", agent=self.agent(own))
        run = run.model_copy(update={"limits": allowance.within(run.limits)})
        request = night_request(start, run, Budget(allowance.rollouts))
        # The error rate is that of the whole night, whatever it tries. A rule that is tried again has half of it.
        plan = replace(request.plan, alpha=request.plan.alpha / len(self.record.rules) / 2 ** self._tries(rule))
        said = "\n".join([*rule.said, self._preferences, own.preferences]).rstrip("\n")
        refuse = partial(self._redaction(Path(rule.repository)).refuse_secrets, what="a prompt of the night")
        return replace(request, plan=plan, preferences=said, check_prompt=refuse)

    def _proposer(self, rule: Rule) -> Proposer | ProposerSpec:
        """The developer's own sentence, or a model that writes the rule with the sentence as a preference."""
        model = self.setting.options.proposer_model
        return ProposerSpec("llm", model) if model else propose_rules(f"- {rule.text}")

    def run_options(self, out: Path, tasks: Path | None = None, agent: str | None = None) -> RunOptions:
        """The options of rollouts: the developer's own agent and model, in boxes with their own home."""
        options = self.setting.options
        return RunOptions(
            tasks=tasks or (),
            agents=(agent or self.agent(),),
            models=(options.model,) if options.model else (),
            login=options.login,
            out=out,
            resume=out.is_dir(),
        ).complete(self.setting.config)

    def _judge(self, rule: Rule, targets: list[Path], result: SharpenResult) -> None:
        """Stage what is certified; else say what kept the night from it."""
        certified = result.certificate.last_certified
        if certified is None:
            self._set(outcome=explain_outcome(result), detail=f"rule {rule.id}: {describe_verdict(result.certificate)}")
            return
        self._stage(
            Path(rule.repository),
            targets,
            result.start.text,
            result.best.text,
            rule=rule.id,
            sessions=tuple(self._sightings(rule)),
            proof=describe_proof(certified, len(result.certificate.tasks)),
            certificate=result.folder / CERTIFICATE,
            certified=True,
            evidence=Evidence.CORRECTION,
        )
        self._set(outcome=Outcome.PROPOSED, detail="")

    def _stage(self, repository: Path, targets: list[Path], before: str, after: str, **fields: Any) -> None:
        """Stage a proposal, and adopt it at once if the repository's own settings allow that."""
        draft = Draft(
            night=self.record.id, repository=repository, targets=tuple(targets), before=before, after=after, **fields
        )
        proposal = stage(self.store, draft, self._redaction(repository), datetime.now(UTC), self.setting.home)
        self._set(proposals=(*self.record.proposals, proposal.id))
        if note := adopt_alone(self.store, proposal, self.repositories[repository]):
            self._note(note)

    def allowance(self, rule: Rule | None = None) -> Allowance:
        """What the night may use for a rule: what other rules and nights left. A run that was killed counts what it
        used itself."""
        options, own = self.setting.options, self.folder / rule.id / "run" if rule else None
        nights = [one for one in self.store.list("night", NightRecord) if one.id != self.record.id]
        return find_allowance(
            options.night_budgets(), options.month_budgets(), self._spent(own), nights, self.record.started
        )

    def _spent(self, own: Path | None = None) -> Cost:
        """What the night has used so far, but for one run. Its time is that of the whole night, not only of models."""
        costs = {run: read_cost(run) for run in self._runs()}
        used = add_costs((read_call_cost(self.folder / READING), *(costs[run] for run in costs if run != own)))
        minutes = max(used.minutes, self._clock.minutes - (costs[own].minutes if own in costs else 0))
        return used.model_copy(update={"minutes": minutes})

    def end(self) -> NightRecord:
        """Write the report."""
        self._set(ended=datetime.now(UTC))
        if not self.on_record:
            return self.record
        report = render_report(self.record, list_proposals(self.store))
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / REPORT).write_text(report, encoding="utf-8")
        return self.record

    def fail(self, error: Exception) -> None:
        """Put an error on record. What was measured is kept."""
        self._set(outcome=Outcome.FAILED, detail=str(error))
        self.end()

    def _note(self, note: str) -> None:
        self._set(notes=(*self.record.notes, note))

    def _set(self, **changes: object) -> None:
        self.record = NightRecord.model_validate({**dict(self.record), **changes})
        if self.on_record:
            self.store.put("night", self.record.id, self.record)

    def _sessions(self, repository: Path | None = None) -> Iterator[Session]:
        return self.store.sessions(repository, self.setting.options.since(datetime.now(UTC)))

    def _sightings(self, rule: Rule) -> Iterator[Sighting]:
        for one in self._sessions(Path(rule.repository)):
            if one.key in rule.sessions:
                yield Sighting(cli=one.cli, session=one.id, at=one.started)

    def agent(self, own: RepositorySettings | None = None) -> str:
        """The agent that replays tasks: the one that is named, or the one with most sessions."""
        chosen = (own.agent if own else None) or self.setting.options.agent or self.setting.config.defaults.agent
        if not chosen and not self.record.sessions:
            chosen = next((one.cli for one in self._sessions()), None)
        if not chosen and not self.record.sessions:
            raise UserError("`agent` is missing; expected the agent that replays tasks, such as claude-code")
        return chosen or Counter(self.record.sessions).most_common(1)[0][0]

    def _redaction(self, repository: Path) -> Redaction:
        patterns = self.repositories[repository].redact_extra
        return Redaction(self.setting.env, self.setting.home, [repository], patterns)

    def _runs(self) -> list[Path]:
        return sorted(self.folder.glob("*/run"))

    def _tries(self, rule: Rule) -> int:
        """In how many other nights the rule was tried."""
        trials = self.store.list("trial", Trial)
        return sum(one.rule == rule.id and one.night != self.record.id for one in trials)
