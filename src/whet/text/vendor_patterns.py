"""The patterns of detect-secrets for keys of vendors, as rules. They find parts of keys; here a rule takes the whole.

The package is an extra, because little else needs it. It is asked for the patterns of its plug-ins only: its own scan
measures the entropy of every word, which hits hashes and paths in transcripts thousands of times.
"""

import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Iterator

from whet.text.secrets import Rule, is_placeholder, is_random

_OURS = frozenset(
    {
        *("BasicAuthDetector", "DiscordBotTokenDetector", "IPPublicDetector", "JwtTokenDetector"),
        *("PrivateKeyDetector", "TelegramBotTokenDetector"),
    }
)
"""Plug-ins for what rules of whet find whole, and for addresses, which are no secrets."""
_LITERALS = {
    "ArtifactoryDetector": ("AKC", "AP"),
    "AWSKeyDetector": ("aws", "AKIA", "ASIA", "ABIA", "ACCA", "A3T"),
    "AzureStorageKeyDetector": ("AccountKey=",),
    "CloudantDetector": ("cloudant",),
    "GitHubTokenDetector": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    "GitLabTokenDetector": ("gl", "GR1348941"),
    "IbmCloudIamDetector": ("ibm", "bluemix"),
    "IbmCosHmacDetector": ("cos", "hmac"),
    "MailchimpDetector": ("-us",),
    "NpmDetector": ("_authToken",),
    "OpenAIDetector": ("T3BlbkFJ",),
    "PypiTokenDetector": ("pypi-",),
    "SendGridDetector": ("SG.",),
    "SlackDetector": ("xox", "hooks.slack.com"),
    "SoftlayerDetector": ("softlayer",),
    "SquareOAuthDetector": ("sq0",),
    "StripeDetector": ("_live_",),
    "TwilioKeyDetector": ("AC", "SK"),
}
"""A text without any of them is not searched. A plug-in that is not listed here always searches."""
_TOKEN = re.compile(r"[A-Za-z0-9_+/=.~-]*")


def vendor_rules() -> tuple[Rule, ...]:
    """The rules; none when the package is not installed."""
    if importlib.util.find_spec("detect_secrets") is None:
        return ()
    return tuple(_find_rules())


def _find_rules() -> Iterator[Rule]:
    from detect_secrets import plugins
    from detect_secrets.plugins.base import RegexBasedDetector

    for module in pkgutil.iter_modules(plugins.__path__):
        found = vars(importlib.import_module(f"{plugins.__name__}.{module.name}"))
        for name, plugin in sorted(found.items()):
            is_plugin = isinstance(plugin, type) and issubclass(plugin, RegexBasedDetector)
            if is_plugin and plugin is not RegexBasedDetector and name not in _OURS:
                kind = re.sub(r"[^a-z0-9]+", "-", str(plugin.secret_type).lower()).strip("-")
                for pattern in plugin.denylist:
                    yield Rule(kind, (), pattern, _is_secret, _pick_token, needs=_LITERALS.get(name, ()))


def _is_secret(value: str) -> bool:
    return len(value) >= 16 and is_random(value) and not is_placeholder(value)


def _pick_token(match: re.Match[str]) -> Iterator[str]:
    """The whole of the token that a match is a part of.

    >>> list(_pick_token(re.search("glpat", "use glpat-0123456789abcdefghij!")))
    ['glpat-0123456789abcdefghij']
    """
    groups = [group for group in range(1, match.re.groups + 1) if len(match[group] or "") >= 16]
    start, end = match.span(groups[-1] if groups else 0)
    text = match.string
    while start < end and not text[start].isalnum():
        start += 1
    if start == 0 or not (text[start - 1].isalnum() or text[start - 1] in "_-+/"):
        rest = _TOKEN.match(text, end)
        yield text[start : rest.end() if rest else end].rstrip(".")
