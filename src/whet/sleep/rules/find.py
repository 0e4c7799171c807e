"""Rules out of what people said in their sessions: read, grounded in the recorded steps, and merged over sessions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from whet.ids import digest
from whet.sleep.rules.corrections import Correction, Demand, Vocabulary, Wish, opens_with_no, read_correction
from whet.sleep.rules.grounding import checks_for, find_grounded, split_at
from whet.sleep.rules.model_corrections import Interpret, Unread
from whet.sleep.rules.rule import Dropped, FoundRules, Rule
from whet.sleep.rules.sentences import (
    gives_orders_to_models,
    holds_once,
    is_masked,
    read_sentences,
    write_rule,
)
from whet.sleep.session import Origin, Session, Speaker, Turn
from whet.tasks.checks import RulesCheck


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

    @property
    def place(self) -> tuple[str, int]:
        return self.session.key, self.turn.number


@dataclass(frozen=True, slots=True)
class _Asked:
    """A wish where it was said, with its checks that the steps there prove, strictest first."""

    wish: Wish
    said: _Said
    grounded: tuple[RulesCheck, ...]


async def find_rules(
    sessions: Sequence[Session], repository: str, *, scripts: bool = False, interpret: Interpret | None = None
) -> FoundRules:
    """Find the rules that people asked for in the sessions of one repository.

    Only sentences of a person's own turns count; with `scripts`, prompts of headless starts too. `interpret` can only
    propose what a sentence means that the grammar does not read: the steps decide. The support of a rule is the number
    of its sessions, and the caller decides how many are enough.
    """
    said: list[_Said] = []
    dropped: list[Dropped] = []
    unread: list[tuple[Session, Turn, Unread]] = []
    vocabulary = Vocabulary(_list_commands(sessions))
    for session, turn in _turns_of_people(sessions, scripts):
        if gives_orders_to_models(turn.text):
            dropped.append(Dropped(text=turn.text[:200], session=session.key, cause="holds orders to a model"))
            continue
        read, rest = _read_turn(session, turn, vocabulary)
        said += read
        unread += [(session, turn, one) for one in rest]
    if interpret is not None and unread:
        meanings = await interpret([one for _, _, one in unread])
        read_by_model = ((unread[index], wishes) for index, wishes in sorted(meanings.items()) if wishes)
        said += [_Said(session, turn, one.means(wishes)) for (session, turn, one), wishes in read_by_model]
    usable, refused = _choose_standing(said)
    asked: list[_Asked] = []
    for one in usable:
        wishes = [_Asked(wish, one, checks) for wish, checks in (await _ground(one)).items()]
        asked += wishes
        refused += [] if any(wish.grounded for wish in wishes) else [one.drop("not grounded")]
    return FoundRules(rules=tuple(_merge(asked, repository, refused)), dropped=(*dropped, *refused))


def _list_commands(sessions: Iterable[Session]) -> Iterator[str]:
    steps = (step for session in sessions for turn in session.turns for step in turn.steps)
    return (step.command for step in steps if step.command is not None)


def _turns_of_people(sessions: Iterable[Session], scripts: bool) -> Iterator[tuple[Session, Turn]]:
    """Every turn that can hold a correction, oldest session first. A forked session repeats turns: they count once."""
    speakers = {Speaker.PERSON, Speaker.SCRIPT} if scripts else {Speaker.PERSON}
    seen: set[tuple[str, str | datetime]] = set()
    for session in sorted(sessions, key=lambda one: (one.started is None, one.started, one.key)):
        if session.origin in {Origin.SUBAGENT, Origin.WHET}:
            continue
        for turn in session.turns:
            record = turn.id or turn.at
            copied = record is not None and (turn.text, record) in seen
            if record is not None:
                seen.add((turn.text, record))
            if turn.said_by in speakers and not copied and turn is not session.turns[0]:
                yield session, turn


def _read_turn(session: Session, turn: Turn, vocabulary: Vocabulary) -> tuple[list[_Said], list[Unread]]:
    """The corrections of a turn, and the sentences that the grammar does not read."""
    before, after = split_at(session, turn)
    sentences = read_sentences(turn.text)
    interrupted = any(one.aborted for one in session.turns if one.number == turn.number - 1)
    opened = interrupted or bool(sentences and opens_with_no(sentences[0]))
    read = {sentence: read_correction(sentence, vocabulary, opened=opened) for sentence in sentences}
    for sentence, after_it in pairwise(sentences):
        correction = read[sentence]
        if correction is not None and read[after_it] is None and _is_afterthought(after_it):
            read[sentence] = replace(correction, once=True)
    unread = [
        Unread(session.key, sentence, before[0].commands, after.commands)
        for sentence, correction in read.items()
        if correction is None and before and not holds_once(sentence) and not is_masked(sentence)
    ]
    return [_Said(session, turn, one) for one in read.values() if one is not None], unread


def _is_afterthought(sentence: str) -> bool:
    """Whether a sentence only says that the one before it holds for the moment: "Just for this install"."""
    return holds_once(sentence) and len(sentence.split()) <= 6


def _choose_standing(said: Sequence[_Said]) -> tuple[list[_Said], list[Dropped]]:
    """The corrections that hold beyond their session, and the others with the cause."""
    sessions: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for one in said:
        for wish in () if one.correction.once else one.correction.wishes:
            sessions[wish.subject].add(one.session.key)
    forbids = {
        (one.session.key, one.turn.number)
        for one in said
        if one.correction.lasts and any(wish.demand is Demand.NOT_RUN for wish in one.correction.wishes)
    }
    usable: list[_Said] = []
    dropped: list[Dropped] = []
    for one in said:
        repeated = any(len(sessions[wish.subject]) > 1 for wish in one.correction.wishes)
        if one.correction.once:
            dropped.append(one.drop("one-off"))
        elif is_masked(one.correction.sentence):
            dropped.append(one.drop("holds something private"))
        elif one.correction.lasts or repeated or (one.session.key, one.turn.number) in forbids:
            usable.append(one)
        else:
            dropped.append(one.drop("asked for the next step only"))
    return usable, dropped


async def _ground(said: _Said) -> dict[Wish, tuple[RulesCheck, ...]]:
    """The grounded checks of each wish of a correction."""
    before, after = split_at(said.session, said.turn)
    meant = {wish: checks_for(wish) for wish in said.correction.wishes}
    grounded = await find_grounded([check for checks in meant.values() for check in checks], before, after)
    return {wish: tuple(check for check in checks if check in grounded) for wish, checks in meant.items()}


def _merge(asked: Sequence[_Asked], repository: str, dropped: list[Dropped]) -> Iterator[Rule]:
    """One rule for all wishes that the same turns asked for. `dropped` gets those that a later turn took back."""
    by_wish: defaultdict[tuple[str, str], list[_Asked]] = defaultdict(list)
    for one in asked:
        by_wish[one.wish.subject].append(one)
    groups: defaultdict[frozenset[tuple[str, int]], dict[RulesCheck, list[_Said]]] = defaultdict(dict)
    for wishes in by_wish.values():
        check, said = _choose_check(wishes)
        if check is None:
            continue
        if any(_turns_round(other, said) for other in asked if other.wish.subject == wishes[0].wish.opposite):
            dropped += [one.drop("taken back later") for one in said]
            continue
        groups[frozenset(one.said.place for one in wishes)][check] = said
    for checks in groups.values():
        yield _make_rule([*checks], [one for said in checks.values() for one in said], repository)


def _choose_check(wishes: Sequence[_Asked]) -> tuple[RulesCheck | None, list[_Said]]:
    """The check that most turns prove, and these turns. None if it is proved in less than half of those that asked."""
    proved: defaultdict[RulesCheck, list[_Said]] = defaultdict(list)
    for one in wishes:
        for check in one.grounded:
            proved[check].append(one.said)
    best = max(proved, key=lambda check: len(proved[check]), default=None)  # of equal ones the first is the strictest
    if best is None or 2 * len(proved[best]) < len({one.said.place for one in wishes}):
        return None, []
    return best, proved[best]


def _turns_round(later: _Asked, said: Sequence[_Said]) -> bool:
    """Whether a proved wish is later than all of these."""
    at = later.said.at
    return bool(later.grounded) and at is not None and all(one.at is not None and one.at < at for one in said)


def _make_rule(checks: Sequence[RulesCheck], said: Sequence[_Said], repository: str) -> Rule:
    ordered = sorted(said, key=lambda one: (one.at is not None, one.at, one.session.key, one.turn.number))
    last = ordered[-1]
    latest = [one.correction.sentence for one in ordered if one.session is last.session and one.turn is last.turn]
    times = [one.at for one in ordered if one.at is not None]
    parts = [repository, *sorted(check.model_dump_json() for check in checks)]
    return Rule(
        id=f"r{digest(*(part.encode() for part in parts))[:8]}",
        repository=repository,
        text=write_rule(latest),
        checks=tuple(checks),
        sessions=tuple(dict.fromkeys(one.session.key for one in ordered)),
        said=tuple(dict.fromkeys(one.correction.sentence for one in ordered)),
        first=times[0] if times else None,
        last=times[-1] if times else None,
    )
