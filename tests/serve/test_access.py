"""Tokens of a server: read strictly, compared in constant time, never shown."""

import hashlib
import hmac
import re
from pathlib import Path

import pytest

from support.whet_program import REPOSITORY
from whet.errors import UserError
from whet.gateway import Limits
from whet.serve.access import LOCAL, Caller, Scope, Tokens, read_tokens, require_scope, require_tokens
from whet.serve.problems import Code, Refused

TRAINER = "trainer-token-0123456789"
READER = "reader-token-0123456789"


def write(folder: Path, text: str, mode: int = 0o600) -> Path:
    file = folder / "tokens.toml"
    file.write_text(text)
    file.chmod(mode)
    return file


def problem(file: Path | None, env: dict[str, str] | None = None) -> str:
    with pytest.raises(UserError) as error:
        read_tokens(file, env or {})
    assert TRAINER not in str(error.value)
    return str(error.value)


def test_a_file_names_tokens_in_three_forms(tmp_path: Path) -> None:
    digest = hashlib.sha256(READER.encode()).hexdigest().upper()
    file = write(
        tmp_path,
        f"""
        [tokens.trainer]
        token = "{TRAINER}"
        scopes = ["run", "read"]
        concurrency = 8
        queue = 1000
        total_tokens = 5_000_000
        input_tokens = 4_000_000
        output_tokens = 1_000_000
        cost = 20
        [tokens.reader]
        sha256 = "{digest}"
        scopes = ["read"]
        [tokens.ops]
        token_env = "OPS_TOKEN"
        scopes = ["admin"]
        """,
    )
    tokens = read_tokens(file, {"OPS_TOKEN": "operator-token-012345"})
    limits = Limits(input_tokens=4_000_000, output_tokens=1_000_000, total_tokens=5_000_000, cost=20)
    trainer = Caller("trainer", frozenset({Scope.RUN, Scope.READ}), 8, 1000, limits)
    assert tokens.authenticate(f"Bearer {TRAINER}") == trainer
    assert tokens.authenticate(f"bearer {READER}") == Caller("reader", frozenset({Scope.READ}))
    assert tokens.authenticate("Bearer operator-token-012345").may(Scope.RUN)
    assert [caller.name for caller in tokens.callers] == ["trainer", "reader", "ops"]


def test_a_token_may_run_and_read_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    tokens = read_tokens(write(tmp_path, f'[tokens.a]\ntoken = "{TRAINER}"'), {})
    assert tokens.authenticate(f"Bearer {TRAINER}").scopes == {Scope.RUN, Scope.READ}


def test_the_environment_alone_gives_one_token_with_all_scopes() -> None:
    tokens = read_tokens(None, {"WHET_SERVE_TOKEN": TRAINER})
    assert tokens.authenticate(f"Bearer {TRAINER}") == Caller("env")
    assert Caller("env").scopes == set(Scope)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        TRAINER,
        f"Basic {TRAINER}",
        f"Bearer {TRAINER} x",
        f"Bearer {TRAINER}x",
        f"Bearer {TRAINER[:-1]}",
        f" Bearer {TRAINER}",
        f"Bearer {TRAINER}\n",
        "Bearer \udcff\u20ac",
        "Bearer " + "x" * 100_000,
    ],
)
def test_everything_but_a_known_bearer_token_is_refused(header: str | None) -> None:
    with pytest.raises(Refused) as refused:
        read_tokens(None, {"WHET_SERVE_TOKEN": TRAINER}).authenticate(header)
    assert refused.value.code is Code.UNAUTHORIZED
    assert len(str(refused.value)) < 200
    assert "\n" not in str(refused.value)


