"""One rollout as one file: all of its text, no other file, no script, and not too large."""

from pathlib import Path

import pytest

from support.browser import Pages
from support.exported_pages import ParsedPage
from support.view_worlds import Conversation, long_trace, write_long_trace, write_many_rollouts, write_trace
from whet.api import export_pages
from whet.errors import UserError
from whet.exchange import Kind, Speaker


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine") / "runs" / "long"
    write_long_trace(folder, 60, 6000)
    return folder


@pytest.fixture(scope="module")
def file(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_pages(tmp_path_factory.mktemp("out") / "one.html", run, rollout="r0").folder


def test_it_holds_every_text_whole_and_needs_nothing_else(file: Path) -> None:
    page = ParsedPage(file)
    assert not page.tags & {"script", "form", "link", "img", "iframe"}
    assert page.active == []
    assert page.links
    assert all(link.startswith("#s") and link[1:] in page.places for link in page.links)
    for exchange in long_trace(60, 6000, (20, 40)):
        reply = exchange.response.decode()
        assert reply.partition("Step ")[2][:20].split("\\n")[0] in page.text
    assert "characters: show all" not in page.text


def test_it_tells_nothing_of_the_machine(file: Path, run: Path) -> None:
    assert str(run.parent).encode() not in file.read_bytes()


def test_the_same_rollout_gives_the_same_bytes(file: Path, run: Path, tmp_path: Path) -> None:
    again = export_pages(tmp_path / "again.html", run, rollout="r0")
    assert again.folder.read_bytes() == file.read_bytes()
    assert again.size == file.stat().st_size


def test_it_opens_from_the_disk_at_a_step(file: Path, open_page: Pages) -> None:
    page = open_page(f"{file.as_uri()}#s100")
    assert page.evaluate("Math.abs(document.getElementById('s100').getBoundingClientRect().top) < innerHeight")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_rollout_that_is_too_large_is_refused_with_advice(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    talk = Conversation(Speaker(Kind.MAIN, "main", None, "a test"), "system", "task")
    calls = []
    for index in range(3):
        calls.append(talk.call(index, {"role": "assistant", "content": "x"}))
        talk.add({"role": "user", "content": f"{index}" * (8 << 20)})
    write_trace(folder, [*calls, talk.call(3, {"role": "assistant", "content": "done"})])
    with pytest.raises(UserError, match=r"more than 20 MB; export the run to a folder"):
        export_pages(tmp_path / "big.html", folder, rollout="r0")
    assert not (tmp_path / "big.html").exists()


def test_what_is_exported_must_be_clear(run: Path, file: Path, tmp_path: Path) -> None:
    write_many_rollouts(tmp_path / "many", 2, 1, 1)
    with pytest.raises(UserError, match="one file holds one rollout"):
        export_pages(tmp_path / "a.html", run)
    with pytest.raises(UserError, match="expected one rollout whose id begins with '0000'; 2 do"):
        export_pages(tmp_path / "a.html", tmp_path / "many", rollout="0000")
    with pytest.raises(UserError, match="which exists; expected a new file"):
        export_pages(file, run, rollout="r0")
    with pytest.raises(UserError, match=r"a single rollout needs a file that ends in .html"):
        export_pages(tmp_path / "folder", run, rollout="r0")
