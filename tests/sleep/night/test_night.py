"""Nights that stage nothing say what kept them from it, and spend nothing."""

import asyncio
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.sleep_world import START, Repository, corrected
from whet.errors import UserError
from whet.runs.config import Config, ModelConfig
from whet.runs.stats.use import Unit
from whet.skills.rollouts.budget import Budget
from whet.sleep.mining.sessions.mine import SessionsReport
from whet.sleep.night import flow
from whet.sleep.night.consent import NoConsentError
from whet.sleep.night.expiry import last_needed
from whet.sleep.night.flow import Setting, agree, run_night
from whet.sleep.night.spending import find_allowance
from whet.sleep.night.targets import find_targets, write_start
from whet.sleep.options import SleepOptions
from whet.sleep.report import Cost, NightRecord, Outcome
from whet.sleep.rules.find import find_rules
from whet.sleep.schedule import Machine
from whet.sleep.session import Session
from whet.sleep.store import SleepStore

SCRIPT = '[[scene]]\n[[scene.reply]]\ntext = "Done."\n'
SAID = "Always run `make lint` before you say you are done."


class World:
    """A home, a repository and a store; sessions are put into the store as a harvest does."""

    def __init__(self, folder: Path) -> None:
        self.home, self.script = folder / "home", folder / "model.toml"
        self.repository = Repository(self.home / "shop")
        self.repository.commit({"cart.py": "x = 1\n"})
        self.script.write_text(SCRIPT)
        self.store = SleepStore(folder / "store")
        self.config = Config()

    def put(self, session: Session) -> None:
        here = session.model_copy(update={"cwd": str(self.repository.folder)})
        self.store.put_session(here, repository=self.repository.folder, path=self.home / "none", digest=session.id)

    def run(self, *, scheduled: bool = False, **options: object) -> NightRecord:
        chosen = SleepOptions.model_validate({"agent": "loop", "model": f"scripted:{self.script}", **options})
        setting = Setting(chosen, self.config, self.home, {"HOME": str(self.home), "PATH": "/usr/bin:/bin"})
        return asyncio.run(run_night(setting, self.store, scheduled=scheduled))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def said(name: str, text: str = SAID, days: float = 1) -> Session:
    started = datetime.now(UTC) - timedelta(days=days)
    return corrected(name, ["edit cart.py", "python3 -m unittest"], text, ["make lint"], started=started, ended=started)


def test_without_sessions(world: World) -> None:
    assert world.run().outcome is Outcome.NO_SESSIONS


def test_a_correction_of_one_session_is_not_tried(world: World) -> None:
    world.put(said("a"))
    ended = world.run()
    assert (ended.outcome, ended.cost.rollouts) == (Outcome.NO_RULE, 0)


def test_a_repository_without_tests_gives_no_tasks(world: World) -> None:
    world.put(said("a"))
    world.put(said("b", days=2))
    ended = world.run()
    assert ended.outcome is Outcome.NO_JUDGE
    assert ended.detail == (
        "0 older and 0 newer tasks are proved; expected at least 3 and 5, in different parts of the repository"
    )


def test_a_repository_that_is_gone_does_not_end_the_night(world: World) -> None:
    world.put(said("a"))
    world.put(said("b", days=2))
    shutil.rmtree(world.repository.folder)
    ended = world.run()
    assert ended.outcome is Outcome.NO_JUDGE
    assert ended.detail.startswith(f"git rev-parse in {world.repository.folder} failed")


def test_an_empty_budget_of_the_month_is_said_before_anything_is_tried(world: World) -> None:
    world.put(said("a"))
    world.put(said("b", days=2))
    spent = Cost(rollouts=50, tokens=1, minutes=1, dollars=None)
    world.store.put("night", "x", NightRecord(id="x", started=_now(), ended=_now(), cost=spent, outcome=Outcome.NOISE))
    ended = world.run(monthly_budget="50")
    assert (ended.outcome, ended.detail) == (Outcome.BUDGET, "0 rollouts are left")


def test_a_budget_that_is_too_small_for_any_rule_is_not_begun(world: World) -> None:
    world.put(said("a"))
    world.put(said("b", days=2))
    ended = world.run(budget="37")
    assert (ended.outcome, ended.cost.rollouts) == (Outcome.BUDGET, 0)
    assert ended.detail == "37 rollouts are left; a rule takes at least 38"


def test_sessions_outside_of_repositories_are_said_to_be(world: World) -> None:
    world.store.put_session(said("a"), repository=None, path=world.home / "none", digest="a")
    ended = world.run()
    assert (ended.outcome, ended.detail) == (Outcome.NO_RULE, "none of them was in a git repository")


def test_no_endpoint_sees_files_without_consent(world: World) -> None:
    world.config = Config(models={"far": ModelConfig(url="https://models.example.com/v1")})
    with pytest.raises(NoConsentError, match=r"to https://models\.example\.com, and you have not agreed"):
        world.run(model="far")
    options = SleepOptions(agent="loop", model="far")
    agree(Setting(options, world.config, world.home, {}), world.store)
    assert world.run(model="far").outcome is Outcome.NO_SESSIONS


