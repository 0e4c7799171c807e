"""Masking of secrets: in any text, cut anywhere, in any notation."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.text.redact import Redactor, mask

KEY = "sk-live-2f7c1e9ab04d43d8a1b2c3d4e5f60718"

texts = st.text(alphabet="abc sk-live-\n'\"é", max_size=60)


def longest_piece(text: str, secret: str) -> int:
    """How many characters of a secret stand together in a text, from its beginning or to its end."""
    beginnings = (size for size in range(len(secret), 0, -1) if secret[:size] in text)
    ends = (size for size in range(len(secret), 0, -1) if secret[-size:] in text)
    return max(next(beginnings, 0), next(ends, 0))


@given(before=texts, after=texts, start=st.integers(0, 120), length=st.integers(0, 160))
def test_no_cut_leaves_a_piece_of_a_secret(before: str, after: str, start: int, length: int) -> None:
    cut = f"{before}{KEY}{after}"[start : start + length]
    for shown in (cut, repr(cut), f"the answer is {cut!r}; expected 4", f"x\n[... 9 bytes left out ...]\n{cut}"):
        assert longest_piece(Redactor([KEY]).cut_text(shown), KEY) < 12
        data = Redactor([KEY]).cut_bytes(shown.encode())
        assert longest_piece(data.decode(), KEY) < 12


@given(before=st.binary(max_size=40), at=st.integers(0, 40), gap=st.integers(1, 10))
def test_a_secret_that_lies_across_a_gap_is_masked_on_both_sides(before: bytes, at: int, gap: int) -> None:
    head, tail = KEY[:at], KEY[at + gap :]
    shown = before + head.encode() + b"\n[... 10 bytes left out ...]\n" + tail.encode()
    masked = Redactor([KEY]).cut_bytes(shown).decode(errors="replace")
    assert longest_piece(masked, KEY) < 12


@given(texts)
def test_texts_without_a_secret_stay_as_they_are(text: str) -> None:
    # These texts have at most its first eight characters, which many keys share.
    assert Redactor(["other-0123456789abcdef"]).cut_text(text) == text


def test_a_piece_that_keys_share_is_left_in_what_was_not_cut() -> None:
    assert Redactor([KEY]).text("keys begin with sk-live-2f7c") == "keys begin with sk-live-2f7c"


@pytest.mark.parametrize("secret", ["quote\"and\\back'slash", "line\nbreak-0123456", "Zoë-ключ-0123456789"])
def test_a_secret_is_found_in_the_notations_of_json_and_python(secret: str) -> None:
    redactor = Redactor([secret])
    for shown in (secret, json.dumps(secret), json.dumps(secret, ensure_ascii=False), repr(secret)):
        assert redactor.text(f"<{shown}>").strip("<\"'>") == "[redacted]"
        assert redactor.bytes(f"<{shown}>".encode()).strip(b"<\"'>") == b"[redacted]"


def test_a_path_is_no_piece_of_a_secret() -> None:
    redactor = Redactor(["/home/somebody/.config/credentials"])
    assert redactor.cut_text("/home/somebody/task.py") == "/home/somebody/task.py"
    assert redactor.cut_text("in /home/somebody/.config/credentials") == "in [redacted]"


def test_keys_and_values_of_plain_data_are_masked() -> None:
    data = {"reason": [KEY[:20], (KEY.encode(), 7, None)], f"transcript {KEY}.json": b"x" + KEY[-15:].encode()}
    assert mask(data, Redactor([KEY, "reason"])) == {
        "reason": ["[redacted]", [b"[redacted]", 7, None]],
        "transcript [redacted].json": b"x[redacted]",
    }
