"""Every attack of the corpus through every function of `whet.look.markup`: nothing of it becomes an element or an
attribute, nothing is hidden, and nothing is lost."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.attack_corpus import ATTACKS, LONG_ATTACKS
from support.shown_text import COLOURS, ReadHtml, hidden_characters
from whet.look import markup

MARKDOWN_ELEMENTS = {
    "blockquote", "br", "code", "em", "hr", "li", "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td",
    "th", "thead", "tr", "ul",
}  # fmt: skip
WHOLE: dict[str, Callable[[str], str]] = {
    "visible": markup.visible,
    "diff": markup.diff,
    "code": lambda text: markup.code(text, "a.py"),
    "shell": lambda text: markup.code(text, "a.sh"),
    "json": lambda text: markup.code(text, "a.json"),
    "ansi": markup.ansi,
}
"""Functions that keep every character of a text. Colours of terminals become classes."""


def check_whole(name: str, text: str) -> None:
    html = str(WHOLE[name](text))
    read = ReadHtml(html)
    assert read.text == (COLOURS.sub("", text) if name == "ansi" else text)
    assert read.elements <= {"span"}
    assert {key for key, _ in read.attributes} <= {"class"}
    assert hidden_characters(html) == set()


@pytest.mark.parametrize("name", WHOLE)
def test_attacks_are_shown_whole_and_nothing_else(name: str) -> None:
    assert len(ATTACKS) >= 300
    for text in ATTACKS.values():
        check_whole(name, text)


@pytest.mark.parametrize("name", WHOLE)
@given(text=st.text(st.characters(codec=None), max_size=60))
def test_any_text_is_shown_whole_and_nothing_else(name: str, text: str) -> None:
    check_whole(name, text)


def check_markdown(text: str) -> None:
    html = str(markup.markdown(text))
    read = ReadHtml(html)
    assert read.elements <= MARKDOWN_ELEMENTS
    assert all(key == "class" or (key == "start" and value.isdecimal()) for key, value in read.attributes)
    assert hidden_characters(html) == set()


def test_markdown_makes_no_link_no_image_and_no_html() -> None:
    for text in ATTACKS.values():
        check_markdown(text)


@given(text=st.text(st.characters(codec=None), max_size=60))
def test_any_markdown_makes_no_link_no_image_and_no_html(text: str) -> None:
    check_markdown(text)


def test_addresses_in_markdown_can_be_read() -> None:
    for name, text in ATTACKS.items():
        if name.startswith("markdown"):
            for address in re.findall(r"(?:javascript|data|file|http|vbscript):[\w./,-]+", text):
                assert address in ReadHtml(str(markup.markdown(text))).text, name


@pytest.mark.parametrize("name", LONG_ATTACKS)
def test_time_grows_with_the_length_and_not_with_its_square(name: str) -> None:
    text = LONG_ATTACKS[name][: 1 << 16]
    for function in (*WHOLE.values(), markup.markdown):
        assert function(text)


def test_text_in_the_colour_of_its_background_gets_no_colour() -> None:
    assert "ansi-" not in markup.ansi("\x1b[30;40mblack on black\x1b[0m")
    assert "ansi-" not in markup.ansi("\x1b[8mconcealed\x1b[0m")
