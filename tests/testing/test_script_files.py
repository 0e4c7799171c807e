"""Reading scripts: what a file means, and what is said about a file that means nothing."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UserError
from whet.testing import Fault, Reply, Scene, Script, ToolCall, When, call, read_script, say

WHOLE = (Path(__file__).parent / "golden" / "script.toml").read_text()


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


BAD = json.loads((Path(__file__).parent / "golden" / "scripts.json").read_text())
NOT_TEXT = (b"\xff", "expected a script in TOML: 'utf-8' codec can't decode byte 0xff")


@pytest.mark.parametrize(("text", "complaint"), [*BAD["a script in TOML, and what is said of it"], NOT_TEXT])
def test_a_bad_script_is_refused_with_the_place(tmp_path: Path, text: str | bytes, complaint: str) -> None:
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
def test_any_file_is_a_script_or_one_line(tmp_path_factory: pytest.TempPathFactory, table: dict[str, str]) -> None:
    text = "\n".join(f"{key} = {value}" for key, value in table.items())
    complaint = ""
    try:
        _read(tmp_path_factory.getbasetemp(), text)
    except UserError as error:
        complaint = str(error)
    assert "\n" not in complaint
