"""One version of a skill, and the difference between two: by rule first, by line second."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from whet.errors import UserError
from whet.look.numbers import plural
from whet.skill import Skill, front_matter
from whet.skills.documents.edits import summary
from whet.skills.documents.history import SHORT
from whet.skills.documents.rule_diff import RuleChange, compare_rules
from whet.skills.documents.store import differences, editable
from whet.view import addresses
from whet.view.page import Crumb, NotFoundError, Page, PageRequest, PageRoute, Redirect, View
from whet.view.pages.skills import (
    exam_data,
    find_history,
    format_effect,
    rule_data,
    skill_command,
    skill_crumbs,
    skill_tabs,
)
from whet.view.skill_history import SkillHistory, SkillVersion

MOST_FILES = 200
"""Other files of a skill that are listed."""


@dataclass(frozen=True, slots=True)
class DiffRule:
    """A rule that differs, as the component shows it."""

    document: str
    change: RuleChange
    old: str
    new: str
    why: str
    effect: str


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a skill. Its front matter is not Markdown."""

    name: str
    front_matter: str
    body: str
    text: str


def version_page(view: View, request: PageRequest) -> Page | Redirect:
    """One version: its text, what it changed, and how it did."""
    history = find_history(view, request)
    name = request.path["version"]
    one = _find(history, name)
    if name != one.digest:
        return Redirect(addresses.version(history.entry.name, one.digest))
    skill = history.skill(one.digest)
    parent = history.versions.get(one.version.parent or "")
    data: dict[str, Any] = {
        "history": history,
        "run": history.entry.name,
        "tabs": skill_tabs(history),
        "one": one,
        "parent": parent,
        "effect": one.effect,
        "edits": [(summary(edit), edit.reason) for edit in one.version.edits],
        "documents": [_show_document(name, text) for name, text in editable(skill).items()],
        "files": _list_files(skill),
        **rule_data(history, one),
        **exam_data([one]),
    }
    command = skill_command(history, "show", one)
    crumbs = skill_crumbs(history.entry, Crumb(one.name))
    return Page("skill_version.html", f"{skill.name} {one.name}", data, crumbs, command, section="skills")


def diff_page(view: View, request: PageRequest) -> Page:
    """What differs between two versions. By default the first one and the one that the run is about."""
    history = find_history(view, request)
    old = _find(history, request.query.get("a") or history.start)
    new = _find(history, request.query.get("b") or history.chosen.digest)
    before, after = history.skill(old.digest), history.skill(new.digest)
    lines = list(differences(before, after))
    options = [(one.digest, _describe(one)) for one in history.versions.values()]
    data: dict[str, Any] = {
        "run": history.entry.name,
        "tabs": skill_tabs(history),
        "old": old,
        "new": new,
        "rules": list(_compare(history, old, new, before, after)),
        "diff": "\n".join(lines),
        "fields": [
            {"name": "a", "label": "from", "value": old.digest, "options": options},
            {"name": "b", "label": "to", "value": new.digest, "options": options},
        ],
    }
    crumbs = skill_crumbs(history.entry, Crumb(f"{old.name} → {new.name}"))
    command = skill_command(history, "diff", old, new)
    return Page("skill_diff.html", f"{old.name} → {new.name}", data, crumbs, command, section="skills")


def _find(history: SkillHistory, name: str) -> SkillVersion:
    try:
        return history.find(name)
    except UserError as error:
        raise NotFoundError(str(error)) from error


def _describe(one: SkillVersion) -> str:
    return " ".join([one.name, *(f"({label})" for label in one.labels), one.digest[:SHORT]])


def _show_document(name: str, text: str) -> Document:
    head = front_matter(text)
    return Document(name, head, text[len(head) :], text)


def _list_files(skill: Skill) -> Sequence[str]:
    """The other files of a skill, by name."""
    if skill.is_memory:
        return []
    shown = set(editable(skill))
    names = (str(file.relative_to(skill.folder)) for file in sorted(skill.folder.rglob("*")) if file.is_file())
    return [name for name in names if name not in shown][:MOST_FILES]


def _compare(
    history: SkillHistory, old: SkillVersion, new: SkillVersion, before: Skill, after: Skill
) -> Iterator[DiffRule]:
    """The rules that differ. One that was added has the reason and the effect of the version in which it came; one that
    was removed, those of the version in which it went."""
    first, second = editable(before), editable(after)
    came = {(rule.document, rule.text): rule for rule in history.rules(new)}
    for document in dict.fromkeys([*first, *second]):
        for one in compare_rules(first.get(document, ""), second.get(document, "")):
            if one.change is RuleChange.KEPT:
                continue
            rule = came.get((document, one.new))
            source, others = (history.versions[rule.since], rule.others) if rule else (new, 0)
            known = one.change is not RuleChange.MOVED and source.version.parent is not None
            known = known and (rule is not None or new.version.parent == old.digest)
            why = _explain(source, one.new or one.old) if known else ""
            effect = _tell_effect(source, others) if known else ""
            yield DiffRule(document, one.change, one.old, one.new, why, effect)


def _explain(source: SkillVersion, text: str) -> str:
    """Why a rule was written: the reason of its edit, or that of its proposal."""
    reasons = [edit.reason for edit in source.version.edits if edit.reason and text in (edit.text, edit.anchor)]
    return next(iter(reasons), source.version.reason)


def _tell_effect(source: SkillVersion, others: int) -> str:
    effect = format_effect(source.effect)
    if not effect:
        return ""
    together = f", with {plural(others, 'other change', 'other changes')}" if others else ""
    return f"{source.name}{together}: {effect} points on training tasks, against its parent"


ROUTES = (
    PageRoute("/skills/{run}/versions/{version}", version_page),
    PageRoute("/skills/{run}/diff", diff_page),
)
