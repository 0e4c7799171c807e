"""The files of a report in its run folder: Markdown with plots, data, and one HTML page."""

from pathlib import Path

from whet.skills.certificates.certificate import Certificate
from whet.skills.report.data import read_costs, read_report_data
from whet.skills.report.html import render_page
from whet.skills.report.model import DATA, Report, describe_certification, describe_sharpening
from whet.skills.report.plots import draw_files
from whet.skills.report.text import PLOTS, report
from whet.skills.results import SharpenResult

MARKDOWN, PAGE = "report.md", "report.html"


def write_report(outcome: SharpenResult) -> None:
    """Write the report of a sharpen run."""
    folder, figures = outcome.folder, read_report_data(outcome.folder, outcome.done)
    text, shown = report(outcome, figures)
    (folder / PLOTS).mkdir(exist_ok=True)
    for name, svg in draw_files(shown).items():
        (folder / PLOTS / f"{name}.svg").write_text(svg, encoding="utf-8")
    (folder / MARKDOWN).write_text(text, encoding="utf-8")
    _write_page(describe_sharpening(outcome, figures), outcome.certificate, folder)


def write_certify_report(certificate: Certificate, folder: Path) -> None:
    """Write the report of a certify run, which is one page."""
    _write_page(describe_certification(certificate, folder, tuple(read_costs(folder))), certificate, folder)


def _write_page(made: Report, certificate: Certificate, folder: Path) -> None:
    (folder / DATA).write_text(made.model_dump_json(indent=1) + "\n", encoding="utf-8")
    (folder / PAGE).write_text(render_page(made, certificate), encoding="utf-8")
