"""The help page lists the keys that the script of the pages has, no more and no fewer."""

import re
from pathlib import Path

import pytest

from support.view_server import serve_view
from whet.view.pages.help import KEYS, TRACE
from whet.view.render import STYLES, TEMPLATES

NATIVE = {"Enter"}
"""What browsers do by themselves with a link that has the focus."""
NAMES = {" ": "Space", "ArrowLeft": "←", "ArrowRight": "→"}


def keys_of_the_script() -> set[str]:
    """Every key that `view.js` compares or lists, and those that elements of pages have."""
    script = (STYLES / "view.js").read_text()
    compared = re.findall(r'key === "([^"]+)"', script)
    (places,) = re.findall(r"const places = \{(.*?)\};", script, re.DOTALL)
    (steps,) = re.findall(r"const traceKeys = \{(.*?)\n\};", script, re.DOTALL)
    listed = [*re.findall(r'"(g \w|\?)":', places), *re.findall(r'^  "?([^":\s]+)"?:', steps, re.MULTILINE)]
    pages = " ".join(path.read_text() for path in sorted(TEMPLATES.glob("*.html")))
    given = re.findall(r'data-key="([^"{]+)"', pages)
    layers = list("123456") if 'data-key="{{ loop.index }}"' in pages else []
    return {NAMES.get(key, key) for key in (*compared, *listed, *given, *layers)} - {"g"}


def test_help_and_script_have_the_same_keys() -> None:
    listed = {key for _, group in KEYS for one in group for key in one.keys}
    assert listed - NATIVE == keys_of_the_script()


def test_no_key_has_two_meanings_on_a_trace() -> None:
    keys = [key for one in TRACE for key in one.keys]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("write", [False, True])
def test_help_says_what_a_reader_may_do(tmp_path: Path, *, write: bool) -> None:
    (tmp_path / "runs").mkdir()
    with serve_view(tmp_path / "runs", write=write) as view:
        page = view.get("/help")
    assert ("This view is read-only" in page) != write
    for _, group in KEYS:
        for one in group:
            assert one.meaning.replace("'", "&#39;") in page
