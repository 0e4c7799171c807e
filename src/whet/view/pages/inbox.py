"""The inbox: what `whet sleep` proposes, why, and what proves it. With `write`, a reader decides here."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from whet.errors import UserError
from whet.skills.adoption.files import read_place
from whet.skills.adoption.transaction import Adoptions, Change
from whet.skills.certificates.certificate import read_certificate
from whet.skills.certificates.checks.all_checks import checks
from whet.skills.certificates.checks.check import CheckResult, CheckState
from whet.skills.certificates.checks.folder import find_folder
from whet.skills.run_folders import describe_verdict
from whet.sleep.report import CONSTRAINTS, NightRecord
from whet.sleep.review.adopt import adopt_proposal, roll_back
from whet.sleep.staging import (
    Evidence,
    Proposal,
    Rejection,
    State,
    diff_lines,
    find_proposal,
    list_proposals,
    read_changes,
    reject,
)
from whet.sleep.store import FILE, SleepStore, sleep_folder
from whet.view import addresses
from whet.view.page import Action, Crumb, NotFoundError, Page, PageRequest, PageRoute, Redirect, View

MOST_NIGHTS = 30
"""Nights that are listed, the last ones."""
EVIDENCE = {
    Evidence.COMMAND: "a command that failed before a session's work and passed after it",
    Evidence.COMMIT: "the tests of the commit that a session became",
    Evidence.CORRECTION: "your correction, with a check that fails before it and passes after it",
    Evidence.RUBRIC: "the opinion of a model, which never certifies alone",
    Evidence.EXPIRY: "no session needed the rule for a long time",
    Evidence.UNDO: "an adopted proposal that you take back",
}
"""What a proposal rests on, in words."""
STATES = {CheckState.OK: "holds", CheckState.FAILED: "fails", CheckState.NOT_CHECKED: "unchecked"}
"""How the table of checks calls the states."""


@dataclass(frozen=True, slots=True)
class FileDiff:
    """What a proposal changes in one file, and whether that file is still as it was."""

    name: str
    path: str
    diff: str
    conflict: str
    """Why it cannot be written as it is; empty when it can."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What adopting a proposal wrote."""

    at: datetime
    files: Sequence[tuple[str, str, str]]
    """Each file, with the digests of its content before and after."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The certificate of a proposal, computed again."""

    verdict: str
    rows: Sequence[Mapping[str, str]]
    """One line of the table of checks each."""
    problem: str = ""
    """Why it cannot be read."""


def inbox_page(view: View, _: PageRequest) -> Page:
    """All proposals, those that wait for a decision first, and the last nights."""
    with _open_store(view) as store:
        proposals = list_proposals(store) if store else []
        nights = store.list("night", NightRecord) if store else []
    nights.sort(key=lambda one: one.started, reverse=True)
    data = {
        "waiting": [one for one in proposals if one.state is State.STAGED],
        "decided": [one for one in proposals if one.state is not State.STAGED][::-1],
        "nights": [(one, explain_night(one)) for one in nights[:MOST_NIGHTS]],
    }
    return Page("inbox.html", "Inbox", data, command="whet sleep status", section="inbox")


def proposal_page(view: View, request: PageRequest) -> Page:
    """One proposal: what it changes, why, and what proves it."""
    with _open_store(view) as store:
        proposal = _find(store, request.path["proposal"])
        assert store is not None
        files = [_file_diff(change, proposal) for change in read_changes(store, proposal)]
        night = next((one for one in store.list("night", NightRecord) if one.id == proposal.night), None)
        rejection = next((one for one in store.list("rejection", Rejection) if one.proposal == proposal.id), None)
        receipt = _find_receipt(store, proposal)
    data = {
        "proposal": proposal,
        "files": files,
        "conflict": any(one.conflict for one in files),
        "proof": _prove(proposal.certificate) if proposal.certificate else None,
        "basis": EVIDENCE[proposal.evidence],
        "receipt": receipt,
        "rejection": rejection,
        "night": night,
    }
    crumbs = (Crumb("Inbox", addresses.inbox()), Crumb(proposal.name))
    command = f"whet sleep show {proposal.id}"
    return Page("proposal.html", proposal.name.capitalize(), data, crumbs, command, section="inbox")


