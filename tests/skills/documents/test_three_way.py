"""Carrying an edit over: into a file that its author changed meanwhile, and into one with other line ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.skills.documents.three_way import ConflictError, carry_text, merge_edit, split_lines

LINES = st.lists(st.sampled_from(["a\n", "b\r\n", "c\n", "\n", "\r\n", "d\r"]), max_size=8).map("".join)
TEXTS = st.builds(
    lambda bom, text, end: bom + text + end, st.sampled_from(["", "\ufeff"]), LINES, st.sampled_from("ab")
)


@given(TEXTS | LINES, TEXTS | LINES)
def test_an_edit_of_one_side_alone_is_that_side(base: str, edited: str) -> None:
    assert merge_edit(base, edited, base) == edited
    assert merge_edit(base, base, edited) == edited
    assert merge_edit(base, edited, edited) == edited


@given(TEXTS | LINES, TEXTS | LINES, TEXTS | LINES)
def test_a_merge_does_not_depend_on_the_side_and_invents_no_line(base: str, edited: str, now: str) -> None:
    try:
        merged = merge_edit(base, edited, now)
    except ConflictError:
        with pytest.raises(ConflictError):
            merge_edit(base, now, edited)
        return
    assert merged == merge_edit(base, now, edited)
    assert {*split_lines(merged)} <= {*split_lines(base), *split_lines(edited), *split_lines(now), "\r\n"}


def test_changes_of_the_same_lines_are_a_conflict_that_names_both() -> None:
    with pytest.raises(ConflictError, match=r"line 2 was .* on both sides: the edit has '- b!', the file has '- B'"):
        merge_edit("- a\n- b\n", "- a\n- b!\n", "- a\n- B\n")
    with pytest.raises(ConflictError, match="line 1 was changed"):
        merge_edit("", "- a\n", "- b\n")


@given(TEXTS | LINES)
def test_a_text_that_a_run_did_not_change_keeps_every_byte(raw: str) -> None:
    read = raw.replace("\r\n", "\n").replace("\r", "\n")
    assert carry_text(raw, read) == raw


@given(TEXTS | LINES, LINES)
def test_carried_text_reads_as_the_text(raw: str, text: str) -> None:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    assert carry_text(raw, text).replace("\r\n", "\n").replace("\r", "\n") == text
