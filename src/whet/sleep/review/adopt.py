"""Adopt a proposal and take it back.

A file that changed since is never overwritten: the edit is merged into what it says now, and waits for review again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from whet.errors import UserError, did_you_mean
from whet.skills.adoption.files import ChangedFileError, read_place
from whet.skills.adoption.transaction import Adoptions, Change
from whet.skills.documents.learned import refuse_large_block, refuse_other_changes
from whet.skills.documents.three_way import ConflictError, merge_edit
from whet.sleep.review.version_control import commit_files, find_common_worktree, refuse_uncommitted
from whet.sleep.staging import (
    Evidence,
    Proposal,
    State,
    decode,
    find_proposal,
    keep_changes,
    merge_blocks,
    put_proposal,
    read_changes,
)
from whet.sleep.store import SleepStore

if TYPE_CHECKING:
    from whet.sleep.repository_settings import RepositorySettings

PROVEN = (Evidence.COMMAND, Evidence.COMMIT, Evidence.CORRECTION)
"""What a proposal must rest on to be adopted without a person."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """What was written."""

    proposal: Proposal
    changes: tuple[Change, ...]
    commit: str | None = None


def adopt_proposal(
    store: SleepStore, name: str, targets: Sequence[str] = (), *, commit: bool = False, force: bool = False
) -> Adopted:
    """Write a proposal into its files, or into those that are named, all or none."""
    adoptions = Adoptions(store.folder)
    adoptions.stop_if_interrupted()
    proposal = find_proposal(store, name)
    if proposal.state is State.ADOPTED:
        raise UserError(f"{proposal.name}: is adopted already; take it back with `whet sleep rollback {name}`")
    changes = _choose(read_changes(store, proposal), targets)
    files = [change.place.real for change in changes]
    if commit:
        find_common_worktree(files)
    if not force:
        for file in files:
            refuse_uncommitted(file)
    _merge_changed(store, proposal, changes)
    adoptions.adopt(proposal.name, changes, str(proposal.certificate) if proposal.certificate else None)
    if proposal.state is State.REJECTED:
        store.delete("rejection", name)
        store.put("proposal", name, proposal.model_copy(update={"state": State.STAGED}))
    return Adopted(proposal, tuple(changes), _commit(proposal, files) if commit else None)


def adopt_alone(store: SleepStore, proposal: Proposal, own: "RepositorySettings") -> str:
    """Adopt a proposal without a person, if it is proven, the whet.toml of its repository has `auto = true`, and the
    user allows that for this repository.

    The result is a note for the report; empty when a person decides, as usual.
    """
    is_proven = proposal.certified and proposal.evidence in PROVEN and not proposal.merged
    if not is_proven or not own.auto:
        return ""
    if not own.auto_allowed:
        return (
            f"{proposal.name}: waits for you, although {own.file} has `auto = true`: `allow_auto` in your sleep.toml "
            "does not name the repository"
        )
    try:
        adopt_proposal(store, proposal.id)
    except UserError as error:
        return f"{proposal.name}: was not adopted by itself: {error}"
    return f"{proposal.name}: was adopted, as whet.toml says (auto); `whet sleep rollback {proposal.id}` undoes it"


def _choose(changes: list[Change], targets: Sequence[str]) -> list[Change]:
    """The changes of the files that are named: by one of their paths, or by its end."""
    chosen = {}
    for target in targets:
        found = [one for one in changes if any(_is_named(path, target) for path in (one.place.named, one.place.real))]
        if len(found) != 1:
            known = (str(one.place.named) for one in changes)
            raise UserError(f"`target` {target}: the proposal has no such file; {did_you_mean(target, known)}")
        chosen[found[0].place] = found[0]
    return list(chosen.values()) or changes


def _is_named(path: Path, name: str) -> bool:
    return path == Path(name).absolute() or str(path).endswith(f"/{name}")


def _merge_changed(store: SleepStore, proposal: Proposal, changes: Sequence[Change]) -> None:
    """If a file changed since the proposal was made, merge the edit into it, and stop for another review."""
    now = [(change, read_place(change.place)) for change in changes]
    gone = [change for change, content in now if content is None and change.before is not None]
    if gone:
        raise UserError(f"{gone[0].place.shown}: is not there any more; reject the proposal, or restore the file")
    changed = [change for change, content in now if content != change.before]
    if not changed:
        return
    # A target that was left out stays as it was proposed.
    merged = {change.place.real: _merge(proposal, change, content) for change, content in now}
    whole = [merged.get(one.place.real, one) for one in read_changes(store, proposal)]
    fields = {**keep_changes(store, whole), "merged": True}
    store.put("proposal", proposal.id, Proposal.model_validate({**proposal.model_dump(), **fields}))
    raise UserError(
        f"{changed[0].place.shown}: has changed since the proposal was made. The edit is merged into its new text: "
        f"look at it with `whet sleep diff {proposal.id}`, then adopt again"
    )


def _merge(proposal: Proposal, change: Change, now: bytes | None) -> Change:
    what = change.place.shown
    base, edited, text = (decode(one, what) for one in (change.before, change.after, now))
    if proposal.evidence is Evidence.UNDO:
        merged = _merge_reverse(base, edited, text, what)
    else:
        merged = merge_blocks(base, edited, text, what)
        refuse_large_block(merged, what)
    refuse_other_changes(text, merged, what, learned_only=proposal.evidence is not Evidence.UNDO)
    if merged == text:
        raise UserError(f"{what}: has changed since the proposal was made, and the edit is in it already; reject it")
    return replace(change, before=now, after=merged.encode())


def _commit(proposal: Proposal, files: Sequence[Path]) -> str:
    names = ", ".join(sorted({file.name for file in files}))
    proof = "certified" if proposal.certified else "not certified"
    subject = shorten(f"{names}: {proposal.edit}", 72, placeholder=" ...")
    message = f"{subject}\n\nProposed by whet sleep (proposal {proposal.id}, {proof})."
    try:
        return commit_files(files, message)
    except UserError as error:
        raise UserError(f"{proposal.name}: is adopted but not committed: {error}") from error


def roll_back(store: SleepStore, name: str, now: datetime) -> Adopted:
    """Restore the files as they were before a proposal was adopted. If one changed since, stage the reverse edit."""
    adoptions = Adoptions(store.folder)
    adoptions.stop_if_interrupted()
    proposal = find_proposal(store, name)
    if proposal.state is not State.ADOPTED:
        raise UserError(f"{proposal.name}: is {proposal.state}, so there is nothing to take back")
    changes = [adoptions.read_change(one) for one in adoptions.adopted()[proposal.name].files]
    try:
        adoptions.undo(proposal.name)
    except ChangedFileError as error:
        reverse = _stage_reverse(store, proposal, changes, now)
        raise UserError(
            f"{error.path}: has changed since it was adopted. Taking the edit back is now proposal {reverse.id}: "
            f"look at it with `whet sleep diff {reverse.id}`, then adopt it"
        ) from error
    return Adopted(proposal, tuple(changes))


def _stage_reverse(store: SleepStore, proposal: Proposal, changes: Sequence[Change], now: datetime) -> Proposal:
    reversed_ = [one for one in map(_reverse, changes) if one.before != one.after]
    if not reversed_:
        raise UserError(f"{proposal.name}: nothing of it is left in its files")
    fields = {
        "night": proposal.night,
        "repository": proposal.repository,
        "edit": f"take back: {proposal.edit}",
        "rule": "",
        "why": f"proposal {proposal.id} is taken back",
        "evidence": Evidence.UNDO,
        "undoes": proposal.id,
    }
    return put_proposal(store, reversed_, now, fields)


def _reverse(change: Change) -> Change:
    what, content = change.place.shown, read_place(change.place)
    if content is None:
        raise UserError(f"{what}: is not there any more, so nothing can be taken back")
    if content == change.after:
        return replace(change, before=change.after, after=change.before)
    base, edited, now = (decode(one, what) for one in (change.after, change.before, content))
    merged = _merge_reverse(base, edited, now, what)
    refuse_other_changes(now, merged, what, learned_only=False)
    return replace(change, before=content, after=merged.encode())


def _merge_reverse(base: str, edited: str, now: str, what: str) -> str:
    """Take an edit back in a text that changed since: line by line, or else rule by rule."""
    try:
        return merge_edit(base, edited, now)
    except ConflictError:
        return merge_blocks(base, edited, now, what)
