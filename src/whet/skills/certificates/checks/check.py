"""A check by its name: whether it holds, and what was found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

_MOST = 3
"""So many problems of one check are listed."""


class CheckState(StrEnum):
    OK = "ok"
    FAILED = "failed"
    NOT_CHECKED = "not checked"
    """What it takes is not there, or nobody but the one who made the run can know."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was looked at, and what was found."""

    name: str
    state: CheckState
    found: str


def judge(name: str, wrong: Iterable[str], right: str) -> CheckResult:
    """A check that fails when anything is wrong.

    >>> judge("alpha", [], "0.1")
    CheckResult(name='alpha', state=<CheckState.OK: 'ok'>, found='0.1')
    """
    problems = list(wrong)
    return (
        CheckResult(name, CheckState.FAILED, _join(problems)) if problems else CheckResult(name, CheckState.OK, right)
    )


def not_checked(name: str, why: str) -> CheckResult:
    return CheckResult(name, CheckState.NOT_CHECKED, why)


def differences(what: str, claimed: Mapping[str, object], found: Mapping[str, object]) -> Iterable[str]:
    """Where two mappings differ, key by key."""
    for key in dict.fromkeys([*claimed, *found]):
        if claimed.get(key) != found.get(key):
            yield f"{what} {key} is {_short(claimed.get(key))}, expected {_short(found.get(key))}"


def _join(problems: list[str]) -> str:
    more = f"; and {len(problems) - _MOST} more" if len(problems) > _MOST else ""
    return "; ".join(problems[:_MOST]) + more


def _short(value: object) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
