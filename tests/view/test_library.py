"""Which runs the view finds, and which rollouts nobody may read yet."""

from pathlib import Path

import pytest

from support.view_worlds import write_many_rollouts
from whet.errors import UserError
from whet.runs.store.store import Store
from whet.skills.certificates.certificate import CERTIFICATE
from whet.skills.documents.history import TERMS
from whet.skills.measurement import RunPart
from whet.view.library import Library


@pytest.fixture
def sharpened(tmp_path: Path) -> Path:
    """The folder of a run of sharpening with search and exam, which has not ended."""
    folder = tmp_path / "runs" / "sharpened"
    for part in (RunPart.SEARCH, RunPart.EXAM):
        write_many_rollouts(folder / part, tasks=2, arms=1, samples=1)
    (folder / TERMS).write_text("{}")
    return folder


def library_of(sharpened: Path) -> Library:
    return Library([sharpened.parent])


def test_the_exam_is_hidden_until_the_run_has_ended(sharpened: Path) -> None:
    exam = f"sharpened/{RunPart.EXAM}"
    with pytest.raises(UserError, match="stays hidden until that run has ended"):
        library_of(sharpened).snapshot(exam)
    assert len(library_of(sharpened).count(exam).rows) == 2, "how many rollouts there are is not hidden"
    assert len(library_of(sharpened).snapshot(f"sharpened/{RunPart.SEARCH}").rows) == 2
    (sharpened / CERTIFICATE).write_text("{}")
    assert len(library_of(sharpened).snapshot(exam).rows) == 2


def test_the_exam_of_a_run_that_is_resumed_is_hidden_again(sharpened: Path) -> None:
    (sharpened / CERTIFICATE).write_text("{}")
    with Store.open_write(sharpened / RunPart.EXAM), pytest.raises(UserError, match="stays hidden"):
        library_of(sharpened).snapshot(f"sharpened/{RunPart.EXAM}")
