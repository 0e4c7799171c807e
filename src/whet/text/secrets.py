"""Finds secrets by their form and masks them: keys of known vendors, credentials in headers and URLs, private keys, and
values with the names of secrets. For what people read. The record of model calls masks known values only (redact.py).

Every pattern starts with a literal that is searched for first, and has bounded repetitions that never backtrack, so the
time grows linearly with the text.
"""

import base64
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_KEY_LIMIT = 16 << 10
"""The longest private key. A key whose end was cut off is masked up to here."""
_REACH = 128
"""How far a match goes on after a literal that is in its middle."""
_LEAST_ENTROPY = 2.8
"""Bits per character of a value. Words and counters have less."""


def _pick_group(match: re.Match[str]) -> tuple[str, ...]:
    return (match.group(match.lastindex or 0),)


@dataclass(frozen=True, slots=True)
class Rule:
    """A form that secrets have."""

    kind: str
    literals: tuple[str, ...]
    """Every match begins with one of them, in lower case if the pattern ignores case. Without any, the whole text is
    searched."""
    pattern: re.Pattern[str]
    accepts: Callable[[str], bool] = lambda _: True
    """Whether what has this form is a secret."""
    pick: Callable[[re.Match[str]], Iterable[str]] = _pick_group
    """The secrets in a match: its last group, or the whole match."""
    before: int = 0
    """How many characters of a match may come before the literal."""
    needs: tuple[str, ...] = ()
    """A text without any of them is not searched: for a pattern without literals at its start."""

    def find(self, text: str, lowered: str) -> Iterator[re.Match[str]]:
        """The matches in a text."""
        within = lowered if self.pattern.flags & re.IGNORECASE else text
        if self.needs and not any(literal in within for literal in self.needs):
            return
        if not self.literals or len(text) != len(lowered):
            yield from self.pattern.finditer(text)
            return
        for literal in self.literals:
            at = within.find(literal)
            while at >= 0:
                found = self._match(text, at)
                if found:
                    yield found
                at = within.find(literal, max(at + 1, found.end() if found else 0))

    def _match(self, text: str, at: int) -> re.Match[str] | None:
        if self.before:
            return self.pattern.search(text, max(0, at - self.before), at + _REACH)
        return self.pattern.match(text, at)


def is_random(value: str) -> bool:
    """Whether a value looks made by a machine: letters and digits mixed, and neither a name nor a version.

    >>> is_random("hunter2-9fK3x"), is_random("session_token_2"), is_random("^3.972.84"), is_random("12162000")
    (True, False, False, False)
    """
    digits, letters = sum(c.isdigit() for c in value), sum(c.isalpha() for c in value)
    if letters < 2 or _IDENTIFIER.fullmatch(value):
        return False
    if not (_is_mixed(value) or _is_encoded(value)) and (
        digits < 2 or value.startswith(("/", "./", "../", "~", "http"))
    ):
        return False
    return entropy(value) >= _LEAST_ENTROPY


def _is_mixed(value: str) -> bool:
    """Whether a long value goes to and fro between cases and digits more than names do.

    >>> _is_mixed("QTdxTlRoUzdLNFRjMlZqSVl2"), _is_mixed("getAccessTokenFromURL")
    (True, False)
    """
    classes = [(c.isupper(), c.isdigit()) for c in value]
    changes = sum(one != other for one, other in pairwise(classes))
    return len(value) >= 16 and changes >= 0.45 * len(value)


def _is_password(value: str) -> bool:
    """Whether a word of prose may be a password: it has a digit or a mark beside letters.

    >>> _is_password("Tr0ub4dor&3"), _is_password("required"), _is_password("never.")
    (True, False, False)
    """
    value = value.rstrip(".!?:")
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value) and not _IDENTIFIER.fullmatch(value)


def _is_encoded(value: str) -> bool:
    """Whether a value is a text in base64, such as the login in the header of basic authentication.

    >>> _is_encoded("YW5uOmh1bnRlcnNlY3JldA=="), _is_encoded("authenticationMiddleware")
    (True, False)
    """
    try:
        decoded = base64.b64decode(value, validate=True)
    except ValueError:
        return False
    return len(decoded) >= 12 and decoded.isascii() and decoded.decode().isprintable()


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


_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
"""Where a key may begin: not inside a word, but behind an end of line as JSON writes it, or a character of an
address."""


def _token(kind: str, literals: str, form: str, before: int = 0) -> Rule:
    """A key that begins with a prefix of its vendor, or has a literal in it."""
    pattern = re.compile(rf"{_START}(?:{form})")
    return Rule(kind, tuple(literals.split()), pattern, lambda found: entropy(found) > 2.5, before=before)


