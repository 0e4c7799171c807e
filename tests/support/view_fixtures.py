"""What the tests of pages share: a real browser, and a cache of derived files that is not the user's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.browser import browser_options, browser_thread, open_page, run_in_browser_thread
from whet.view.derive.cache import Cache
from whet.view.derive.traces import Traces

__all__ = ["browser_options", "browser_thread", "open_page"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_in_browser_thread(pyfuncitem)


@pytest.fixture(scope="session")
def view_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache folder of the tests of the view."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", autouse=True)
def own_cache(request: pytest.FixtureRequest, view_cache: Path) -> Iterator[None]:
    """Derived traces are kept apart from those of the user. Only in tests of the view: agents and models are in the
    user's cache folder too."""
    with pytest.MonkeyPatch.context() as patch:
        if "view" in request.path.parent.parts:
            patch.setenv("XDG_CACHE_HOME", str(view_cache))
        yield


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared worker keeps what it derives."""
    return tmp_path_factory.mktemp("derived")


@pytest.fixture(scope="session")
def shared(cache_folder: Path) -> Iterator[Traces]:
    """Traces that are derived by one worker, for tests that do not harm it."""
    with Traces(Cache(cache_folder)) as traces:
        yield traces
