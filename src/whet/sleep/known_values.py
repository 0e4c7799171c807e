"""The secrets that a developer's machine itself tells: in the environment, in .env files and in files with logins.

The values are held in memory only. They are found in a transcript whatever form they have.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

from whet.agents.registry import CLIS
from whet.text.secrets import is_placeholder, is_random

SHORTEST = 8
"""Shorter values are words of ordinary text too often."""
_FILE_LIMIT = 256 << 10
_NAME = re.compile(
    r"(?i)(?:^|[_.:-])"
    r"(?:(?:api|auth|access|private|secret|signing|encryption|account|shared)?_?keys?|tokens?|secrets?|passw(?:or)?d"
    r"|passphrase|pass|pwd|credentials?|auth|dsn|cookie)(?:$|[_.:-]|\d)"
)
_CAMEL = re.compile(r"(?:Token|Secret|Password|Passphrase|Key|Credential)s?$")
_NOT_SECRET = frozenset({"PWD", "OLDPWD"})
_PAIR = re.compile(
    r"(?m)^[ \t]*(?:export[ \t]+)?"
    r"(?:([\w./:@-]{1,256})[ \t]*=|[\"']?([\w.-]{1,256})[\"']?[ \t]*:[ \t])[ \t]*(.{1,4096})$"
)
_NETRC = re.compile(r"\b(password|account)\s+(\S+)")
_LOGIN_IN_URL = re.compile(r"://[^\s/:@]{0,128}:([^\s/@]{1,256})@")
_EXAMPLES = re.compile(r"(?i)example|sample|template|dist$|\.md$")

_LOGINS = (
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".pip/pip.conf",
    ".config/pip/pip.conf",
    ".config/gh/hosts.yml",
    ".config/github-copilot/apps.json",
    ".config/github-copilot/hosts.json",
    ".config/gcloud/application_default_credentials.json",
    ".config/mini-swe-agent/.env",
    ".docker/config.json",
    ".aws/credentials",
    ".kube/config",
    ".cargo/credentials.toml",
    ".copilot/config.json",
    ".gemini/.env",
)


def find_known_values(env: Mapping[str, str], home: Path, repositories: Iterable[Path]) -> set[str]:
    """The values of secrets in the environment, in repositories' .env files, and in the home's files with logins."""
    pairs = [*env.items()]
    for repository in repositories:
        for file in _env_files(repository):
            pairs += _read_pairs(file)
    for name in (*_LOGINS, *(name for cli in CLIS for name in cli.traits.credentials)):
        pairs += _read_pairs(home / name)
    return {secret for name, value in pairs for secret in _secrets_in(name, value)}


def _env_files(repository: Path) -> Iterator[Path]:
    for pattern in (".env*", "*/.env*", ".npmrc"):
        for file in repository.glob(pattern):
            if not _EXAMPLES.search(file.name):
                yield file


def _read_pairs(file: Path) -> list[tuple[str, str]]:
    """Names and values in a file of any of these forms: JSON, lines with `name = value`, .netrc, URLs with logins."""
    try:
        if not file.is_file() or file.stat().st_size > _FILE_LIMIT:
            return []
        text = file.read_text(errors="replace")
    except OSError:
        return []
    if text.lstrip().startswith("{"):
        try:
            return [*_leaves(json.loads(text), "")]
        except (ValueError, RecursionError):
            pass
    pairs = [(found[1] or found[2], found[3].strip().strip("\"'")) for found in _PAIR.finditer(text)]
    return pairs + [("password", found[2]) for found in _NETRC.finditer(text)] + [("", text)]


def _leaves(value: object, name: str) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield name, value
        case dict():
            for key, item in value.items():
                yield from _leaves(item, str(key))
        case list():
            for item in value:
                yield from _leaves(item, name)


def _secrets_in(name: str, value: str) -> Iterator[str]:
    """The secrets in a value: the whole of it when its name says so, and passwords in URLs.

    >>> sorted(_secrets_in("DB_PASSWORD", "tr0ub4dor")), [*_secrets_in("DATABASE_URL", "postgres://app:tr0ub4dor@db/x")]
    (['tr0ub4dor'], ['tr0ub4dor'])
    """
    for login in _LOGIN_IN_URL.finditer(value):
        yield from (form for form in {login[1], unquote(login[1])} if _is_telling(form))
    value = value.strip()
    if "\n" not in value and "://" not in value and _is_secret_name(name) and _is_telling(value):
        yield value


def _is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret.

    >>> [_is_secret_name(name) for name in ("NPM_TOKEN", "_authToken", "access", "KEYBOARD_LAYOUT", "PWD", "pgpass")]
    [True, True, False, False, False, False]
    """
    return name not in _NOT_SECRET and bool(_NAME.search(name) or _CAMEL.search(name))


def _is_telling(value: str) -> bool:
    """Whether masking a value hides a secret and not a word, a number or a path."""
    if len(value) < SHORTEST or is_placeholder(value) or value.startswith(("/", "./", "~", "-")):
        return False
    return is_random(value) or not (value.isdigit() or (value.isalpha() and len(value) < 2 * SHORTEST))
