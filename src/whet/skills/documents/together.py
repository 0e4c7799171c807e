"""Edits of several documents at once: each names the one that it is for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from whet.skills.documents.edits import Edit, Refused, apply
from whet.skills.documents.policy import Policy


@dataclass(frozen=True, slots=True)
class Together:
    """Documents after edits."""

    texts: Mapping[str, str]
    applied: tuple[Edit, ...]
    refused: tuple[Refused, ...]


def apply_together(texts: Mapping[str, str], edits: Iterable[Edit], policy: Policy) -> Together:
    """Apply edits one after the other, each to its document. An edit that names none is for the first.

    >>> rule = Edit(op="add", text="- Be brief.", document="AGENTS.md")
    >>> apply_together({"SKILL.md": "# A\\n", "AGENTS.md": ""}, [rule], Policy()).texts
    {'SKILL.md': '# A\\n', 'AGENTS.md': '- Be brief.\\n'}
    """
    now, first = dict(texts), next(iter(texts))
    applied: list[Edit] = []
    refused: list[Refused] = []
    for edit in edits:
        name = edit.document or first
        if name not in now:
            refused.append(Refused(edit, f"there is no document '{name[:60]}' to edit; there are {', '.join(now)}"))
            continue
        done = apply(now[name], [edit], policy)
        now[name] = done.text
        applied += done.applied
        refused += done.refused
    return Together(now, tuple(applied), tuple(refused))
