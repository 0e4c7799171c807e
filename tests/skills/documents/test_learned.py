"""The learned block: whet writes into it and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UserError
from whet.skills.documents.document import END_LEARNED, END_PROTECT, LEARNED, PROTECT
from whet.skills.documents.learned import (
    put_block,
    read_block,
    refuse_bad_marks,
    refuse_large_block,
    refuse_other_changes,
)

TEXTS = st.text(st.sampled_from("ab #\n\r-\ufeff\t"), max_size=30)
RULES = st.lists(st.sampled_from(["- Be brief.\n", "- Run make test.\n", "- Übe.\n"]), min_size=1).map("".join)


@given(TEXTS, RULES, RULES)
def test_rules_are_put_in_and_the_rest_keeps_its_bytes(text: str, first: str, second: str) -> None:
    once = put_block(text, first)
    assert once.startswith(text)
    assert read_block(once) == first
    refuse_other_changes(text, once, "AGENTS.md", learned_only=True)
    behind = once + text
    twice = put_block(behind, second)
    assert read_block(twice) == second
    assert twice.partition(LEARNED)[0] == behind.partition(LEARNED)[0]
    assert twice.partition(END_LEARNED)[2] == behind.partition(END_LEARNED)[2]
    refuse_other_changes(behind, twice, "AGENTS.md", learned_only=True)


def test_new_lines_end_as_those_of_the_document() -> None:
    text = f"# House\r\n{LEARNED}\r\n- a\r\n{END_LEARNED}\r\n\r\n\r\n"
    assert put_block(text, "- a\n- b\n") == f"# House\r\n{LEARNED}\r\n- a\r\n- b\r\n{END_LEARNED}\r\n\r\n\r\n"
    assert put_block("\ufeff# House\r\n", "- a\n") == f"\ufeff# House\r\n\r\n{LEARNED}\r\n- a\r\n{END_LEARNED}\r\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"{LEARNED}\n- a\n# Mine\n", f"AGENTS.md: {LEARNED} has no end"),
        (f"- a\n{END_LEARNED}\n", f"AGENTS.md: {END_LEARNED} has no beginning"),
        (f"{PROTECT}\n{LEARNED}\n{END_LEARNED}\n{END_PROTECT}", f"{PROTECT} has no end before the next {LEARNED}"),
        (f"{LEARNED}{END_LEARNED}" * 2, "has 2 learned blocks; expected one at most"),
    ],
)
def test_unbalanced_marks_are_refused_and_not_repaired(text: str, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        refuse_bad_marks(text, "AGENTS.md")


def test_changes_of_protected_and_of_other_text_are_refused() -> None:
    text = f"# House\n{PROTECT}\nKeep.\n{END_PROTECT}\n"
    with pytest.raises(UserError, match="would change text between"):
        refuse_other_changes(text, text.replace("Keep", "Drop"), "AGENTS.md", learned_only=False)
    with pytest.raises(UserError, match="would change text outside of the learned block"):
        refuse_other_changes(text, text.replace("House", "Home"), "AGENTS.md", learned_only=True)
    refuse_other_changes(text, text.replace("House", "Home"), "AGENTS.md", learned_only=False)
    with pytest.raises(UserError, match="outside of the learned block"):
        refuse_other_changes(put_block(text, "- a\n"), put_block(text + "\n", "- b\n"), "AGENTS.md", learned_only=True)


def test_a_block_that_is_too_large_is_refused() -> None:
    refuse_large_block(put_block("", "- a\n" * 40), "AGENTS.md")
    with pytest.raises(UserError, match=r"would have 41 lines and 164 bytes; the limit is 40 lines and 4096 bytes"):
        refuse_large_block(put_block("", "- a\n" * 41), "AGENTS.md")
    with pytest.raises(UserError, match="Remove rules first"):
        refuse_large_block(put_block("", "é" * 2100), "AGENTS.md")