def test_a_given_token_is_compared_with_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"token-number-{number:08}" for number in range(5)]
    tokens = read_tokens(write(tmp_path, "\n".join(f'[tokens.{one}]\ntoken = "{one}"' for one in names)), {})
    compared: list[bytes] = []

    def compare(known: bytes, given: bytes) -> bool:
        compared.append(known)
        return known == given

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert tokens.authenticate(f"Bearer {names[0]}").name == names[0]
    assert len(compared) == len(set(compared)) == 5
    with pytest.raises(Refused):
        tokens.authenticate("Bearer unknown-token-0123")
    assert len(compared) == 10


def test_without_tokens_everyone_is_local() -> None:
    assert read_tokens(None, {}).authenticate(None) is LOCAL
    assert Tokens().authenticate("Bearer whatever") is LOCAL
    assert Tokens().callers == (LOCAL,)
    assert not Tokens()


def test_no_token_is_in_what_is_printed(tmp_path: Path) -> None:
    tokens = read_tokens(write(tmp_path, f'[tokens.a]\ntoken = "{TRAINER}"'), {"WHET_SERVE_TOKEN": READER})
    shown = repr(tokens) + str(tokens) + repr(tokens.authenticate(f"Bearer {TRAINER}"))
    for token in (TRAINER, READER):
        assert token not in shown
        assert hashlib.sha256(token.encode()).hexdigest() not in shown
        assert repr(hashlib.sha256(token.encode()).digest()) not in shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", r"tokens\.toml: has no tokens; expected at least one table \[tokens\.NAME\]"),
        ("[tokens]", r"has no tokens"),
        (f'[tokens.a]\ntokn = "{TRAINER}"', r"unknown key 'tokens\.a\.tokn'; did you mean 'token'\?"),
        (f'[token.a]\ntoken = "{TRAINER}"', r"unknown key 'token'; did you mean 'tokens'\?"),
        ('[tokens.a]\nscopes = ["run"]', r"key 'tokens\.a' has 0 of 'token', 'token_env' and 'sha256'"),
        (f'[tokens.a]\ntoken = "{TRAINER}"\ntoken_env = "A"', r"has 2 of 'token'"),
        ('[tokens.a]\ntoken = "short-token-123"', r"token 'a': not a token; expected at least 16 printable"),
        ('[tokens.a]\ntoken = "a token with spaces in it"', r"without spaces"),
        ('[tokens.a]\ntoken = "tökentökentökentöken"', r"printable ASCII"),
        ("[tokens.a]\ntoken = 12345678901234567", r"key 'tokens\.a\.token' is not shown here; expected text"),
        (f'[tokens.a]\nsha256 = "{TRAINER}"', r"key 'tokens\.a\.sha256' is not shown here; expected"),
        (f'[tokens.a]\ntoken = "{TRAINER}"\nscopes = ["write"]', r"expected one of: run, read, admin"),
        (f'[tokens.a]\ntoken = "{TRAINER}"\nscopes = []', r"tokens\.a\.scopes"),
        (f'[tokens.a]\ntoken = "{TRAINER}"\nconcurrency = 0', r"'tokens\.a\.concurrency' is 0; expected a number of"),
        (f'[tokens.a]\ntoken = "{TRAINER}"\ncost = nan', r"'tokens\.a\.cost' is nan; expected"),
        (f'[tokens.a]\ntoken = "{TRAINER}"\n[tokens.b]\ntoken = "{TRAINER}"', r"token 'b' is the same token as 'a'"),
        ('[tokens.a]\ntoken_env = "NOT_SET"', r"token 'a': environment variable NOT_SET is not set"),
        (f'[tokens."a b"]\ntoken = "{TRAINER}"', r"a b"),
        (f'[tokens.a]\ntoken = "{TRAINER}', r"not TOML"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_without_the_token(tmp_path: Path, text: str, expected: str) -> None:
    found = problem(write(tmp_path, text))
    assert re.search(expected, found), found
    assert "\n" not in found


def test_a_token_in_clear_that_others_may_read_is_refused(tmp_path: Path) -> None:
    clear = f'[tokens.a]\ntoken = "{TRAINER}"'
    for mode in (0o640, 0o604, 0o644, 0o620):
        assert "chmod 600" in problem(write(tmp_path, clear, mode))
    assert read_tokens(write(tmp_path, clear, 0o400), {})
    digest = hashlib.sha256(TRAINER.encode()).hexdigest()
    assert read_tokens(write(tmp_path, f'[tokens.a]\nsha256 = "{digest}"', 0o644), {})


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    assert problem(tmp_path / "none.toml").endswith("none.toml: cannot be read: No such file or directory")


def test_the_token_of_the_environment_is_checked_as_well(tmp_path: Path) -> None:
    assert problem(None, {"WHET_SERVE_TOKEN": ""}).startswith("WHET_SERVE_TOKEN: not a token")
    file = write(tmp_path, f'[tokens.env]\ntoken = "{READER}"')
    assert "has the name of the token in WHET_SERVE_TOKEN" in problem(file, {"WHET_SERVE_TOKEN": TRAINER})
    file = write(tmp_path, f'[tokens.a]\ntoken = "{TRAINER}"')
    assert "is the same token as 'env'" in problem(file, {"WHET_SERVE_TOKEN": TRAINER})
    assert len(read_tokens(file, {"WHET_SERVE_TOKEN": READER}).callers) == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost", "[::1]"])
def test_on_loopback_no_tokens_are_needed(host: str) -> None:
    require_tokens(host, Tokens())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "server.example.com", "localhost.example.com", ""])
