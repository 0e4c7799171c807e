"""The report of a run of sharpening or certifying, as its folder holds it in report.html too."""

from whet.skills.certificates.certificate import CERTIFICATE, read_certificate
from whet.skills.report.html import page_data
from whet.skills.report.model import read_report
from whet.view.overview import CERTIFIED_KINDS
from whet.view.page import Crumb, NotFoundError, Page, PageRequest, PageRoute, View
from whet.view.pages.common import command_line, run_crumbs


def report_page(view: View, request: PageRequest) -> Page:
    """The report of a run."""
    entry = view.library.entry(request.path["run"])
    if entry.kind not in CERTIFIED_KINDS or entry.parent is not None:
        raise NotFoundError(f"'{entry.name}' has no report: only `whet sharpen` and `whet certify` write one.")
    crumbs, command = run_crumbs(entry, Crumb("Report")), command_line("show", entry.path)
    report = read_report(entry.path)
    if report is None or not (entry.path / CERTIFICATE).is_file():
        data = {"run": entry.name, "running": view.library.is_running(entry), "kind": entry.kind}
        return Page("report_open.html", f"Report of {entry.name}", data, crumbs, command)
    data = {**page_data(report, read_certificate(entry.path / CERTIFICATE)), "run": entry.name}
    return Page("report.html", report.title, data, crumbs, command)


ROUTES = (PageRoute("/runs/{run}/report", report_page),)
