"""Write down the terms of a run before its first rollout, and refuse to resume it with other terms."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from whet.errors import UserError
from whet.paths import write_atomic
from whet.runs.options import RunOptions
from whet.runs.stats.use import Unit
from whet.skills.gate.plan import GatePlan
from whet.skills.rollouts.budget import Budget
from whet.version import __version__

MADE_WITH = "made_with.json"
"""File with the versions and settings of a run: scores made with others cannot be compared."""

RAISED = "raised.json"
"""File with the largest budget that a run was resumed with, if that is more than its first budget."""


def common_terms(request: RunOptions, budget: Budget, plan: GatePlan) -> dict[str, object]:
    """The terms that every kind of run has."""
    return {
        "whet": __version__,
        "agent": request.agents[0],
        "model": request.models[0],
        "judge_model": request.judge_model,
        "sandbox": request.sandbox,
        "budget": asdict(budget),
        "plan": _store_plan(plan),
    }


def _store_plan(plan: GatePlan) -> dict[str, object]:
    """A plan with the keys that are stored in run folders."""
    stored = asdict(plan)
    # Runs of versions without these settings can be resumed.
    for key in ("guard", "one_exam"):
        if not stored[key]:
            del stored[key]
    return {**stored, "giving_up": stored.pop("beta"), "worth": stored.pop("minimum_effect")}


def resolve_budget(file: Path, budget: Budget) -> tuple[Budget, Budget]:
    """Return the first budget of a run, from its terms, and its budget now: a run can be resumed with more.

    UserError when the budget is lowered or has another unit.
    """
    if not file.is_file():
        return budget, budget
    given = json.loads(file.read_text(encoding="utf-8"))["budget"]
    first = Budget(given["amount"], Unit(given["unit"]))
    if (budget.unit, max(budget.amount, first.amount)) != (first.unit, budget.amount):
        raise UserError(f"`budget` is {budget}, but the run started with {first}; expected the same or more")
    raised = file.with_name(RAISED)
    now = max(budget.amount, float(raised.read_text(encoding="utf-8")) if raised.is_file() else 0.0)
    return first, Budget(now, first.unit)


def replace_budget(file: Path, budget: Budget) -> bool:
    """Replace the first budget of a run in its terms, if it has another; return whether it had. Only for a run that has
    planned nothing with its first budget."""
    terms = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if not terms or terms["budget"] == asdict(budget):
        return False
    terms["budget"], terms["plan"]["budget"] = asdict(budget), budget.rollouts or 0
    write_atomic(file, json.dumps(terms, indent=1) + "\n")
    return True


def write_raised(file: Path, first: Budget, now: Budget) -> None:
    """Store a budget that was raised."""
    if now != first:
        write_atomic(file.with_name(RAISED), json.dumps(now.amount))


def fix_terms(file: Path, terms: Mapping[str, object]) -> None:
    """Write the terms, or check that they are the same as before. UserError when they are not."""
    text = json.dumps(terms, indent=1)
    if not file.is_file():
        write_atomic(file, f"{text}\n")
        return
    before, now = json.loads(file.read_text(encoding="utf-8")), json.loads(text)
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    if changed:
        raise UserError(
            f"{file}: the run started with other settings ({', '.join(changed)}); resume it with the same settings, "
            "or start a new run with another `out`"
        )


def compute_once(file: Path, find: Callable[[], int]) -> int:
    """Compute a number and store it, or return the stored one: computed later, it could differ."""
    if not file.is_file():
        write_atomic(file, json.dumps(find()))
    found: int = json.loads(file.read_text(encoding="utf-8"))
    return found


CERTIFY_TERMS = "certify.json"
