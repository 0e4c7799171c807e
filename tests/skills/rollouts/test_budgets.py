"""Budgets in all their units, and that no run passes them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.sharpen_world import HELPFUL, USELESS, Adds, World, decisions
from whet.errors import UserError
from whet.gateway import Limits, Reached, Spent
from whet.rollout.result import Result, Spending
from whet.runs.config import ModelConfig
from whet.runs.stats.summary import tally, total
from whet.runs.stats.use import Unit
from whet.runs.store.store import Store
from whet.scoring import Score
from whet.skills.measurement import OutOfBudget, RunPart, Verdict
from whet.skills.rollouts.budget import Budget, read_budget
from whet.skills.rollouts.spending import STOPPED, BudgetTracker, union_length
from whet.testing import ScriptedModel
from whet.testing.script import read_script


@pytest.mark.parametrize(
    ("text", "amount", "unit"),
    [
        ("400", 400, Unit.ROLLOUTS),
        ("1 rollout", 1, Unit.ROLLOUTS),
        ("2M tokens", 2e6, Unit.TOKENS),
        ("1.5k tokens", 1500, Unit.TOKENS),
        ("700tokens", 700, Unit.TOKENS),
        ("$5", 5, Unit.DOLLARS),
        ("$ .25", 0.25, Unit.DOLLARS),
        ("5 USD", 5, Unit.DOLLARS),
        ("3h", 10800, Unit.SECONDS),
        ("1.5 hours", 5400, Unit.SECONDS),
        ("45min", 2700, Unit.SECONDS),
        ("90 s", 90, Unit.SECONDS),
    ],
)
def test_a_budget_is_read_as_users_write_it(text: str, amount: float, unit: Unit) -> None:
    assert read_budget(text) == Budget(amount, unit)


@given(st.integers(1, 999), st.sampled_from(["{} rollouts", "{}k tokens", "{}M tokens", "${}.00"]))
def test_a_budget_that_is_shown_can_be_read_again(number: int, form: str) -> None:
    assert str(read_budget(form.format(number))) == form.format(number)


@pytest.mark.parametrize("text", ["", "0", "-1", "2M", "4.5", "5 EUR", "two hours", "$", "$5 tokens", "1e9", "3d"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"`budget` is .*; expected rollouts"):
        read_budget(text)


def test_the_stricter_limit_holds() -> None:
    assert Budget(5, Unit.DOLLARS).within(Limits(cost=3, turns=2)) == Limits(cost=3, turns=2)
    assert Budget(5, Unit.DOLLARS).within(Limits(cost=7)).cost == 5
    assert Budget(60, Unit.SECONDS).within(Limits()).wall_sec == 60
    assert Budget(9).within(Limits()) == Limits()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=9))
def test_time_in_which_several_rollouts_ran_counts_once(spans: list[tuple[int, int]]) -> None:
    seconds = {second for start, length in spans for second in range(start, start + length)}
    assert union_length([(start, start + length) for start, length in spans]) == len(seconds)


def test_rollouts_are_planned_with_a_margin() -> None:
    budget = Budget(1000, Unit.TOKENS)
    assert budget.in_rollouts(100, 10) == 10 + 900 // 12.5
    assert budget.in_rollouts(1100, 10) == 10
    with pytest.raises(UserError, match="`budget` is 1k tokens, but 10 rollouts used no tokens;"):
        budget.in_rollouts(0, 10)


class Meter:
    """A gateway that says what it is told to have spent."""

    def __init__(self) -> None:
        self.seconds, self.cost = 0.0, 0.0
        self.reached: Reached | None = None

    def spent(self) -> Spent:
        return Spent(cost=self.cost, seconds=self.seconds)

    def exhausted(self) -> Reached | None:
        return self.reached


def test_a_part_stops_at_its_share_and_stays_stopped(tmp_path: Path) -> None:
    meter = Meter()
    budget = Budget(10, Unit.DOLLARS)

    def opened() -> BudgetTracker:
        account = BudgetTracker(tmp_path, budget, meter, {"exam": Spent(cost=1.0)}, "search")  # type: ignore[arg-type]
        account.divide({"search": 0.5, "exam": 0.2}, budget.amount)
        return account

    account = opened()
    meter.cost = 5.9
    account.refuse("search")
    account.add("exam", Result(score=Score.of(1.0), spending=Spending(calls=1, cost=0.9)))
    account.refuse("exam")
    meter.cost = 7.0
    with pytest.raises(OutOfBudget, match=r"\$5\.10 of its share of \$5\.00"):
        account.refuse("search")
    account.refuse("exam")
    account.add("exam", Result(score=Score.of(1.0), judging=Spending(calls=1, cost=0.2)))
    with pytest.raises(OutOfBudget):
        account.refuse("exam")
    account.refuse("test")
    meter.cost = 0.0
    with pytest.raises(OutOfBudget):
        opened().refuse("search")


def test_a_limit_of_the_user_is_not_the_budget(tmp_path: Path) -> None:
    meter = Meter()
    account = BudgetTracker(tmp_path, Budget(10, Unit.DOLLARS), meter, {})  # type: ignore[arg-type]
    for limit in (Reached("cost", 5.2, 5.0), Reached("turns", 10, 10)):
        meter.reached = limit
        with pytest.raises(UserError, match=r"stopped by limit .*; resume with a higher limit and `resume`"):
            account.refuse("exam")
    assert not (tmp_path / STOPPED).exists(), "with a higher limit, nothing has stopped"
    meter.reached = Reached("cost", 10.1, 10.0)
    with pytest.raises(OutOfBudget, match=r"cost: 10\.10 of 10\.00 dollars"):
        account.refuse("exam")


def test_time_of_a_part_counts_once_however_many_are_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meter, now, before = Meter(), 100.0, {"exam": Spent(seconds=5.0), "search": Spent(seconds=7.0)}
    monkeypatch.setattr("time.monotonic", lambda: now)
    account = BudgetTracker(tmp_path, Budget(60, Unit.SECONDS), meter, before, "search")  # type: ignore[arg-type]
    with account.at_work("exam"):
        now += 10
        with account.at_work("exam"):
            now += 10
        now += 10
    meter.seconds = 50.0
    assert account.used_by("exam") == 35.0
    assert account.used_by("search") == 15.0, "all that no other has used"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def tokens(out: Path) -> int:
    used = 0
    for part in (RunPart.SEARCH, RunPart.EXAM, RunPart.TEST):
        with Store.open_read(out / part) as store:
            whole = total(tally(store).values())
            used += whole.input_tokens + whole.output_tokens
    return used


async def test_a_budget_in_tokens_is_planned_after_the_audit(world: World) -> None:
    found = await world.sharpen(Adds(HELPFUL), "8k tokens")
    assert found.certified
    assert tokens(world.out) < 8000
    assert (found.used or "").endswith("tokens")
    planned = json.loads((world.out / "rollouts.json").read_text())
    assert planned < 8000 / 5, "a rollout takes more than five tokens"
    assert planned > found.rollouts
    made = world.exchanges()
    assert decisions(await world.sharpen(Adds(), "8k tokens", resume=True)) == decisions(found)
    assert world.exchanges() == made


async def test_an_exam_that_overspends_is_cut_short(world: World) -> None:
    long = "word " * 300
    scenes = "".join(
        f'[[scene]]\nwhen.user = "What is {n} "\n[[scene.reply]]\ntext = "{long}"\n' for n in range(100, 110)
    )
    world.play(scenes + (world.folder / "script.toml").read_text())
    found = await world.sharpen(Adds(HELPFUL), "8k tokens")
    (held,) = found.done.exam_results
    assert held.test.verdict is Verdict.UNDECIDED
    assert found.best.digest == found.start.digest
    assert found.leader.digest != found.start.digest, "the search was not touched by it"
    assert "exam" in json.loads((world.out / STOPPED).read_text())
    assert 7000 < tokens(world.out) < 8000 + 4 * 320, "all of it, and what was under way"
    made = world.exchanges()
    world.play('[[scene]]\n[[scene.reply]]\nfault = "500"\n')
    assert decisions(await world.sharpen(Adds(), "8k tokens", resume=True)) == decisions(found)
    assert world.exchanges() == made


async def test_the_leader_of_a_search_that_overspent_is_examined(world: World) -> None:
    long = "word " * 800
    scene = f'[[scene]]\nwhen.user = "What is ."\nwhen.system = "Smile|Sit"\n[[scene.reply]]\ntext = "{long}"\n'
    world.play(scene + (world.folder / "script.toml").read_text())
    found = await world.sharpen(Adds(HELPFUL, USELESS, "- Sit up.", "- Stand."), "16k tokens", concurrency=1)
    assert len(found.done.steps) == 2
    assert "search" in json.loads((world.out / STOPPED).read_text())
    assert found.certified, "its purse was whole"
    assert tokens(world.out) < 16000 + 40, "no call is sent once all is used"


async def test_a_budget_that_the_audit_uses_up_is_an_error(world: World) -> None:
    with pytest.raises(UserError, match="expected more: the audit used all of it"):
        await world.sharpen(Adds(HELPFUL), "100 tokens")


async def test_a_budget_in_dollars_needs_a_price(world: World) -> None:
    with pytest.raises(UserError, match="model 'm' costs nothing; expected rollouts, tokens or hours"):
        await world.sharpen(Adds(HELPFUL), "$5")
    assert not world.out.exists()
    async with ScriptedModel(read_script(world.folder / "script.toml")) as served:
        world.model = ModelConfig(url=served.url)
        with pytest.raises(UserError, match="model 'm': its price is not known"):
            await world.sharpen(Adds(HELPFUL), "$5")
        assert not world.out.exists()
        world.model = ModelConfig(url=served.url, price_input=1000, price_output=1000)
        found = await world.sharpen(Adds(HELPFUL), "$8")
    assert found.certified
    assert found.used == f"${tokens(world.out) / 1000:.2f}"


async def test_a_budget_in_hours_is_planned_by_the_time_of_the_audit(world: World) -> None:
    found = await world.sharpen(Adds(USELESS), "1h")
    planned = json.loads((world.out / "rollouts.json").read_text())
    assert planned > 1000
    assert (found.used or "").endswith("s")
