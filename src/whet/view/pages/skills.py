"""Skills: every run that sharpened, certified or transferred one, and how the skill of a run came to be."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.errors import UserError
from whet.look.numbers import points, points_range
from whet.look.plots.drawing import Figure
from whet.look.plots.intervals import common_scale
from whet.look.plots.scores import ScorePoint, draw_scores
from whet.runs.stats.paired import Difference
from whet.skills.documents.edits import Edit, summary
from whet.skills.documents.history import SHORT, SKILLS, TERMS
from whet.skills.measurement import RunPart
from whet.skills.proposers.base import Proposal
from whet.skills.proposers.driver import read_proposals
from whet.skills.rollouts.terms import CERTIFY_TERMS
from whet.skills.run_folders import RunKind, describe_verdict
from whet.skills.sharpen.run import DRAFTS
from whet.skills.sharpen.transfer import MATRIX
from whet.view import addresses
from whet.view.library import HIDDEN_PARTS, RunEntry
from whet.view.overview import CERTIFIED_KINDS, Overview, describe_use, read_budget
from whet.view.page import Crumb, NotFoundError, Page, PageRequest, PageRoute, Redirect, View
from whet.view.pages.common import command_line
from whet.view.skill_history import Rule, SkillHistory, SkillVersion, VersionState

EMPTY = command_line(
    *("sharpen", "examples/sharpen/short-answers", "examples/sharpen/questions.jsonl", "--agent", "chat"),
    *("--model", "scripted:examples/sharpen/model.toml", "--proposer", "rules:examples/sharpen/rules.txt"),
)
"""Sharpens a skill without a key."""
NOT_APPLIED = "its place is not in the document, or it makes a version that was proposed before"
"""Why an edit is in no version, where the proposal does not say. The reason was shown to the proposer alone."""

UNFINISHED = "The run has not ended. Its exams stay hidden until then, but for their verdicts."


@dataclass(frozen=True, slots=True)
class SkillRun:
    """A run in the list."""

    run: Overview
    skill: str
    versions: int
    address: str


@dataclass(frozen=True, slots=True)
class Node:
    """A version in the lineage."""

    name: str
    digest: str
    address: str
    state: VersionState
    said: str
    effect: str


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A rule, and what is known of it."""

    rule: Rule
    since: SkillVersion
    effect: Difference | None


@dataclass(frozen=True, slots=True)
class DraftEdit:
    """One edit of a proposal."""

    words: str
    why: str
    refused: str
    """Why it is in no version; empty when it is."""


@dataclass(frozen=True, slots=True)
class Draft:
    """One proposal of the writer."""

    number: int
    proposal: Proposal
    edits: Sequence[DraftEdit]
    version: SkillVersion | None
    """The version that it made."""


@dataclass(frozen=True, slots=True)
class HiddenPart:
    """How much a part of a run has done whose rollouts nobody may see yet."""

    name: str
    rollouts: int


def skills_page(view: View, _: PageRequest) -> Page:
    """Every run with a skill that was sharpened, certified or transferred."""
    kinds = (*CERTIFIED_KINDS, RunKind.TRANSFER)
    rows = [_read_skill_run(view, entry) for entry in view.library.entries() if entry.kind in kinds]
    rows.sort(key=lambda row: (not row.run.running, -(row.run.changed or 0.0)))
    return Page("skills.html", "Skills", {"rows": rows, "empty": EMPTY}, section="skills")


def _read_skill_run(view: View, entry: RunEntry) -> SkillRun:
    overview = view.overviews.of(entry)
    versions = len(list((entry.path / SKILLS).glob("*.json"))) or len(list((entry.path / SKILLS).glob("*/")))
    is_transfer = entry.kind is RunKind.TRANSFER
    address = addresses.compare(entry.name) if is_transfer else addresses.lineage(entry.name)
    return SkillRun(overview, _name_skill(view, entry), versions, address)


