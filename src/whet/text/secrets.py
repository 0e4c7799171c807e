"""Finds secrets by their form and masks them: keys of known vendors, credentials in headers and URLs, private keys, and
values with the names of secrets. For what people read. The record of model calls masks known values only (redact.py).

Every pattern starts with a literal that is searched for first, and has bounded repetitions that never backtrack, so the
time grows linearly with the text.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_KEY_LIMIT = 16 << 10
"""The longest private key. A key whose end was cut off is masked up to here."""
_LEAST_ENTROPY = 2.8
"""Bits per character of a value. Words and counters have less."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A form that secrets have."""

    kind: str
    literals: tuple[str, ...]
    """One of them is in every match, in lower case. Without any, the pattern is always searched for."""
    pattern: re.Pattern[str]
    """Its last group, or the whole match, is the secret."""
    accepts: Callable[[str], bool] = lambda _: True


def is_random(value: str) -> bool:
    """Whether a value looks made by a machine: letters and digits mixed, and neither a name nor a version.

    >>> is_random("hunter2-9fK3x"), is_random("session_token_2"), is_random("^3.972.84"), is_random("12162000")
    (True, False, False, False)
    """
    digits, letters = sum(c.isdigit() for c in value), sum(c.isalpha() for c in value)
    if digits < 2 or letters < 2 or _IDENTIFIER.fullmatch(value) or value.startswith(("/", "./", "../", "~", "http")):
        return False
    return entropy(value) >= _LEAST_ENTROPY


def _is_password(value: str) -> bool:
    """Whether a word of prose may be a password: it has a digit or a mark beside letters.

    >>> _is_password("Tr0ub4dor&3"), _is_password("required"), _is_password("never.")
    (True, False, False)
    """
    value = value.rstrip(".!?:")
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value) and not _IDENTIFIER.fullmatch(value)


def is_placeholder(value: str) -> bool:
    return value.startswith(("$", "{", "<", "%", "*", "[redacted")) or value.lower() in _PLACEHOLDERS


def entropy(text: str) -> float:
    """Bits per character.

    >>> entropy("aaaa"), entropy("abcd")
    (0.0, 2.0)
    """
    counts = Counter(text).values()
    return sum(-n / len(text) * math.log2(n / len(text)) for n in counts) + 0.0


