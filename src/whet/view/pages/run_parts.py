"""A run of sharpening, certifying or transfer: what came of it, and the parts that hold its rollouts."""

from dataclasses import dataclass

from whet.look.numbers import age
from whet.runs.stats.summary import Tally, total
from whet.skills.certificates.certificate import CERTIFICATE, Certificate, read_certificate
from whet.skills.certificates.text import format_verdict
from whet.skills.gate.kinds import GateKind
from whet.skills.measurement import RunPart
from whet.skills.run_folders import describe_verdict
from whet.view import addresses
from whet.view.library import RunEntry
from whet.view.overview import CERTIFIED_KINDS, describe_use, missing_by_cause, read_budget
from whet.view.page import Part, View
from whet.view.pages.run_figures import format_cost
from whet.view.pages.run_state import RunState, State
from whet.view.snapshot import Snapshot

ORDER = tuple(map(str, RunPart))
"""Parts in the order in which they are run."""


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part of a run, in a line. Of a hidden part only what it has used is said."""

    name: str
    address: str
    running: bool
    hidden: bool
    done: int
    planned: int
    missing: tuple[tuple[str, int], ...]
    cost: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a certificate says."""

    kind: str
    """Of the banner."""
    word: str
    sentence: str


def group_parts(view: View, entry: RunEntry) -> list[Part]:
    """What changes on the page of a run whose rollouts are in parts."""
    counted = [(view.library.entry(name), view.library.count(name)) for name in entry.parts]
    counted.sort(key=lambda one: ORDER.index(one[0].path.name) if one[0].path.name in ORDER else -1)
    file = entry.path / CERTIFICATE
    certificate = read_certificate(file) if entry.kind in CERTIFIED_KINDS and file.is_file() else None
    return [
        _state_part(view, entry, counted, certificate),
        Part("run-verdict", "run_verdict.html", {"verdict": describe(certificate) if certificate else None}),
        Part("run-parts", "run_parts.html", {"rows": [_make_row(*one) for one in counted], "kind": entry.kind}),
    ]


def hidden_parts(view: View, entry: RunEntry) -> list[Part]:
    """The page of a part that nobody may read yet: how many rollouts it has, and what they cost."""
    row = _make_row(entry, view.library.count(entry.name))
    data = {"row": row, "parent": entry.parent, "parent_address": addresses.run(entry.parent or "")}
    return [Part("run-hidden", "run_hidden.html", data)]


def describe(certificate: Certificate) -> Verdict:
    """The verdict of a certificate, in the words of `whet show`."""
    last = certificate.last_certified
    tasks = len(certificate.tasks)
    if last is not None:
        return Verdict("holds", *_split(format_verdict(last, tasks)))
    if certificate.gate is GateKind.CERTIFY and certificate.records:
        return Verdict("undecided", "not certified", f"{format_verdict(certificate.records[-1], tasks)}.")
    return Verdict("undecided", *_split(describe_verdict(certificate)))


def _split(told: str) -> tuple[str, str]:
    """
    >>> _split("certified: on these 19 tasks the new skill is better"), _split("nothing certified")
    (('certified', 'on these 19 tasks the new skill is better.'), ('nothing certified', ''))
    """
    word, _, sentence = told.partition(": ")
    return word, f"{sentence}." if sentence else ""


def _state_part(
    view: View, entry: RunEntry, counted: list[tuple[RunEntry, Snapshot]], certificate: Certificate | None
) -> Part:
    parts = [part for _, part in counted]
    whole, budget = total(part.whole for part in parts), read_budget(entry)
    state = _find_state(entry, parts, whole, certificate)
    about = [str(entry.kind), *([describe_use(budget, parts)] if budget else [])]
    about += [f"cost {format_cost(whole, running=state.state is State.RUNNING)}"]
    ago = age(view.now() - state.since) if state.since is not None else ""
    data = {"state": state, "ago": ago, "about": about, "origin": None, "resume": "", "was_hidden": False}
    return Part("run-state", "run_state.html", data)


def _find_state(entry: RunEntry, parts: list[Snapshot], whole: Tally, certificate: Certificate | None) -> RunState:
    if any(part.running for part in parts):
        started = [at for part in parts if (at := part.facts.opened or part.started) is not None]
        return RunState(State.RUNNING, min(started, default=None))
    last = max((at for part in parts if (at := part.last_change) is not None), default=None)
    done = certificate is not None if entry.kind in CERTIFIED_KINDS else not whole.not_run
    if done:
        return RunState(State.ENDED, last)
    again = "Run the same command again with --resume to continue it."
    return RunState(State.STOPPED, last, (f"this run has not finished. {again}",))


def _make_row(entry: RunEntry, part: Snapshot) -> PartRow:
    whole = part.whole
    return PartRow(
        name=entry.path.name,
        address=addresses.run(entry.name),
        running=part.running,
        hidden=entry.hidden,
        done=whole.planned - whole.not_run,
        planned=whole.planned,
        missing=missing_by_cause(whole),
        cost=format_cost(whole, running=part.running),
    )
