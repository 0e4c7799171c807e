"""The result of one check, and the lines that it consists of."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

_MOST = 3
"""How many problems of one check are listed."""


class CheckState(StrEnum):
    OK = "ok"
    FAILED = "failed"
    NOT_CHECKED = "not checked"
    """A file that the check needs is missing, or only the maker of the run can know."""


@dataclass(frozen=True, slots=True)
class CheckLine:
    """One value of a certificate beside the value that was computed again, or found elsewhere."""

    what: str
    claimed: str
    computed: str
    state: CheckState = CheckState.OK
    problem: str = ""
    """What is wrong, in words; empty when another line says so already."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    state: CheckState
    found: str
    lines: tuple[CheckLine, ...] = field(default=(), repr=False)
    """What was looked at, also where all is right."""


def make_line(what: str, claimed: object, computed: object, *, wrong: bool = False, problem: str = "") -> CheckLine:
    """Return a line that fails if it is wrong."""
    state = CheckState.FAILED if wrong else CheckState.OK
    return CheckLine(what, shorten(claimed), shorten(computed), state, problem if wrong else "")


def judge_lines(name: str, lines: Iterable[CheckLine], right: str, more: Iterable[str] = ()) -> CheckResult:
    """Return a check that fails if any of its lines does, or if there are more problems.

    >>> judge_lines("alpha", [make_line("alpha", 0.9, "at most 0.5", wrong=True, problem="alpha is 0.9")], "0.1")
    CheckResult(name='alpha', state=<CheckState.FAILED: 'failed'>, found='alpha is 0.9')
    """
    looked = tuple(lines)
    extra = list(more)
    rest = [CheckLine(problem, "", "", CheckState.FAILED) for problem in extra]
    problems = [one.problem for one in looked if one.problem] + extra
    return replace(judge(name, problems, right), lines=(*looked, *rest))


def judge(name: str, wrong: Iterable[str], right: str) -> CheckResult:
    """Return a check that fails if there are any problems.

    >>> judge("alpha", [], "0.1")
    CheckResult(name='alpha', state=<CheckState.OK: 'ok'>, found='0.1')
    """
    problems = list(wrong)
    return (
        CheckResult(name, CheckState.FAILED, _join(problems)) if problems else CheckResult(name, CheckState.OK, right)
    )


def not_checked(name: str, why: str) -> CheckResult:
    return CheckResult(name, CheckState.NOT_CHECKED, why)


def count_of(number: int, noun: str) -> str:
    """
    >>> count_of(1, "exam"), count_of(2, "exam")
    ('1 exam', '2 exams')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def compare(what: str, claimed: Mapping[str, object], found: Mapping[str, object]) -> Iterator[CheckLine]:
    """Compare two mappings, key by key."""
    for key in dict.fromkeys([*claimed, *found]):
        mine, other = claimed.get(key), found.get(key)
        problem = f"{what} {key} is {shorten(mine)}, expected {shorten(other)}"
        name = key.replace("_", " ") if what.endswith(":") else f"{what} {key}"
        yield make_line(name, mine, other, wrong=mine != other, problem=problem)


def differences(what: str, claimed: Mapping[str, object], found: Mapping[str, object]) -> Iterator[str]:
    """Describe where two mappings differ, key by key."""
    return (one.problem for one in compare(what, claimed, found) if one.problem)


def _join(problems: list[str]) -> str:
    more = f"; and {len(problems) - _MOST} more" if len(problems) > _MOST else ""
    return "; ".join(problems[:_MOST]) + more


def shorten(value: object) -> str:
    """What stands for a value in a line."""
    text = "missing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
