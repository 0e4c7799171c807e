"""Which reply answers which conversation."""

import pytest

from whet.testing import Scene, Script, When, call, say
from whet.testing.play import ScriptTurn, reply_to

ASKED = (ScriptTurn("system", "You are a coder."), ScriptTurn("user", "Fix the median."))


def _script(*scenes: tuple[When, str]) -> Script:
    return Script(scenes=tuple(Scene(when=when, replies=(say(text),)) for when, text in scenes))


@pytest.mark.parametrize(
    ("when", "fits"),
    [
        (When(), True),
        (When(user="median"), True),
        (When(user="coder"), False),
        (When(system="coder"), True),
        (When(system="median"), False),
        (When(last="^Fix"), True),
        (When(last="coder"), False),
        (When(any="coder"), True),
        (When(any="^Fix"), True),
        (When(any="nowhere"), False),
        (When(user="median", system="coder", last="median"), True),
        (When(user="median", system="poet"), False),
    ],
)
def test_a_scene_fits_when_every_given_pattern_is_found_where_it_belongs(when: When, fits: bool) -> None:
    assert (reply_to(ASKED, _script((when, "here"))).text == "here") is fits


def test_the_first_scene_that_fits_wins() -> None:
    script = _script((When(user="mode"), "one"), (When(user="median"), "two"), (When(), "three"))
    assert reply_to(ASKED, script) == say("two")


def test_any_user_message_may_match_but_only_the_last_message_is_last() -> None:
    conversation = (*ASKED, ScriptTurn("assistant", ""), ScriptTurn("tool", "exit 1"), ScriptTurn("user", "Go on."))
    script = Script(scenes=(Scene(when=When(user="median", last="Go on"), replies=(say("0"), say("1"))),))
    assert reply_to(conversation, script) == say("1")


def test_replies_follow_the_number_of_assistant_turns() -> None:
    replies = (call("bash", command="ls"), call("bash", command="cat x"), say("Done."))
    script = Script(scenes=(Scene(replies=replies),))
    worked = (ScriptTurn("assistant", ""), ScriptTurn("tool", "x"))
    assert [reply_to((*ASKED, *worked * n), script) for n in range(3)] == list(replies)


def test_what_the_assistant_said_in_one_go_counts_once() -> None:
    script = Script(scenes=(Scene(replies=(say("0"), say("1"), say("2"))),))
    thought, asked, result = (
        ScriptTurn("assistant", "", "hm"),
        ScriptTurn("assistant", "", "bash"),
        ScriptTurn("tool", "x"),
    )
    assert reply_to((*ASKED, thought, asked, asked, result, result), script) == say("1")
    assert reply_to((*ASKED, thought, asked, result, thought, asked, result), script) == say("2")


def test_what_the_script_does_not_foresee_is_said_in_the_reply() -> None:
    script = Script(scenes=(Scene(when=When(user="mode"), replies=(say("x"),)),))
    ending = "the last message begins 'Fix the median.'"
    assert reply_to(ASKED, script) == say(f"[scripted model: no scene matches; {ending}]")


@pytest.mark.parametrize(("name", "label"), [("fix", "scene 1 (fix)"), ("", "scene 1")])
def test_past_the_last_reply_the_reply_says_so(name: str, label: str) -> None:
    script = Script(scenes=(Scene(name=name, replies=(say("x"),)),))
    past = (*ASKED, ScriptTurn("assistant", "x"), ScriptTurn("user", "More?"))
    assert reply_to(past, script) == say(f"[scripted model: {label} has no reply 2; the last message begins 'More?']")
