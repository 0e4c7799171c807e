"""Turn a page into HTML. The server and the static export differ only in how an address becomes a link."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import Environment

from whet.look.templates import make_environment
from whet.text.secrets import mask_tokens
from whet.version import __version__
from whet.view import addresses
from whet.view.guard import HTMX_CONFIG
from whet.view.masking import make_redactor
from whet.view.page import Page, Part

TEMPLATES = Path(__file__).parent / "templates"
STYLES = Path(__file__).parent / "static"
"""Pages that are one file include the style sheet."""
Href = Callable[[str], str | None]
"""What stands in a page for a logical address; None when there is no such page."""


@dataclass(frozen=True, slots=True)
class Site:
    """What is the same on all pages of a server, or of an export."""

    nonce: str = ""
    """What our scripts carry as `nonce`, and elements with htmx attributes as `hx-nonce`; empty where there is no
    script."""
    form_token: str = ""
    """What forms that post carry in the field `form_token`."""
    fragment: bool = False
    """Whether htmx asked for it, which wants a part of a page."""
    write: bool = False
    """Whether readers may change labels and proposals."""
    live: bool = True
    """Whether a server stands behind the pages."""
    message: bool = False
    """Whether it is a message of a stream, whose elements replace those of the page."""
    waiting: int = 0
    """Proposals of `whet sleep` that wait for a decision."""
    bare: bool = False
    """Only the content of a page, for a file that holds several."""

    @property
    def inside(self) -> "Site":
        """For a part within a part: it is replaced together with that one."""
        return replace(self, message=False)


class Renderer:
    """Renders pages with the templates of the view."""

    def __init__(self) -> None:
        self._environment = make_view_environment()
        self._redactor = make_redactor()

    def render(self, page: Page, site: Site, href: Href) -> str:
        """The HTML of a page."""
        template = self._environment.get_template(page.template)
        shown = _mask_frame(page) if page.masked else page
        return self._mask(page, template.render(**page.data, page=shown, site=site, href=href))

    def render_part(self, part: Part, site: Site, href: Href) -> str:
        """The HTML of a part of a page, for its stream."""
        template = self._environment.get_template(part.template)
        return mask_tokens(self._redactor.text(template.render(part=part, site=site, href=href)))

    def _mask(self, page: Page, html: str) -> str:
        html = self._redactor.text(html)
        return html if page.masked else mask_tokens(html)


def _mask_frame(page: Page) -> Page:
    """A page without keys in what stands around its content."""
    crumbs = [crumb._replace(text=mask_tokens(crumb.text)) for crumb in page.crumbs]
    return replace(page, title=mask_tokens(page.title), crumbs=crumbs, command=mask_tokens(page.command))


def make_view_environment() -> Environment:
    """The templates of the view, with the addresses of all pages."""
    environment = make_environment(TEMPLATES, STYLES)
    environment.globals.update(addresses=addresses, version=__version__, htmx_config=HTMX_CONFIG, now=time.time)
    return environment