_TOKENS: tuple[Rule, ...] = (
    _token("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,256}+"),
    _token("api-key", "sk-", r"sk-(?!ant-)(?=[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]{20,256}+"),
    _token("google-key", "AIza", r"AIza[0-9A-Za-z_-]{35}"),
    _token("google-secret", "GOCSPX-", r"GOCSPX-[0-9A-Za-z_-]{24,40}+"),
    _token("google-token", "ya29.", r"ya29\.[0-9A-Za-z_-]{30,1024}+"),
    _token("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,64}+"),
    _token("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{40,64}+"),
    _token("xai-key", "xai-", r"xai-[A-Za-z0-9]{60,100}+"),
    _token("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{40,64}+"),
    _token("replicate-token", "r8_", r"r8_[A-Za-z0-9]{36,40}+"),
    _token("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,255}+"),
    _token("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,255}+"),
    _token("gitlab-token", "gl", r"gl(?:pat|rt|ptt|dt|ft|soat|agent|cbt|imt|oas|ffct)-[A-Za-z0-9_-]{20,64}+"),
    _token("npm-token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _token("pypi-token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,400}+"),
    _token("docker-token", "dckr_", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,64}+"),
    _token("slack-token", "xox", r"xox[abeoprs]-[A-Za-z0-9-]{10,256}+"),
    _token("slack-token", "xapp-", r"xapp-\d-[A-Za-z0-9-]{20,256}+"),
    _token("stripe-key", "sk_live_ rk_live_ pk_live_", r"[srp]k_live_[A-Za-z0-9]{16,128}+"),
    _token("stripe-key", "sk_test_ rk_test_ pk_test_", r"[srp]k_test_[A-Za-z0-9]{16,128}+"),
    _token("webhook-secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{24,128}+"),
    _token("square-token", "sq0", r"sq0[a-z]{3}-[A-Za-z0-9_-]{22,64}+"),
    _token("shopify-token", "shp", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
    _token("sendgrid-key", "SG.", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}+"),
    _token("mailgun-key", "key-", r"key-[0-9a-f]{32}(?![0-9a-z])"),
    _token("mailchimp-key", "-us", r"[0-9a-f]{32}-us\d{1,2}(?![0-9a-z])", 32),
    _token("twilio-key", "SK", r"SK[0-9a-f]{32}(?![0-9a-z])"),
    _token("telegram-token", ":AA", r"\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])", 10),
    _token("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _token("databricks-token", "dapi", r"dapi[a-f0-9]{32}(?:-\d)?"),
    _token("linear-key", "lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,64}+"),
    _token("notion-token", "ntn_", r"ntn_[A-Za-z0-9]{40,64}+"),
    _token("atlassian-token", "ATATT3", r"ATATT3[A-Za-z0-9_=-]{50,256}+"),
    _token("artifactory-key", "AKCp", r"AKCp[A-Za-z0-9]{60,80}+"),
    _token("doppler-token", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{30,64}+"),
    _token("vault-token", "hvs. hvb. hvr.", r"hv[sbr]\.[A-Za-z0-9_-]{24,256}+"),
    _token("age-key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[0-9A-Z]{50,64}+"),
    _token("newrelic-key", "NRAK- NRII- NRJS- NRRA-", r"NR(?:AK|II|JS|RA)-[A-Za-z0-9]{20,64}+"),
    _token("grafana-token", "glsa_ glc_", r"(?:glsa|glc)_[A-Za-z0-9_+/=]{32,256}+"),
    _token("sentry-token", "sntry", r"sntry[su]_[A-Za-z0-9_+/=-]{40,512}+"),
    _token("planetscale-token", "pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{32,64}+"),
    _token("supabase-token", "sbp_", r"sbp_[a-f0-9]{40}"),
    _token("azure-secret", "Q~", r"[A-Za-z0-9_.-]{1,4}\dQ~[A-Za-z0-9_.~-]{31,36}+", 5),
    _token("discord-token", "", r"[MNO][A-Za-z\d]{22,25}\.[\w-]{6}\.[\w-]{27,38}(?![\w.-])"),
    _token("aws-key-id", "AKIA", r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _token("aws-key-id", "ASIA", r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _token("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{8,4096}+\.eyJ[A-Za-z0-9_-]{8,8192}+\.[A-Za-z0-9_-]{10,2048}+"),
)
"""Keys of vendors."""

_NAMES_OF_VALUES = (
    r"(?:api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key|account[_-]?key|secret|token(?!i[sz])|passw(?:or)?d"
    r"|passphrase|credential)[\w.-]{0,32}+"
    r"|(?:(?<=[_-])pass|(?<![a-z])pwd|(?<=[_.:\"'])auth)"
)
_CREDENTIAL_NAMES = (
    *(f"{of}{mark}key" for of in ("api", "access", "private", "auth", "account") for mark in ("_", "-", "")),
    *("secret", "token", "pass", "pwd", "credential", "auth"),
)

_RULES = (
    *_TOKENS,
    Rule("azure-key", ("accountkey=",), re.compile(r"(?i)AccountKey=([A-Za-z0-9+/=]{40,128}+)")),
    Rule(
        "private-key",
        ("-----BEGIN ",),
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
    Rule("credential", ("://",), re.compile(r"://([A-Za-z0-9_-]{20,256}+)@"), is_random),
    Rule(
        "credential",
        ("bearer ", "basic ", "authorization:"),
        re.compile(r"(?i)\b(?:bearer|basic|authorization: {0,2}token) {1,4}([A-Za-z0-9._~+/=-]{16,4096}+)"),
        is_random,
    ),
    Rule(
        "cookie",
        ("cookie",),
        re.compile(rf"(?i)\bcookie{_QUOTE} {{0,3}}: {{0,3}}{_QUOTE}([\w.-]{{1,64}}+=[^\r\n\"'\\]{{8,8192}}+)"),
        is_random,
        lambda match: (value for value in re.split(r"[;=\s]+", match[1]) if len(value) >= 16),
    ),
    Rule(
        "secret",
        _CREDENTIAL_NAMES,
        re.compile(
            rf"(?i)(?:{_NAMES_OF_VALUES}){_QUOTE}[ \t]{{0,3}}+(?:=>|:=|=|:)[ \t]{{0,3}}+{_QUOTE}({_VALUE}{{8,512}}+)"
        ),
        lambda found: is_random(found) and not is_placeholder(found),
    ),
    Rule(
        "secret",
        ("--",),
        re.compile(
            r"(?i)--(?:[a-z-]{0,24}(?:password|passwd|passphrase|token|secret|api-?key))[ =]"
            rf"{_QUOTE}({_VALUE}{{8,512}}+)"
        ),
        lambda found: is_random(found) and not is_placeholder(found),
    ),
    Rule("secret", ("sig=",), re.compile(r"(?i)(?<=[?&;])sig=([A-Za-z0-9%+/=_-]{40,128}+)"), is_random),
    Rule("webhook", ("hooks.slack.com",), re.compile(r"hooks\.slack\.com/[a-z]{4,16}/([A-Za-z0-9/_-]{20,128}+)")),
    Rule("webhook", ("/webhooks/",), re.compile(r"/webhooks/\d{8,24}/([A-Za-z0-9_-]{40,128}+)")),
    Rule(
        "password",
        ("password ", "passphrase ", "pw:"),
        re.compile(
            r"(?i)\b(?:(?:password|passphrase) {1,3}(?:is|was|(?:for|of|to) [\w .@-]{1,40}?(?::| is))|pw:) {1,3}"
            rf"[\"'`]?({_VALUE}{{6,128}}+)"
        ),
        _is_password,
    ),
    Rule("password", ("login",), re.compile(r"(?i)\blogin\s{1,8}\S{1,64}\s{1,8}password\s{1,8}(\S{6,128}+)")),
    Rule(
        "password",
        ("curl ",),
        re.compile(r"(?i)\bcurl [^\n|;]{0,512}?(?:-u|--user)[ =]?[\"']?[\w.@-]{1,64}:([^\s\"']{6,128}+)"),
    ),
    Rule("password", ("sshpass ",), re.compile(r"\bsshpass -p ?[\"']?([^\s\"']{6,128}+)")),
    Rule(
        "password",
        ("mysql", "mariadb"),
        re.compile(r"\b(?:mysql|mariadb)\w{0,8} [^\n|;]{0,256}?(?<!-)-p([^\s\"'-][^\s\"']{5,128}+)"),
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
            for match in rule.find(text, lowered):
                for found in filter(rule.accepts, rule.pick(match)):
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


def mask_tokens(text: str) -> str:
    """A text without keys that their form gives away: only the rules that ordinary text, markup included, never meets.

    >>> mask_tokens('<b class="token">ghp_16C7e42F292c6912E7710c838347Ae178B4a</b>')
    '<b class="token">[redacted:github-token]</b>'
    """
    for kind, found in find_tokens(text):
        text = text.replace(found, f"[redacted:{kind}]")
    return text


def find_tokens(text: str) -> dict[tuple[str, str], None]:
    """The keys in a text that their form gives away, each with its kind, in the order of the rules."""
    lowered = text.lower()
    matches = ((rule, match) for rule in _TOKENS for match in rule.find(text, lowered))
    return dict.fromkeys(
        (rule.kind, secret) for rule, match in matches for secret in rule.pick(match) if rule.accepts(secret)
    )
