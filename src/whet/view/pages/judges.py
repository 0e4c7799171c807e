"""How an attempt was judged: every judgement with its reason, what judges ran, and what their models said."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.exchange import Exchange
from whet.look.numbers import number
from whet.rollout.result import Result, decode_result
from whet.runs.results import JUDGE_CALL
from whet.runs.store.store import EARLIER_RESULT, Store
from whet.scoring import Score
from whet.view.page import Crumb, Page, PageRequest, PageRoute, View
from whet.view.pages.attempt import open_attempt
from whet.view.pages.call_messages import CallMessages, read_messages
from whet.view.pages.labels import make_label_box

MOST_CALLS = 50
"""Calls of judges that are shown."""
_SHOWN = frozenset({"commands", "checks", "votes", "no_verdict", "hard", "soft"})
"""Details that have a form of their own."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one judge said."""

    name: str
    score: Score
    commands: tuple[Mapping[str, Any], ...] = ()
    checks: tuple[tuple[str, str, bool | None, str], ...] = ()
    """What was checked, against what, whether it passed, and what else is said of it."""
    votes: tuple[tuple[str, str, str, bool], ...] = ()
    """Of a model: score, reason, the reply, and whether it was asked again for the right form."""
    rest: str = ""
    """All other details, as JSON."""


@dataclass(frozen=True, slots=True)
class Judging:
    """A result: the one that counts, or an earlier one."""

    title: str
    score: Score
    judgements: tuple[Judgement, ...] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class JudgeCall:
    """A model call of a judge."""

    name: str
    seconds: float
    status: str
    messages: CallMessages


def judges_page(view: View, request: PageRequest) -> Page:
    """The judgements of an attempt."""
    with open_attempt(view, request) as opened:
        result = opened.attempt.result
        earlier = _earlier_results(opened.store, opened.attempt.id)
        names = opened.store.log_names(opened.attempt.id, JUDGE_CALL)
        calls = [_read_call(name, opened.store.log(opened.attempt.id, name)) for name in names[:MOST_CALLS]]
        box = make_label_box(view, opened, "judges")
    every = [*earlier, *([result] if result else [])]
    titles = [f"result {place}" for place in range(1, len(every))] + ["the result that counts"]
    data = {
        "opened": opened,
        "result": result,
        "judgings": [read_judging(title, one) for title, one in zip(titles, every, strict=False)],
        "calls": calls,
        "calls_total": len(names),
        "box": box,
    }
    return Page("judges.html", f"Judges of {opened.rollout}", data, opened.crumbs(Crumb("judges")), opened.command)


def _earlier_results(store: Store, attempt: int) -> list[Result]:
    """What was made of the attempt before it was judged again, oldest first."""
    names = sorted(store.log_names(attempt, EARLIER_RESULT), key=lambda name: int(name.removeprefix(EARLIER_RESULT)))
    return [decode_result(store.log(attempt, name)) for name in names]


def read_judging(title: str, result: Result) -> Judging:
    """A result as the page shows it."""
    return Judging(title, result.score, tuple(_read(name, score) for name, score in result.judgements.items()))


def _read(name: str, score: Score) -> Judgement:
    details = score.details
    rest = {key: value for key, value in details.items() if key not in _SHOWN}
    return Judgement(
        name,
        score,
        tuple(one for one in _dicts(details, "commands")),
        tuple(map(_check, _dicts(details, "checks"))),
        tuple(map(_vote, _dicts(details, "votes"))),
        json.dumps(rest, indent=2, ensure_ascii=False) if rest else "",
    )


def _dicts(details: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """A list of mappings among the details, which any judge may fill with anything."""
    found = details.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _check(check: Mapping[str, Any]) -> tuple[str, str, bool | None, str]:
    passed = check.get("passed")
    more = {key: value for key, value in check.items() if key not in {"op", "arg", "passed"}}
    told = "; ".join(f"{key}: {_words(value)}" for key, value in more.items())
    return str(check.get("op", "")), _words(check.get("arg", "")), passed if isinstance(passed, bool) else None, told


def _vote(vote: Mapping[str, Any]) -> tuple[str, str, str, bool]:
    score = vote.get("score")
    shown = number(score, 2) if isinstance(score, int | float) else "unreadable"
    return shown, str(vote.get("reason", "")), str(vote.get("reply", "")), bool(vote.get("repaired"))


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_call(name: str, log: bytes) -> JudgeCall:
    call = json.loads(log)
    status = f"{call['status'] or 'no reply'}" + (f" {call['error']}" if call["error"] else "")
    return JudgeCall(
        name.removeprefix(JUDGE_CALL), call["ended"] - call["started"], status, read_messages(_exchange(call), None, 0)
    )


def _exchange(call: Mapping[str, Any]) -> Exchange:
    """A judge's call in the form of an agent's. Judges speak the chat dialect."""
    return Exchange(
        session="judge",
        index=0,
        dialect="chat",
        path=call["path"],
        request_headers=(),
        request=call["request"].encode(errors="surrogatepass"),
        upstream=call["upstream"],
        status=call["status"],
        response_headers=(),
        response=call["response"].encode(errors="surrogatepass"),
        attempts=1,
        error=None,
        started=call["started"],
        first_byte=None,
        ended=call["ended"],
        usage=None,
    )


ROUTES = (PageRoute("/runs/{run}/rollouts/{id}/judges", judges_page),)
