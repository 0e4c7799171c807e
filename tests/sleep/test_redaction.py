"""Redaction of sessions: nothing planted survives, what is no secret stays, and what leaves is checked again."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sleep_planted import KINDS, plant
from sleep_secrets import find_left, hide, session_of
from whet.errors import UserError
from whet.sleep.redaction import Redaction, SecretFoundError
from whet.sleep.session import Session, Step
from whet.text.vendor_patterns import vendor_rules

HOME = Path("/home/dev")
PLANTED = plant(seed=7)
MASKED = re.compile(r"\[redacted:[a-z][a-z0-9-]*:[1-9]\d*\]")


def redact(session: Session, **known: str) -> Session:
    return Redaction(known, HOME).redact_session(session)


def test_the_planted_set_is_as_large_as_it_says() -> None:
    assert len(PLANTED) >= 60
    assert len(KINDS) >= 40


@pytest.mark.parametrize("form", range(10))
def test_no_planted_secret_survives_in_any_field_or_form(form: int) -> None:
    left = [one.kind.name for _, one in find_left(PLANTED[form::10] + PLANTED[form::7], form) if one.kind.has_form]
    assert left == []


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(0, len(KINDS) - 1), st.integers(0, 9))
def test_redaction_is_idempotent_and_its_masks_have_one_form(seed: int, kind: int, form: int) -> None:
    planted = plant(seed)[kind]
    once = redact(hide(planted, form))
    assert redact(once) == once
    text = once.model_dump_json()
    assert "[redacted" not in MASKED.sub("", text)


def test_one_secret_has_one_number_in_a_whole_session() -> None:
    first, second = (next(one.value for one in plant(seed) if one.kind.name == "github-classic") for seed in (1, 2))
    session = session_of(
        [Step(tool="Bash", command=f"echo {second} {first}", output=first), Step(tool="Edit", path="a", after=second)],
        said=f"use {first}",
    )
    redaction = Redaction({}, HOME)
    (turn,) = redaction.redact_session(session).turns
    assert turn.text == "use [redacted:github-token:1]"
    assert turn.steps[0].command == "echo [redacted:github-token:2] [redacted:github-token:1]"
    assert (turn.steps[0].output, turn.steps[1].after) == ("[redacted:github-token:1]", "[redacted:github-token:2]")
    assert redaction.count == 2


def test_values_that_the_machine_knows_are_masked_whatever_their_form(tmp_path: Path) -> None:
    home, repository = tmp_path / "home", tmp_path / "shop"
    files = {
        home / ".netrc": "machine git.shop.dev login ci password plain-netrc-word",
        home / ".npmrc": "//r.shop.dev/:_authToken=plain-npm-word",
        home / ".config/pip/pip.conf": "[global]\nindex-url = https://ci:plain-pip-word@pypi.shop.dev/simple",
        home / ".codex/auth.json": json.dumps({"tokens": {"access_token": "plain-codex-word"}}),
        repository / ".env.local": "# staging\nexport SHOP_SECRET='plain-env-word'\nNODE_ENV=production-like\n",
        repository / ".env.example": "SHOP_SECRET=plain-example-word\n",
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    words = ["netrc", "npm", "pip", "codex", "env", "shell"]
    said = " ".join(f"plain-{word}-word" for word in words)
    redaction = Redaction({"X_TOKEN": "plain-shell-word", "KEYBOARD": "plain-layout-word"}, home, [repository])
    (turn,) = redaction.redact_session(session_of([], said=said)).turns
    assert re.sub(r"\d", "N", turn.text) == " ".join(["[redacted:known:N]"] * len(words))
    for word in ("plain-example-word", "plain-layout-word", "production-like"):
        assert redaction.redact_text(word) == word


BENIGN = [
    "subagent_tokens: 12162, max_tokens=8192, tokenizer: cl100k_base",
    "commit 6d5f0c1f2e3a4b5c6d7e8f9a0b1c2d3e4f5a6b7c",
    "session 123e4567-e89b-12d3-a456-426614174000 resumed",
    '"integrity": "sha512-p7QCYFuBDiRxRTSOHDl6gGzYjX7dQ4Hh0nYcV8y4kAyTu1oXgS3mRkqPnEzBcWvLfJdMsIaUeOtNbGhKxZ2r9w=="',
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "numpy/__init__.py,sha256=L4Gz5QrhVZkxLNSi0dnMbVzs9ERKkP9pBMmVQ3Ii7Mc,22386",
    "PASS: tests/test_cart2/test_total3.py::test_a PWD=/srv/shop2/web3",
    "git clone git@github.com:shop/web.git; icon@2x.png; pkg@1.2.3; ann@example.com",
    "password: required, token = get_token(), api_key=os.environ['KEY'], secret: ${{ secrets.NPM_TOKEN }}",
    "curl -u $USER:$PASS https://shop.dev --token $TOKEN; mysql -h db -P 3306 -e 'select 1'",
    "Never type the password into the log; the password is required.",
]


@pytest.mark.parametrize("line", BENIGN)
def test_what_is_no_secret_stays_as_it_is(line: str) -> None:
    assert Redaction({}, HOME).redact_text(line) == line


def test_paths_name_the_repository_and_no_user() -> None:
    session = session_of([Step(tool="Read", path="/home/dev/shop/a.py", output="/home/dev/.bashrc /Users/ann/x")])
    (turn,) = redact(session.model_copy(update={"cwd": "/home/dev/shop"})).turns
    assert (turn.steps[0].path, turn.steps[0].output) == ("$REPO/a.py", "$HOME/.bashrc $HOME/x")
    (turn,) = redact(session_of([], said="/home/dev/shop-2 src/home/index.ts https://a.io/home/x /homes")).turns
    assert turn.text == "$HOME/shop-2 src/home/index.ts https://a.io/home/x /homes"


def test_authors_and_addresses_have_numbers(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True, capture_output=True)

    git("init", "-q")
    git("-c", "user.name=Ann Lee", "-c", "user.email=ann@shop.dev", "commit", "-q", "--allow-empty", "-m", "x")
    said = "Author: Ann Lee <ann@shop.dev>\nAnn Lee wrote to bob@shop.dev and ann@shop.dev\nReviewed-by: Cy <cy@a.io>"
    session = session_of([], said=said).model_copy(update={"cwd": str(tmp_path)})
    (turn,) = Redaction({}, HOME, [tmp_path]).redact_session(session).turns
    assert turn.text == (
        "Author: <author-1>\n<author-1> wrote to [redacted:mail:1] and <author-1>\nReviewed-by: <author-2>"
    )


def test_what_leaves_is_checked_again() -> None:
    redaction = Redaction({"SHOP_TOKEN": "known-value-1"}, HOME)
    secret = next(one for one in PLANTED if one.kind.name == "anthropic")
    for text, kind in ((secret.text, "anthropic-key"), ("use known-value-1", "known")):
        with pytest.raises(SecretFoundError, match=f"the prompt of the miner holds a secret of the kind '{kind}'") as e:
            redaction.refuse_secrets(text, "the prompt of the miner")
        assert secret.value not in str(e.value)
        assert isinstance(e.value, UserError)
    redaction.refuse_secrets("use [redacted:github-token:1] in $HOME; ask ann@shop.dev", "the prompt")


@pytest.mark.parametrize(
    "text", ["[redacted:known:1]", "ask <author-1>", "ask ann@shop.dev", "see /home/dev/x", "see /Users/ann/notes"]
)
def test_what_is_proposed_for_a_file_names_nothing_private(text: str) -> None:
    with pytest.raises(SecretFoundError, match="the edit of CLAUDE holds "):
        Redaction({}, HOME).refuse_private(f"- Run make lint ({text}).", "the edit of CLAUDE")


def test_an_ordinary_rule_may_be_proposed() -> None:
    Redaction({}, HOME).refuse_private("- Run `make lint` after your last edit; see docs/home/index.md.\n", "the edit")


def test_files_with_secrets_are_known() -> None:
    redaction = Redaction({}, HOME)
    assert redaction.scan_file(next(one.value for one in PLANTED if one.kind.name == "rsa-key").encode())
    assert not redaction.scan_file(b"\x89PNG\r\n\0\xff token: none\n")


def test_the_user_can_have_more_masked() -> None:
    assert Redaction({}, HOME, extra=[r"ACME-\d+"]).redact_text("for ACME-77") == "for [redacted:extra:1]"
    with pytest.raises(UserError, match=r"redact_extra: '\(' does not compile"):
        Redaction({}, HOME, extra=["("])


def test_vendor_patterns_find_whole_keys() -> None:
    pytest.importorskip("detect_secrets")
    rules = vendor_rules()
    assert len({rule.kind for rule in rules}) > 10
    value = next(one.value for one in PLANTED if one.kind.name == "openai-legacy")
    found = {
        one for rule in rules for match in rule.find(f"x={value}", f"x={value}".lower()) for one in rule.pick(match)
    }
    assert value in found
