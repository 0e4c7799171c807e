"""One scheduled night over several repositories: each is handled as its own whet.toml says."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from whet.runs.config import Config, ModelConfig
from whet.skills.rollouts.spending import LimitReachedError
from whet.skills.sharpen.run import SharpenRequest
from whet.sleep.demo.transcripts import Ran, Said, Story, write_claude_code
from whet.sleep.demo.world import CHECK, RULE, make_repository, write_script
from whet.sleep.mining.sessions.mine import SessionsReport
from whet.sleep.night import flow
from whet.sleep.night.flow import Setting, plan_night, run_night
from whet.sleep.night.tasks import find_tasks
from whet.sleep.options import SleepOptions
from whet.sleep.redaction import Redaction
from whet.sleep.report import Cost, NightRecord, Outcome
from whet.sleep.rules.rule import Rule
from whet.sleep.schedule import Machine
from whet.sleep.staging import Proposal, State, list_proposals
from whet.sleep.store import SleepStore


@dataclass(frozen=True)
class World:
    """A home with repositories, and a user's own settings."""

    folder: Path
    config: Config = field(default_factory=Config)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def add(self, name: str, settings: str = "", *, corrections: int = 2) -> Path:
        """A repository of this name in which agents were corrected."""
        repository = self.home / name
        make_repository(repository, datetime.now(UTC) - timedelta(days=60))
        self.write(name, settings)
        self.correct(name, corrections)
        return repository

    def write(self, name: str, settings: str) -> None:
        if settings:
            (self.home / name / "whet.toml").write_text(f"[sleep]\n{settings}\n")

    def correct(self, name: str, corrections: int, series: str = "first") -> None:
        for number in range(corrections):
            turns = (Said(f"Tidy up, part {number}.", (Ran("touch x"),)), Said(RULE, (Ran(CHECK, 0, "checked"),)))
            at = datetime.now(UTC) - timedelta(days=number + 1)
            write_claude_code(self.home, Story(f"{name} {series} {number}", self.home / name, at, turns))

    def setting(self, settings: str = "") -> Setting:
        (self.folder / "model.toml").write_text(write_script())
        file = self.folder / "config/whet/sleep.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        model = "" if "model =" in settings else f'model = "scripted:{self.folder / "model.toml"}"\n'
        agent = "" if "agent =" in settings else 'agent = "loop"\n'
        file.write_text(f'window = "00:00-23:59"\n{agent}{model}{settings}\n')
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        return Setting(SleepOptions().complete(env), self.config, self.home, env)

    def store(self) -> SleepStore:
        return SleepStore(self.folder / "store")

    def run(self, settings: str = "") -> NightRecord:
        with self.store() as store:
            return asyncio.run(run_night(self.setting(settings), store, scheduled=True))


@pytest.fixture(scope="module", autouse=True)
def idle() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "look_at_machine", lambda *_: Machine(2, 0.0, on_mains=True, last_used=None))
        yield


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@dataclass(frozen=True)
class Night:
    world: World
    record: NightRecord
    proposals: dict[str, Proposal]
    """By the name of the repository."""


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    """A night over repositories that ask for adoption without a person, for more support, and for nonsense."""
    world = World(tmp_path_factory.mktemp("nights"))
    world.add("shop", 'auto = true\ntargets = ["AGENTS.md", "TEAM.md"]')
    world.add("clone", "auto = true")
    world.add("careful", "min_support = 3")
    world.add("wrong", "min_support = 1\nmonthly_budget = 9999")
    mined: list[SessionsReport] = []

    async def find_tasks_once(store: SleepStore, repository: Path, redaction: Redaction, data: Path) -> SessionsReport:
        """The repositories have the same history, so its tasks are proved once."""
        if not mined:
            mined.append(await find_tasks(store, repository, redaction, data))
        return mined[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "find_tasks", find_tasks_once)
        record = world.run(f'allow_auto = "{world.home / "shop"}"\nbudget = "300"')
    with world.store() as store:
        proposals = {Path(one.repository or "").name: one for one in list_proposals(store)}
    return Night(world, record, proposals)


