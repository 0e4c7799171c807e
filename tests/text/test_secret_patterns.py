"""Secrets found by their form: what is masked, what is not, and that hostile texts take no time."""

import json
import random
import string

import pytest

from whet.text.secrets import SecretMasker, mask_secrets


def made_up(length: int, letters: str = string.ascii_letters + string.digits) -> str:
    return "".join(random.Random(length).choices(letters, k=length))


LONG, HEX = made_up(48), made_up(40, "0123456789abcdef")
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{made_up(64)}\n{made_up(63)}\n-----END RSA PRIVATE KEY-----"
SECRETS = [
    ("anthropic-key", "key {}", f"sk-ant-api03-{LONG}"),
    ("api-key", "OPENAI_API_KEY={}", f"sk-proj-{LONG}"),
    ("api-key", "uses {} today", f"sk-or-v1-{HEX}"),
    ("google-key", "?key={}", f"AIza{made_up(35)}"),
    ("huggingface-token", "login --token {}", f"hf_{made_up(34)}"),
    ("github-token", "git clone https://x:{}@github.example/a", f"ghp_{made_up(36)}"),
    ("github-token", "{}", f"github_pat_{made_up(60)}"),
    ("gitlab-token", "{}", f"glpat-{made_up(20)}"),
    ("npm-token", "//registry/:_authToken={}", f"npm_{made_up(36)}"),
    ("pypi-token", "{}", f"pypi-{made_up(120)}"),
    ("slack-token", "{}", f"xoxb-{made_up(12, string.digits)}-{made_up(24)}"),
    ("stripe-key", "{}", f"sk_live_{made_up(24)}"),
    ("webhook-secret", "{}", f"whsec_{made_up(32)}"),
    ("telegram-token", "{}", f"123456789:AA{made_up(33)}"),
    ("aws-key-id", "aws_access_key_id = {}", f"AKIA{made_up(16, string.ascii_uppercase + string.digits)}"),
    ("secret", "aws_secret_access_key = {}", made_up(40)),
    ("secret", "X_SECRET={}", HEX),
    ("secret", 'db: {{"password": "{}"}}', "hunter2-9fK3x"),
    ("jwt", "{}", f"eyJ{made_up(30)}.eyJ{made_up(60)}.{made_up(43)}"),
    ("credential", "Authorization: Bearer {}", made_up(40)),
    ("credential", "curl -H 'Authorization: Basic {}'", "dXNlcjpodW50ZXIyLTlmSzN4"),
    ("cookie", "Cookie: session={}; theme=dark", made_up(32)),
    ("password", "postgres://app:{}@db:5432/shop", "p4ss-Word"),
    ("password", "The admin password is {}.", "Tr0ub4dor&3"),
    ("azure-key", "AccountName=a;AccountKey={};", f"{made_up(86)}=="),
    ("private-key", "{}", PEM),
    ("private-key", "cat id_rsa\n{}", PEM[:120]),
]


@pytest.mark.parametrize(("kind", "place", "secret"), SECRETS)
def test_secrets_are_masked_whole_in_text_and_in_json(kind: str, place: str, secret: str) -> None:
    text = place.format(secret)
    assert secret.rstrip(".") not in mask_secrets(text)
    assert f"[redacted:{kind}:1]" in mask_secrets(text)
    encoded = mask_secrets(json.dumps({"output": text}))
    assert json.dumps(secret)[1:-1] not in encoded


BENIGN = """
subagent_tokens: 12162000, max_tokens = 8192, "credential-provider-env": "^3.972.84"
commit 6d5f0c1f2e3a4b5c6d7e8f9a0b1c2d3e4f5a6b7c, blake2b-3f786850e387550fdab836ed7e6dc881de23001b
"integrity": "sha512-p7QCYFuBDiRxRTSOHDl6gGzYjX7dQ4Hh0nYcV8y4kAyTu1oXgS3mRkqPnEzBcWvLfJdMsIaUeOtNbGhKxZ2r9w=="
token = session_token_2; secret_name: my-secret-name-2; api_key=os.environ["KEY"]; password: required
export OPENAI_API_KEY=$KEY; password=${DB_PASSWORD}; https://user:password@host; postgres://$USER:$PASS@db
task-0123456789abcdef0123456789, disk-usage-2024-01-01-report, tokens: 4,042; the token is missing
key = "keyboard-interactive-1"; The password was changed. -----BEGIN PRIVATE KEY----- is the first line of a key.
"""


@pytest.mark.parametrize("line", BENIGN.strip().splitlines())
def test_ordinary_lines_of_code_and_output_stay_as_they_are(line: str) -> None:
    assert mask_secrets(line) == line


def test_one_secret_has_one_mask_wherever_it_is() -> None:
    first, second = f"ghp_{made_up(36)}", f"ghp_{made_up(37)}"
    given = {"argv": ["push", second], "env": {"GITHUB_TOKEN": first}, "log": [f"using {first}".encode(), 7, None]}
    assert SecretMasker().value(given) == {
        "argv": ["push", "[redacted:github-token:1]"],
        "env": {"GITHUB_TOKEN": "[redacted:github-token:2]"},
        "log": [b"using [redacted:github-token:2]", 7, None],
    }
    value = {"password": "hunter2-9fK3x", "said": "I logged in with hunter2-9fK3x"}
    assert "hunter2" not in str(SecretMasker().value(value))


def test_a_database_keeps_its_length() -> None:
    secret = f"ghp_{made_up(36)}"
    data = b"SQLite format 3\0" + secret.encode() + b"\0\xff"
    masked = SecretMasker().value(data)
    assert (len(masked), secret.encode() in masked) == (len(data), False)


@pytest.mark.parametrize(
    "hostile",
    ["token=", "sk-a", "eyJaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "://a:", "key   ", "cookie: a=", "api_key-"],
)
def test_hostile_texts_take_time_in_proportion_to_their_length(hostile: str) -> None:
    assert mask_secrets(hostile * (1_000_000 // len(hostile)))  # would not end if a pattern tried every split
