"""Opens pages full of attacks in Chromium, and looks at what became of them."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from playwright.sync_api import Page

from support.hostile_run import TAG
from support.shown_text import forms_of, hidden_characters, read_marks

LOOK = r"""([nonce, isFile]) => {
  const bad = [];
  const forbidden = new Set(["applet", "audio", "base", "embed", "frame", "iframe", "img", "isindex", "listing",
    "marquee", "math", "noscript", "object", "picture", "plaintext", "portal", "source", "template", "video", "xmp"]);
  const addresses = new Set(["action", "data", "formaction", "href", "poster", "src", "srcset", "xlink:href"]);
  const note = (element, why) => bad.push(`${why}: ${element.outerHTML.slice(0, 300)}`);
  for (const element of document.querySelectorAll("*")) {
    const name = element.localName;
    if (forbidden.has(name) || (name === "style" && !isFile)) note(element, "element");
    if (name === "script" && (isFile || element.nonce !== nonce || !element.src)) note(element, "script");
    if (name === "meta" && element.httpEquiv === "refresh") note(element, "refresh");
    for (const { name: key, value } of element.attributes) {
      if (key.startsWith("on") || key === "style" || key === "srcdoc" || key === "ping") note(element, key);
      const read = /^(data-)?hx-/.test(key) && !["hx-ignore", "hx-nonce"].includes(key);
      if (read && (isFile || element.getAttribute("hx-nonce") !== nonce)) note(element, key);
      if (addresses.has(key) && !["path", "rect"].includes(name)) {
        const url = new URL(value, location.href);
        if (url.protocol !== location.protocol || url.host !== location.host) note(element, key);
      }
    }
  }
  const said = [...document.querySelectorAll("[title], [aria-label]")].map((element) => [
    element.getAttribute("title") ?? "", element.getAttribute("aria-label") ?? ""]).flat();
  const copy = document.documentElement.cloneNode(true);
  for (const mark of copy.querySelectorAll(".unseen:not(.unseen .unseen)")) {
    mark.textContent = `\ue000${mark.textContent}\ue001`;
  }
  return JSON.stringify({ text: copy.textContent, said: said.join("\n"), bad });
}"""
NOT_WHOLE = ("text=markdown", "/versions/", "/search?")
"""Pages that do not show texts as they are: Markdown is read, and a search shows what is around its hits."""
_MARKED = re.compile("\ue000(.*?)\ue001", re.DOTALL)


@dataclass
class Looked:
    """What became of the planted texts on some pages."""

    texts: Mapping[str, str]
    """Texts that were planted, by their tags."""
    pages: int = 0
    bad: list[str] = field(default_factory=list)
    """Elements and attributes that no page of ours has."""
    hidden: list[str] = field(default_factory=list)
    """Characters that nobody could see, and that no mark stands for."""
    changed: list[str] = field(default_factory=list)
    """Texts that are not shown as they are stored."""
    seen: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By kind: the attacks that were shown whole."""

    def look(self, page: Page, nonce: str = "") -> None:
        """Look at the page that a tab shows."""
        found = json.loads(page.evaluate(LOOK, [nonce, page.url.startswith("file:")]))
        self.pages += 1
        self.bad += [f"{page.url}: {one}" for one in found["bad"]]
        self._find_hidden(page.url, found["text"] + found["said"])
        text = _MARKED.sub(lambda match: read_marks(match[1]), found["text"])
        if any(part in page.url for part in NOT_WHOLE):
            return
        for match in TAG.finditer(text):
            self._compare(page.url, match[0], match[1], text[: match.start()])

    def _find_hidden(self, url: str, text: str) -> None:
        plain = text.replace("\ue000", "").replace("\ue001", "")
        for one in sorted(hidden_characters(plain)):
            at = plain.index(one)
            self.hidden.append(f"{url}: U+{ord(one):04X} in {plain[max(0, at - 30) : at + 30]!r}")

    def _compare(self, url: str, tag: str, place: str, before: str) -> None:
        planted = self.texts[tag]
        if planted in self.seen[place] and before.endswith(planted):
            return
        if any(before.endswith(form) for form in forms_of(planted)):
            self.seen[place].add(planted)
        else:
            shown = before[-len(planted) - 20 :]
            self.changed.append(f"{url}: {tag}: {shown!r} for {planted!r}")

    @property
    def attacks(self) -> set[str]:
        """All attacks that were shown whole somewhere."""
        return set().union(*self.seen.values())
