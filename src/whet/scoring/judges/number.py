"""`number`: the answer is a number, within a tolerance and in a unit that the task knows."""

import math
import re
from collections.abc import Mapping

from whet.scoring.judge import Work
from whet.scoring.score import Score
from whet.tasks.judges import NumberSpec
from whet.text.plain import find_tagged

_NUMBER = re.compile(
    r"(?<![\w.,])([-+\u2212]?(?:\d{1,3}(?:[,\u00a0\u202f]\d{3})+(?!\d)|\d+)?(?:\.\d+)?(?:[eE][-+]?\d+)?)(?=[^\d]|$)"
)
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_UNIT = re.compile(r"\s*([^\W\d_]+(?:[/^][^\W_]+)*|[%°$€£µ]\w*)")


async def number(spec: NumberSpec, work: Work) -> Score:
    expected = float(work.task.answer or "nan") if spec.answer is None else spec.answer
    given = final_number(work.answer, spec.units)
    checks = [{"op": "a_number", "arg": [*spec.units], "passed": given is not None}]
    if given is None:
        return Score.of(0, "the answer is not a number in a known unit", number=None, checks=checks)
    near = math.isclose(given, expected, rel_tol=spec.rel, abs_tol=spec.abs)
    reason = f"the answer is {given:g}" + ("" if near else f", not {expected:g}")
    checks.append({"op": "right", "passed": near})
    return Score.of(float(near), reason, number=given, checks=checks)


def final_number(text: str, units: Mapping[str, float]) -> float | None:
    """The number in the <answer> tags, in a box, or the last one; None when there is none, or in an unknown unit.

    >>> final_number("about 1,234.5", {}), final_number("3 km", {"km": 1000, "m": 1}), final_number("3 miles", {"m": 1})
    (1234.5, 3000.0, None)
    """
    boxed = _BOXED.findall(text)
    place = find_tagged(text) or (boxed[-1] if boxed else text)
    found = [match for match in _NUMBER.finditer(place) if any(map(str.isdigit, match[1]))]
    if not found:
        return None
    last = found[-1]
    value = float(re.sub(r"[,\u00a0\u202f]", "", last[1]).replace("\u2212", "-"))
    if not math.isfinite(value):
        return None
    unit = _UNIT.match(place, last.end()) if units else None
    if unit is None:
        return value
    factor = units.get(unit[1])
    return None if factor is None else value * factor
