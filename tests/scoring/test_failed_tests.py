"""What a reason says of failed tests, for the programs that people run tests with."""

import pytest

from whet.scoring.failed_tests import describe_failure, find_failed_tests

PYTEST = """
=========================== short test summary info ============================
FAILED tests/test_price.py::test_mug[a b] - assert 3 == 4
ERROR tests/test_stock.py::test_report - ValueError: no
FAILED tests/test_price.py::test_mug[a b] - assert 3 == 4
2 failed, 1 error in 0.12s
"""
UNITTEST = """
======================================================================
FAIL: test_mug (test_price.PriceTest.test_mug)
----------------------------------------------------------------------
Traceback (most recent call last):
AssertionError: 3 != 4
FAILED (failures=1)
"""
GO = "=== RUN   TestMug\n    --- FAIL: TestMug/large (0.00s)\n--- FAIL: TestMug (0.00s)\nFAIL\tshop/price\t0.003s\n"
JEST = "FAIL src/price.test.js\n  ✓ plate (2 ms)\n  ✕ mug is dear (3 ms)\n  ● price › mug is dear\n"
CARGO = "test price::mug ... FAILED\ntest price::plate ... ok\n"
TAP = "ok 1 - plate\nnot ok 2 - mug\n"


@pytest.mark.parametrize(
    ("output", "names"),
    [
        (PYTEST, ["tests/test_price.py::test_mug[a b]", "tests/test_stock.py::test_report"]),
        (UNITTEST, ["test_mug (test_price.PriceTest.test_mug)"]),
        (GO, ["TestMug/large", "TestMug"]),
        (JEST, ["mug is dear", "price › mug is dear"]),
        (CARGO, ["price::mug"]),
        (TAP, ["mug"]),
        ("4 passed\nok\n", []),
    ],
)
def test_failed_tests_are_named(output: str, names: list[str]) -> None:
    assert find_failed_tests(output) == names


def test_many_failed_tests_are_counted() -> None:
    output = "\n".join(f"FAILED test_a.py::test_{number}" for number in range(5))
    assert describe_failure(output) == "failed: test_a.py::test_0, test_a.py::test_1, test_a.py::test_2 and 2 more"


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("compiling\nFAIL: price of mug is 3\ndone\n", "FAIL: price of mug is 3"),
        ("/tests/test.sh: line 3: uv: command not found\n", "/tests/test.sh: line 3: uv: command not found"),
        ("Traceback:\nValueError: no price\n", "ValueError: no price"),
        ("one\ntwo\n\n", "two"),
        ("", "no output"),
    ],
)
def test_without_names_the_line_that_complains_is_quoted(output: str, said: str) -> None:
    assert describe_failure(output) == said