def test_each_repository_has_its_own_memory_files(night: Night) -> None:
    targets = {name: [one.path.name for one in found.targets] for name, found in night.proposals.items()}
    assert targets == {"shop": ["AGENTS.md", "TEAM.md"], "clone": ["AGENTS.md"]}
    assert night.record.outcome is Outcome.PROPOSED


def test_only_where_the_user_allows_it_a_proposal_adopts_itself(night: Night) -> None:
    assert {name: one.state for name, one in night.proposals.items()} == {
        "shop": State.ADOPTED,
        "clone": State.STAGED,
    }
    home = night.world.home
    assert [CHECK in (home / name / "AGENTS.md").read_text() for name in ("shop", "clone")] == [True, False]
    assert CHECK in (home / "shop/TEAM.md").read_text()
    waiting = f"waits for you, although {home}/clone/whet.toml has `auto = true`"
    assert any(waiting in note for note in night.record.notes)


def test_a_repository_that_wants_more_support_is_not_tried_yet(night: Night) -> None:
    with night.world.store() as store:
        tried = [one for one in store.list("rule", Rule) if one.id in night.record.rules]
    assert {Path(one.repository).name for one in tried} == {"shop", "clone"}


def test_a_wrong_file_leaves_its_repository_out_with_one_line(night: Night) -> None:
    where = night.world.home / "wrong"
    line = f"{where}/whet.toml: [sleep]: key 'monthly_budget' has no effect in a repository"
    assert len([note for note in night.record.notes if note.startswith(line)]) == 1
    with night.world.store() as store:
        assert where not in store.repositories()


def test_a_file_that_became_wrong_leaves_out_what_was_read_before(world: World) -> None:
    repository = world.add("shop")
    assert len(_plan(world).rules) == 1
    (repository / "whet.toml").write_text("[sleep")
    plan = _plan(world)
    assert (plan.rules, len(plan.left_out)) == ((), 1)
    assert plan.left_out[0].startswith(f"{repository}/whet.toml: not TOML")
    record = world.run()
    assert (record.outcome, [note for note in record.notes if "not TOML" in note]) == (
        Outcome.NO_RULE,
        list(plan.left_out),
    )


def test_a_memory_file_that_cannot_take_an_edit_leaves_its_repository_out(world: World) -> None:
    repository = world.add("shop")
    (repository / "AGENTS.md").write_bytes(b"caf\xe9\n")
    plan = _plan(world)
    assert (plan.rules, len(plan.left_out)) == ((), 1)
    assert plan.left_out[0].startswith(f"{repository}/AGENTS.md: not UTF-8 text")


@pytest.mark.parametrize(
    ("agent", "problem"),
    [
        ("command:sh", r"key 'agent' is 'command:sh'; "),
        ("mine", r"key 'agent' is 'mine'; "),
    ],
)
def test_a_repository_brings_no_agent_of_its_own(world: World, agent: str, problem: str) -> None:
    repository = world.add("shop")
    table = f'[sleep]\nagent = "{agent}"\n[agents.mine]\nargv = ["sh", "-c", "true"]\n'
    (repository / "whet.toml").write_text(table)
    plan = _plan(world)
    assert (plan.rules, len(plan.left_out)) == ((), 1)
    assert problem in plan.left_out[0]


def test_an_agent_that_sends_files_elsewhere_needs_the_user_s_consent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = replace(world, config=Config(models={"far": ModelConfig(url="https://models.example.com/v1")}))
    world.add("shop", 'agent = "chat"')
    endpoints = {"loop": [], "chat": ["https://elsewhere.example.com"]}
    monkeypatch.setattr(flow.Night, "endpoints", lambda _, agent=None: endpoints[agent or "loop"])
    record = world.run()
    assert record.rules == ()
    expected = "which would send files to https://elsewhere.example.com, and you have not agreed to that"
    assert [expected in note for note in record.notes if "agent" in note] == [True]


