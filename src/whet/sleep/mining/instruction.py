"""Instructions of mined tasks: what a commit message asks for, and what tests say today. Never the solution."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from whet.text.secrets import mask_secrets

NAMED = 10
"""So many tests are named in an instruction; the others are counted."""
FEWEST_WORDS = 3
"""Words of content that make a message an instruction."""
_TRAILER = re.compile(
    r"(?i)^(?:(?:signed-off|co-authored|reviewed|acked|tested|reported|suggested|co-developed)-by|cc|change-id|"
    r"reviewed-on|pull-request|pr-url|refs?|see also|bug|issue|closes|fixes|resolves|backport-of|cherry-picked-from|"
    r"git-svn-id):.*$|^\(cherry picked from commit .*\)$|^this reverts commit .*$"
)
_DIFF_START = re.compile(r"^(?:diff --git |Index: |@@ -\d|--- a/|\+\+\+ b/)")
_IN_DIFF = re.compile(r"^(?:[ +\-@\\]|diff |index |new file |deleted file |similarity |rename )")
_ISSUE = (
    re.compile(r"(?i)\b(?:fix(?:es|ed)?|close[sd]?|resolve[sd]?|refs?|see|issue|pr|pull request|gh)[ :]*#\d+\b"),
    re.compile(r"\s*\((?:#\d+|GH-\d+|[A-Z][A-Z0-9]+-\d+)(?:, *(?:#\d+|GH-\d+))*\)"),
    re.compile(r"\bGH-\d+\b|(?<![\w&])#\d+\b"),
    re.compile(r"https?://\S+/(?:issues|pull|pulls|merge_requests|commit|browse)/\S+"),
)
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")
_MARK = re.compile(r"^(?:\[[\w ./-]+\]\s*)+|^(?:[a-z]+(?:\([\w ./,-]+\))?!?:\s+)")
"""What stands before the subject proper: `[core]`, `fix(parser):`."""
_THIN = re.compile(
    r"(?i)(?:wip|fix(?:es|ed)?|bug ?fix(?:es)?|hot ?fix|typos?|clean ?up|refactor(?:ing)?|updates?|misc|tests?|"
    r"tweaks?|more|stuff|work|minor|small|various|some|improvements?|add|added|adding|remove|removed|lint|"
    r"format(?:ting)?|address|review|comments?|feedback|merge|bump|release|prepare|version|v?\d+(?:\.\d+)+\w*|to|the|a|"
    r"and|for|in|of|it|code|things|again|final|initial|commit|import|revert|changelog|changes|history)"
)
_SHORTEST_LINE = 12
"""Characters of a line of code that is recognised when a message quotes it."""


def clean_message(message: str, patch: bytes = b"") -> str:
    """A commit message without what is of no use to an agent, or gives the solution away: trailers, hashes, numbers of
    issues, diffs, and lines that the change adds. Empty if what is left is too thin to be an instruction.

    >>> clean_message("fix: charge three per unit (#12)\\n\\nSigned-off-by: A <a@example.com>")
    'charge three per unit'
    >>> clean_message("bump version to 1.2.0")
    ''
    """
    added = _list_added_lines(patch)
    lines = [_clean_line(line) for line in _drop_diffs(message.splitlines()) if not _TRAILER.match(line.strip())]
    kept = [line for line in lines if _squeeze(line) not in added]
    if kept:
        kept[0] = _MARK.sub("", kept[0])
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return mask_secrets(text) if _has_content(text) else ""


def ask_for_change(message: str, failing: Mapping[str, str]) -> str:
    """The instruction of a task that asks for what a commit did. `failing` are hidden tests and what they say today."""
    told = "\n".join(_list_tests(failing))
    return (
        f"Make this change to the project in the working directory:\n\n{message}\n\n"
        f"Tests that you do not see will judge the work. Today they fail:\n\n{told}\n"
    )


def ask_for_repair(failing: Mapping[str, str]) -> str:
    """The instruction of a task with a fault: the tests that it breaks, and what they say."""
    told = "\n".join(_list_tests(failing))
    count = "A test" if len(failing) == 1 else f"{len(failing)} tests"
    return (
        f"{count} of the project in the working directory passed before and {'fails' if len(failing) == 1 else 'fail'} "
        f"now:\n\n{told}\n\nFind the fault in the code and repair it. The tests are right: do not change them.\n"
    )


def hide_names(errors: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Errors without those that name one of these files."""
    hidden = {part for name in names for part in (name, PurePosixPath(name).name)}
    return {test: "" if any(part in error for part in hidden) else error for test, error in errors.items()}


def _list_tests(failing: Mapping[str, str]) -> Iterator[str]:
    for test in sorted(failing)[:NAMED]:
        error = mask_secrets(failing[test])
        yield f"- `{test}`" + (f": {error}" if error else "")
    if len(failing) > NAMED:
        yield f"- and {len(failing) - NAMED} more"


def _drop_diffs(lines: Collection[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        inside = bool(_DIFF_START.match(line)) or (inside and (not line or bool(_IN_DIFF.match(line))))
        if not inside:
            yield line


def _clean_line(line: str) -> str:
    for pattern in _ISSUE:
        line = pattern.sub("", line)
    return re.sub(r"(?<=\S) {2,}", " ", _HASH.sub("", line)).replace("()", "").rstrip(" \t,;:-")


def _list_added_lines(patch: bytes) -> set[str]:
    """The lines that a change adds to code. What it adds to documents may be the message itself."""
    lines: set[str] = set()
    for file in re.split(r"(?m)^diff --git ", patch.decode(errors="replace")):
        if file.partition("\n")[0].endswith(".py"):
            lines |= {_squeeze(line[1:]) for line in file.splitlines() if line.startswith("+")}
    return {line for line in lines if len(line) >= _SHORTEST_LINE}


def _squeeze(line: str) -> str:
    return " ".join(line.strip(" \t`>*").split())


def _has_content(text: str) -> bool:
    words = re.findall(r"[\w.'-]*\w", text)
    return sum(not _THIN.fullmatch(word) for word in words) >= FEWEST_WORDS