def test_a_night_that_was_killed_continues(world: World) -> None:
    world.store.put("night", "n", NightRecord(id="n", started=_now(), outcome=Outcome.NO_SESSIONS))
    assert world.run().id == "n"
    assert world.run().id != "n"


def test_a_scheduled_night_ends_with_its_window_and_the_next_continues_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(said("a"))
    world.put(said("b", days=2))

    limits: list[asyncio.Timeout] = []
    make_timeout = asyncio.timeout

    def timeout(seconds: float | None) -> asyncio.Timeout:
        limits.append(make_timeout(seconds))
        return limits[-1]

    async def find_tasks(*_: object) -> SessionsReport:
        limits[0].reschedule(0)  # now the window ends
        await asyncio.sleep(60)
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(flow, "find_tasks", find_tasks)
        patch.setattr(asyncio, "timeout", timeout)
        patch.setattr(flow, "look_at_machine", lambda *_: Machine(2, 0.0, on_mains=True, last_used=None))
        cut = world.run(scheduled=True, window="00:00-23:59")
    assert (cut.outcome, cut.detail, len(cut.rules)) == (Outcome.NO_TIME, "the next night continues", 1)
    assert cut.ended is not None
    continued = world.run()
    assert (continued.id, continued.outcome, continued.rules) == (cut.id, Outcome.NO_JUDGE, cut.rules)
    assert world.run().id != cut.id


def test_a_scheduled_night_outside_its_window_says_so_and_is_not_on_record(world: World) -> None:
    hour = datetime.now().astimezone().hour
    ended = world.run(scheduled=True, window=f"{(hour + 2) % 24:02}:00-{(hour + 3) % 24:02}:00")
    assert (ended.outcome, ended.detail) == (Outcome.NO_TIME, "outside the window")
    assert world.store.list("night", NightRecord) == []


def test_preferences_that_cannot_be_read_are_named_before_anything_is_done(world: World) -> None:
    with pytest.raises(UserError, match=r"`preferences` is 'missing\.md', which cannot be read"):
        world.run(preferences="missing.md")
    assert world.run(preferences=100 * "Write short rules. ").outcome is Outcome.NO_SESSIONS


def test_a_login_with_which_calls_cannot_be_recorded_is_refused(world: World) -> None:
    with pytest.raises(UserError, match="`login` is set, but the calls of 'opencode' cannot be recorded"):
        world.run(agent="opencode", login=True)


def test_what_is_left_is_counted_by_night_and_by_month() -> None:
    spent = Cost(rollouts=20, tokens=500, minutes=30, dollars=1.5)
    earlier = NightRecord(id="e", started=START, cost=spent, outcome=Outcome.NOISE)
    last_month = earlier.model_copy(update={"started": START - timedelta(days=40)})
    nightly = (Budget(120), Budget(1000, Unit.TOKENS), Budget(5400, Unit.SECONDS))
    left = find_allowance(nightly, (Budget(2, Unit.DOLLARS),), spent, [earlier, last_month], START)
    assert [one.amount for one in left.budgets] == [100, 500, 3600, 0]
    assert left.rollouts == 100
    assert left.empty == Budget(0, Unit.DOLLARS)


def test_the_file_that_the_agent_reads_comes_first(tmp_path: Path) -> None:
    assert [one.name for one in find_targets(tmp_path, (), "claude-code")] == ["CLAUDE.md"]
    for name in ("AGENTS.md", "CLAUDE.md"):
        (tmp_path / name).write_text(f"# {name}\n")
    assert [one.name for one in find_targets(tmp_path, (), "claude-code")] == ["CLAUDE.md", "AGENTS.md"]
    assert [one.name for one in find_targets(tmp_path, (), "codex")] == ["AGENTS.md", "CLAUDE.md"]
    start = write_start([tmp_path / "AGENTS.md"], tmp_path / "start")
    (tmp_path / "AGENTS.md").write_text("# changed\n")
    assert write_start([tmp_path / "AGENTS.md"], tmp_path / "start").read_text() == start.read_text() == "# AGENTS.md\n"


def test_a_rule_is_needed_while_sessions_do_what_it_asks_for() -> None:
    asked = [said("a", days=300), said("b", days=299)]
    (rule,) = asyncio.run(find_rules(asked, "/shop")).rules
    kept = corrected("kept", ["edit cart.py"], "Thanks.", ["make lint"], ended=_now())
    other = corrected("other", ["edit cart.py"], "Thanks.", ["make test"], ended=_now() + timedelta(days=1))
    assert last_needed([rule], asked)[rule.id] == rule.last
    assert last_needed([rule], [*asked, kept, other])[rule.id] == kept.ended


def _now() -> datetime:
    return datetime.now(UTC)
