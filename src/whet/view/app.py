"""The HTTP application: every page and its address, the events, and the static files, behind one guard."""

from dataclasses import replace
from functools import partial
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from whet.errors import UserError
from whet.view import addresses
from whet.view.assets import Assets
from whet.view.guard import Guard, passage_of
from whet.view.library import NoSuchRunError
from whet.view.live import Live, Watcher
from whet.view.live_pages import LIVE_PAGES
from whet.view.masking import mask_bytes
from whet.view.page import (
    Action,
    Answer,
    Download,
    GoneError,
    MakePage,
    NotFoundError,
    Page,
    PageRequest,
    PageRoute,
    Redirect,
    View,
)
from whet.view.pages import (
    call,
    certificate,
    compare,
    compare_traces,
    diff,
    export,
    image,
    inbox,
    judges,
    labels,
    logs,
    rollout,
    rollouts,
    run,
    runs,
    search,
    skill_version,
    skills,
    trace,
)
from whet.view.pages import help as help_pages
from whet.view.pages import report as report_pages
from whet.view.render import Renderer, Site
from whet.view.waiting import Waiting

PAGES: tuple[PageRoute, ...] = (
    *call.ROUTES,
    *certificate.ROUTES,
    *report_pages.ROUTES,
    *diff.ROUTES,
    *judges.ROUTES,
    *image.ROUTES,
    *trace.ROUTES,
    *compare.ROUTES,
    *skill_version.ROUTES,
    *skills.ROUTES,
    *compare_traces.ROUTES,
    *search.ROUTES,
    *logs.ROUTES,
    *labels.ROUTES,
    *rollout.ROUTES,
    *rollouts.ROUTES,
    *run.ROUTES,
    *runs.ROUTES,
    *export.ROUTES,
    *inbox.ROUTES,
    *help_pages.ROUTES,
)
ACTIONS: tuple[Action, ...] = (*certificate.ACTIONS, *inbox.ACTIONS, *labels.ACTIONS)


class Pages:
    """Answers requests with pages."""

    def __init__(self, view: View, assets: Assets) -> None:
        self._view, self._assets = view, assets
        self._renderer = Renderer()
        self._waiting = Waiting(view)

    def routes(self, watcher: Watcher) -> list[BaseRoute]:
        """One route for each page, for each stream, and for each action that readers may take."""
        pages = [Route(page.path, partial(self._show, page.make)) for page in PAGES]
        allowed = [action for action in ACTIONS if self._view.options.write or not action.writes]
        actions = [Route(one.path, partial(self._act, one.act), methods=["POST"]) for one in allowed]
        streams = Live(self._view, watcher, self._renderer, self._href).routes(LIVE_PAGES, _read)
        return [*streams, *pages, *actions]

    async def _show(self, make: MakePage, request: Request) -> Response:
        return await run_in_threadpool(self._answer, make, _read(request), self._site(request))

    async def _act(self, act: MakePage, request: Request) -> Response:
        async with request.form(max_files=1, max_fields=1000) as form:
            given = replace(_read(request), form=form)
            return await run_in_threadpool(self._answer, act, given, self._site(request))

    def _site(self, request: Request) -> Site:
        passage = passage_of(request)
        return Site(passage.nonce, passage.form_token, passage.fragment, self._view.options.write)

    async def failed(self, request: Request, error: Exception) -> Response:
        """The reply when a page has a defect."""
        sentence = f"whet has a defect here: {type(error).__name__}: {error}"
        return HTMLResponse(self.html(_error(500, "This page failed", sentence[:500]), self._site(request)), 500)

    def _answer(self, make: MakePage, request: PageRequest, site: Site) -> Response:
        answer = answer_or_error(make, self._view, request)
        match answer:
            case Page():
                site = replace(site, waiting=self._waiting.count())
                return HTMLResponse(self.html(answer, site), answer.status, {"Cache-Control": "no-store"})
            case Redirect(address):
                return RedirectResponse(self._href(address), 303)
            case Download():
                return _download(answer)
            case Response():
                return answer

    async def not_found(self, request: Request, _: Exception) -> Response:
        """The reply to an address that no page has."""
        page = _error(404, "Not found", "There is no such page.")
        return HTMLResponse(self.html(page, self._site(request)), 404)

    def html(self, page: Page, site: Site) -> str:
        """A page as the server shows it."""
        return self._renderer.render(page, site, self._href)

    def _href(self, address: str) -> str:
        if address.startswith("/static/"):
            address = self._assets.address(address.removeprefix("/static/"))
        return f"{self._view.options.root_path}{address}"


def make_app(view: View, *, token: str, nonce: str, port: int | None, watcher: Watcher | None = None) -> ASGIApp:
    """All that the server answers. `port` is None on a Unix socket. Closing the watcher ends all streams."""
    options, assets = view.options, Assets()
    pages = Pages(view, assets)
    app = Starlette(
        routes=[*pages.routes(watcher or Watcher()), Route("/static/{name}", assets.serve)],
        exception_handlers={404: pages.not_found, 500: pages.failed},
    )
    return Guard(
        app,
        token=token,
        nonce=nonce,
        port=port,
        root_path=options.root_path,
        trusted_hosts=options.trusted_host,
        embed=options.embed.value if options.embed else None,
        write=options.write,
    )


def _read(request: Request) -> PageRequest:
    path = {name: addresses.decode_name(value) for name, value in request.path_params.items()}
    return PageRequest(path, request.query_params)


def answer_or_error(make: MakePage, view: View, request: PageRequest) -> Answer:
    """What a page answers, or the page that says why it cannot."""
    try:
        return make(view, request)
    except NotFoundError as error:
        return _error(404, "Not found", str(error))
    except NoSuchRunError as error:
        return _error(
            404, "No such run", f"There is no run '{error.args[0]}' here. It may have been renamed or deleted."
        )
    except GoneError as error:
        return _error(410, "Gone", str(error))
    except UserError as error:
        return _error(409, "This cannot be shown", str(error))


def _error(status: int, title: str, sentence: str) -> Page:
    return Page("error.html", title, {"sentence": sentence, "status": status}, status=status)


def _download(file: Download) -> Response:
    place = "inline" if file.inline else f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"
    headers = {"Content-Disposition": place, "Cache-Control": "no-store"}
    if file.inline:
        headers["Content-Security-Policy"] = "sandbox; default-src 'none'"
    body = file.body if file.inline else mask_bytes(file.body)
    return Response(body, media_type=file.media_type, headers=headers)
