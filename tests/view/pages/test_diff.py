"""The page of what a rollout changed: every file with its lines, in one column or in two, a page of files at a time."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from support.browser import Pages, axe_violations
from support.view_server import ServedView, serve_view
from support.view_worlds import EPOCH, finish
from whet.runs.store.schema import RolloutRow, TaskRow
from whet.runs.store.store import Store
from whet.view import addresses
from whet.view.pages.diff import FILES_PAGE, OPEN_FILES
from whet.workspace import Change

EDITED = """--- a/src/parser.py
+++ b/src/parser.py
@@ -1,4 +1,4 @@
 def parse():
-    return 1
+\treturn 2\x20
--- one
+++ two
 keep
"""
CHANGES = (
    Change(path="src/parser.py", kind="changed", diff=EDITED),
    Change(path="logo.png", kind="added", diff=None),
    Change(path="old <b>.txt", kind="removed", diff="@@ -1 +0,0 @@\n-<script>gone</script>\n"),
)


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedView]:
    root = tmp_path_factory.mktemp("runs")
    rollouts = ("edited", "many", "nothing", "unseen", "killed", "waiting")
    many = tuple(Change(path=f"file-{n:03}", kind="added", diff=f"@@ -0,0 +1 @@\n+{n}\n") for n in range(120))
    changes: dict[str, dict[str, Any]] = {
        "edited": {"changes": CHANGES},
        "many": {"changes": many},
        "nothing": {},
        "unseen": {"unseen": "the folder has more than 100,000 files"},
    }
    with Store.create(root / "changes") as store, store.atomic():
        store.add_tasks([TaskRow("t", "0" * 16, "tests", "{}")])
        store.add_rollouts(
            RolloutRow(name, place, "t", "loop", "m", None, place) for place, name in enumerate(rollouts)
        )
        for name, more in changes.items():
            finish(store, store.start_attempt(name, EPOCH), 1.0, None, **more)
        store.start_attempt("killed", EPOCH)
    with serve_view(root) as served:
        yield served


def diff(rollout: str, **query: object) -> str:
    return addresses.diff("changes", rollout, **query)


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html[html.index("<main") :])).split())


def lines(page: str, kind: str) -> list[str]:
    """The lines of a class, as a reader sees them."""
    found = re.findall(rf'<span class="line {kind}">(.*?)</span>', page, re.DOTALL)
    return [unescape(one).rstrip("\n") for one in found]


def test_every_file_has_its_kind_and_its_counted_lines(view: ServedView) -> None:
    said = text_of(view.get(diff("edited")))
    assert "3 files" in said
    assert "src/parser.py changed +2 −2" in said
    assert "logo.png added not shown as text" in said
    assert "old <b>.txt removed +0 −1" in said


def test_lines_that_look_like_the_head_of_a_diff_are_lines(view: ServedView) -> None:
    page = view.get(diff("edited"))
    assert lines(page, "add") == ["+\treturn 2 ", "+++ two"]
    assert lines(page, "del") == ["-    return 1", "--- one", "-<script>gone</script>"]


def test_two_columns_put_a_line_beside_the_one_that_took_its_place(view: ServedView) -> None:
    page = view.get(diff("edited", form="split"))
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    cells = [
        [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows
    ]
    assert ["def parse():", "def parse():"] in cells
    assert ["−    return 1", "+\treturn 2 "] in cells
    assert ["−-- one", "+++ two"] in cells


def test_white_space_is_marked_where_a_line_changed(view: ServedView) -> None:
    page = view.get(diff("edited", marks=1))
    assert "-····return·1" in lines(page, "del")
    assert "+→\treturn·2·" in lines(page, "add")
    assert " def parse():" in unescape(page)
    assert "marks=1" in view.get(diff("edited"))


def test_a_file_leads_to_the_steps_that_name_it(view: ServedView) -> None:
    assert "/runs/changes/rollouts/edited/trace?q=src%2Fparser.py" in view.get(diff("edited"))


def test_many_files_come_in_pages_and_most_are_folded(view: ServedView) -> None:
    first = view.get(diff("many"))
    assert first.count('<details class="change"') == FILES_PAGE
    assert first.count('<details class="change" open') == OPEN_FILES
    found = [
        name for page in (1, 2, 3) for name in re.findall(r"file-\d{3}(?=</bdi>)", view.get(diff("many", page=page)))
    ]
    assert found == [f"file-{n:03}" for n in range(120)]
    assert "There are 3 pages of changes, not 4." in view.get(diff("many", page=4), 404)


@pytest.mark.parametrize(
    ("rollout", "sentence"),
    [
        ("nothing", "The agent changed nothing."),
        ("unseen", "Not all was looked at: the folder has more than 100,000 files"),
        ("unseen", "Of what was looked at, the agent changed nothing."),
        ("killed", "the attempt is still running"),
    ],
)  # fmt: skip
def test_nothing_to_show_is_explained(view: ServedView, rollout: str, sentence: str) -> None:
    assert sentence in text_of(view.get(diff(rollout)))


def test_a_rollout_that_was_not_run_has_no_changes_yet(view: ServedView) -> None:
    assert "it has not been run yet" in view.get(diff("waiting"), 404)


def test_the_page_does_not_pretend_to_know_what_was_in_between(view: ServedView) -> None:
    assert "What happened in between is not stored." in text_of(view.get(diff("edited")))


PHONE = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}


@pytest.mark.parametrize("browser_options", [{}, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("form", ["unified", "split"])
def test_the_page_is_accessible_and_fits(view: ServedView, open_page: Pages, form: str) -> None:
    page = open_page(view.url)
    page.goto(f"{view.origin}{diff('edited', form=form, marks=1)}")
    assert axe_violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
