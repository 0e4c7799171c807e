"""A walk over all pages of `whet view` by their links, forms and fragments. Of pages that differ only in which run or
rollout they show, a few are visited."""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from starlette.routing import compile_path

from support.view_server import ServedView
from whet.view.app import PAGES

_PATTERNS = tuple((compile_path(route.path)[0], route.path) for route in PAGES)
FORMS = {"tab", "form"}
"""Parameters whose every value is another form of a page."""


@dataclass
class Form:
    """A form of a page, as it is sent when nobody changes it."""

    method: str
    action: str
    fields: list[tuple[str, str]] = field(default_factory=list)


class FoundLinks(HTMLParser):
    """The addresses that a page names: links, fragments, forms, pictures."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.forms: list[Form] = []
        self._select: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.links += [given[name] for name in ("href", "hx-get", "src") if name in given]
        if tag == "form":
            self.forms.append(Form(given.get("method", "get"), given.get("action", "")))
        elif tag == "input" and self.forms and given.get("type") not in {"checkbox", "radio", "file"}:
            self.forms[-1].fields.append((given.get("name", ""), given.get("value", "")))
        elif tag == "select":
            self._select = given.get("name")
        elif tag == "option" and self._select and self.forms and "selected" in given:
            self.forms[-1].fields.append((self._select, given.get("value", "")))


def route_of(address: str) -> str | None:
    """The route that answers an address; None if no page does."""
    path = urlsplit(address).path
    return next((route for pattern, route in _PATTERNS if pattern.match(path)), None)


def addresses_in(html: str, page: str) -> Iterator[str]:
    """The addresses that a page leads to by GET, whole."""
    found = FoundLinks(html)
    forms = [f"{form.action}?{urlencode(form.fields)}" for form in found.forms if form.method.lower() == "get"]
    return (urljoin(page, link).partition("#")[0] for link in (*found.links, *forms))


@dataclass
class Crawl:
    """What a walk found."""

    pages: dict[str, str] = field(default_factory=dict)
    """By address: the body of each answer, as text."""
    routes: Counter[str] = field(default_factory=Counter)
    """How many pages of each route were visited."""
    left: set[str] = field(default_factory=set)
    """Addresses of other servers."""
    problems: list[str] = field(default_factory=list)
    """Answers that no link should lead to."""


def crawl(view: ServedView, start: tuple[str, ...] = ("/",), per_kind: int = 2, per_route: int = 12) -> Crawl:
    """Follow all links from these pages. Visited are `per_route` pages of a route, and of those with the same
    parameters `per_kind`."""
    done, waiting, kinds = Crawl(), deque(start), Counter[object]()
    seen = set(start)
    while waiting:
        address = waiting.popleft()
        reply = view.client.get(address)
        done.pages[address] = body = reply.text
        done.routes[route_of(address) or urlsplit(address).path] += 1
        if reply.status_code not in {200, 303}:
            done.problems.append(f"{reply.status_code} {address}")
        if not reply.headers.get("content-type", "").startswith("text/html"):
            continue
        for found in dict.fromkeys(addresses_in(body, f"{view.origin}{address}")):
            local = found.removeprefix(view.origin)
            if local == found:
                done.left.add(found)
                continue
            route = route_of(local) or local
            query = parse_qsl(urlsplit(local).query)
            kind = (route, frozenset((name, value if name in FORMS else "") for name, value in query))
            if local not in seen and kinds[kind] < per_kind and kinds[route] < per_route:
                seen.add(local)
                kinds.update((kind, route))
                waiting.append(local)
    return done
