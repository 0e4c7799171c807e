"""`json`: the answer is JSON that fits a schema and holds the expected values."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from whet.scoring.isolation.run import run_isolated
from whet.scoring.judge import JudgeError, Work
from whet.scoring.score import Score
from whet.tasks.judges import JsonSpec
from whet.text.plain import find_tagged, read_json

SCHEMA_SEC = 20.0
_FENCED = re.compile(r"^```(?:json)?[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


async def json_answer(spec: JsonSpec, work: Work) -> Score:
    try:
        value = work.structured if work.structured is not None else read_json_answer(work.answer)
    except ValueError as error:
        return Score.of(0, str(error), checks=[{"op": "json", "passed": False, "problem": str(error)}])
    checks = [] if spec.expected is None else [*_compare(spec.expected, value)]
    schema = work.task.answer_schema if spec.json_schema is None else spec.json_schema
    if schema is not None:
        try:
            misfits = await run_isolated("schema", {"schema": schema, "value": value}, SCHEMA_SEC)
        except JudgeError as error:
            # A value that cannot fail shows whether the failure lies in the answer.
            await run_isolated("schema", {"schema": schema, "value": None}, SCHEMA_SEC)
            checks = [{"op": "json_schema", "arg": _keys(schema), "passed": False, "problem": str(error)}]
            return Score.undecided(f"the answer could not be compared with its schema: {error}", checks=checks)
        checks.insert(
            0, {"op": "json_schema", "arg": _keys(schema), "passed": not misfits, "problem": "".join(misfits[:1])}
        )
    wrong = [check for check in checks if not check["passed"]]
    passed = len(checks) - len(wrong)
    reason = f"{passed} of {len(checks)} checks passed" + (f": {wrong[0]['problem']}" if wrong else "")
    return Score.of(passed / len(checks), reason, checks=checks)


def read_json_answer(text: str) -> Any:
    """The JSON in a text: between answer tags, all of it, or in its only fenced block. ValueError for none or several.

    >>> read_json_answer('Here:\\n```json\\n{"n": 4}\\n```\\nDone.')
    {'n': 4}
    """
    answer = find_tagged(text)
    for candidate in (text,) if answer is None else (answer,):
        if (found := _parse(candidate)) is not None:
            return found[0]
    fenced = _FENCED.findall(text if answer is None else answer)
    if len(fenced) > 1:
        raise ValueError(f"the answer has {len(fenced)} blocks that may be meant")
    if fenced and (found := _parse(fenced[0])) is not None:
        return found[0]
    raise ValueError("the answer is not JSON")


def _parse(text: str) -> tuple[Any] | None:
    try:
        return (read_json(text),)
    except ValueError:
        return None


def _keys(schema: dict[str, Any]) -> list[str]:
    """The keys that a schema asks for."""
    required = schema.get("required", [])
    return [key for key in required if isinstance(key, str)] if isinstance(required, list) else []


def _compare(expected: Any, value: Any, place: str = "answer") -> Iterator[dict[str, Any]]:
    """Every value that is expected, and whether it is there."""
    if isinstance(expected, dict) and expected:
        held = value if isinstance(value, dict) else {}
        for key, item in expected.items():
            if key in held:
                yield from _compare(item, held[key], f"{place}.{key}")
            else:
                there = f"{place}.{key}"
                yield {"op": "json_key", "arg": there, "passed": False, "problem": f"{there} is missing"}
    elif isinstance(expected, list) and expected and isinstance(value, list) and len(value) == len(expected):
        for index, item in enumerate(expected):
            yield from _compare(item, value[index], f"{place}[{index}]")
    else:
        problem = f"{place} is {json.dumps(value)[:80]}, not {json.dumps(expected)[:80]}"
        same = _same(expected, value)
        yield {"op": "right", "arg": place, "passed": same, "problem": "" if same else problem}


def _same(expected: Any, value: Any) -> bool:
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (expected, value))
    if numbers:
        try:
            return math.isclose(expected, value, rel_tol=1e-9)
        except OverflowError:  # an integer beyond every float
            return bool(expected == value)
    return type(expected) is type(value) and bool(expected == value)
