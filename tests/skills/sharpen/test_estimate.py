"""What a run may cost, before anything is spent: what is not known is never told as nothing."""

from pathlib import Path

import pytest

from support.calls import call
from whet.errors import UserError
from whet.exchange import Usage
from whet.gateway.prices import Price
from whet.rollout.result import Result, Spending
from whet.runs.config import Config, ModelConfig
from whet.runs.options import RunOptions
from whet.runs.stats.use import RolloutUse, Unit, measure_use
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Score
from whet.skills.rollouts.budget import read_budget
from whet.skills.rollouts.spending import read_spending
from whet.skills.sharpen.estimate import count_rollouts, estimate_use

PRICED = ModelConfig(url="http://127.0.0.1:9", price_input=10, price_output=100)
UNPRICED = ModelConfig(url="http://127.0.0.1:9")


def each(folder: Path, model: ModelConfig, agent: str = "chat", concurrency: int = 1) -> RolloutUse:
    request = RunOptions(tasks=Path("tasks"), out=folder, agents=(agent,), models=("m",), concurrency=concurrency)
    return estimate_use(request, Config(models={"m": model}))


def test_an_agent_that_works_is_estimated_to_use_more(tmp_path: Path) -> None:
    told = str(each(tmp_path, PRICED))
    assert told == "a rollout probably uses 330 tokens to 8k tokens, $0.006 to $0.26 and 1 s to 30 s"
    assert "21k tokens to 1M tokens, $0.30 to $12.00 and 20 s to 10 min" in str(each(tmp_path, PRICED, "loop"))
    assert "and 5 s to 2.5 min" in str(each(tmp_path, PRICED, "loop", concurrency=4)), "of the run"
    assert "unknown dollars" in str(each(tmp_path, UNPRICED))
    assert "$0 and" in str(each(tmp_path, ModelConfig(script=tmp_path / "script.toml")))


def test_a_budget_is_good_for_fewer_rollouts_the_more_they_use(tmp_path: Path) -> None:
    found = each(tmp_path, PRICED)
    assert count_rollouts(found, read_budget("1M tokens")) == (100, 2424), "a quarter more than they are taken to use"
    assert count_rollouts(found, read_budget("$13")) == (40, 1733)
    assert count_rollouts(found, read_budget("7")) == (7, 7)
    with pytest.raises(UserError, match=r"`budget` is \$5.00, but the price .* not known; give it price_input"):
        count_rollouts(each(tmp_path, UNPRICED), read_budget("$5"))


def attempt(store: Store, rollout: int, times: tuple[float, float], spending: Spending) -> None:
    row = RolloutRow(f"r{rollout}", rollout, "t", "chat", "m", None, rollout)
    store.add_rollouts([row])
    result = Result(score=Score.of(1.0), spending=spending).model_dump_json().encode()
    number = store.start_attempt(row.id, times[0])
    store.finish_attempt(number, result, value=1.0, cause=None, final=True, ended=times[1])


def test_what_is_on_record_is_told_with_what_was_killed(tmp_path: Path) -> None:
    search = tmp_path / "search"
    with Store.create(search) as store:
        store.add_tasks([TaskRow("t", "d", "tasks.jsonl:1", "{}")])
    assert "probably uses" in str(each(tmp_path, PRICED)), "nothing was scored yet"
    with Store.open_write(search) as store:
        attempt(store, 0, (100.0, 104.0), Spending(calls=1, input_tokens=1000, output_tokens=100, cost=0.02))
        attempt(store, 1, (102.0, 106.0), Spending(calls=1, input_tokens=3000, output_tokens=100, cost=0.04))
        killed = store.start_attempt("r1", 200.0)
        store.add_exchange(killed, call(started=200.0, ended=202.0, usage=Usage(1000, 100)))
        store.interrupt_open_attempts()
    spent, scored = read_spending(search, {"m": Price(10.0, 100.0)})
    assert (spent.turns, spent.usage, spent.seconds, scored) == (3, Usage(5000, 300), 8.0, 2)
    assert spent.cost == pytest.approx(0.08)
    assert str(each(tmp_path, PRICED)) == "a rollout used 2.6k tokens, $0.04 and 4 s"


def results(*tokens: int, cost: float | None = 0.5) -> list[Result]:
    spendings = [Spending(calls=1, input_tokens=one, output_tokens=0, cost=cost) for one in tokens]
    return [Result(score=Score.of(1.0), spending=one, seconds={"agent": 8.0}) for one in spendings]


def test_a_pilot_gives_a_range_of_about_a_factor_of_two() -> None:
    found = measure_use(results(40_000, 80_000, 120_000, 160_000), concurrency=4)
    assert found is not None
    assert found.of(100) == "7M tokens to 14M tokens, $43.00 to $57.00 and 2.83 min to 3.83 min"
    assert found.at_most(Unit.DOLLARS, 100) == pytest.approx(57.5)
    alike = measure_use(results(*[100] * 4), concurrency=1)
    assert alike is not None
    assert alike.of(10) == "870 tokens to 1.2k tokens, $4.30 to $5.80 and 1.17 min to 1.53 min", "others may differ"
    unpriced = measure_use(results(100, 100, cost=None), concurrency=1)
    assert unpriced is not None
    assert "unknown dollars" in unpriced.of(10)
    unseen = Result(score=Score.of(1.0), spending=Spending(captured=False))
    assert measure_use([unseen], concurrency=1) is None, "what was not recorded is not told as nothing"
    assert measure_use([], concurrency=1) is None
