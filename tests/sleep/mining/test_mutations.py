"""Faults change one expression on a line that tests run, and nothing else of the file."""

import ast
import difflib

import pytest

from whet.sleep.mining.mutations import Operator, list_mutations

SOURCE = b'''"""Prices. \xe2\x82\xac"""

LIMIT = 3


class Order:
    def total(self, prices, rebate=0, *, strict=True):
        """The sum."""
        if strict and not prices:
            raise ValueError(f"no prices {1 + 1}")
        if len(prices) > LIMIT:
            return max(rebate, 5)
        return sum(prices) - rebate  # kept
'''
BODY = set(range(9, 14))


def changed_lines(mutated: bytes) -> list[str]:
    before, after = SOURCE.decode().splitlines(), mutated.decode().splitlines()
    return [line[2:].strip() for line in difflib.ndiff(before, after) if line.startswith("+ ")]


@pytest.mark.parametrize(
    ("operator", "line"),
    [
        (Operator.COMPARISON, "if len(prices) >= LIMIT:"),
        (Operator.OFF_BY_ONE, "return max(rebate, 6)"),
        (Operator.SWAPPED_ARGUMENTS, "return max(5, rebate)"),
        (Operator.DROPPED_CONDITION, "if (strict):"),
        (Operator.WRONG_DEFAULT, "def total(self, prices, rebate=1, *, strict=True):"),
        (Operator.WRONG_DEFAULT, "def total(self, prices, rebate=0, *, strict=False):"),
        (Operator.RETURNED_CONSTANT, "return None  # kept"),
    ],
)
def test_each_operator_changes_one_line(operator: Operator, line: str) -> None:
    made = [one.apply(SOURCE) for one in list_mutations(SOURCE, BODY) if one.operator is operator]
    assert [line] in [changed_lines(mutated) for mutated in made]


def test_every_fault_is_python_and_another_program() -> None:
    found = list_mutations(SOURCE, BODY)
    assert {one.function for one in found} == {"Order.total"}
    for one in found:
        assert one.line in BODY
        assert ast.dump(ast.parse(one.apply(SOURCE))) != ast.dump(ast.parse(SOURCE))


def test_only_lines_that_tests_run_get_faults() -> None:
    assert list_mutations(SOURCE, set()) == []
    assert {one.line for one in list_mutations(SOURCE, {11}) if one.operator is not Operator.WRONG_DEFAULT} == {11}


@pytest.mark.parametrize("source", [b"def f(:", b"\xff\xfe", b""])
def test_what_is_no_python_has_no_faults(source: bytes) -> None:
    assert list_mutations(source, {1}) == []
