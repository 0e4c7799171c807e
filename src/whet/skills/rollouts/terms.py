"""What is fixed before the first rollout is written down; who goes on with a run goes on with the same."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from whet.errors import UserError
from whet.files import write_atomic
from whet.runs.options import RunOptions
from whet.skills.gate.plan import GatePlan
from whet.skills.rollouts.budget import Budget, Unit
from whet.version import __version__

MADE_WITH = "made_with.json"
"""Where it is written down with what versions and settings a run was begun: under others, scores do not compare."""

RAISED = "raised.json"
"""The largest budget that a run was resumed with, where it is more than it was begun with."""


def common_terms(request: RunOptions, budget: Budget, plan: GatePlan) -> dict[str, object]:
    """What decisions of any kind rest on."""
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
    """A plan under the keys that earlier versions wrote."""
    stored = asdict(plan)
    return {**stored, "giving_up": stored.pop("beta"), "worth": stored.pop("minimum_effect")}


def resolve_budget(file: Path, budget: Budget) -> tuple[Budget, Budget]:
    """The budget that a run was begun with, by its terms, and the one that it has now: a run may be resumed with more.

    UserError when a budget is lowered, or given in another unit."""
    if not file.is_file():
        return budget, budget
    given = json.loads(file.read_text(encoding="utf-8"))["budget"]
    first = Budget(given["amount"], Unit(given["unit"]))
    if (budget.unit, max(budget.amount, first.amount)) != (first.unit, budget.amount):
        raise UserError(f"`budget` is {budget}, but the run was begun with {first}; it can be raised, not lowered")
    raised = file.with_name(RAISED)
    now = max(budget.amount, float(raised.read_text(encoding="utf-8")) if raised.is_file() else 0.0)
    return first, Budget(now, first.unit)


def write_raised(file: Path, first: Budget, now: Budget) -> None:
    """Write down that a budget was raised."""
    if now != first:
        write_atomic(file.with_name(RAISED), json.dumps(now.amount))


def fix_terms(file: Path, terms: Mapping[str, object]) -> None:
    """Write terms down, or see that they are still the same."""
    text = json.dumps(terms, indent=1)
    if not file.is_file():
        write_atomic(file, f"{text}\n")
        return
    before, now = json.loads(file.read_text(encoding="utf-8")), json.loads(text)
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    if changed:
        raise UserError(
            f"{file}: the run was begun with other terms ({', '.join(changed)}); continue with those, "
            "or start a new run with another `out`"
        )


def compute_once(file: Path, find: Callable[[], int]) -> int:
    """What was found when it was first looked for: later it might come out another way."""
    if not file.is_file():
        write_atomic(file, json.dumps(find()))
    found: int = json.loads(file.read_text(encoding="utf-8"))
    return found


CERTIFY_TERMS = "certify.json"