def test_on_other_addresses_tokens_are_needed(host: str) -> None:
    with pytest.raises(UserError, match=r"set WHET_SERVE_TOKEN or `tokens`, or listen on 127\.0\.0\.1"):
        require_tokens(host, Tokens())
    require_tokens(host, read_tokens(None, {"WHET_SERVE_TOKEN": TRAINER}))


def test_a_scope_is_required_and_admin_has_all() -> None:
    reader = Caller("ci", frozenset({Scope.READ}))
    require_scope(reader, Scope.READ)
    with pytest.raises(Refused, match="token 'ci' does not have the scope 'run'") as refused:
        require_scope(reader, Scope.RUN)
    assert refused.value.code is Code.FORBIDDEN
    require_scope(Caller("ops", frozenset({Scope.ADMIN})), Scope.RUN)


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("attacker.example:8000", None),
        ("127.0.0.1.attacker.example", None),
        (None, None),
        ("127.0.0.1:8000", "https://attacker.example"),
        ("127.0.0.1:8000", "http://127.0.0.1.attacker.example"),
        ("127.0.0.1:8000", "null"),
        ("127.0.0.1:x", None),
    ],
)
def test_web_pages_of_others_cannot_use_a_server_without_tokens(host: str | None, origin: str | None) -> None:
    with pytest.raises(Refused) as refused:
        Tokens().check_origin(host, origin)
    assert refused.value.code is Code.FORBIDDEN
    read_tokens(None, {"WHET_SERVE_TOKEN": TRAINER}).check_origin(host, origin)


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "localhost:80", "[::1]:8000", "127.0.0.1"])
@pytest.mark.parametrize("origin", [None, "http://localhost:3000", "http://127.0.0.1:8000"])
def test_pages_of_this_machine_can(host: str, origin: str | None) -> None:
    Tokens().check_origin(host, origin)


def test_the_documented_file_is_read(tmp_path: Path) -> None:
    document = (REPOSITORY / "docs/serve/access.md").read_text()
    (text,) = re.findall(r"^```toml\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    tokens = read_tokens(write(tmp_path, text), {"DASHBOARD_TOKEN": READER})
    assert [caller.name for caller in tokens.callers] == ["trainer", "dashboard", "operator"]
    keys = {line.partition("=")[0].strip() for line in text.splitlines() if "=" in line}
    assert all(f"`{key}`" in document for key in keys)
