"""How `whet sharpen` and `whet certify` end before their verdict, and what they count meanwhile."""

import errno
import io
from pathlib import Path

import pytest
import typer

from whet.cli.asking import count_rollouts, report_pilot, resumable
from whet.cli.tables import Terminal
from whet.errors import UserError
from whet.exchange import Usage
from whet.gateway import Spent
from whet.rollout.result import Result
from whet.runs.scheduler import Ended
from whet.runs.stats.use import Piloted, RolloutUse
from whet.runs.store.schema import RolloutRow
from whet.scoring import Cause, Score
from whet.skills.measurement import NotMeasured

OUT = Path("runs/one")
AGAIN = "whet certify old new --out runs/one --resume"


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["whet", "certify", "old", "new"])


def test_what_was_not_measured_is_no_verdict_and_says_how_to_try_again() -> None:
    with pytest.raises(UserError) as told, resumable(OUT):
        raise NotMeasured("the model is down")
    expected = "run incomplete: the model is down; no conclusion about the skill. Resume with:\n  "
    assert str(told.value) == expected + AGAIN


def test_whoever_interrupts_it_is_told_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), resumable(OUT):
        raise KeyboardInterrupt
    assert capsys.readouterr().out == f"\nstopped. Resume with:\n  {AGAIN}\n"


@pytest.mark.parametrize(
    ("error", "file"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "runs/one"),
        (OSError(errno.EACCES, "Permission denied", "runs/one/best"), "runs/one/best"),
    ],
)
def test_what_cannot_be_written_says_how_to_go_on(error: OSError, file: str) -> None:
    with pytest.raises(UserError) as told, resumable(OUT):
        raise error
    expected = f"{file}: cannot be written: {error.strerror}; everything stored so far is kept. Resume with:\n  "
    assert str(told.value) == expected + AGAIN


def test_what_is_wrong_elsewhere_is_not_taken_for_the_run_folder() -> None:
    with pytest.raises(FileNotFoundError), resumable(OUT):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "elsewhere/program")


def test_a_rollout_that_is_tried_again_is_counted_once() -> None:
    shown = io.StringIO()
    row = RolloutRow("r", 0, "task", "chat", "m", None, 0)
    failed, done = Result(score=Score.missing(Cause.MODEL, "down")), Result(score=Score.of(1.0))
    with count_rollouts(Terminal(file=shown, force_terminal=True, width=80), "200", OUT, yes=False) as count:
        count(Ended(row, 1, failed, again=True))
        for attempt in (2, 3):
            count(Ended(row, attempt, done, again=False))
    assert "2 rollouts so far; at most 200 rollouts" in shown.getvalue()
    assert "3 rollouts" not in shown.getvalue()


def piloted(dollars: float, seconds: float = 1.0, *, priced: bool = True, rollouts: int | None = 100) -> Piloted:
    least, most = (Spent(0, Usage(1000, 0), factor * dollars, factor * seconds) for factor in (1, 2))
    return Piloted(RolloutUse(least, most, 4, priced), rollouts)


def ask(
    found: Piloted, answer: str, monkeypatch: pytest.MonkeyPatch, *, yes: bool = False, is_terminal: bool = True
) -> tuple[str, bool]:
    """What is printed after a pilot, and whether anybody was asked."""
    shown, asked = io.StringIO(), list[str]()
    console = Terminal(file=shown, force_terminal=is_terminal, width=200)

    def read(prompt: str, *, markup: bool) -> str:
        assert not markup, "brackets are shown"
        asked.append(prompt)
        return answer

    monkeypatch.setattr(console, "input", read)
    monkeypatch.setattr("sys.stdin.isatty", lambda: is_terminal, raising=False)
    report_pilot(console, found, OUT, yes=yes)
    return shown.getvalue(), bool(asked)


def test_an_expensive_run_is_asked_about_on_a_terminal_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    told, asked = ask(piloted(0.02), "y", monkeypatch)
    assert asked
    assert "pilot of 4 rollouts: all 100 will use about 100k tokens, $2.00 to $4.00 and 1.67 min to 3.33 min" in told
    with pytest.raises(typer.Exit):
        ask(piloted(0.02), "", monkeypatch)
    assert not ask(piloted(0.02), "", monkeypatch, yes=True)[1]
    assert not ask(piloted(0.02), "", monkeypatch, is_terminal=False)[1]
    assert not ask(piloted(0.004), "", monkeypatch)[1], "less than a dollar"
    assert ask(piloted(0.0, seconds=30.0), "y", monkeypatch)[1], "half an hour or more"
    assert not ask(piloted(0.0, priced=False), "", monkeypatch)[1], "few tokens"
    told, asked = ask(piloted(9.0, rollouts=None), "", monkeypatch)
    assert not asked, "its budget says what it may cost"
    assert "one more adds about 1k tokens, $9.00 to $18.00 and 1 s to 2 s; the budget ends the run" in told
    told, asked = ask(Piloted(None, 100), "y", monkeypatch)
    assert asked
    assert "what the run will cost is not known" in told
