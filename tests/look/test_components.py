"""Every component in a browser, in light, dark, on a phone and on paper.

Pictures are not compared: letters are drawn otherwise by other versions of fonts and browsers, which is more than the
tenth of a percent that would show a mistake. What is asserted is what a reader would miss: nothing overlaps or is cut
off, nothing scrolls sideways, every colour can be read, every target can be hit.
"""

import re
from pathlib import Path

import pytest

from support.browser import Pages, axe_violations
from whet.look.plots.evidence import Evidence, Series, Threshold, draw_evidence
from whet.look.templates import TEMPLATES, make_environment

PAGE = "components_dev.html"
SAMPLES = [
    {"outcome": outcome, "title": f"{outcome}: sample {number}", "address": f"/r/{number}", "here": number == 1}
    for number, outcome in enumerate(("passed", "partial", "failed", "missing"))
]
CELLS = [
    {"mean": 0.5, "title": "50%", "address": "/c/1", "flagged": True},
    {"mean": None, "title": "missing", "address": "", "flagged": False},
]
OVERFLOWS = """() => [...document.querySelectorAll(
    ".verdict, .figure-box, dd, .chip, .cause, .checks li, .rules li, .note, .step, .empty, .error, .check")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.className)"""
OVERLAPS = """() => {
  const found = [];
  for (const row of document.querySelectorAll(".verdict, .checks li, .check summary, .rules li, .step-head, .words")) {
    const boxes = [...row.children].map((child) => child.getBoundingClientRect()).filter((box) => box.width > 1);
    for (const [at, one] of boxes.entries()) for (const other of boxes.slice(at + 1)) {
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (wide > 1 && high > 1) found.push(row.className || row.tagName);
    }
  }
  return found;
}"""
LABELS_OVERLAP = """() => {
  const found = [];
  for (const plot of document.querySelectorAll("svg.plot")) {
    const boxes = [...plot.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    const edge = plot.getBoundingClientRect();
    for (const [at, [words, one]] of boxes.entries()) {
      if (one.width && (one.right > edge.right + 1 || one.left < edge.left - 1)) found.push(`${words} leaves the plot`);
      for (const [others, other] of boxes.slice(at + 1)) {
        const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (wide > 2 && high > 3) found.push(`${words} / ${others}`);
      }
    }
  }
  return found;
}"""
SMALL = """() => [...document.querySelectorAll("button, summary, .dot, a.cell, input, select, .outline a, .tabs a")]
  .filter((box) => box.offsetParent && Math.min(box.offsetWidth, box.offsetHeight) < 24 && box.type !== "checkbox")
  .map((box) => box.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page with an example of each component."""
    series = (
        Series("better: 122", [0, 0.4, 1.0, 1.6, 2.09], "better"),
        Series("lift below 12: 0.08", [0, -0.3, -0.6, -0.9, -1.1], "worse", dashed=True),
    )
    thresholds = (Threshold("certify at 80", 1.9, "better"), Threshold("give up at 5", 0.7, "worse"))
    figure = draw_evidence(Evidence("Exam 1", series, thresholds, "pairs, drawn from 12 tasks", 4))
    environment = make_environment(Path(__file__).parent / "templates")
    html = environment.get_template(PAGE).render(
        href=lambda target: target, samples=SAMPLES, cells=CELLS, figure=figure
    )
    file = tmp_path_factory.mktemp("components") / "components.html"
    file.write_text(html)
    return file.as_uri()


def test_every_component_has_an_example() -> None:
    macros = set(re.findall(r"macro (\w+)\(", (TEMPLATES / "components.html").read_text()))
    shown = set(re.findall(r"\bui\.(\w+)\(", (Path(__file__).parent / "templates" / PAGE).read_text()))
    assert macros - shown == set()


@pytest.mark.parametrize(
    "browser_options", [{"color_scheme": "light"}, {"color_scheme": "dark"}], ids=["light", "dark"]
)
def test_components_can_be_read_and_hit(address: str, open_page: Pages) -> None:
    page = open_page(address)
    assert axe_violations(page) == []
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(LABELS_OVERLAP) == []
    assert page.evaluate(SMALL) == []


@pytest.mark.parametrize("browser_options", [{"viewport": {"width": 390, "height": 844}}], ids=["phone"])
def test_components_fit_on_a_phone_and_at_twice_their_size(address: str, open_page: Pages) -> None:
    page = open_page(address)
    for width in (390, 640, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate(OVERFLOWS) == []
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(LABELS_OVERLAP) == []


@pytest.mark.parametrize("browser_options", [{"color_scheme": "dark", "viewport": {"width": 680, "height": 960}}])
def test_paper_is_light_and_has_no_buttons(address: str, open_page: Pages) -> None:
    page = open_page(address)
    page.emulate_media(media="print")
    colours = "['background-color', 'color'].map((one) => getComputedStyle(document.body).getPropertyValue(one))"
    assert page.evaluate(colours) == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
    assert page.locator("button:visible, .filters:visible, .top:visible").count() == 0
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.verdict.holds')).backgroundColor")
        == "rgb(227, 242, 246)"
    )
    assert page.evaluate("document.documentElement.scrollWidth") == 680
