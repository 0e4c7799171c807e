"""What is read of command lines and sentences that whet did not write: any text is read, and quickly."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.sleep.observations import Observation, agrees
from whet.sleep.rules.corrections import Vocabulary, read_correction
from whet.sleep.rules.sentences import LONGEST_TURN, gives_orders_to_models, read_sentences
from whet.sleep.shell import read_commands, writes_files

MARKS = "`'\"<>|&;()\\\n\0$#*-.,!? abno"
HOSTILE = st.text(st.sampled_from(MARKS), max_size=300) | st.text(max_size=300)
WORDS = st.lists(st.text("abcxyz-./_ '\"", min_size=1, max_size=8).filter(str.strip), min_size=1, max_size=5)
VOCABULARY = Vocabulary(["npm test", "make lint", "git commit -m x"])


@given(HOSTILE)
def test_any_text_is_read(text: str) -> None:
    read_commands(text)
    writes_files(text)
    gives_orders_to_models(text)
    for sentence in read_sentences(text):
        read_correction(sentence, VOCABULARY, opened=True)


@given(st.lists(WORDS, min_size=1, max_size=4), st.sampled_from(["; ", " && ", " | ", "\n", " || "]))
def test_commands_are_read_as_the_shell_splits_them(commands: list[list[str]], between: str) -> None:
    line = between.join(f"CI=1 run{shlex.join(['', *words])} 2>&1 >/dev/null" for words in commands)
    assert read_commands(line) == [("run", *words) for words in commands]


@pytest.mark.parametrize("part", ["<a>", "<a>\n", "```a", "> a\n", "ignore ", "a. ", "`", "$HOME"])
def test_a_long_turn_is_mostly_others_text(part: str) -> None:
    long = part * (2 * LONGEST_TURN)
    assert not any("npm" in one for one in read_sentences(f"{long} never use npm {long}"))


@given(st.text(max_size=80), st.text(max_size=20), st.text(max_size=80))
def test_a_masked_file_agrees_with_what_was_masked(start: str, secret: str, end: str) -> None:
    seen = Observation("a", f"{start}[redacted:key:1]{end}", whole=True)
    assert agrees(seen, f"{start}{secret}{end}".encode(errors="replace")) or "\r" in start + secret + end
