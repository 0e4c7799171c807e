"""Estimates what a rollout uses before anything is spent: from its run folder, or from typical values."""

from pathlib import Path

from whet.agents import agent_named
from whet.errors import UserError
from whet.exchange import Usage
from whet.gateway import Spent
from whet.gateway.prices import Price, cost
from whet.runs.config import Config, model_config, model_price
from whet.runs.options import RunOptions
from whet.runs.stats.use import RolloutUse, Unit
from whet.runs.store.store import DATABASE
from whet.skills.measurement import RunPart
from whet.skills.rollouts.budget import MARGIN, Budget
from whet.skills.rollouts.spending import read_spending

_ONE_CALL = (Usage(300, 30), Usage(6_000, 2_000)), (1.0, 30.0)
_MANY_CALLS = (Usage(20_000, 1_000), Usage(1_000_000, 20_000)), (20.0, 600.0)
"""Least and most tokens and seconds of a rollout, for an agent with one model call and for a working agent."""
_CALLS = 20
"""Of a working agent. Some prices depend on the length of a prompt."""


def count_rollouts(use: RolloutUse, budget: Budget) -> tuple[int, int]:
    """How many rollouts a budget covers, at least and at most. UserError when the price is not known."""
    if budget.rollouts is not None:
        return budget.rollouts, budget.rollouts
    used = budget.of(use.most), budget.of(use.least)
    if budget.unit is Unit.DOLLARS and not use.priced:
        raise UserError(
            f"`budget` is {budget}, but the price of the model is not known; give it price_input and price_output "
            "in whet.toml, or set a budget of tokens or rollouts"
        )
    if not all(used):
        raise UserError(f"`budget` is {budget}, but the model costs nothing; expected another unit")
    fewest, most = (int(budget.amount / (MARGIN * one)) for one in used)
    return fewest, most


def estimate_use(request: RunOptions, config: Config) -> RolloutUse:
    """Estimate what a rollout uses. Seconds are of the whole run, in which several rollouts run at once."""
    name = request.models[0]
    price = model_price(name, model_config(name, config))
    record = request.out / RunPart.SEARCH
    if (record / DATABASE).is_file() and (known := _read_mean_use(record, name, price)) is not None:
        found, rollouts = known
        return RolloutUse(found, found, rollouts, priced=price is not None)
    works = agent_named(request.agents[0], config.agents).in_box
    usages, seconds = _MANY_CALLS if works else _ONE_CALL
    least, most = (
        Spent(0, usage, cost(usage, price, _CALLS if works else 1) if price else 0.0, time / request.concurrency)
        for usage, time in zip(usages, seconds, strict=True)
    )
    return RolloutUse(least, most, measured=0, priced=price is not None)


def _read_mean_use(record: Path, model: str, price: Price | None) -> tuple[Spent, int] | None:
    """What a rollout of a store used on average, and of how many this is the average."""
    spent, rollouts = read_spending(record, {model: price})
    if not rollouts:
        return None
    usage = Usage(round(spent.usage.input / rollouts), round(spent.usage.output / rollouts))
    return Spent(0, usage, spent.cost / rollouts, spent.seconds / rollouts), rollouts
