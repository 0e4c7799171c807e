"""Write the pages of some runs as files: a crawl over the same pages that the server shows, with other links."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from starlette.datastructures import QueryParams
from starlette.routing import compile_path

from whet.errors import UserError
from whet.view import addresses
from whet.view.app import PAGES, answer_or_error
from whet.view.export.files import DOWNLOADS, file_of, page_of, path_of, relative
from whet.view.export.machine_paths import MachinePaths
from whet.view.export.secrets import refuse_secrets
from whet.view.export.static_pages import STATIC_PAGES
from whet.view.export.styles import read_styles
from whet.view.page import Answer, Download, Page, PageRequest, PageRoute, Redirect, View
from whet.view.render import Renderer, Site

MOST_PAGES = 50_000
STYLES = "whet.css"


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    folder: Path
    pages: int
    size: int
    """Bytes."""


def export_site(view: View, folder: Path, watch: Callable[[int], None] = lambda _: None) -> Exported:
    """Write all pages of the view's runs into a new folder. `watch` gets the number of pages as they are written."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"`export` is {folder}; expected a new or empty folder")
    size = _write(folder, PurePosixPath("static", STYLES), read_styles().encode())
    pages = 0
    for file, body in _Crawl(view).files():
        size += _write(folder, file, body)
        pages += file.suffix == ".html"
        watch(pages)
    return Exported(folder, pages, size)


class _Crawl:
    """Goes from page to page by their links."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._renderer = Renderer()
        self._paths = MachinePaths(view.library)
        self._found: dict[str, PurePosixPath | None] = {}
        self._waiting: deque[str] = deque()
        self._downloads: deque[tuple[PurePosixPath, bytes]] = deque()

    def files(self) -> Iterator[tuple[PurePosixPath, bytes]]:
        """Every page that can be reached, and what pages link to, with the file of each."""
        self._file(addresses.runs())
        while self._waiting:
            page = self._waiting.popleft()
            file = self._found[page]
            assert file is not None
            yield file, self._render(page, file)
            while self._downloads:
                yield self._downloads.popleft()

    def _render(self, page: str, file: PurePosixPath) -> bytes:
        answer = _answer(self._view, page)
        if isinstance(answer, Redirect):
            answer = _answer(self._view, answer.address)
        if not isinstance(answer, Page):
            raise TypeError(f"{page} answers with {type(answer).__name__}; DOWNLOADS or WITHOUT should name it")
        html = self._renderer.render(answer, Site(live=False), lambda target: self._href(target, file))
        html = self._paths.hide(html)
        refuse_secrets(html, file)
        return html.encode(errors="surrogatepass")

    def _href(self, address: str, here: PurePosixPath) -> str | None:
        if address.startswith("/static/"):
            return relative(PurePosixPath("static", address.removeprefix("/static/")), here)
        file = self._file(address)
        fragment = urlsplit(address).fragment
        return None if file is None else relative(file, here) + (f"#{fragment}" if fragment else "")

    def _file(self, address: str) -> PurePosixPath | None:
        """The file of a page, which is written later if it is new."""
        page = page_of(address)
        if page is None or find_page(page) is None:
            return None
        if page not in self._found:
            if len(self._found) >= MOST_PAGES:
                raise UserError(f"more than {MOST_PAGES:,} pages; export fewer runs at a time, or single rollouts")
            self._found[page] = self._add_download(page) if DOWNLOADS.fullmatch(urlsplit(page).path) else file_of(page)
            if self._found[page] is not None and not DOWNLOADS.fullmatch(urlsplit(page).path):
                self._waiting.append(page)
        return self._found[page]

    def _add_download(self, page: str) -> PurePosixPath | None:
        """The file of something that is not a page; None if it cannot be made, as an image that is damaged."""
        answer = _answer(self._view, page)
        if not isinstance(answer, Download):
            return None
        path = path_of(page)
        file = path.with_name(f"{path.name}{PurePosixPath(answer.name).suffix}")
        self._downloads.append((file, self._check(answer, file)))
        return file

    def _check(self, answer: Download, file: PurePosixPath) -> bytes:
        if answer.inline:
            return answer.body
        text = self._paths.hide(answer.body.decode())
        refuse_secrets(text, file)
        return text.encode()


def _answer(view: View, address: str) -> Answer:
    found = find_page(address)
    assert found is not None
    route, path = found
    return answer_or_error(route.make, view, PageRequest(path, QueryParams(urlsplit(address).query)))


_PATTERNS = tuple((compile_path(route.path)[0], route) for route in (*STATIC_PAGES, *PAGES))


def find_page(address: str) -> tuple[PageRoute, dict[str, str]] | None:
    """The page with this address, and the variable parts of the address. Pages that a server shows in pieces have
    another form in an export."""
    path = unquote(urlsplit(address).path)
    for pattern, route in _PATTERNS:
        if match := pattern.match(path):
            return route, {name: addresses.decode_name(value) for name, value in match.groupdict().items()}
    return None


def _write(folder: Path, file: PurePosixPath, body: bytes) -> int:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(body)
