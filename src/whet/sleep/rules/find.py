"""Rules out of what people said in their sessions: read, grounded in the recorded steps, and merged over sessions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from whet.ids import digest
from whet.sleep.rules.corrections import Correction, Demand, opens_with_no, read_correction
from whet.sleep.rules.grounding import checks_for, find_grounded, split_at
from whet.sleep.rules.model_corrections import Ask, Unread, propose_corrections
from whet.sleep.rules.rule import Dropped, FoundRules, Rule
from whet.sleep.rules.sentences import gives_orders_to_models, holds_once, normalise, read_sentences
from whet.sleep.session import Origin, Session, Speaker, Turn
from whet.sleep.shell import read_commands
from whet.tasks.checks import RulesCheck

_OPPOSITE = {"command_not_ran": ("command_ran", "command_ran_after_edit"), "not_contains": ("contains",)}


@dataclass(frozen=True, slots=True)
class _Said:
    """A correction where it was said."""

    session: Session
    turn: Turn
    correction: Correction

    @property
    def at(self) -> datetime | None:
        return self.turn.at or self.session.started

    def drop(self, cause: str) -> Dropped:
        return Dropped(text=self.correction.sentence, session=self.session.key, cause=cause)


@dataclass(frozen=True, slots=True)
class _Grounded:
    check: RulesCheck
    said: _Said


async def find_rules(
    sessions: Sequence[Session], repository: str, *, scripts: bool = False, ask: Ask | None = None
) -> FoundRules:
    """Find the rules that people asked for in the sessions of one repository.

    Only sentences of a person's own turns count; with `scripts`, prompts of headless starts too. A model that is
    asked can only propose what a sentence means. The support of a rule is the number of its sessions: the caller
    decides how many are enough.
    """
    said: list[_Said] = []
    dropped: list[Dropped] = []
    unread: list[tuple[Session, Turn, Unread]] = []
    for session, turn in _turns_of_people(sessions, scripts):
        if gives_orders_to_models(turn.text):
            dropped.append(Dropped(text=turn.text[:200], session=session.key, cause="holds orders to a model"))
            continue
        read, rest = _read_turn(session, turn)
        said += read
        unread += [(session, turn, one) for one in rest]
    if ask is not None and unread:
        proposed = await propose_corrections([one for _, _, one in unread], ask)
        said += [_Said(unread[index][0], unread[index][1], one) for index, one in proposed]
    usable, refused = _choose_standing(said)
    found: list[_Grounded] = []
    for one in usable:
        grounded = [_Grounded(check, one) for check in await _ground(one)]
        found += grounded
        refused += [] if grounded else [one.drop("not grounded")]
    kept, revoked = _split_revoked(found)
    refused += [one.said.drop("taken back later") for one in revoked]
    return FoundRules(rules=tuple(_merge(kept, repository)), dropped=(*dropped, *refused))


def _turns_of_people(sessions: Iterable[Session], scripts: bool) -> Iterator[tuple[Session, Turn]]:
    """Every turn that can hold a correction, oldest session first. A forked session repeats turns: they count once."""
    speakers = {Speaker.PERSON, Speaker.SCRIPT} if scripts else {Speaker.PERSON}
    seen: set[tuple[str, datetime]] = set()
    for session in sorted(sessions, key=lambda one: (one.started is None, one.started, one.key)):
        if session.origin in {Origin.SUBAGENT, Origin.WHET}:
            continue
        for turn in session.turns:
            copied = turn.at is not None and (turn.text, turn.at) in seen
            if turn.at is not None:
                seen.add((turn.text, turn.at))
            if turn.said_by in speakers and not copied and turn is not session.turns[0]:
                yield session, turn


def _read_turn(session: Session, turn: Turn) -> tuple[list[_Said], list[Unread]]:
    """The corrections of a turn, and the sentences that the grammar does not read."""
    before, after = split_at(session, turn)
    commands = {simple for record in (*before, after) for line in record.commands for simple in read_commands(line)}
    sentences = read_sentences(turn.text)
    interrupted = any(one.aborted for one in session.turns if one.number == turn.number - 1)
    opened = interrupted or bool(sentences and opens_with_no(sentences[0]))
    read = {sentence: read_correction(sentence, commands, opened=opened) for sentence in sentences}
    unread = [
        Unread(sentence, before[0].commands, after.commands)
        for sentence, correction in read.items()
        if correction is None and before and not holds_once(sentence)
    ]
    return [_Said(session, turn, one) for one in read.values() if one is not None], unread


def _choose_standing(said: Sequence[_Said]) -> tuple[list[_Said], list[Dropped]]:
    """The corrections that hold beyond their session, and the others with the cause."""
    sessions: defaultdict[str, set[str]] = defaultdict(set)
    for one in said:
        sessions[normalise(one.correction.sentence)].add(one.session.key)
    forbids = {
        (one.session.key, one.turn.number)
        for one in said
        if not one.correction.once and any(wish.demand is Demand.NOT_RUN for wish in one.correction.wishes)
    }
    usable: list[_Said] = []
    dropped: list[Dropped] = []
    for one in said:
        repeated = len(sessions[normalise(one.correction.sentence)]) > 1
        if one.correction.once:
            dropped.append(one.drop("one-off"))
        elif one.correction.standing or repeated or (one.session.key, one.turn.number) in forbids:
            usable.append(one)
        else:
            dropped.append(one.drop("asked for the next step only"))
    return usable, dropped


async def _ground(said: _Said) -> list[RulesCheck]:
    """The grounded checks of a correction: the strictest one of each wish."""
    before, after = split_at(said.session, said.turn)
    meant = [checks_for(wish) for wish in said.correction.wishes]
    grounded = await find_grounded([check for checks in meant for check in checks], before, after)
    chosen = (next((check for check in checks if check in grounded), None) for checks in meant)
    return [check for check in chosen if check is not None]


def _split_revoked(found: Sequence[_Grounded]) -> tuple[list[_Grounded], list[_Grounded]]:
    """What still holds, and what a later correction turned round."""
    kept: list[_Grounded] = []
    revoked: list[_Grounded] = []
    for one in found:
        later = any(_opposes(other.check, one.check) and _is_later(other.said, one.said) for other in found)
        (revoked if later else kept).append(one)
    return kept, revoked


def _opposes(one: RulesCheck, other: RulesCheck) -> bool:
    if getattr(one, "arg", None) != getattr(other, "arg", None):
        return False
    return one.op in _OPPOSITE.get(other.op, ()) or other.op in _OPPOSITE.get(one.op, ())


def _is_later(one: _Said, other: _Said) -> bool:
    return one.at is not None and other.at is not None and one.at > other.at


def _merge(found: Sequence[_Grounded], repository: str) -> Iterator[Rule]:
    """One rule for all checks that the same turns asked for."""
    places: defaultdict[RulesCheck, list[_Said]] = defaultdict(list)
    for one in found:
        places[one.check].append(one.said)
    groups: defaultdict[frozenset[tuple[str, int]], list[RulesCheck]] = defaultdict(list)
    for check, said in places.items():
        groups[frozenset((one.session.key, one.turn.number) for one in said)].append(check)
    for checks in groups.values():
        yield _make_rule(checks, [one for check in checks for one in places[check]], repository)


def _make_rule(checks: Sequence[RulesCheck], said: Sequence[_Said], repository: str) -> Rule:
    ordered = sorted(said, key=lambda one: (one.at is not None, one.at, one.session.key, one.turn.number))
    last = ordered[-1]
    latest = [one.correction.sentence for one in ordered if one.session is last.session and one.turn is last.turn]
    times = [one.at for one in ordered if one.at is not None]
    parts = [repository, *sorted(check.model_dump_json() for check in checks)]
    return Rule(
        id=f"r{digest(*(part.encode() for part in parts))[:8]}",
        repository=repository,
        text=". ".join(dict.fromkeys(latest)),
        checks=tuple(checks),
        sessions=tuple(dict.fromkeys(one.session.key for one in ordered)),
        said=tuple(dict.fromkeys(one.correction.sentence for one in ordered)),
        first=times[0] if times else None,
        last=times[-1] if times else None,
    )
