"""Proposals: what a night wants to change in the user's files, kept until a person adopts or rejects it."""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import AwareDatetime, BaseModel, ConfigDict

from whet.errors import UserError, did_you_mean
from whet.paths import lock_folder
from whet.skills.adoption.files import Place, find_place, read_place
from whet.skills.adoption.transaction import Adoptions, Change
from whet.skills.documents.learned import (
    put_block,
    read_block,
    refuse_bad_marks,
    refuse_large_block,
    refuse_other_changes,
)
from whet.skills.documents.three_way import ConflictError, merge_edit, split_lines
from whet.sleep.store import SleepStore

if TYPE_CHECKING:
    from whet.sleep.redaction import Redaction

STALE = timedelta(days=90)
"""A rule that no session needed for so long is proposed for removal."""


class Evidence(StrEnum):
    """What a proposal rests on."""

    COMMAND = "command"
    """A: a verification command that failed before the session's work and passes after it."""
    COMMIT = "commit"
    """B: the tests of the commit that a session became."""
    CORRECTION = "correction"
    """C: a correction by the user, whose check fails before it and passes after it."""
    RUBRIC = "rubric"
    """D: the opinion of a model. It never certifies alone."""
    EXPIRY = "expiry"
    """No session needed the rule for a long time."""
    UNDO = "undo"
    """The reverse of an adopted proposal, merged with what the user wrote since."""


class State(StrEnum):
    """What became of a proposal."""

    STAGED = "staged"
    ADOPTED = "adopted"
    REJECTED = "rejected"
    ROLLED_BACK = "rolled back"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Sighting(_Record):
    """One session that supports a proposal."""

    cli: str
    session: str
    at: AwareDatetime | None = None

    @property
    def key(self) -> str:
        """As `Session.key`."""
        return f"{self.cli}/{self.session}"


class Target(_Record):
    """One file that a proposal changes."""

    path: Path
    """The file as agents find it, possibly a link."""
    real: Path
    """Where the link leads; the same as `path` if it is none."""
    before: str | None
    """Digest of the exact bytes that the proposal was made against; None if there was no file."""
    after: str | None
    """Digest of the bytes that adopting writes; None if it removes the file."""
    mode: int = 0o644
    """Of a file that is new."""

    @property
    def shown(self) -> str:
        """Both names, if the file is a link."""
        return Place(self.path, self.real).shown

    @property
    def digests(self) -> tuple[str | None, str | None]:
        return self.before, self.after


class _Reasons(_Record):
    """Where a change comes from, and what speaks for it."""

    night: str
    """Id of the night that made it."""
    repository: Path | None
    """None for files in the user's home."""
    rule: str = ""
    """Id of the rule that it is about; empty if it is about none."""
    why: str = ""
    """The reason in one line, where `sessions` do not tell it."""
    sessions: tuple[Sighting, ...] = ()
    """The sessions that support it."""
    proof: str = ""
    """What the exam found, in one line."""
    certificate: Path | None = None
    certified: bool = False
    evidence: Evidence


class Proposal(_Reasons):
    """A change of one or more files, adopted together or not at all."""

    id: str
    targets: tuple[Target, ...]
    edit: str
    """What the edit says, in one line."""
    created: AwareDatetime
    added: int = 0
    removed: int = 0
    """Lines, of the first target."""
    undoes: str = ""
    """Id of the adopted proposal that it takes back."""
    merged: bool = False
    """Whether the edit was merged into a file that changed later. The proof is about the text before."""
    state: State = State.STAGED

    @property
    def name(self) -> str:
        """What it is called in the journal of adoptions."""
        return f"proposal {self.id}"


class Rejection(_Record):
    """A proposal that a person did not want."""

    proposal: str
    rule: str
    because: str
    sessions: tuple[str, ...]
    """The keys of the sessions that supported it then."""
    at: AwareDatetime


class Draft(_Reasons):
    """What a night hands in: a document before and after, of which the learned block counts."""

    targets: tuple[Path, ...]
    """The files to change, as agents find them. Names that lead to one file are one target."""
    before: str
    after: str


