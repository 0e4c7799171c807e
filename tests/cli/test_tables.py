"""Tables and prose on terminals of any width: no id, name or word is ever broken."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import RenderableType

from whet.cli.output import command, wrap
from whet.cli.summary import arms_table, summary_table
from whet.cli.tables import UNLIMITED, Column, Terminal, TextTable
from whet.rollout.result import Result
from whet.runs.stats.summary import Arm, Tally
from whet.scoring import Cause, Score

WIDTHS = st.integers(60, 160)
NAMES = st.text(st.sampled_from("abcxyz0189-_/.:@日é"), min_size=1, max_size=50)


def printed(width: int, *parts: RenderableType) -> list[str]:
    stream = io.StringIO()
    Terminal(file=stream, width=width, markup=False, highlight=False).say(*parts)
    return stream.getvalue().splitlines()


def run_table(rows: list[tuple[str, ...]]) -> TextTable:
    table = TextTable(
        [
            *(Column("rollout"), Column("task"), Column("agent"), Column("score", right=True)),
            *(Column("tokens", 2, right=True), Column("why", 1, gives_way=True)),
        ]
    )
    for row in rows:
        table.add(*row)
    return table


ROWS = st.tuples(NAMES, NAMES, NAMES, st.just("missing: model"), st.just("4.0k"), st.text(max_size=99))


@given(WIDTHS, st.lists(ROWS, max_size=3))
def test_ids_names_and_scores_are_whole_at_any_width(width: int, rows: list[tuple[str, ...]]) -> None:
    lines = printed(width, run_table(rows))
    for row in rows:
        assert all(any(name in line for line in lines) for name in row[:4])


@given(WIDTHS, st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=4, unique=True))
def test_every_arm_of_a_summary_is_whole_at_any_width(width: int, names: list[tuple[str, str, str]]) -> None:
    arm = Tally(planned=2)
    arm.conclude("t", Result(score=Score.of(0.5)))
    arm.conclude("u", Result(score=Score.missing(Cause.MODEL, "down")))
    arms: dict[Arm, Tally] = dict.fromkeys(names, arm)
    lines = printed(width, summary_table(arms, {one[2]: one[2] for one in names}))
    for name in (word for one in names for word in one):
        assert any(name in line for line in lines)


def test_the_reason_gives_way_first_and_then_the_columns_of_least_worth_and_the_table_says_so() -> None:
    row = ("a2a553ac5440", "price-mug", "claude-code", "0.50", "4.0k", "tests/test_price.py::test_mug failed " * 3)
    assert printed(UNLIMITED, run_table([row]))[1].endswith(row[-1].strip())
    heading, shown = printed(100, run_table([row]))
    assert heading == "rollout       task       agent        score  tokens  why"
    assert shown.startswith("a2a553ac5440  price-mug  claude-code   0.50    4.0k  tests/test_price.py")
    assert (shown[-1], len(shown)) == ("…", 100)
    heading, shown, below = printed(80, run_table([row]))
    assert heading == "rollout       task       agent        score  tokens"
    assert below.startswith("    tests/test_price.py::test_mug failed tests/")
    assert (below[-1], len(below)) == ("…", 80)
    narrow = printed(47, run_table([row]))
    assert "tokens" not in narrow[0]
    assert narrow[-1] == "left out at this width: tokens"
    assert printed(40, run_table([row])) == [
        "a2a553ac5440  price-mug  claude-code",
        "    score 0.50  tokens 4.0k",
        f"    {row[-1].strip()}",
    ]


def test_a_table_of_arms_fits_80_columns_with_agent_model_skill_and_score() -> None:
    arm = Tally(planned=1, input_tokens=120_000, output_tokens=9_000, seconds=4000)
    arm.conclude("t", Result(score=Score.of(0.5)))
    arms: dict[Arm, Tally] = {("claude-code", "scripted", "d"): arm}
    lines = printed(80, arms_table(arms, {"d": "careful-shell@bc86a9"}))
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("claude-code  scripted  careful-shell@bc86a9  50.0%")


@given(st.integers(20, 120), st.lists(st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=30)))
def test_prose_is_broken_between_words_only(width: int, words: list[str]) -> None:
    text = " ".join(words)
    lines = wrap(f"  {text}", width).split("\n")
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines if line.isascii())


def test_what_follows_the_first_line_of_an_entry_is_indented() -> None:
    assert wrap("a2a553ac5440  price-mug  0.50 -> 1.00", 26, hang=4) == "a2a553ac5440  price-mug\n    0.50 -> 1.00"


def test_commands_and_pipes_are_not_wrapped() -> None:
    again = command("run", "tasks", "--agent", "claude-code", "--out", "runs/a", "--resume")
    text = f"stopped. Resume with:\n  {again}"
    assert wrap(text, None) == text
    assert wrap(text, 40).splitlines()[-1] == text.splitlines()[-1]
