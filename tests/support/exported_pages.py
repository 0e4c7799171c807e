"""Reads the pages of an export as a browser would: links, places in pages, and what must not be there."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

WITH_ADDRESS = ("href", "src", "action", "data", "poster", "srcset")
ALLOWED = frozenset({"hx-ignore"})
"""What begins with hx- and asks for nothing."""


@dataclass
class ParsedPage(HTMLParser):
    """One file of an export."""

    file: Path
    links: list[str] = field(default_factory=list)
    places: set[str] = field(default_factory=set)
    tags: set[str] = field(default_factory=set)
    active: list[str] = field(default_factory=list)
    """Attributes that run or request something."""
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in WITH_ADDRESS and value is not None:
                self.links.append(value)
            if name == "id" and value:
                self.places.add(value)
            if name.startswith("on") or (name.startswith("hx-") and name not in ALLOWED) or name == "style":
                self.active.append(f"{tag} {name}")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


def read_pages(folder: Path) -> dict[Path, ParsedPage]:
    """All pages of an exported folder."""
    return {path: ParsedPage(path) for path in sorted(folder.rglob("*.html"))}


def dead_links(folder: Path) -> Iterator[str]:
    """Links that lead to no file of the folder, or to no place in it."""
    pages = read_pages(folder)
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if parts.scheme or parts.netloc or parts.path.startswith("/") or not target.is_relative_to(folder):
                yield f"{path.relative_to(folder)}: leaves the folder: {link}"
            elif not target.is_file():
                yield f"{path.relative_to(folder)}: no such file: {link}"
            elif parts.fragment and target in pages and parts.fragment not in pages[target].places:
                yield f"{path.relative_to(folder)}: no such place: {link}"