def stage(store: SleepStore, draft: Draft, redaction: "Redaction", now: datetime, home: Path) -> Proposal:
    """Keep a proposal for review. UserError when a target cannot take the edit, or the edit holds something private."""
    blocks = read_block(draft.before), read_block(draft.after)
    redaction.refuse_private("".join(added_lines(*blocks)), "the proposed text")
    roots = [draft.repository, home] if draft.repository else [home]
    places = {one.real: one for one in sorted((find_place(path, roots) for path in draft.targets), key=_is_link)}
    changes = [_draft_change(place, draft) for place in places.values()]
    changes = [one for one in changes if one.before != one.after]
    if not changes:
        raise UserError(f"{', '.join(map(str, draft.targets))}: nothing is left to propose, the edit is there already")
    kept = draft.model_dump(exclude={"targets", "before", "after"})
    return put_proposal(store, changes, now, {**kept, "edit": _summarise(*blocks)})


def _is_link(place: Place) -> bool:
    return place.named != place.real


def _draft_change(place: Place, draft: Draft) -> Change:
    """What the edit of a draft changes in one file."""
    before, what = read_place(place), place.shown
    text = decode(before, what)
    # A file without rules of its own gets all of them; others get the edit.
    base = draft.before if read_block(text) else text
    after = merge_blocks(base, draft.after, text, what)
    refuse_other_changes(text, after, what, learned_only=True)
    refuse_large_block(after, what)
    mode = 0o600 if draft.repository is None else 0o644
    return Change(place, before, after.encode(), mode)


def merge_blocks(base: str, edited: str, now: str, what: str) -> str:
    """The text as it is now, with the edit that turned the learned block of `base` into that of `edited`.

    UserError when its author changed the same rules, or its marks are unbalanced."""
    refuse_bad_marks(now, what)
    try:
        rules = merge_edit(*map(read_block, (base, edited, now)))
    except ConflictError as error:
        raise UserError(f"{what}: the edit does not fit into its learned block: {error}") from error
    return put_block(now, rules) if rules != read_block(now) else now


def decode(content: bytes | None, what: str) -> str:
    """The text of a file; empty if there is none. Line ends and byte order mark stay in it."""
    try:
        return (content or b"").decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{what}: not UTF-8 text ({error.reason} at byte {error.start})") from error


def put_proposal(store: SleepStore, changes: Sequence[Change], now: datetime, fields: Mapping[str, object]) -> Proposal:
    """Keep a proposal for these changes."""
    kept = keep_changes(store, changes)
    with lock_folder(store.folder):
        proposal = Proposal.model_validate({"id": _next_id(store), "created": now, **fields, **kept})
        store.put("proposal", proposal.id, proposal)
    return proposal


def keep_changes(store: SleepStore, changes: Sequence[Change]) -> dict[str, object]:
    """Keep both contents of every file. The result are the fields of a proposal that describe them."""
    backups = Adoptions(store.folder).backups
    targets = tuple(
        Target(
            path=one.place.named,
            real=one.place.real,
            before=None if one.before is None else backups.keep(one.before),
            after=None if one.after is None else backups.keep(one.after),
            mode=one.mode,
        )
        for one in changes
    )
    texts = [decode(content, changes[0].place.shown) for content in (changes[0].before, changes[0].after)]
    return {"targets": targets, "added": len(added_lines(*texts)), "removed": len(added_lines(*reversed(texts)))}


def read_changes(store: SleepStore, proposal: Proposal) -> list[Change]:
    """What a proposal changes, with both contents of every file."""
    backups = Adoptions(store.folder).backups
    return [
        Change(
            Place(target.path, target.real),
            backups.get(target.before) if target.before else None,
            backups.get(target.after) if target.after else None,
            target.mode,
        )
        for target in proposal.targets
    ]


def list_proposals(store: SleepStore) -> list[Proposal]:
    """All proposals, the oldest first. The journal of adoptions says which are adopted."""
    adoptions = Adoptions(store.folder)
    adopted, undone = adoptions.adopted(), adoptions.undone()
    found = store.list("proposal", Proposal)
    undone |= {f"proposal {one.undoes}" for one in found if one.undoes and one.name in adopted}

    def find_state(proposal: Proposal) -> State:
        # Adopting ends a rejection, so what is both taken back and rejected was rejected later.
        if proposal.name in undone and proposal.state is not State.REJECTED:
            return State.ROLLED_BACK
        return State.ADOPTED if proposal.name in adopted and proposal.name not in undone else proposal.state

    return [one.model_copy(update={"state": find_state(one)}) for one in found]


