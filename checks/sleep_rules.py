"""`make check-sleep`: which of 170 labelled corrections become rules, and for how many sessions the state of the
repository is found.

The first 100 labels were written before the grammar. 40 and 30 more were written later, measured, and then used to
improve it, so for sentences that nobody has seen expect less than what is printed. A rule is right if its label says
so and every check of it is one that a reader would expect of the sentence.
"""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sleep_states import check_states
from support.sleep_world import corrected
from whet.sleep.rules.corrections import Demand, Wish
from whet.sleep.rules.find import find_rules
from whet.sleep.rules.grounding import checks_for
from whet.tasks.checks import RulesCheck, command_of_pattern

LABELS = Path(__file__).with_name("sleep_rules.jsonl")
LEAST_PRECISION, LEAST_RECALL = 0.9, 0.6
_DEMANDS = {"+": Demand.RUN, ">": Demand.RUN_AFTER_EDIT, "-": Demand.NOT_RUN, "~": Demand.SAY, "!": Demand.NOT_SAY}


@dataclass(frozen=True, slots=True)
class Outcome:
    said: str
    label: str
    found: tuple[RulesCheck, ...]
    cause: str
    right: bool


def expected_checks(row: dict[str, Any]) -> set[RulesCheck]:
    """The checks that a reader accepts for a sentence."""
    marks = [*row.get("expect", []), *row.get("also", [])]
    wishes = [Wish(Demand.NO_EMOJI, "") if mark == "!emoji" else Wish(_DEMANDS[mark[0]], mark[1:]) for mark in marks]
    return {check for wish in wishes for check in checks_for(wish)}


async def judge(number: int, row: dict[str, Any]) -> Outcome:
    """Mine one labelled correction, as the only session of its repository."""
    session = corrected(f"s{number}", row["before"], row["said"], row["after"])
    found = await find_rules([session], "repository")
    checks = tuple(check for rule in found.rules for check in rule.checks)
    expected = expected_checks(row)
    right = row["label"] == "rule" and bool(checks) and set(checks) <= expected
    return Outcome(row["said"], row["label"], checks, "; ".join(one.cause for one in found.dropped), right)


def _show(check: RulesCheck) -> str:
    words = str(getattr(check, "arg", ""))
    return f"{check.op} {command_of_pattern(words) or words}"


async def check_rules() -> bool:
    rows = [json.loads(line) for line in LABELS.read_text().splitlines()]
    outcomes = [await judge(number, row) for number, row in enumerate(rows)]
    found = [one for one in outcomes if one.found]
    right = [one for one in found if one.right]
    rules = [one for one in outcomes if one.label == "rule"]
    precision, recall = len(right) / max(1, len(found)), len(right) / len(rules)
    for one in outcomes:
        if one.label == "rule" and not one.right:
            print(f"missed   {one.said[:90]!r}  {one.cause or [_show(check) for check in one.found]}")
        elif one.label != "rule" and one.found:
            print(f"WRONG    {one.said[:90]!r}  {[_show(check) for check in one.found]}")
    print(f"rules: {len(outcomes)} labelled corrections, {len(outcomes) - len(rules)} of them one-offs")
    print(f"  found {len(found)}, right {len(right)}: precision {precision:.2f} (at least {LEAST_PRECISION})")
    print(f"  {len(rules)} rules to find: recall {recall:.2f} (at least {LEAST_RECALL})")
    return precision >= LEAST_PRECISION and recall >= LEAST_RECALL


if __name__ == "__main__":
    results = [asyncio.run(check_rules()), check_states()]
    sys.exit(0 if all(results) else 1)
