"""How `whet sharpen` and `whet certify` end before their verdict, and what they count meanwhile."""

import errno
import io
from pathlib import Path

import pytest

from whet.cli.asking import count_rollouts, resumable
from whet.cli.tables import Terminal
from whet.errors import UserError
from whet.rollout.result import Result
from whet.runs.scheduler import Ended
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
    with count_rollouts(Terminal(file=shown, force_terminal=True, width=80), "200") as count:
        count(Ended(row, 1, failed, again=True))
        for attempt in (2, 3):
            count(Ended(row, attempt, done, again=False))
    assert "2 rollouts so far; at most 200 rollouts" in shown.getvalue()
    assert "3 rollouts" not in shown.getvalue()
