"""The result of one check."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

_MOST = 3
"""How many problems of one check are listed."""


class CheckState(StrEnum):
    OK = "ok"
    FAILED = "failed"
    NOT_CHECKED = "not checked"
    """A file that the check needs is missing, or only the maker of the run can know."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    state: CheckState
    found: str


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


def differences(what: str, claimed: Mapping[str, object], found: Mapping[str, object]) -> Iterable[str]:
    """Describe where two mappings differ, key by key."""
    for key in dict.fromkeys([*claimed, *found]):
        if claimed.get(key) != found.get(key):
            yield f"{what} {key} is {_short(claimed.get(key))}, expected {_short(found.get(key))}"


def _join(problems: list[str]) -> str:
    more = f"; and {len(problems) - _MOST} more" if len(problems) > _MOST else ""
    return "; ".join(problems[:_MOST]) + more


def _short(value: object) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
