"""Instructions say what to do and never how it was done."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.sleep.mining.instruction import ask_for_change, ask_for_repair, clean_message, hide_names

PATCH = b"""diff --git a/shop.py b/shop.py
--- a/shop.py
+++ b/shop.py
@@ -1 +1,2 @@
-def price(n): return n * 2
+def price(n): return n * UNIT
+UNIT = 3  # a comment
"""
LONG = f"""fix(shop): Charge three per unit (#12)

A unit costs three since 4f2a9c1, see GH-77 and https://forge.example/a/b/issues/9 for why.

    def price(n): return n * UNIT

{PATCH.decode()}
Closes #12
Co-authored-by: B <b@example.com>
(cherry picked from commit 1234567890abcdef1234567890abcdef12345678)
"""


def test_a_message_loses_what_gives_the_solution_away_or_is_of_no_use() -> None:
    cleaned = clean_message(LONG, PATCH)
    assert cleaned.startswith("Charge three per unit\n\nA unit costs three since")
    for gone in ("#12", "4f2a9c1", "GH-77", "forge.example", "UNIT", "@@", "b@example.com", "cherry", "fix(shop)"):
        assert gone not in cleaned


@pytest.mark.parametrize(
    "message", ["", "fix", "wip", "bump version to 1.2.0", "Merge", "Fixes #12", "update tests", "Release 3.0.1", "a b"]
)
def test_a_thin_message_is_no_instruction(message: str) -> None:
    assert clean_message(message) == ""


def test_a_short_message_that_says_something_is_kept() -> None:
    assert clean_message("Reject negative prices") == "Reject negative prices"


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=120))
def test_every_text_can_be_cleaned(message: str) -> None:
    once = clean_message(message)
    assert not once or once == once.strip()


def test_secrets_are_masked_in_instructions() -> None:
    token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    assert token not in clean_message(f"Accept the token {token} as a login")
    assert token not in ask_for_change("Do it", {"a::b": f"KeyError: {token}"})


def test_an_instruction_names_some_tests_and_counts_the_others() -> None:
    told = ask_for_repair({f"tests/test_a.py::test_{number:02}": "assert 1 == 2" for number in range(12)})
    assert told.startswith("12 tests of the project")
    assert "test_09`: assert 1 == 2" in told
    assert "test_10" not in told
    assert "and 2 more" in told


def test_an_error_that_names_the_broken_file_is_not_told() -> None:
    errors = {"a": "ImportError: cannot import f (/workspace/shop/prices.py)", "b": "assert 1 == 2"}
    assert hide_names(errors, ["shop/prices.py"]) == {"a": "", "b": "assert 1 == 2"}
