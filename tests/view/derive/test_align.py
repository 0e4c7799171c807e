"""Two traces are aligned so that every step of both appears once, and the traces of any agent in bounded time."""

from dataclasses import replace
from difflib import SequenceMatcher

from hypothesis import given
from hypothesis import strategies as st

from whet.trace.steps.steps import StepKind
from whet.view.derive.align import Stretch, align, match_blocks, split_long
from whet.view.derive.trace_data import OutlineLine

LINE = OutlineLine(0, StepKind.REPLY, "bash", "", 1, None, error=False, depth=0, thread="main")
LINES = st.lists(
    st.builds(
        replace,
        st.just(LINE),
        kind=st.sampled_from([StepKind.REPLY, StepKind.RESULT, StepKind.USER, StepKind.SUB_AGENT]),
        head=st.sampled_from(["ls", "cat  a", "cat a", "pytest"]),
        error=st.booleans(),
    ),
    max_size=40,
)


def number(lines: list[OutlineLine]) -> list[OutlineLine]:
    return [replace(line, number=place) for place, line in enumerate(lines, 1)]


def commands(*heads: str) -> list[OutlineLine]:
    return number([replace(LINE, head=head) for head in heads])


def shown(stretches: list[Stretch]) -> list[tuple[str, str, bool]]:
    return [
        (" ".join(line.head for line in one.a), " ".join(line.head for line in one.b), one.alike) for one in stretches
    ]


@given(a=LINES, b=LINES, most=st.integers(1, 10))
def test_every_step_of_both_appears_once_and_in_order(a: list[OutlineLine], b: list[OutlineLine], most: int) -> None:
    a, b = number(a), number(b)
    for found in (align(a, b), list(split_long(align(a, b), most))):
        assert [line for one in found for line in one.a] == a
        assert [line for one in found for line in one.b] == b
        assert all(len(one.a) == len(one.b) for one in found if one.alike)
        assert all(one.a or one.b for one in found)


@given(a=LINES)
def test_a_trace_is_like_itself(a: list[OutlineLine]) -> None:
    a = number(a)
    assert align(a, a) == ([Stretch(tuple(a), tuple(a), alike=True)] if a else [])


@given(a=LINES, b=LINES)
def test_what_is_alike_is_the_same_work(a: list[OutlineLine], b: list[OutlineLine]) -> None:
    for one in align(number(a), number(b)):
        if one.alike:
            pairs = zip(one.a, one.b, strict=True)
            assert all((x.kind, x.name) == (y.kind, y.name) for x, y in pairs)


def test_the_first_difference_is_where_the_work_parts() -> None:
    a = commands("ls", "cat a", "pytest", "rm b", "pytest")
    b = commands("ls", "cat  a", "sed a", "pytest")
    assert shown(align(a, b)) == [
        ("ls cat a", "ls cat  a", True),
        ("pytest rm b", "sed a", False),
        ("pytest", "pytest", True),
    ]


def test_names_that_programs_make_up_do_not_part_traces() -> None:
    a = commands("cat /tmp/tmpab12cd34/x", "show 3f2a9c1b-1111-2222-3333-444455556666", "ls")
    b = commands("cat /tmp/tmpzz98yy76/x", "show 77aa9c1b-1111-2222-3333-444455556666", "ls")
    assert [one.alike for one in align(a, b)] == [True]


def test_a_tool_that_failed_is_not_like_one_that_did_not() -> None:
    result = replace(LINE, kind=StepKind.RESULT)
    a = number([LINE, result])
    b = number([LINE, replace(result, error=True)])
    assert [one.alike for one in align(a, b)] == [False]


@given(st.text("abc", max_size=40), st.text("abc", max_size=40))
def test_short_sequences_are_matched_as_difflib_does(a: str, b: str) -> None:
    found = match_blocks(a, b)
    assert all(a[x : x + size] == b[y : y + size] for x, y, size in found)
    if a and b and a[0] != b[0] and a[-1] != b[-1]:
        matcher = SequenceMatcher(None, a, b, autojunk=False)
        assert found == [tuple(block) for block in matcher.get_matching_blocks() if block.size]


def test_an_agent_in_a_loop_does_not_take_the_server_along() -> None:
    a = ["start", *["ls"] * 20_000, "one", *["cat"] * 10_000, "end a"]
    b = ["begin", *["cat"] * 10_000, "one", *["ls"] * 20_000, "end b"]
    assert "one" in {a[place] for place, _, _ in match_blocks(a, b)}
    assert match_blocks(["x", *["ls"] * 30_000, "y"], ["z", *["ls"] * 29_000, "w"]) == []
