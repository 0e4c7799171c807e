"""An exported folder: whole, the same every time, without dead links, scripts, forms, secrets or paths of the machine;
and it opens from the disk."""

import re
from pathlib import Path, PurePosixPath

import pytest

from support.browser import Pages, axe_violations
from support.exported_pages import ParsedPage, dead_links, read_pages
from support.view_worlds import write_long_trace, write_many_rollouts
from whet.api import export_pages
from whet.errors import UserError
from whet.runs.labels import NewLabel, RunLabels
from whet.runs.store.store import Store
from whet.view.export.files import file_of, page_of
from whet.view.export.secrets import refuse_secrets
from whet.view.export.site import MOST_PAGES

TURNS = 270
"""With two sub-agents, more steps than one page has."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine") / "runs"
    folder.mkdir()
    write_long_trace(folder / "Long one", TURNS, 300)
    write_many_rollouts(folder / "many", tasks=3, arms=2, samples=2, calls=2)
    return folder


@pytest.fixture(scope="module")
def site(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_pages(tmp_path_factory.mktemp("site") / "pages", runs).folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, ParsedPage]:
    return read_pages(site)


def test_every_run_rollout_and_trace_has_its_page(site: Path, pages: dict[Path, ParsedPage], runs: Path) -> None:
    with Store.open_read(runs / "many") as store:
        ids = [row.id for row in store.rollouts()]
    names = {str(path.relative_to(site)) for path in pages}
    assert {"index.html", "search.html", "runs/many.html", "runs/many/rollouts.html"} <= names
    for name in ids:
        assert {f"runs/many/rollouts/{name}.html", f"runs/many/rollouts/{name}/trace.html"} <= names


def test_no_link_is_dead(site: Path) -> None:
    assert list(dead_links(site)) == []


def test_pages_hold_no_script_and_no_form(pages: dict[Path, ParsedPage]) -> None:
    for page in pages.values():
        assert not page.tags & {"script", "form", "iframe", "object", "embed"}, page.file
        assert page.active == [], page.file


def test_every_step_is_on_one_page_and_its_link_leads_there(site: Path, pages: dict[Path, ParsedPage]) -> None:
    traces = [page for path, page in pages.items() if re.fullmatch(r"trace(\.from-\d+)?\.html", path.name)]
    long = [page for page in traces if "long_one" in str(page.file)]
    places = [sorted(int(one[1:]) for one in page.places if re.fullmatch(r"s\d+", one)) for page in long]
    assert len(long) == 2
    assert max(map(len, places)) == 500
    numbers = sorted(number for page in places for number in page)
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_index_lists_tasks_with_their_reasons(pages: dict[Path, ParsedPage], site: Path) -> None:
    index = pages[site / "search.html"]
    assert "repo-1/fix-00001" in index.text
    assert "some tests failed" in index.text
    assert len([link for link in index.links if "/rollouts/" in link]) == 13


def test_nothing_names_a_place_of_the_machine(site: Path, runs: Path) -> None:
    places = [str(place).encode() for place in (runs, runs.parent, Path.cwd(), Path.home()) if len(place.parts) > 2]
    for path in site.rglob("*"):
        if path.is_file():
            body = path.read_bytes()
            assert not [place for place in places if place in body], path


def test_the_same_runs_give_the_same_bytes(
    site: Path, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs.parent)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    again = export_pages(tmp_path / "again", "runs").folder
    assert _digest(again) == _digest(site)


def _digest(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_labels_are_written_only_when_asked_for(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "labelled"
    write_long_trace(folder, 3, 50, ())
    RunLabels(folder).add([NewLabel("ana", "r0", 1, "verdict", "cheat", note="looks copied")], at=0.0)
    for asked in (False, True):
        out = export_pages(tmp_path / f"out-{asked}", folder, labels=asked).folder
        text = " ".join(page.text for page in read_pages(out).values())
        assert ("looks copied" in text) == asked
        assert ("ana" in re.findall(r"\w+", text)) == asked


def test_a_folder_that_holds_something_is_not_touched(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="expected a new or empty folder"):
        export_pages(tmp_path, runs)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(UserError, match="no run is there"):
        export_pages(tmp_path / "new", tmp_path)


def test_a_page_with_a_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"runs/a.html: would hold a secret"):
        refuse_secrets("<p>ghp_16C7e42F292c6912E7710c838347Ae178B4a</p>", PurePosixPath("runs/a.html"))
    monkeypatch.setenv("SOME_API_KEY", "correct-horse-battery")
    with pytest.raises(UserError, match="value of a variable"):
        refuse_secrets("<p>correct-horse-battery</p>", PurePosixPath("runs/a.html"))
    refuse_secrets("<p>nothing</p>", PurePosixPath("runs/a.html"))


def test_too_many_pages_are_refused(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.view.export.site.MOST_PAGES", 5)
    with pytest.raises(UserError, match="more than 5 pages"):
        export_pages(tmp_path / "out", runs)
    assert MOST_PAGES > 5


@pytest.mark.parametrize(
    ("address", "page"),
    [
        ("/runs/a/rollouts?page=2", "/runs/a/rollouts?page=2"),
        ("/runs/a/rollouts?sort=cost", None),
        ("/runs/a/rollouts/r/trace?at=x7#s500", "/runs/a/rollouts/r/trace"),
        ("/runs/a/rollouts/r/trace?at=x7#s501", "/runs/a/rollouts/r/trace?from=501"),
        ("/runs/a/rollouts/r/trace?thread=t&at=x7#s501", "/runs/a/rollouts/r/trace?thread=t"),
        ("/runs/a/rollouts/r/calls", "/runs/a/rollouts/r/calls"),
        ("/runs/a/rollouts/r/calls/3?tab=tokens", None),
        ("/inbox/1", None),
        ("/compare", None),
        ("/compare?a=a&b=b", "/compare?a=a&b=b"),
    ],
)
def test_an_export_has_pages_that_need_no_server(address: str, page: str | None) -> None:
    assert page_of(address) == page


def test_different_names_have_different_files_everywhere() -> None:
    names = ["a", "A", "a b", "a_b", "a%2Fb", "..", "CON", "x" * 300, "x" * 301, "é", "e\u0301"]
    files = [str(file_of(f"/runs/{name}")).casefold() for name in names]
    assert len(set(files)) == len(names)
    assert all(len(part) < 100 and ".." not in part for file in files for part in file.split("/"))


def test_a_reader_opens_the_folder_from_the_disk(site: Path, open_page: Pages) -> None:
    page = open_page((site / "index.html").as_uri())
    assert page.evaluate("getComputedStyle(document.querySelector('.top')).display") != "block", "no styles"
    page.get_by_role("link", name="Long one").click()
    page.get_by_role("link", name=re.compile("^Rollouts")).first.click()
    page.get_by_role("link", name="t", exact=True).first.click()
    page.get_by_role("link", name="Trace").first.click()
    page.get_by_role("link", name="next").click()
    first = page.locator("article.step").first.get_attribute("id")
    assert first == "s501"
    copied = page.locator("article#s520").get_by_role("link", name="link", exact=True).evaluate("one => one.href")
    again = open_page(copied)
    assert again.url.endswith("#s520")
    assert again.evaluate("document.querySelector('#s520').getBoundingClientRect().top") < 200


def test_the_index_can_be_read_by_everyone(site: Path, open_page: Pages) -> None:
    open_page.watch.ignore("default-src", "connect-src")  # axe tries to fetch the style sheet, which pages forbid
    assert axe_violations(open_page((site / "search.html").as_uri())) == []


def test_every_link_to_a_step_opens_it_in_a_fresh_browser(site: Path, open_page: Pages) -> None:
    page = open_page((site / "runs" / _folder(site, "long_one") / "rollouts" / "r0" / "trace.html").as_uri())
    links = page.locator(".trace-outline a").evaluate_all("all => all.map((one) => one.href)")
    for link in links[:: max(1, len(links) // 6)]:
        step = link.rpartition("#")[2]
        page.goto("about:blank")
        page.goto(link)
        assert page.evaluate(f"Math.abs(document.getElementById('{step}').getBoundingClientRect().top) < innerHeight")


def _folder(site: Path, beginning: str) -> str:
    (found,) = (path.name for path in (site / "runs").iterdir() if path.is_dir() and path.name.startswith(beginning))
    return found
