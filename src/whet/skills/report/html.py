"""The report as one HTML page, made of the components that the pages of the view are made of. It loads nothing, and
has no script."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

from whet.look.numbers import UNKNOWN, price, thousands
from whet.look.templates import make_environment
from whet.skills.certificates.certificate import Certificate
from whet.skills.report.data import Cost
from whet.skills.report.exams import describe_exams, describe_tasks, describe_test
from whet.skills.report.model import Report

CONTENTS = (
    ("Held-out test", "test"),
    ("Certificate", "certificate"),
    ("What changed", "changes"),
    ("How it was found", "search"),
    ("Cost", "cost"),
    ("Words", "words"),
)
"""The parts of a report and their places."""


def render_page(report: Report, certificate: Certificate) -> str:
    """The whole page."""
    environment = make_environment()
    style = environment.get_template("report_styles.css").render()
    data = page_data(report, certificate)
    return environment.get_template("report_page.html").render(
        **data, style_digest=_digest(f"\n{style}\n"), href=lambda _: None
    )


def page_data(report: Report, certificate: Certificate) -> Mapping[str, Any]:
    """What the templates of a report show."""
    exams = describe_exams(certificate, report.versions)
    return {
        "report": report,
        "contents": [part for part in CONTENTS if report.search or part[1] not in {"test", "search"}],
        "rules": [{**one.model_dump(), "why": "", "effect": ""} for one in report.rules],
        "total": _add_up(report.costs),
        "certificate": certificate,
        "exams": exams,
        "last": exams[len(certificate.records) - 1] if certificate.records else None,
        "tasks": describe_tasks(certificate),
        "test": describe_test(certificate),
    }


def _add_up(costs: Sequence[Cost]) -> Mapping[str, Any]:
    """What the run used. What is unknown of one part is unknown of all."""
    dollars, tokens = ([getattr(one, name) for one in costs] for name in ("dollars", "tokens"))
    return {
        "rollouts": sum(one.rollouts for one in costs),
        "tokens": UNKNOWN if None in tokens else thousands(sum(tokens)),
        "price": price(None if None in dollars else fsum(dollars)),
    }


def _digest(style: str) -> str:
    """What the policy of the page allows: this style sheet, and no other."""
    return base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