def explain_night(night: NightRecord) -> str:
    """What came of a night, in a sentence."""
    if night.ended is None:
        return "It has not ended."
    if night.proposals:
        return f"It made {'proposal' if len(night.proposals) == 1 else 'proposals'} {', '.join(night.proposals)}."
    detail = f" ({night.detail})" if night.detail else ""
    return f"It proposed nothing: {CONSTRAINTS.get(night.outcome, str(night.outcome))}{detail}."


def adopt(view: View, request: PageRequest) -> Redirect:
    """Write a proposal into the files that the reader ticked, all or none."""
    chosen = [str(name) for name in request.form.getlist("target")] if request.form else []
    if not chosen:
        raise UserError("no file is ticked; tick the files that the proposal may change")
    with _open_store(view) as store:
        name = _find(store, request.path["proposal"]).id
        assert store is not None
        adopt_proposal(store, name, chosen)
    return Redirect(addresses.proposal(name))


def reject_with_reason(view: View, request: PageRequest) -> Redirect:
    """Reject a proposal for the reason that the reader gives."""
    because = str(request.form.get("because", "")).strip() if request.form else ""
    if not because:
        raise UserError("the reason is empty; say why, so that the rule is not proposed again without cause")
    with _open_store(view) as store:
        name = _find(store, request.path["proposal"]).id
        assert store is not None
        reject(store, name, because, datetime.now(UTC))
    return Redirect(addresses.proposal(name))


def take_back(view: View, request: PageRequest) -> Redirect:
    """Restore the files as they were before a proposal was adopted."""
    with _open_store(view) as store:
        name = _find(store, request.path["proposal"]).id
        assert store is not None
        roll_back(store, name, datetime.now(UTC))
    return Redirect(addresses.proposal(name))


def count_waiting(view: View) -> int:
    """Proposals that wait for a decision."""
    with _open_store(view) as store:
        return sum(one.state is State.STAGED for one in list_proposals(store)) if store else 0


@contextmanager
def _open_store(view: View) -> Iterator[SleepStore | None]:
    """The store of `whet sleep`; None when there is none. Looking at it must not make one."""
    folder = view.options.sleep_store or sleep_folder(os.environ)
    if not (folder / FILE).is_file():
        yield None
        return
    with SleepStore(folder) as store:
        yield store


def _find(store: SleepStore | None, name: str) -> Proposal:
    if store is None:
        raise NotFoundError("There are no proposals. `whet sleep run` makes them.")
    try:
        return find_proposal(store, name)
    except UserError as error:
        raise NotFoundError(str(error)) from error


def _file_diff(change: Change, proposal: Proposal) -> FileDiff:
    text = "\n".join(diff_lines([change]))
    return FileDiff(change.place.shown, str(change.place.named), text, _find_conflict(change, proposal))


def _find_receipt(store: SleepStore, proposal: Proposal) -> Receipt | None:
    entry = Adoptions(store.folder).adopted().get(proposal.name)
    if entry is None:
        return None
    none = "no file"
    return Receipt(entry.at, [(one.place.shown, one.before or none, one.after or none) for one in entry.files])


def _find_conflict(change: Change, proposal: Proposal) -> str:
    if proposal.state not in (State.STAGED, State.REJECTED):
        return ""
    try:
        now = read_place(change.place)
    except UserError as error:
        return str(error)
    if now == change.before:
        return ""
    return "the file was deleted" if now is None else "the file changed since the proposal was made"


def _prove(certificate: Path) -> Proof:
    try:
        read = read_certificate(certificate)
        found = checks(read, find_folder(certificate), os.environ)
        return Proof(describe_verdict(read), [_check_row(one) for one in found])
    except UserError as error:
        return Proof("", (), str(error))


def _check_row(one: CheckResult) -> dict[str, str]:
    return {"what": one.name, "claimed": one.found, "computed": one.found, "state": STATES[one.state]}


ROUTES = (PageRoute("/inbox", inbox_page), PageRoute("/inbox/{proposal}", proposal_page))
ACTIONS = (
    Action("/inbox/{proposal}/adopt", adopt),
    Action("/inbox/{proposal}/reject", reject_with_reason),
    Action("/inbox/{proposal}/rollback", take_back),
)