def _plan(world: World) -> flow.NightPlan:
    with world.store() as store:
        return asyncio.run(plan_night(world.setting(), store))


@dataclass
class Stand:
    """Takes the place of mining and of the exam, and keeps what it was asked."""

    requests: list[SharpenRequest]

    async def find_tasks(self, _store: SleepStore, repository: Path, *_: object) -> SessionsReport:
        return SessionsReport(repository=str(repository), rules=(), dropped=(), tasks=(), lost=())

    def write_carriers(self, _tasks: object, _rule: Rule, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "one.jsonl").write_text('{"id": "t", "instruction": "Say hi.", "answer": "hi", "split": "train"}\n')

    async def sharpen_skill(self, request: SharpenRequest, *_: object, **__: object) -> None:
        self.requests.append(request)
        request.run.out.mkdir(parents=True)
        raise LimitReachedError("stop here")


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    stand = Stand([])
    for name in ("find_tasks", "write_carriers", "sharpen_skill"):
        monkeypatch.setattr(flow, name, getattr(stand, name))
    monkeypatch.setattr(flow, "read_cost", lambda _: Cost())
    monkeypatch.setattr(flow, "wait_to_start", _at_once)
    return stand


async def _at_once(*_: object) -> None:
    return None


def test_preferences_of_the_repository_add_to_those_of_the_user(world: World, stand: Stand) -> None:
    world.add("shop", 'preferences = "Name the shop."')
    world.add("blog")
    world.run('preferences = "Be short."')
    said = [one.preferences.splitlines()[-2:] for one in stand.requests]
    assert sorted(said) == [[RULE.rstrip("."), "Be short."], ["Be short.", "Name the shop."]]


def test_a_repository_s_own_patterns_stop_only_its_own_part(world: World, stand: Stand) -> None:
    world.add("blog")
    world.add("shop")
    assert len(_plan(world).rules) == 2
    # The sessions are masked by now; the memory file is not.
    world.write("shop", 'redact_extra = "Plain Python"')
    record = world.run()
    assert [one.skill.parents[1].name in record.rules for one in stand.requests] == [True]
    assert any("`redact_extra` stopped the work on this repository" in note for note in record.notes)
    assert record.outcome is Outcome.BUDGET


def test_forgetting_a_repository_does_not_reset_the_error_rate_of_its_rule(world: World, stand: Stand) -> None:
    repository = world.add("shop")
    world.run()
    with world.store() as store:
        store.forget(str(repository))
        assert store.list("rule", Rule) == []
        assert not [one for one in store.folder.glob("nights/*/*") if one.is_dir()]
    world.correct("shop", 2, "second")
    world.run()
    first, second = (one.plan.alpha for one in stand.requests)
    assert second == first / 2
    with world.store() as store:
        assert len(store.list("night", NightRecord)) == 2


def test_the_minutes_of_a_night_count_mining_too(world: World, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    async def mine_slowly(*_: object) -> SessionsReport:
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(flow, "find_tasks", mine_slowly)
    world.add("shop")
    record = world.run('budget = ["120 rollouts", "3s"]')
    assert (record.outcome, record.cost.rollouts, stand.requests) == (Outcome.BUDGET, 0, [])
    assert 2.9 / 60 <= record.cost.minutes < 0.5
    assert record.detail.startswith("the night took ")


def test_a_night_that_was_killed_has_only_the_rest_of_its_minutes(world: World, stand: Stand) -> None:
    world.add("shop")
    with world.store() as store:
        cost = Cost(minutes=89.999)
        started = datetime.now(UTC)
        store.put("night", "n", NightRecord(id="n", started=started, outcome=Outcome.NO_RULE, cost=cost))
    record = world.run()
    assert (record.id, record.outcome, stand.requests) == ("n", Outcome.BUDGET, [])
