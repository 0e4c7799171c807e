"""The grammar of corrections: what a person's sentence asks an agent to do, to stop doing, or to say.

A sentence alone proves nothing. grounding.py compares what it asks for with the recorded steps.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from whet.sleep.rules.sentences import holds_once
from whet.sleep.shell import read_commands, unwrap


class Demand(StrEnum):
    """What a sentence asks for."""

    RUN = "run"
    RUN_AFTER_EDIT = "run after the last edit"
    NOT_RUN = "do not run"
    SAY = "say"
    NOT_SAY = "do not say"
    NO_EMOJI = "no emoji"


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that a sentence asks for."""

    demand: Demand
    words: str
    """A command, or a text."""

    @property
    def subject(self) -> tuple[str, str]:
        """What it is about: a command that is run, whenever it is run, is one subject."""
        return (Demand.RUN if self.demand is Demand.RUN_AFTER_EDIT else self.demand), self.words

    @property
    def opposite(self) -> tuple[str, str]:
        """The subject of the wish that takes this one back."""
        return _OPPOSITES.get(self.demand, ""), self.words


_OPPOSITES = {
    Demand.RUN: Demand.NOT_RUN,
    Demand.RUN_AFTER_EDIT: Demand.NOT_RUN,
    Demand.NOT_RUN: Demand.RUN,
    Demand.SAY: Demand.NOT_SAY,
    Demand.NOT_SAY: Demand.SAY,
}


@dataclass(frozen=True, slots=True)
class Correction:
    """What a sentence asks for."""

    sentence: str
    wishes: tuple[Wish, ...]
    standing: bool
    """Whether it asks for more than the next step: only then one sentence is enough for a rule."""
    once: bool
    """Whether it says itself that it holds for the moment only."""

    @property
    def lasts(self) -> bool:
        return self.standing and not self.once


def _any_of(*phrases: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(phrases)})\b", re.IGNORECASE)


_ENGLISH = frozenset({"make", "go", "just", "test", "find", "which", "head", "time", "watch", "yes", "cat", "sort"}) | {
    *("install", "touch", "kill", "less", "more", "at")
}
"""Programs whose names are English words: alone they are no command."""
_IDLE = frozenset({"cd", "ls", "pwd", "echo", "true", "false", "export", "source", "set"})
"""Programs that no habit is about."""
_PLACE = re.compile("\x00(\\d+)\x00")
_CLAUSE = re.compile(
    r"\s*(?:([,;:]|--?>|—|–)|\b(but)\b|\b(and)\b(?=\s+(?:always|never|use|run|make sure|then)\b))\s*", re.IGNORECASE
)
_NEGATION = _any_of(
    *(
        "don'?t",
        "do not",
        "never",
        "not",
        "no",
        "nor",
        "stop",
        "avoid",
        "quit",
        "instead of",
        "rather than",
        "mustn'?t",
    ),
    *("mustn'?t", "shouldn'?t", r"why (?:are|do|did) you (?:still )?\w+", "you keep"),
)
_TAKEN_BACK = _any_of(
    *("without", "forget", "forgot", "forgetting", "not only"),
    r"(?:didn'?t|haven'?t|(?:did|have|had) not) (?:yet )?run",
)
_VERB = _any_of(
    *("use", "uses", "using", "run", "runs", "running", "do", "call", "go with", "switch to", "moved to", "it'?s"),
    "we have",
)
_DONE = (
    r"before (?:you )?(?:say|finish|finishing|stop|tell|claim|report|answer|end)",
    r"before you(?:'re| are) (?:done|finished|ready)",
    r"when(?:ever)? you(?:'re| are) (?:done|finished)",
    "at the end",
)
_STANDING = _any_of(
    *("always", "never", "ever", "every", "each", "whenever", "from now on", "in general", "in (?:the )?future"),
    *(
        "going forward",
        "from here on",
        "habit",
        "remember",
        "(?:don'?t|do not) forget",
        "make sure",
        "any ?more",
        "as i said",
        "how many times",
    ),
    r"i(?:'ve| have)? (?:already |just )?(?:told|said|asked)",
    "i keep (?:telling|saying|asking)",
    "you (?:keep|forgot|didn'?t run|did not run|always|never)",
    "we (?:only |all )?(?:use|never|always|moved|run)",
    "(?:this|the|our) (?:repo|repository|project|codebase|package|workspace) (?:uses|is)",
    "in (?:this|our) (?:repo|repository|project|codebase)",
    *("(?:has|have) to be run", "are run with", "before (?:you )?(?:commit|push)", "^again"),
    *_DONE,
)
_AFTER_EDIT = _any_of(
    "after (?:you|your|each|every|any|changing|editing|an? (?:edit|change))",
    "(?:whenever|every time|each time|when) you (?:change|edit|touch|modify)",
    *_DONE,
)
_LASTING_NO = _any_of(
    *("use", "using", "stop", "quit", "avoid", "no", "here", "locally", "call", "calling", "install", "say", "saying"),
    *("write", "end", "(?:start|begin) (?:answers|your|every|with)", "why", "keep", "emojis?", "mustn'?t", "must not"),
)
"""Words that make a negation more than "not now"."""
_USE = re.compile("\\b(?:use|using|it'?s|with) \x00\\d+\x00", re.IGNORECASE)
"""A tool is named as the one to use."""
_OWN_HABIT = _any_of("i (?:always|never|usually)")
"""What a person says of themself."""
_COMPLAINT = _any_of("why (?:are|do|did) you", "(?:can|could|would) you (?:please )?(?:not|always|never|stop)")
"""Questions that are none."""
_SWAP = re.compile("\\b(?:swap|replace)\\s+\x00(\\d+)\x00\\s+(?:for|with|by)\\s+\x00(\\d+)\x00", re.IGNORECASE)
_NEVER_MIND = _any_of("never ?mind")
_FIRST = _any_of("first")
"""What comes first belongs to the next step."""
_OPENER = re.compile(r"(?:no|nope|wrong|nah|stop)\b", re.IGNORECASE)
_SAYING = _any_of(
    "say", "saying", "write", "writing", "ends?", "ending", "starts?", "begins?", "mention", "answer", "use"
)
_QUOTED = re.compile(r"[\"“]([^\"”]{2,80})[\"”]")
_EMOJI = _any_of("emojis?")


