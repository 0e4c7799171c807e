"""What counts as the same in two runs of one command, and what does not."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.trace_world import answered, asked, calls, said
from whet.gateway.dialects.neutral import Text, Thinking
from whet.trace.replay.equivalence import compare_messages, pair_ids

LISTING = "total 8\n-rw-r--r-- 1 me me {size} Nov {day} 05:{minute} a.txt\n"


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("Mon Nov 16 05:34:10 UTC 2026", "Tue Nov 17 11:02:59 UTC 2026"),
        ("at 2026-11-16T05:34:10.123Z", "at 2027-01-02T23:00:00.9Z"),
        ("3 passed in 0.12s", "3 passed in 11.9s"),
        ("real\t0m0.012s", "real\t1m7.300s"),
        ("Wall time: 0.0000 seconds", "Wall time: 12.5 seconds"),
        ("duration_ms: 27", "duration_ms: 4711"),
        ("GET http://127.0.0.1:8080/x", "GET http://127.0.0.1:40123/x"),
        ("/tmp/tmp.aB3dE/f", "/tmp/tmp.Xz91q/f"),
        (LISTING.format(size=6, day=16, minute=40), LISTING.format(size=6, day=9, minute=11)),
    ],
)
def test_times_and_places_that_pass_make_no_difference(then: str, now: str) -> None:
    assert pair_ids(then, now) is not None


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("218993926", "941572219"),
        ("3 passed", "4 passed"),
        ("a.py:10: error", "a.py:12: error"),
        ("exit code 0", "exit code 1"),
        ("file_a.txt", "file_b.txt"),
        ("yes", "yes\nno"),
        (LISTING.format(size=6, day=16, minute=40), LISTING.format(size=7, day=16, minute=40)),
    ],
)
def test_what_a_command_says_makes_one(then: str, now: str) -> None:
    assert pair_ids(then, now) is None


PIECE = st.sampled_from(["made ", "[main {}] ", "{}\n", "ok: ", "({})"])


@given(st.lists(st.tuples(PIECE, st.uuids(), st.uuids()), min_size=1, unique_by=lambda one: one[1]))
def test_ids_are_paired_wherever_they_stand(pieces: list[tuple[str, UUID, UUID]]) -> None:
    then, now = ("".join(piece[0].format(piece[side]) for piece in pieces) for side in (1, 2))
    named = {str(one): str(other) for piece, one, other in pieces if "{}" in piece and one != other}
    assert pair_ids(then, now) == named


@given(st.text(), st.text())
def test_texts_are_like_themselves_and_the_question_has_no_direction(one: str, other: str) -> None:
    assert pair_ids(one, one) == {}
    assert (pair_ids(one, other) is None) == (pair_ids(other, one) is None)


def test_the_first_difference_is_told_with_its_place() -> None:
    then = [said(Text("I look."), calls("ls")), answered("a\nb\nc")]
    now = [said(Thinking("hm"), Text("I look."), calls("ls", "c2")), answered("a\nb\nd", "c2")]
    difference = compare_messages(then, now, {})
    assert str(difference) == "result of bash: recorded 'c', now 'd'"
    assert str(compare_messages(then, now[:1], {})) == "result of bash: recorded 'a\\nb\\nc', now nothing"
    assert str(compare_messages([asked("x")], [answered("x")], {})).startswith(
        "another kind of message: recorded text of the user"
    )
    assert compare_messages(then, then, {}) is None


def test_lines_of_a_skill_can_be_left_out() -> None:
    then, now = [answered("1\tBe careful.\n2\tLook twice.\n3")], [answered("1\tBe bold.\n2")]
    assert compare_messages(then, now, {}) is not None
    assert compare_messages(then, now, {}, {"Be careful.", "Look twice.", "Be bold."}) is None
    assert (
        compare_messages(then, [answered("1\tno such file")], {}, {"Be careful.", "Look twice.", "Be bold."})
        is not None
    )