def _name_skill(view: View, entry: RunEntry) -> str:
    """The name of the skill of a run; empty when the run does not say."""
    keys = {RunKind.SHARPEN: (TERMS, "skill"), RunKind.CERTIFY: (CERTIFY_TERMS, "new")}
    file, key = keys.get(entry.kind, (MATRIX, "skill"))
    try:
        digest = str(json.loads((entry.path / file).read_bytes())[key])
        if entry.kind is RunKind.TRANSFER:
            return view.library.snapshot(entry.name).facts.skills[digest].partition("@")[0]
        return next(path.name.removesuffix(".md") for path in (entry.path / SKILLS / digest).iterdir())
    except (OSError, ValueError, KeyError, StopIteration, UserError):
        return ""


def lineage_page(view: View, request: PageRequest) -> Page | Redirect:
    """How the skill of a run came to be."""
    entry = view.library.entry(request.path["run"])
    if entry.kind is RunKind.TRANSFER:
        return Redirect(addresses.compare(entry.name))
    history = find_history(view, request)
    chosen = history.chosen
    data: dict[str, Any] = {
        "history": history,
        "run": entry.name,
        "tabs": skill_tabs(history),
        "banner": _describe_state(view, history),
        "nodes": [_make_node(history, one) for one in history.versions.values()],
        "chosen": chosen,
        **rule_data(history, chosen),
        "figure": _draw_learning(history),
        "drafts": _read_drafts(history),
        "has_proposer": f"{entry.name}/{RunPart.PROPOSALS}" in entry.parts,
        **_describe_exams(view, history),
    }
    title = f"Versions of {history.skill(history.start).name}"
    return Page("lineage.html", title, data, skill_crumbs(entry), skill_command(history, "log"), "skills")


def find_history(view: View, request: PageRequest) -> SkillHistory:
    """The versions of the run that an address names."""
    entry = view.library.entry(request.path["run"])
    if entry.kind not in CERTIFIED_KINDS or entry.parent is not None:
        raise NotFoundError(
            f"'{entry.name}' has no versions of a skill: only `whet sharpen` and `whet certify` keep them."
        )
    return SkillHistory(view.library, entry)


def skill_crumbs(entry: RunEntry, *more: Crumb) -> tuple[Crumb, ...]:
    """The path of links above a page of a skill."""
    return (Crumb("Skills", addresses.skills()), Crumb(entry.name, addresses.lineage(entry.name)), *more)


def skill_command(history: SkillHistory, verb: str, *versions: SkillVersion) -> str:
    """The command line that shows the same. `whet skill` knows runs of sharpening only."""
    if history.entry.kind is not RunKind.SHARPEN:
        return command_line("show", history.entry.path)
    return command_line("skill", verb, history.entry.path, *(one.digest[:SHORT] for one in versions))


def skill_tabs(history: SkillHistory) -> list[tuple[str, str]]:
    """The pages of the skill of a run."""
    name = history.entry.name
    pages = [("Versions", addresses.lineage(name)), ("Certificate", addresses.certificate(name))]
    return pages if history.is_open else [*pages, ("Report", addresses.report(name))]


def rule_data(history: SkillHistory, one: SkillVersion) -> dict[str, Any]:
    """The rules of a version for its table."""
    lines = [RuleLine(rule, since := history.versions[rule.since], since.effect) for rule in history.rules(one)]
    effects = [line.effect for line in lines if line.effect is not None]
    return {
        "rules": lines,
        "scale": common_scale([bound for effect in effects for bound in (effect.low, effect.high)]),
        "has_removals": any(line.rule.removal is not None for line in lines),
    }


def exam_data(versions: Sequence[SkillVersion]) -> dict[str, Any]:
    """The exams of some versions for their table, in the order in which they were held."""
    exams = [(one, exam) for one in versions for exam in one.version.exams]
    exams.sort(key=lambda pair: (pair[1].margin > 0, pair[1].number))
    bounds = [bound for _, exam in exams for bound in (exam.at_least, exam.at_most)]
    return {"exams": exams, "exam_scale": common_scale(bounds)}


def format_effect(effect: Difference | None) -> str:
    """An effect and its interval, in points; empty when it was not measured."""
    return f"{points(effect.mean)} {points_range(effect.low, effect.high)}" if effect else ""


