"""Reading scripts: what a file means, and what is said about a file that means nothing."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UserError
from whet.testing import Fault, Reply, Scene, Script, ToolCall, When, call, read_script, say

WHOLE = r"""
tokens = true

[[scene]]
name = "fix-median"
when = { user = "median", system = "(?i)coder", last = "^fix", image = true }

[[scene.reply]]
thinking = "Where is it?"
text = "Let me look."
tools = [
  { name = "bash", arguments = { command = "ls" } },
  { name = "bash", arguments = '{"command": ' },
  { name = "done" },
]
delay = 0.2
chunk_delay = 0.01

[[scene.reply]]
fault = "429"
times = 2
retry_after = 1

[[scene]]
[[scene.reply]]
text = "Hello."
answer = { sum = 3, parts = [1, 2] }
"""


def _read(folder: Path, text: str | bytes) -> Script:
    path = folder / "script.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_script(path)


def test_a_file_reads_as_the_script_that_python_would_build(tmp_path: Path) -> None:
    look = Reply(
        thinking="Where is it?",
        text="Let me look.",
        tools=(
            ToolCall(name="bash", arguments={"command": "ls"}),
            ToolCall(name="bash", arguments='{"command": '),
            ToolCall(name="done"),
        ),
        delay=0.2,
        chunk_delay=0.01,
    )
    busy = Reply(fault=Fault.RATE_LIMIT, times=2, retry_after=1)
    when = When(user="median", system="(?i)coder", last="^fix", image=True)
    hello = Reply(text="Hello.", answer={"sum": 3, "parts": [1, 2]})
    assert _read(tmp_path, WHOLE) == Script(
        scenes=(Scene(name="fix-median", when=when, replies=(look, busy)), Scene(replies=(hello,))),
        tokens=True,
    )


def test_say_and_call_build_the_replies_they_are_named_after() -> None:
    assert say("Hi.") == Reply(text="Hi.")
    assert call("bash", name="x", command="ls") == Reply(
        tools=(ToolCall(name="bash", arguments={"name": "x", "command": "ls"}),)
    )


ONE = "[[scene]]\n[[scene.reply]]\n"
REPLY_KEYS = "answer, chunk_delay, delay, fault, retry_after, text, thinking, times, tools"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            ONE + '[[scene]]\nname = "b"\n[[scene.reply]]\ntxt = "x"',
            f"unknown key 'scene[1].reply[0].txt'; did you mean 'text'? (known: {REPLY_KEYS})",
        ),
        (
            '[[scene]]\nwhen = { usr = "x" }\n[[scene.reply]]',
            "unknown key 'scene[0].when.usr'; did you mean 'user'? (known: any, image, last, system, user)",
        ),
        (ONE + '[[scene.reply]]\ntools = [{ nam = "ls" }]', "key 'scene[0].reply[1].tools[0].name' is missing"),
        ("[[scen]]", "key 'scene' is missing"),
        ("", "key 'scene' is missing"),
        ('[[scene]]\nname = "a"', "key 'scene[0].reply' is missing"),
        ("[[scene]]\nreply = []", "key 'scene[0].reply' is a list; expected at least 1"),
        ('[[scene]]\n[scene.reply]\ntext = "x"', "key 'scene[0].reply' is a table; expected a list"),
        ("scene = [3]", "key 'scene[0]' is 3; expected a table of keys and values"),
        ('[[scene]]\nwhen = "x"\n[[scene.reply]]', "key 'scene[0].when' is 'x'; expected a table of keys and values"),
        (
            '[[scene]]\nwhen = { last = "(" }\n[[scene.reply]]',
            (
                "key 'scene[0].when.last' is '('; "
                "expected a regular expression (missing ), unterminated subpattern at position 0)"
            ),
        ),
        (
            ONE + 'fault = "503"',
            (
                "key 'scene[0].reply[0].fault' is '503'; "
                "expected one of: 400, 401, 404, 429, 500, 529, hang, refuse, cut, malformed, empty"
            ),
        ),
        (ONE + "delay = -1", "key 'scene[0].reply[0].delay' is -1; expected a number of at least 0"),
        (ONE + "times = 2", "key 'scene[0].reply[0]' has 'times' without 'fault'; expected both or neither"),
        (
            ONE + 'answer = {}\ntools = [{ name = "a" }]',
            "key 'scene[0].reply[0]' has 'answer' and 'tools'; expected one of them",
        ),
        (
            ONE + 'fault = "500"\nretry_after = 2',
            "key 'scene[0].reply[0]' has 'retry_after' without fault '429'; expected both or neither",
        ),
        (
            ONE + 'tools = [{ name = "a", arguments = 3 }]',
            "key 'scene[0].reply[0].tools[0].arguments' is 3; expected a table or text",
        ),
        (
            ONE + 'tools = [{ name = "a", arguments = { day = 2024-01-01 } }]',
            "key 'scene[0].reply[0].tools[0].arguments.dict.day' is datetime.date(2024, 1, 1); invalid value: ",
        ),
        ("[[scene", "expected a script in TOML: Expected ']]' at the end"),
        (b"\xff", "expected a script in TOML: 'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_bad_script_is_refused_with_the_place_and_what_was_expected(
    tmp_path: Path, text: str | bytes, complaint: str
) -> None:
    expected = re.escape(f"{tmp_path / 'script.toml'}: {complaint}")
    with pytest.raises(UserError, match=f"^{expected}"):
        _read(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(UserError, match=f"^{re.escape(str(path))}: cannot be read: No such file or directory$"):
        read_script(path)


KEYS = st.sampled_from(["scene", "scenes", "reply", "when", "tools", "arguments", "name", "user", "fault", "text", "x"])
LEAVES = st.sampled_from(["true", "3", "0.5", "nan", "'('", "'429'", "'bash'", "2024-01-01", "[]", "{}"])
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(KEYS, inner, max_size=3).map(
            lambda table: "{" + ", ".join(f"{key} = {value}" for key, value in table.items()) + "}"
        ),
    ),
    max_leaves=8,
)


@given(table=st.dictionaries(KEYS, VALUES, max_size=3))
def test_whatever_the_file_holds_it_is_a_script_or_a_one_line_user_error(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, str]
) -> None:
    text = "\n".join(f"{key} = {value}" for key, value in table.items())
    complaint = ""
    try:
        _read(tmp_path_factory.getbasetemp(), text)
    except UserError as error:
        complaint = str(error)
    assert "\n" not in complaint
