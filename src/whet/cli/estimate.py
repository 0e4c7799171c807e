"""What `whet sharpen --dry-run` prints: how the budget would be divided, what it may cost, and what it may show."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.cli.tables import Terminal
    from whet.runs.config import Config
    from whet.skills.sharpen.run import SharpenRequest


def print_estimate(console: "Terminal", wish: "SharpenRequest", config: "Config") -> None:
    """Tell what a run is for; nothing is spent."""
    from whet.runs.stats.use import PILOT, Unit
    from whet.skills.gate.exam import PAIR
    from whet.skills.rollouts.audit import BINARY, TYPICAL
    from whet.skills.sharpen.estimate import count_rollouts, estimate_use
    from whet.skills.sharpen.run import plan_budget

    wanted, each = plan_budget(wish), estimate_use(wish.run, config)
    fewest, most = count_rollouts(each, wish.budget)
    lines = [f"{wanted.splits}; at most {wish.budget}; nothing is run yet", f"  {each}"]
    if wish.budget.unit is Unit.ROLLOUTS:
        lines.append(f"  all of them: {each.of(most)}")
    else:
        lines.append(f"  this covers {fewest} to {most} rollouts; the audit measures how many; with {most}:")
    shares = wanted.split(most)
    plan, train = shares.plan, len(wanted.splits.train)
    on_each = f"{plan.samples} rollouts on each" if plan.samples > 1 else "one rollout on each"
    lines += [
        f"  audit {shares.audit}, held-out test {2 * len(shares.test)}",
        f"  search {plan.search_budget}: {plan.proposals(train)} proposals on {train} training tasks, {on_each}",
        f"  exams {plan.exam_budget}: {plan.exam_budget // PAIR} pairs, and what the search leaves",
    ]
    if not each.measured:
        lines.insert(
            2, f"  these are typical values; a run first measures {PILOT} rollouts, and says what all will use"
        )
    for name, variance in (("typical noise", TYPICAL), ("the worst noise", BINARY)):
        lines.append(
            f"  smallest lift that a budget can detect, with {name}: {format_lifts(wanted.lift_table(variance, most))}"
        )
    lines.append("  more tasks do not change these lifts: they make the verdict hold for more tasks")
    for line in lines:
        console.say(line)


def format_lifts(table: "list[tuple[str, float | None]]") -> str:
    """What several budgets show, in one line."""
    return ", ".join(f"{budget}: {'none' if lift is None else f'{lift * 100:.0f} points'}" for budget, lift in table)