class Vocabulary:
    """The commands that agents ran in a repository. Only these, and what stands between backticks, are read as
    commands in a sentence."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._by_program: dict[str, set[tuple[str, ...]]] = {}
        for command in (command for line in {*lines} for command in read_commands(line)):
            for one in {command, unwrap(command)}:
                self._by_program.setdefault(one[0], set()).add(one[:6])

    def measure(self, words: Sequence[str]) -> int:
        """How many of these words are the beginning of a command."""
        program = _strip(words[0].lstrip("(\"'"))
        return max((_match(words, command) for command in self._by_program.get(program, ())), default=0)


def read_correction(sentence: str, vocabulary: Vocabulary, *, opened: bool) -> Correction | None:
    """Read what a sentence asks for. None when it asks for nothing that steps could show.

    `opened` says that the person interrupted the agent, or began with "no".
    """
    if sentence.endswith("?") and not _COMPLAINT.search(sentence):
        return None
    text, phrases = _mark_phrases(_NEVER_MIND.sub("", sentence), vocabulary)
    wishes = [*_read_wishes(text, phrases), *_read_sayings(sentence)]
    if not wishes:
        return None
    forbids = any(wish.demand in {Demand.NOT_RUN, Demand.NOT_SAY, Demand.NO_EMOJI} for wish in wishes)
    negative = forbids and (_LASTING_NO.search(text) or any(wish.demand is Demand.RUN for wish in wishes))
    corrected = (opened or opens_with_no(sentence)) and _USE.search(text) and not _FIRST.search(text)
    standing = bool(negative) or bool(_STANDING.search(_OWN_HABIT.sub("", text))) or bool(corrected)
    return Correction(sentence, tuple(dict.fromkeys(wishes)), standing, holds_once(sentence))


def opens_with_no(sentence: str) -> bool:
    """Whether a sentence begins as a correction does.

    >>> opens_with_no("Nope, use bun"), opens_with_no("Note the port")
    (True, False)
    """
    return _OPENER.match(sentence) is not None


def _mark_phrases(sentence: str, vocabulary: Vocabulary) -> tuple[str, list[str]]:
    """The sentence with marks in place of its commands, and the commands."""
    phrases: list[str] = []

    def mark(phrase: str) -> str:
        phrases.append(phrase)
        return f"\0{len(phrases) - 1}\0"

    parts = re.split(r"`([^`]+)`", sentence.replace("’", "'"))
    marked = [
        mark(part.strip()) if index % 2 else _mark_bare(part, vocabulary, mark) for index, part in enumerate(parts)
    ]
    return "".join(marked), phrases


def _mark_bare(text: str, vocabulary: Vocabulary, mark: Callable[[str], str]) -> str:
    """Mark the commands that stand in a text without backticks: the longest run of words that a command began with."""
    words = re.split(r"(\s+)", text)
    out: list[str] = []
    at = 0
    while at < len(words):
        length = vocabulary.measure(words[at::2])
        if not length:
            out.append(words[at])
            at += 1
            continue
        last = words[at + 2 * length - 2]
        end = last[len(_strip(last)) :] if not _is_path(last) else ""
        phrase = " ".join([*words[at : at + 2 * length - 2 : 2], _strip(last)])
        out.append(mark(phrase.lstrip("(\"'")) + end)
        at += 2 * length - 1
    return "".join(out)


def _match(words: Sequence[str], command: tuple[str, ...]) -> int:
    """How many words are the beginning of this command. 0 when they do not name it."""
    count = 0
    for word, wanted in zip(words, command, strict=False):
        plain = word.lstrip("(\"'") if count == 0 else word
        if wanted not in (plain, _strip(plain)):
            break
        count += 1
        if plain != wanted:
            break  # punctuation ends it
    if (count and command[0] in _IDLE) or (count == 1 and command[0] in _ENGLISH):
        return 0
    return count


def _strip(word: str) -> str:
    return word if _is_path(word) else word.rstrip(".,;:!?)\"'")


def _is_path(word: str) -> bool:
    return word in {".", ".."} or word.endswith("/...")


def _read_wishes(text: str, phrases: list[str]) -> Iterator[Wish]:
    """The commands of a sentence with what is asked about each."""
    if swap := _SWAP.search(text):
        yield Wish(Demand.NOT_RUN, phrases[int(swap[1])])
        yield Wish(Demand.RUN, phrases[int(swap[2])])
        return
    negative = False
    after = Demand.RUN_AFTER_EDIT if _AFTER_EDIT.search(text) else Demand.RUN
    for clause, divider in _clauses(text):
        done = 0
        for place in _PLACE.finditer(clause):
            left = _PLACE.sub(" ", clause[: place.start()]).strip().lower()
            if done or left not in {"", "and", "or", "nor", "&&"} or divider != ",":
                negative = _is_negative(clause[done : place.start()], negative and bool(done))
            done = place.end()
            turned = _divider_after(text, place[0]) in {"->", "-->"}
            yield Wish(Demand.NOT_RUN if negative or turned else after, phrases[int(place[1])])


def _clauses(text: str) -> Iterator[tuple[str, str]]:
    """The clauses of a sentence, each with what divides it from the one before."""
    start, divider = 0, ""
    for found in _CLAUSE.finditer(text):
        yield text[start : found.start()], divider
        start, divider = found.end(), (found[1] or found[2] or found[3]).lower()
    yield text[start:], divider


def _divider_after(text: str, mark: str) -> str:
    """What divides a marked command from the next clause."""
    rest = text.split(mark, 1)[1].lstrip()
    found = _CLAUSE.match(rest)
    return found[1] or "" if found else ""


def _is_negative(left: str, before: bool) -> bool:
    """Whether the words in front of a command forbid it. Between two commands of a clause, the first one's holds on."""
    if _TAKEN_BACK.search(left):
        return False
    if _NEGATION.search(left):
        return True
    return before and not _VERB.search(left)


def _read_sayings(sentence: str) -> Iterator[Wish]:
    """What a sentence asks to say, or not to say."""
    negation = _NEGATION.search(sentence)
    if _EMOJI.search(sentence) and negation:
        yield Wish(Demand.NO_EMOJI, "")
    for quoted in _QUOTED.finditer(sentence):
        left = sentence[: quoted.start()]
        if _SAYING.search(left) and (negation or _STANDING.search(sentence)):
            yield Wish(Demand.NOT_SAY if _NEGATION.search(left) else Demand.SAY, quoted[1].strip())