def find_proposal(store: SleepStore, name: str) -> Proposal:
    """The proposal with this id. UserError if there is none."""
    found = {one.id: one for one in list_proposals(store)}
    if name not in found:
        raise UserError(f"there is no proposal '{name}'; {did_you_mean(name, found)}")
    return found[name]


def reject(store: SleepStore, name: str, because: str, now: datetime) -> Proposal:
    """Reject a proposal. Its rule is not proposed again unless new sessions support it."""
    proposal = find_proposal(store, name)
    if proposal.state is State.ADOPTED:
        raise UserError(f"{proposal.name}: is adopted; take it back with `whet sleep rollback {name}`")
    if not because.strip():
        raise UserError("`because` is empty; expected the reason in a few words")
    sessions = tuple(one.key for one in proposal.sessions)
    rejection = Rejection(proposal=name, rule=proposal.rule, because=because, sessions=sessions, at=now)
    store.put("rejection", name, rejection)
    rejected = proposal.model_copy(update={"state": State.REJECTED})
    store.put("proposal", name, rejected)
    return rejected


def is_rejected(store: SleepStore, rule: str, support: Collection[str]) -> bool:
    """Whether a rule was rejected, and all sessions that support it did so then. `support` are their keys."""
    found = [one for one in store.list("rejection", Rejection) if one.rule == rule]
    return bool(found) and set(support) <= {session for one in found for session in one.sessions}


def drop_backups(store: SleepStore) -> None:
    """Delete the contents of proposals that were forgotten. What was adopted can always be taken back."""
    kept = {one for proposal in store.list("proposal", Proposal) for file in proposal.targets for one in file.digests}
    Adoptions(store.folder).drop_backups(kept)


def expire_rules(store: SleepStore, text: str, last_needed: Mapping[str, datetime], now: datetime) -> str:
    """The document without those adopted rules that no session needed for a long time, for a draft.

    `last_needed` says when each rule was needed last. A line stays that no adopted proposal explains, or whose removal
    was rejected.
    """
    adopted = Adoptions(store.folder).adopted()
    stale: set[str] = set()
    wanted: set[str] = set()
    for proposal in list_proposals(store):
        if proposal.evidence is Evidence.EXPIRY and proposal.state is State.REJECTED:
            wanted.update(added_lines(*reversed(_blocks(store, proposal))))
        if proposal.state is State.ADOPTED and proposal.rule:
            needed = max(adopted[proposal.name].at, last_needed.get(proposal.rule, adopted[proposal.name].at))
            stale.update(added_lines(*_blocks(store, proposal)) if now - needed > STALE else ())
    stale -= wanted
    kept = [line for line in split_lines(read_block(text)) if line not in stale]
    return put_block(text, "".join(kept)) if stale and read_block(text) else text


def _blocks(store: SleepStore, proposal: Proposal) -> tuple[str, str]:
    """The rules in the first file of a proposal before and after."""
    change = read_changes(store, proposal)[0]
    before, after = (read_block(decode(one, change.place.shown)) for one in (change.before, change.after))
    return before, after


def diff_lines(changes: Sequence[Change]) -> Iterator[str]:
    """The lines of a unified diff of some files."""
    for change in changes:
        shown = change.place.shown
        old, new = (decode(one, shown).splitlines() for one in (change.before, change.after))
        first, second = (shown if one is not None else "/dev/null" for one in (change.before, change.after))
        yield from difflib.unified_diff(old, new, first, second, lineterm="")


def added_lines(before: str, after: str) -> list[str]:
    """The lines that the second text adds to the first."""
    compared = difflib.ndiff(split_lines(before), split_lines(after))
    return [line[2:] for line in compared if line.startswith("+ ")]


def _summarise(before: str, after: str) -> str:
    """What an edit of rules says, in one line: the rules that it adds, or else those that it removes."""
    lines = added_lines(before, after) or [f"remove: {line}" for line in added_lines(after, before)]
    return " ".join(line.strip().removeprefix("- ") for line in lines)


def _next_id(store: SleepStore) -> str:
    """A number that no proposal has had, also none that was forgotten since."""
    adoptions = Adoptions(store.folder)
    journalled = (name.removeprefix("proposal ") for name in {*adoptions.adopted(), *adoptions.undone()})
    known = {*journalled, *(one.id for one in store.list("proposal", Proposal))}
    return str(1 + max((int(one) for one in known), default=0))
