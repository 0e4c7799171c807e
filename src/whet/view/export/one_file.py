"""Write one rollout as a single HTML file: what came of it, its whole trace, its changes and its judges."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from starlette.datastructures import QueryParams

from whet.errors import UserError
from whet.view import addresses
from whet.view.app import answer_or_error
from whet.view.export.machine_paths import MachinePaths
from whet.view.export.secrets import refuse_secrets
from whet.view.export.site import Exported, find_page
from whet.view.export.static_pages import whole_trace
from whet.view.export.styles import read_styles
from whet.view.page import Page, PageRequest, View
from whet.view.render import Renderer, Site

MOST_BYTES = 20 << 20
"""Browsers take too long to open a larger file."""
_STEP = re.compile(r"#s\d+$")


def export_rollout(view: View, run: str, rollout: str, file: Path) -> Exported:
    """Write a rollout to a new file."""
    if file.exists():
        raise UserError(f"`export` is {file}, which exists; expected a new file")
    html = MachinePaths(view.library).hide(render_rollout(view, run, rollout))
    refuse_secrets(html, PurePosixPath(file.name))
    body = html.encode(errors="surrogatepass")
    if len(body) > MOST_BYTES:
        raise UserError(
            f"{file}: would have {len(body) >> 20} MB, and browsers open such files slowly; export the run to a folder"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(body)
    return Exported(file, 1, len(body))


def render_rollout(view: View, run: str, rollout: str) -> str:
    """The rollout as one page that needs no other file."""
    renderer, site = Renderer(), Site(live=False)
    pages = list(_pages(view, run, rollout))
    head = renderer.render(Page("one_file.html", pages[0].title), site, _keep_places)
    bare = Site(live=False, bare=True)
    sections = (f"<section>{renderer.render(page, bare, _keep_places)}</section>" for page in pages)
    styles = f"<style>\n{read_styles()}</style>\n</head>\n"
    return "\n".join((head + styles + '<body>\n<main class="page one-file">', *sections, "</main>\n</body>\n</html>\n"))


def _pages(view: View, run: str, rollout: str) -> Iterator[Page]:
    """The pages of the rollout that a file holds, in the order in which they are read."""
    for address in (
        addresses.rollout(run, rollout),
        addresses.trace(run, rollout),
        addresses.diff(run, rollout),
        addresses.judges(run, rollout),
    ):
        found = find_page(address)
        assert found is not None
        route, path = found
        request = PageRequest(path, QueryParams(""))
        if address == addresses.trace(run, rollout):
            yield whole_trace(view, request, MOST_BYTES)
            continue
        answer = answer_or_error(route.make, view, request)
        assert isinstance(answer, Page)
        if answer.status != 200:
            raise UserError(str(answer.data["sentence"]))
        yield answer


def _keep_places(address: str) -> str | None:
    """Links to steps stay; there are no other pages."""
    step = _STEP.search(address)
    return step[0] if step else None
