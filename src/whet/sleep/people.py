"""Replaces the names and mail addresses of people: `<author-1>` for authors of commits, a mask for other addresses."""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

_COMMITS = 5000
"""How far back the authors of a repository are looked for."""
_MAIL = re.compile(
    r"(?<![\w.+%-])([A-Za-z0-9][\w.%+-]{0,63}+)@((?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,6}[A-Za-z]{2,24})"
    r"(?![\w@-])"
)
_SIGNED = re.compile(
    r"(?im)^([ \t>*-]{0,12}(?:author|commit|committer|co-authored-by|signed-off-by|reviewed-by|acked-by|tested-by"
    r"|reported-by): {0,8})([^<>\n]{1,80}?) {0,3}<([^<>\s]{3,254})>"
)
"""How git names people: a word, the name, the address."""
_NOBODY = frozenset({"git", "hg", "svn"})
_NO_MAIL = re.compile(
    r"(?i)(?:^|\.)(?:example|test|invalid|localhost|local|example\.(?:com|net|org)|openssh\.com|libssh\.org)$"
    r"|\.(?:png|jpe?g|gif|svg|webp|ico|py|pyc|js|jsx|ts|tsx|mjs|cjs|json|md|txt|css|html|go|rs|rb|sh|toml|ya?ml|lock"
    r"|service|timer|socket|target|mount|whl|gz|zip|so|dll|exe|setter|getter|deleter)$"
)
"""Hosts of no mail: reserved for examples, parts of algorithms' names, and names of files."""


def find_mail(text: str) -> re.Match[str] | None:
    """The first mail address of a person.

    >>> bool(find_mail("ask ann@shop.dev")), find_mail("git@github.com:a/b.git"), find_mail("icon@2x.png")
    (True, None, None)
    """
    return next((found for found in _MAIL.finditer(text) if _is_person(found)), None) if "@" in text else None


def _is_person(found: re.Match[str]) -> bool:
    return found[1].lower() not in _NOBODY and not _NO_MAIL.search(found[2])


def find_authors(repository: Path) -> Mapping[str, int]:
    """Names and addresses of a repository's authors; those of one person have the same number."""
    arguments = ["log", f"--max-count={_COMMITS}", "--all", "--format=%an%x00%ae"]
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(repository), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError:
        return {}
    people: dict[str, int] = {}
    for line in dict.fromkeys(done.stdout.splitlines()):
        name, _, mail = line.partition("\0")
        number = people.get(mail) or people.get(name) or len(people) + 1
        people.setdefault(mail, number)
        people.setdefault(name, number)
    return people


class People:
    """The people of one session. One person has one number everywhere in it.

    >>> People({"Ann Lee": 1, "ann@shop.dev": 1}).clean("Author: Ann Lee <ann@shop.dev>; ask bob@shop.dev", str)
    'Author: <author-1>; ask bob@shop.dev'
    """

    def __init__(self, authors: Mapping[str, int]) -> None:
        self._known = authors
        self._numbers: dict[object, int] = {}
        # Names of one word are words of ordinary text.
        names = sorted((name for name in authors if " " in name.strip() and "@" not in name), key=len, reverse=True)
        self._names = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)") if names else None

    def clean(self, text: str, mask: Callable[[str], str]) -> str:
        """The text without people; `mask` gives what stands for the address of somebody who is no author."""
        if "@" in text:
            text = _SIGNED.sub(lambda found: found[1] + self._author(found[3], found[2]), text)
            text = _MAIL.sub(lambda found: self._mail(found, mask), text)
        return self._names.sub(lambda found: self._author(found[0]), text) if self._names else text

    def _mail(self, found: re.Match[str], mask: Callable[[str], str]) -> str:
        if not _is_person(found):
            return found[0]
        return self._author(found[0]) if self._is_author(found[0]) else mask(found[0])

    def _is_author(self, mail: str) -> bool:
        return mail in self._known or mail in self._numbers

    def _author(self, *names: str) -> str:
        person: object = next((self._known[name] for name in names if name in self._known), names[0])
        return f"<author-{self._numbers.setdefault(person, len(self._numbers) + 1)}>"
