"""What is fixed before the first rollout is written down; who goes on with a run goes on with the same."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from whet.errors import UserError
from whet.runs.bench import Request
from whet.skills.budget import Budget
from whet.skills.plan import Plan
from whet.version import __version__

MADE_WITH = "made_with.json"
"""Where it is written down with what versions and settings a run was begun: under others, scores do not compare."""


def common_terms(request: Request, budget: Budget, plan: Plan) -> dict[str, object]:
    """What decisions of any kind rest on."""
    return {
        "whet": __version__,
        "agent": request.agents[0],
        "model": request.models[0],
        "judge_model": request.judge_model,
        "sandbox": request.sandbox,
        "budget": str(budget),
        "plan": asdict(plan),
    }


def fix_terms(file: Path, terms: Mapping[str, object]) -> None:
    """Write terms down, or see that they are still the same."""
    text = json.dumps(terms, indent=1)
    if not file.is_file():
        write_whole(file, f"{text}\n")
        return
    before, now = json.loads(file.read_text(encoding="utf-8")), json.loads(text)
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    if changed:
        raise UserError(
            f"{file}: the run was begun with other terms ({', '.join(changed)}); go on with those, "
            "or start a new run with another --out"
        )


def write_whole(file: Path, text: str) -> None:
    """Write a file all at once: whoever is killed leaves the old one or the new one."""
    apart = file.with_suffix(".part")
    apart.write_text(text, encoding="utf-8")
    apart.replace(file)


def found_once(file: Path, find: Callable[[], int]) -> int:
    """What was found when it was first looked for: later it might come out another way."""
    if not file.is_file():
        write_whole(file, json.dumps(find()))
    found: int = json.loads(file.read_text(encoding="utf-8"))
    return found
