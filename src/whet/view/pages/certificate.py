"""A certificate, computed again before the reader's eyes: that of a run, or of any file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.datastructures import UploadFile

from whet.errors import UserError
from whet.look.numbers import plural
from whet.skills.certificates.certificate import (
    CERTIFICATE,
    Certificate,
    parse_certificate,
    read_certificate,
)
from whet.skills.certificates.checks.arithmetic import check_arithmetic
from whet.skills.certificates.checks.check import CheckResult
from whet.skills.certificates.checks.folder import find_folder, read_journal
from whet.skills.certificates.conclusion import ALONE, Conclusion, Standing, conclude, format_claim
from whet.skills.certificates.text import SCOPE, TROUBLES, describe_setup, format_alpha
from whet.skills.documents.history import SKILLS, Versions
from whet.skills.documents.store import SkillStore
from whet.skills.gate.kinds import GateKind
from whet.skills.measurement import RolloutKey, RunPart, Side
from whet.skills.report.exams import describe_test
from whet.skills.report.model import DATA
from whet.skills.run_folders import RunKind
from whet.view import addresses
from whet.view.library import RunEntry
from whet.view.overview import CERTIFIED_KINDS
from whet.view.page import Action, Crumb, Download, NotFoundError, Page, PageRequest, PageRoute, View
from whet.view.pages.certificate_exams import make_sections
from whet.view.pages.common import command_line
from whet.view.proofs import show_checks

MOST_CALLS = 2_000
"""Model calls that are read without asking. Reading takes about a millisecond each."""
MOST_PAIRS = 20_000
"""Pairs of a file from anywhere. More are a matter for the command line."""


@dataclass(frozen=True, slots=True)
class Banner:
    """What a reader takes away."""

    kind: str
    word: str
    sentence: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BegunExam:
    """An exam that has no verdict yet."""

    number: int
    old: str
    new: str
    pairs: int
    """Pairs of which both rollouts have ended."""
    rollouts: int
    missing: int


def certificate_page(view: View, request: PageRequest) -> Page:
    """The certificate of a run, with everything that can be checked in its folder."""
    entry = _find_run(view, request)
    file = entry.path / CERTIFICATE
    if not file.is_file():
        return _page_without(view, entry)
    certificate, folder = read_certificate(file), find_folder(file)
    found, left = _check(view, entry, certificate, folder, ask=not request.query.get("check"))
    names = _name_versions(entry)
    data = {
        **_certificate_data(certificate, found, names, has_folder=folder is not None and not left),
        "run": entry.name,
        "sections": make_sections(certificate, names, request.query, entry.name),
        "left": left,
        "report": (entry.path / DATA).is_file(),
    }
    title = f"Certificate of {_skill_name(entry, certificate) or entry.name}"
    return _make_page(title, data, entry)


def download_certificate(view: View, request: PageRequest) -> Download:
    """The certificate of a run as a file."""
    file = _find_run(view, request).path / CERTIFICATE
    if not file.is_file():
        raise NotFoundError("The run has no certificate yet.")
    return Download(file.read_bytes(), CERTIFICATE, "application/json")


def upload_page(_: View, __: PageRequest) -> Page:
    """The form that takes a certificate from anywhere."""
    crumbs = (Crumb("Skills", addresses.skills()), Crumb("Certificate"))
    return Page("certificate_upload.html", "Check a certificate", {"alone": ALONE}, crumbs, section="skills")


def check_upload(_: View, request: PageRequest) -> Page:
    """A certificate from a file that the reader chose. It is read in memory and not kept."""
    given = request.form.get("file") if request.form else None
    if not isinstance(given, UploadFile) or not given.filename:
        raise UserError("no file was chosen; choose a certificate.json")
    certificate = parse_certificate(given.file.read(), Path(given.filename).name)
    pairs = sum(len(record.positions) for record in certificate.all_records)
    if pairs > MOST_PAIRS:
        raise UserError(f"{given.filename}: has {pairs:,} pairs; check it with `whet certify --check`")
    data = {
        **_certificate_data(certificate, check_arithmetic(certificate), {}, has_folder=False),
        "run": None,
        "sections": make_sections(certificate, {}, request.query, run=None),
        "left": 0,
        "report": False,
    }
    crumbs = (
        Crumb("Skills", addresses.skills()),
        Crumb("Certificate", addresses.any_certificate()),
        Crumb(given.filename),
    )
    command = command_line("certify", "--check", Path(given.filename).name)
    return Page("certificate.html", f"Certificate {Path(given.filename).name}", data, crumbs, command, section="skills")


def _find_run(view: View, request: PageRequest) -> RunEntry:
    entry = view.library.entry(request.path["run"])
    if entry.kind not in CERTIFIED_KINDS or entry.parent is not None:
        raise NotFoundError(f"'{entry.name}' has no certificate: only `whet sharpen` and `whet certify` make one.")
    return entry


def _check(
    view: View, entry: RunEntry, certificate: Certificate, folder: Path | None, *, ask: bool
) -> tuple[list[CheckResult], int]:
    """The checks, and how many model calls of the folder were left unread."""
    if folder is None:
        return check_arithmetic(certificate), 0
    known = view.proofs.find(folder)
    calls = 0 if known or view.exporting or not ask else _count_calls(view, entry)
    if calls > MOST_CALLS:
        return check_arithmetic(certificate), calls
    return known or view.proofs.make(certificate, folder), 0


def _count_calls(view: View, entry: RunEntry) -> int:
    parts = [name for name in entry.parts if name.rpartition("/")[2] in (RunPart.EXAM, RunPart.TEST)]
    try:
        return sum(row.calls for name in parts for row in view.library.count(name).rows)
    except UserError:
        return 0  # the checks say what is wrong with the store


def _certificate_data(
    certificate: Certificate, found: Sequence[CheckResult], names: Mapping[str, str], *, has_folder: bool
) -> dict[str, Any]:
    conclusion = conclude(found, has_folder=has_folder)
    return {
        "certificate": certificate,
        "banner": make_banner(certificate, conclusion),
        "checks": show_checks(found),
        "names": names,
        "last": certificate.last_certified or (certificate.records[-1] if certificate.records else None),
        "test": describe_test(certificate),
        "setup": describe_setup(certificate),
        "scope": SCOPE,
        "troubles": _list_troubles(certificate),
        "about_troubles": TROUBLES,
    }


def make_banner(certificate: Certificate, conclusion: Conclusion) -> Banner:
    """The verdict about a certificate, in the words of `whet certify --check`."""
    claim, told = _sentence(format_claim(certificate)), _sentence(conclusion.sentence)
    scores = 2 * sum(len(record.positions) for record in certificate.all_records)
    again = f"Computed again for this page from {plural(scores, 'score', 'scores')}, not read from the file."
    if certificate.gate is not GateKind.CERTIFY:
        none = f"The rule '{certificate.gate}' decided in this run, and it proves nothing."
        return Banner("undecided", "no certificate", none, (told,))
    if conclusion.standing is Standing.FAILS:
        return Banner("fails", "does not hold", told, (f"It claims: {claim[0].lower()}{claim[1:]}",))
    last = certificate.last_certified
    notes = (told, *([format_alpha(certificate, last.terms)] if last else ()), again)
    if last is None:
        return Banner("undecided", "nothing certified", claim, notes)
    kind = "holds" if conclusion.standing is Standing.HOLDS else "undecided"
    return Banner(kind, conclusion.standing, claim, notes)


def _sentence(words: str) -> str:
    """
    >>> _sentence("holds; all 19 checks passed")
    'Holds; all 19 checks passed.'
    """
    return f"{words[0].upper()}{words[1:]}" + ("" if words.endswith(".") else ".")


def _list_troubles(certificate: Certificate) -> list[tuple[str, str, Any]]:
    """Exam, skill and problems of every arm that had any."""
    return [
        (str(record.number), name, arm)
        for record in certificate.all_records
        for name, arm in (("old", record.findings.incumbent), ("new", record.findings.candidate))
        if arm.lost or arm.redone or arm.resent
    ]


def _page_without(view: View, entry: RunEntry) -> Page:
    """A run without a verdict: how far its exams are, and nothing that could be taken for one. Tasks and scores of the
    exam stay hidden."""
    running = view.library.is_running(entry)
    data = {"run": entry.name, "running": running, "exams": list_begun(view, entry), "names": _name_versions(entry)}
    return _make_page(f"Certificate of {entry.name}", data, entry, "certificate_open.html")


def list_begun(view: View, entry: RunEntry) -> list[BegunExam]:
    """The exams that have begun."""
    name = f"{entry.name}/{RunPart.EXAM}"
    if name not in entry.parts:
        return []
    rows = view.library.count(name).by_id
    found = []
    for line in read_journal(entry.path) or ():
        skills = str(line["incumbent"]), str(line["candidate"])
        sides = list(zip((Side.INCUMBENT, Side.CANDIDATE), skills, strict=True))
        ended: list[bool] = []
        missing = begun = 0
        while True:
            ids = [RolloutKey.exam(str(line["exam"]), len(ended), side, skill).rollout_id for side, skill in sides]
            pair = [rows[one] for one in ids if one in rows]
            if not pair:
                break
            begun += len(pair)
            missing += sum(row.attempt is not None and row.value is None for row in pair)
            ended.append(len(pair) == len(ids) and all(row.attempt is not None for row in pair))
        found.append(BegunExam(int(line["attempt"]), *skills, sum(ended), begun, missing))
    return found


def _name_versions(entry: RunEntry) -> Mapping[str, str]:
    """What people call the versions of a run."""
    try:
        if entry.kind is RunKind.SHARPEN:
            return Versions(entry.path).numbers
        begun = read_journal(entry.path)
        return {str(begun[0]["incumbent"]): "old", str(begun[0]["candidate"]): "new"} if begun else {}
    except UserError:
        return {}


def _skill_name(entry: RunEntry, certificate: Certificate) -> str:
    try:
        return SkillStore(entry.path / SKILLS).get(certificate.certified).name
    except (UserError, OSError, ValueError):
        return ""


def _make_page(title: str, data: Mapping[str, Any], entry: RunEntry, template: str = "certificate.html") -> Page:
    crumbs = (
        Crumb("Skills", addresses.skills()),
        Crumb(entry.name, addresses.lineage(entry.name)),
        Crumb("Certificate"),
    )
    command = command_line("certify", "--check", entry.path)
    return Page(template, title, data, crumbs, command, section="skills")


ROUTES = (
    PageRoute("/skills/{run}/certificate", certificate_page),
    PageRoute("/skills/{run}/certificate.json", download_certificate),
    PageRoute("/certificate", upload_page),
)
ACTIONS = (Action("/certificate", check_upload, writes=False),)
