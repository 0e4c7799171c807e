"""The sentences of a person's turn that are the person's own, and whether they hold only for the moment."""

import re
from collections.abc import Iterable

LONGEST_TURN = 2_000
"""Characters. A longer turn is mostly pasted: only its first and its last paragraph count as the person's own."""
_CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_TAGGED = re.compile(
    r"<([A-Za-z][\w-]*)[^>\n]*>.*?</\1>|^[ \t]*<[A-Za-z][\w-]*[^>\n]*>[ \t]*$.*\Z", re.DOTALL | re.MULTILINE
)
"""Text between tags; a tag alone on its line that nothing closes is taken to the end."""
_MASK = re.compile(r"\[redacted:|<author-\d|\$HOME\b")
_QUOTED_LINE = re.compile(r"^[ \t]*(?:>|\||\$ |\+{3}|-{3}|@@).*$", re.MULTILINE)
_ORDER_TO_MODELS = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instructions?|rules|prompts?|guidelines)\b"
    r"|\b(?:system prompt|you are now|as an ai)\b",
    re.IGNORECASE | re.DOTALL,
)
_END = re.compile(
    r"(?<=[\w)\]\"'`])[.!]+(?=\s|$)|(?<=[\w)\]\"'`]\?)\s+|\n+\s*(?:[-*]|\d+[.)])\s+|\n\s*\n|;\s|\n(?=[A-Z])"
)
"""Where a sentence ends. A question mark stays."""
_CODE = re.compile(r"`([^`\n]+)`")
_ONCE = re.compile(
    r"\b(?:(?:just |only )?this once|just once|one more time|once again|(?:just )?this time|for now"
    r"|for the moment|at the moment|right now"
    r"|today|tonight|tomorrow|temporarily|until (?:i|we|the|it|then|that)\b|yet|no need|already ran|(?:this|that) one"
    r"|(?:for|in|on|with|during|at) (?:this|that|these|those) (?!(?:repo|repository|project|codebase|monorepo|workspace"
    r"|package|app|service|machine|computer|laptop|system|environment|setup|team|company|product|code|kind|sort|reason|you"
    r"|we|i|it|is|to)\b)\w+)\b|\bonce more$|\b(?:run|start|do) [^,]{0,40} now\b|\btwice$"
    r"|\b(?:don'?t|do not) [^,]{0,40} again$",
    re.IGNORECASE,
)


_LEADS = re.compile(
    r"(?:(?:no|nope|hey|ok|okay|again|remember|seriously)\s*[,.:;!–—-]+\s*"
    r"|(?:please|and|but|so|then|also)\s+"
    r"|(?:i(?:'ve| have)? (?:already )?told you|as i (?:already )?said|like i said)(?: (?:before|already|again|twice))?"
    r"\s*(?:[,.:;!–—-]+|to\b|that\b)?\s*)*+",
    re.IGNORECASE,
)


def read_sentences(text: str) -> list[str]:
    """The person's own sentences: without code blocks, quoted lines, tags, and the middle of what is pasted.

    >>> read_sentences("No, use pnpm here. Run `go vet ./...`!")
    ['No, use pnpm here', 'Run `go vet ./...`']
    """
    own = _CODE_BLOCK.sub("\n\n", text)
    if len(own) > LONGEST_TURN:
        parts = [part for part in re.split(r"\n\s*\n", own) if part.strip()]
        own = "\n\n".join(part for part in (*parts[:1], *parts[1:][-1:]) if len(part) <= LONGEST_TURN)
    own = _QUOTED_LINE.sub("\n\n", _TAGGED.sub("\n\n", own))
    # A command between backticks can hold what otherwise ends a sentence.
    codes: list[str] = []
    bare = _CODE.sub(lambda found: f"`{_keep(codes, found[1])}`", own)
    parts = [_CODE.sub(lambda found: f"`{codes[int(found[1])]}`", part).strip() for part in _END.split(bare)]
    return [re.sub(r"\s+", " ", part) for part in parts if part]


def _keep(codes: list[str], code: str) -> int:
    codes.append(code)
    return len(codes) - 1


def gives_orders_to_models(text: str) -> bool:
    """Whether a turn holds what text of others says to a model that reads it."""
    return _ORDER_TO_MODELS.search(text) is not None


def is_masked(sentence: str) -> bool:
    """Whether a sentence holds a mask for something private. Such a text cannot go into a file.

    >>> is_masked("Always log in with [redacted:password:1]")
    True
    """
    return _MASK.search(sentence) is not None


def holds_once(sentence: str) -> bool:
    """Whether a sentence says itself that it holds for the moment only.

    >>> holds_once("Use port 8081 for this one"), holds_once("Never use npm in this repo")
    (True, False)
    """
    return _ONCE.search(sentence) is not None


def normalise(sentence: str) -> str:
    """A sentence as it is compared with others: small letters, single blanks, no punctuation at its ends.

    >>> normalise("  Please run `make lint`! ")
    'run make lint'
    """
    words = re.sub(r"[`\"'“”‘’]|\s+", lambda found: " " if found[0].isspace() else "", sentence.casefold())
    return re.sub(r"^(?:please|ok|okay|and|also|then|now|hey)[ ,]+", "", words.strip(" .,!?:;-")).strip()


def write_rule(sentences: Iterable[str]) -> str:
    """What a person said, as a rule: without what leads to it, each sentence whole.

    >>> write_rule(["No, I told you: always run `make lint`", "Never use npm!"])
    'Always run `make lint`. Never use npm.'
    """
    return " ".join(dict.fromkeys(map(_as_rule, sentences)))


def _as_rule(sentence: str) -> str:
    lead = _LEADS.match(sentence)
    rule = (sentence[lead.end() :] if lead else sentence).strip().rstrip(".!?;: ") or sentence
    return f"{rule[:1].upper()}{rule[1:]}."
