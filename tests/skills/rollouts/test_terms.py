"""Terms that are written down: a run goes on with the same or not at all."""

from pathlib import Path

import pytest

from whet.errors import UserError
from whet.paths import write_atomic
from whet.runs.options import RunOptions
from whet.skills.gate.plan import GatePlan
from whet.skills.rollouts.budget import Budget
from whet.skills.rollouts.terms import common_terms, compute_once, fix_terms

REQUEST = RunOptions(tasks=Path("tasks"), out=Path("out"), agents=("chat",), models=("m",))


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        ({"a": 1, "b": [1, 2]}, None),
        ({"a": 1, "b": [2, 1]}, "b"),
        ({"a": 2, "b": [1]}, "a, b"),
        ({"a": 1}, "b"),
        ({"a": 1, "b": [1, 2], "c": 0}, "c"),
    ],
)
def test_terms_that_changed_are_named(tmp_path: Path, now: dict[str, object], changed: str | None) -> None:
    file = tmp_path / "terms.json"
    fix_terms(file, {"a": 1, "b": (1, 2)})
    written = file.read_text()
    if changed is None:
        fix_terms(file, now)
    else:
        with pytest.raises(UserError) as told:
            fix_terms(file, now)
        assert str(told.value).startswith(f"{file}: the run started with other settings ({changed}); ")
    assert file.read_text() == written


@pytest.mark.parametrize(
    ("request_", "budget", "plan", "changed"),
    [
        (REQUEST.model_copy(update={"agents": ("loop",)}), Budget(9), GatePlan(9), "agent"),
        (REQUEST.model_copy(update={"models": ("o",)}), Budget(9), GatePlan(9), "model"),
        (REQUEST.model_copy(update={"judge_model": "o"}), Budget(9), GatePlan(9), "judge_model"),
        (REQUEST.model_copy(update={"sandbox": "local"}), Budget(9), GatePlan(9), "sandbox"),
        (REQUEST, Budget(10), GatePlan(9), "budget"),
        (REQUEST, Budget(9), GatePlan(9, seed=1), "plan"),
        (REQUEST.model_copy(update={"concurrency": 1, "resume": True}), Budget(9), GatePlan(9), None),
    ],
)
def test_all_that_decisions_rest_on_is_a_term(
    request_: RunOptions, budget: Budget, plan: GatePlan, changed: str | None
) -> None:
    before, now = common_terms(REQUEST, Budget(9), GatePlan(9)), common_terms(request_, budget, plan)
    assert [key for key in before if before[key] != now[key]] == ([changed] if changed else [])


def test_whoever_is_killed_over_a_file_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "terms.json"
    write_atomic(file, "old")

    def killed(self: Path, target: Path) -> None:
        assert self.read_text() == "new"
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(file, "new")
    assert file.read_text() == "old"


def test_what_was_found_once_is_not_looked_for_again(tmp_path: Path) -> None:
    assert [compute_once(tmp_path / "found.json", lambda found=found: found) for found in (7, 8)] == [7, 7]  # type: ignore[misc]