_IDENTIFIER = re.compile(r"[A-Za-z][a-z]*(?:[_.-][A-Za-z]+)*+[_.-]?\d{0,4}")
"""A name in code, with a number at its end at most."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]{40}")
_PLACEHOLDERS = frozenset({"password", "passwd", "pass", "secret", "token", "user", "pwd", "xxx", "changeme"})
_QUOTE = r"\\{0,4}[\"']?"
_VALUE = r"[^\s\"'`,;<>(){}\[\]\\&|]"


def _token(kind: str, prefix: str, form: str) -> Rule:
    """A key that begins with a prefix of its vendor."""
    return Rule(
        kind, (prefix.lower(),), re.compile(rf"(?<![A-Za-z0-9_-])(?:{form})"), lambda found: entropy(found) > 2.5
    )


_RULES = (
    _token("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,256}+"),
    _token("api-key", "sk-", r"sk-(?!ant-)(?=[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]{20,256}+"),
    _token("google-key", "AIza", r"AIza[0-9A-Za-z_-]{35}"),
    _token("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,64}+"),
    _token("github-token", "gh", r"gh[pousr]_[A-Za-z0-9]{36,255}+"),
    _token("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,255}+"),
    _token("gitlab-token", "glpat-", r"glpat-[A-Za-z0-9_-]{20,64}+"),
    _token("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _token("pypi-token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,400}+"),
    _token("slack-token", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,256}+"),
    _token("stripe-key", "_live_", r"[srp]k_live_[A-Za-z0-9]{16,128}+"),
    _token("stripe-key", "_test_", r"[srp]k_test_[A-Za-z0-9]{16,128}+"),
    _token("webhook-secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,128}+"),
    _token("supabase-token", "sbp_", r"sbp_[a-f0-9]{40}"),
    _token("telegram-token", ":AA", r"\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    _token("aws-key-id", "AKIA", r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _token("aws-key-id", "ASIA", r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _token("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{8,4096}+\.eyJ[A-Za-z0-9_-]{8,8192}+\.[A-Za-z0-9_-]{10,2048}+"),
    Rule("azure-key", ("accountkey=",), re.compile(r"(?i)AccountKey=([A-Za-z0-9+/=]{40,128}+)")),
    Rule(
        "private-key",
        ("-----begin ",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            rf"(?:[^-]|-(?!----END)){{0,{_KEY_LIMIT}}}+(?:-----END [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----)?"
        ),
        lambda found: _BASE64.search(found) is not None,
    ),
    Rule(
        "password",
        ("://",),
        re.compile(r"://[^\s/:@'\"<>\\]{0,64}+:([^\s/@'\"<>\\]{3,256}+)@"),
        lambda found: not is_placeholder(found),
    ),
    Rule(
        "credential",
        ("earer ", "asic ", "oken "),
        re.compile(r"(?i)\b(?:bearer|basic|authorization: {0,2}token) {1,4}([A-Za-z0-9._~+/=-]{16,4096}+)"),
        is_random,
    ),
    Rule(
        "cookie",
        ("cookie",),
        re.compile(rf"(?i)\b(?:set-)?cookie{_QUOTE} {{0,3}}: {{0,3}}{_QUOTE}[\w.-]{{1,64}}+=([^\s;\"'\\]{{8,4096}}+)"),
        is_random,
    ),
    Rule(
        "secret",
        ("key", "secret", "token", "passw", "credential"),
        re.compile(
            r"(?i)(?:api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key|secret|token|passw(?:or)?d|credential)"
            rf"[\w.-]{{0,32}}+{_QUOTE}[ \t]{{0,3}}+(?:=>|:=|=|:)[ \t]{{0,3}}+{_QUOTE}({_VALUE}{{8,512}}+)"
        ),
        lambda found: is_random(found) and not is_placeholder(found),
    ),
    Rule(
        "password",
        ("password ", "passphrase "),
        re.compile(rf"(?i)\b(?:password|passphrase) {{1,3}}(?:is|was) {{1,3}}[\"'`]?({_VALUE}{{6,128}}+)"),
        _is_password,
    ),
)
_SECRET_KEY = re.compile(r"(?i)(?:api[_-]?key|access[_-]?key|private[_-]?key|secret|token|passw(?:or)?d)s?$")


class SecretMasker:
    """Masks secrets in the texts of one piece of work. The same secret gets the same mask everywhere.

    >>> token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    >>> SecretMasker().text(f"GITHUB_TOKEN={token} and again {token}")
    'GITHUB_TOKEN=[redacted:github-token:1] and again [redacted:github-token:1]'
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        """Args: rules: More rules beside those of this module."""
        self._rules = (*_RULES, *rules)
        self._masks: dict[str, str] = {}
        self._kinds: Counter[str] = Counter()

    @property
    def masks(self) -> Mapping[str, str]:
        """The secrets that were found, and what stands for each."""
        return self._masks

    def text(self, text: str) -> str:
        """A text without the secrets that are found in it, or were found before."""
        self.look(text)
        return self.replace(text)

    def value(self, value: Any) -> Any:
        """Plain data without secrets in its texts. A secret that one text gives away is masked in all of them."""
        for key, text in _texts(value, ""):
            self.look(text)
            if _SECRET_KEY.search(key) and is_random(text) and len(text) <= 512:
                self.add("secret", text)
        return self._mask(value) if self._masks else value

    def look(self, text: str) -> None:
        """Remember the secrets in a text."""
        lowered = text.lower()
        for rule in self._rules:
            if not rule.literals or any(literal in lowered for literal in rule.literals):
                for match in rule.pattern.finditer(text):
                    found = match.group(match.lastindex or 0)
                    if rule.accepts(found):
                        self.add(rule.kind, found)

    def add(self, kind: str, secret: str) -> None:
        """Mask this value from now on."""
        if secret not in self._masks:
            self._kinds[kind] += 1
            self._masks[secret] = f"[redacted:{kind}:{self._kinds[kind]}]"

    def replace(self, text: str) -> str:
        """A text without the secrets that were found before."""
        # Longest first, so that a secret that holds another one is masked whole.
        for secret in sorted(self._masks, key=len, reverse=True):
            text = text.replace(secret, self._masks[secret])
        return text

    def _mask(self, value: Any) -> Any:
        match value:
            case str():
                return self.replace(value)
            case bytes():
                return self._mask_bytes(value)
            case dict():
                return {key: self._mask(item) for key, item in value.items()}
            case list() | tuple():
                return [self._mask(item) for item in value]
            case _:
                return value

    def _mask_bytes(self, data: bytes) -> bytes:
        # In a database every byte has its place, so there a mask is as long as the secret.
        is_text = b"\0" not in data
        for secret in sorted(self._masks, key=len, reverse=True):
            mask = self._masks[secret].encode() if is_text else b"*" * len(secret.encode())
            data = data.replace(secret.encode(errors="surrogateescape"), mask)
        return data


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Every text in plain data, with the key that it is the value of."""
    match value:
        case str():
            yield key, value
        case bytes():
            yield key, value.decode(errors="replace")
        case dict():
            for name, item in value.items():
                yield from _texts(item, str(name))
        case list() | tuple():
            for item in value:
                yield from _texts(item, key)


def mask_secrets(text: str) -> str:
    """One text without secrets."""
    return SecretMasker().text(text)
