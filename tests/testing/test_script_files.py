"""Reading scripts: what a file means, and what is said about a file that means nothing."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UserError
from whet.testing import Fault, Reply, Scene, Script, ToolCall, When, call, read_script, say

WHOLE = r"""
[[scene]]
name = "fix-median"
when = { user = "median", system = "(?i)coder", last = "^fix" }

[[scene.reply]]
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
"""


def _read(folder: Path, text: str | bytes) -> Script:
    path = folder / "script.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_script(path)


def test_a_file_reads_as_the_script_that_python_would_build(tmp_path: Path) -> None:
    look = Reply(
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
    when = When(user="median", system="(?i)coder", last="^fix")
    assert _read(tmp_path, WHOLE) == Script(
        scenes=(Scene(name="fix-median", when=when, replies=(look, busy)), Scene(replies=(say("Hello."),)))
    )


def test_say_and_call_build_the_replies_they_are_named_after() -> None:
    assert say("Hi.") == Reply(text="Hi.")
    assert call("bash", name="x", command="ls") == Reply(
        tools=(ToolCall(name="bash", arguments={"name": "x", "command": "ls"}),)
    )


REPLY_KEYS = "chunk_delay, delay, fault, retry_after, text, times, tools"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(
            '[[scene]]\n[[scene.reply]]\n[[scene]]\nname = "b"\n[[scene.reply]]\ntxt = "x"',
            f"scene 2 (b), reply 1: key 'txt' is unknown; did you mean 'text'? (known: {REPLY_KEYS})",
            id="unknown key of a reply",
        ),
        pytest.param(
            '[[scene]]\nwhen = { usr = "x" }\n[[scene.reply]]',
            "scene 1, when: key 'usr' is unknown; did you mean 'user'? (known: last, system, user)",
            id="unknown key of when",
        ),
        pytest.param(
            '[[scene]]\n[[scene.reply]]\n[[scene.reply]]\ntools = [{ nam = "ls" }]',
            "scene 1, reply 2, tool 1: key 'name' is missing",
            id="tool without a name",
        ),
        pytest.param("[[scen]]", "key 'scene' is missing", id="misspelt scene"),
        pytest.param("", "key 'scene' is missing", id="empty file"),
        pytest.param('[[scene]]\nname = "a"', "scene 1 (a): key 'reply' is missing", id="scene without a reply"),
        pytest.param("[[scene]]\nreply = []", "scene 1: key 'reply' is []; expected at least one", id="no replies"),
        pytest.param(
            '[[scene]]\n[scene.reply]\ntext = "x"',
            "scene 1: key 'reply' is {'text': 'x'}; expected a list",
            id="single brackets",
        ),
        pytest.param("scene = [3]", "scene 1: expected a table", id="scene that is no table"),
        pytest.param(
            '[[scene]]\nwhen = "x"\n[[scene.reply]]',
            "scene 1: key 'when' is 'x'; expected a table",
            id="when that is no table",
        ),
        pytest.param(
            '[[scene]]\nwhen = { last = "(" }\n[[scene.reply]]',
            "scene 1, when: key 'last' is '('; "
            "expected a regular expression (missing ), unterminated subpattern at position 0)",
            id="bad regex",
        ),
        pytest.param(
            '[[scene]]\n[[scene.reply]]\nfault = "503"',
            "scene 1, reply 1: key 'fault' is '503'; "
            "expected '401', '429', '500', '529', 'hang', 'refuse', 'cut', 'malformed' or 'empty'",
            id="unknown fault",
        ),
        pytest.param(
            "[[scene]]\n[[scene.reply]]\ndelay = -1",
            "scene 1, reply 1: key 'delay' is -1; expected greater than or equal to 0",
            id="negative delay",
        ),
        pytest.param(
            "[[scene]]\n[[scene.reply]]\ntimes = 2",
            "scene 1, reply 1: key 'times' counts a fault, and there is no key 'fault'",
            id="times without a fault",
        ),
        pytest.param(
            '[[scene]]\n[[scene.reply]]\nfault = "500"\nretry_after = 2',
            "scene 1, reply 1: key 'retry_after' goes with fault '429' only",
            id="retry_after without a 429",
        ),
        pytest.param(
            '[[scene]]\n[[scene.reply]]\ntools = [{ name = "a", arguments = 3 }]',
            "scene 1, reply 1, tool 1: key 'arguments' is 3; expected a table or a string",
            id="arguments that are neither",
        ),
        pytest.param(
            '[[scene]]\n[[scene.reply]]\ntools = [{ name = "a", arguments = { day = 2024-01-01 } }]',
            "scene 1, reply 1, tool 1: key 'arguments' is datetime.date(2024, 1, 1); expected a value that JSON knows",
            id="arguments that JSON cannot hold",
        ),
        pytest.param("[[scene", "expected a script in TOML: Expected ']]' at the end", id="not TOML"),
        pytest.param(b"\xff", "expected a script in TOML: 'utf-8' codec can't decode byte 0xff", id="not text"),
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
