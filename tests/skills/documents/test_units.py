"""Documents in units: what was added is found, and goes without a trace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.skills.documents.units import find_added_units, remove_unit, units

START = "---\nname: s\ndescription: d\n---\n# Rules\n\nBe kind.\n\n- Say why.\n\n## Notes\n\n- None.\n"
RULES = ("- Be brief.", "- Be brief. Always.", "- Show:\n  ```sh\n  # a line\n  ```", "1. First this.", "Plain text.")


def with_rules(*rules: str) -> str:
    head, tail = START.split("\n## Notes")
    return head + "".join(f"{rule}\n" for rule in rules) + "\n## Notes" + tail


@given(st.lists(st.sampled_from(RULES[:3]), unique=True, min_size=1))
def test_what_was_added_is_found_and_can_be_removed(rules: list[str]) -> None:
    text = with_rules(*rules)
    assert find_added_units(text, START) == rules
    for rule in rules:
        text = remove_unit(text, rule, START)
    assert text == START


def test_units_are_rules_paragraphs_and_blocks() -> None:
    assert units(START) == ["Be kind.", "- Say why.", "- None."]
    assert units("a\nb\n\n```\ncode\n```\n\n1. x\n   - y\n\n2. z\n") == [
        "a\nb",
        "```\ncode\n```",
        "1. x\n   - y",
        "2. z",
    ]


def test_what_took_the_place_of_something_is_not_counted_as_added() -> None:
    assert find_added_units(START.replace("- Say why.", "- Say how."), START) == []


def test_gaps_of_the_author_stay() -> None:
    code = "```\na\n\n\n\nb\n```\n"
    assert remove_unit(f"{code}\n- Be kind.\n- Be brief.\n", "- Be brief.", "") == f"{code}\n- Be kind.\n"


def test_a_heading_that_came_along_goes_too_and_others_stay() -> None:
    text = f"{START}\n## Learned\n\n- Be brief.\n"
    assert remove_unit(text, "- Be brief.", START) == f"{START}\n"
    assert "## Notes" in remove_unit(text, "- None.", START)
    two = f"{text}- Be clear.\n"
    assert "## Learned" in remove_unit(two, "- Be brief.", START)


@pytest.mark.parametrize("mark", ["protect", "learned"])
def test_protected_text_is_no_unit_and_marks_stay(mark: str) -> None:
    text = f"{START}\n<!-- whet:{mark} -->\n- Be brief.\n<!-- whet:end {mark} -->\n"
    assert find_added_units(text, START) == ([] if mark == "protect" else ["- Be brief."])
    if mark == "learned":
        assert remove_unit(text, "- Be brief.", START).count("<!-- whet") == 2


@given(st.text(alphabet="ab-#1. `\n>~\t", max_size=60))
def test_any_text_is_taken_apart_and_each_unit_can_go(text: str) -> None:
    for unit in units(text):
        assert len(remove_unit(text, unit, "")) < len(text) + 1