def _describe_state(view: View, history: SkillHistory) -> Mapping[str, str]:
    certificate = history.certificate
    if certificate is None:
        word = "running" if view.library.is_running(history.entry) else "not finished"
        return {"kind": "undecided", "word": word, "words": UNFINISHED}
    certified = certificate.certified != certificate.start
    return {
        "kind": "holds" if certified else "undecided",
        "word": "certified" if certified else "not certified",
        "words": f"{history.chosen.called}: {describe_verdict(certificate)}.",
    }


def _make_node(history: SkillHistory, one: SkillVersion) -> Node:
    labels = f", {' and '.join(one.labels)}" if one.labels and one.version.parent else ""
    parent = history.numbers.get(one.version.parent or "")
    origin = f", from {parent}" if parent else ""
    address = addresses.version(history.entry.name, one.digest)
    # What was not taken was measured once; its mean and the one to beat say more.
    effect = "" if one.state is VersionState.REJECTED else format_effect(one.effect)
    return Node(one.name, one.digest, address, one.state, f"{one.said}{origin}{labels}", effect)


def _draw_learning(history: SkillHistory) -> Figure | None:
    """The mean of every version on the training tasks; None when none was measured."""
    measured = [one for one in history.versions.values() if one.version.measured is not None]
    if not measured:
        return None
    start = history.versions[history.start].mean
    first = [ScorePoint("v0, start", start.mean, (start.low, start.high), taken=None)] if start else []
    rest = [_make_point(one) for one in measured]
    counted = "version, in the order of measurement"
    return draw_scores("Mean score of each version on the training tasks", [*first, *rest], counted)


def _make_point(one: SkillVersion) -> ScorePoint:
    found = one.version.measured
    assert found is not None
    bounds = (one.mean.low, one.mean.high) if one.mean else None
    return ScorePoint(one.name, max(found.mean, 0.0), bounds, taken=found.accepted, bar=max(found.bar, 0.0))


def _read_drafts(history: SkillHistory) -> list[Draft]:
    """The proposals of the writer, each with the version that it made."""
    left = [one for one in history.versions.values() if one.version.edits]
    drafts = []
    for number, proposal in enumerate(read_proposals(history.entry.path / DRAFTS), 1):
        made = next((one for one in left if _is_made_by(one, proposal)), None)
        if made is not None:
            left.remove(made)
        drafts.append(Draft(number, proposal, list(_show_edits(proposal, made)), made))
    return drafts


def _is_made_by(one: SkillVersion, proposal: Proposal) -> bool:
    return one.version.reason == proposal.reason and all(edit in proposal.edits for edit in one.version.edits)


def _show_edits(proposal: Proposal, made: SkillVersion | None) -> Sequence[DraftEdit]:
    applied: Sequence[Edit] = made.version.edits if made else ()
    refused = [DraftEdit(summary(one.edit), one.edit.reason, one.reason) for one in proposal.refused]
    tried = [DraftEdit(summary(one), one.reason, "" if one in applied else NOT_APPLIED) for one in proposal.edits]
    return [*tried, *refused]


def _describe_exams(view: View, history: SkillHistory) -> dict[str, Any]:
    """What the exams showed, or, while the run is open, how much they have used."""
    entry, certificate = history.entry, history.certificate
    parts = {part: f"{entry.name}/{part}" for part in HIDDEN_PARTS if f"{entry.name}/{part}" in entry.parts}
    if certificate is None:
        hidden = [HiddenPart(str(part), len(view.library.count(name).rows)) for part, name in parts.items()]
        budget = read_budget(entry)
        used = describe_use(budget, [view.library.count(name) for name in entry.stores]) if budget else ""
        return {"hidden": hidden, "budget": used, "exams": [], "test": "", "used": "", "parts_of_run": {}}
    return {
        "hidden": [],
        "budget": "",
        **exam_data(list(history.versions.values())),
        "test": str(certificate.test) if certificate.test else "",
        "used": str(certificate.used) if certificate.used else "",
        "parts_of_run": parts,
    }


ROUTES = (PageRoute("/skills", skills_page), PageRoute("/skills/{run}", lineage_page))
