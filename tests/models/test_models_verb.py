"""`whet models`: what is printed of models, and the proof that one works."""

import os
from pathlib import Path

from support.models_world import smollm2_fixture as smollm2_fixture
from support.whet_program import Project, said_to_user
from whet.exchange import EXACT
from whet.models import PulledModel


def test_models_are_listed_with_what_is_known_of_them(project: Project, tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(b"GGUF" + bytes(2_000_000))
    empty = Project(project.path, project.tmp, {"WHET_MODELS": str(tmp_path / "models"), "COLUMNS": "300"})
    pulled = empty.whet("models", "pull", str(tmp_path / "own.gguf"), "--name", "mine")
    assert pulled.returncode == 0, pulled.stderr
    assert pulled.stdout.startswith("local/mine: 2 MB, sha256 ")
    heading, *rows = [line.split() for line in empty.whet("models", "list").stdout.splitlines()]
    assert heading == ["model", "size", "sha256", "pulled", "from", "file"]
    assert rows[0][:4] == ["mine", "2", "MB", rows[0][3]]
    assert rows[0][4:] == ["yes", str(tmp_path / "own.gguf"), str(tmp_path / "models" / "mine" / "model.gguf")]
    assert rows[1] == ["smollm2", "98", "MB", "b179c9523d0e", "no", "smollm2", "-"]


def test_a_check_proves_that_tokens_are_exact_and_the_same_again(project: Project, smollm2: PulledModel) -> None:
    done = project.whet("models", "check", "smollm2")
    assert done.returncode == 0, done.stderr
    lines = dict(line.strip().split("  ", 1) for line in done.stdout.splitlines())
    said = {name: value.strip() for name, value in lines.items()}
    assert said["smollm2"] == "works"
    assert said["weights"] == "as they were pulled"
    assert said["ids and log-probabilities"] == EXACT
    assert said["ids decode to the text"] == "yes"
    assert said["same seed, same tokens"] == "bit-identical"
    assert float(said["speed"].split()[0]) > 0


def test_a_check_refuses_weights_that_have_changed(project: Project, smollm2: PulledModel, tmp_path: Path) -> None:
    (tmp_path / "copy.gguf").write_bytes(smollm2.file.read_bytes())
    other = Project(project.path, project.tmp, {"WHET_MODELS": str(tmp_path / "models")})
    assert other.whet("models", "pull", str(tmp_path / "copy.gguf")).returncode == 0
    with (tmp_path / "copy.gguf").open("r+b") as written:
        written.seek(-1, os.SEEK_END)
        written.write(b"!")
    said = said_to_user(other.whet("models", "check", "copy"))
    assert "copy/model.gguf: is not what was pulled: its sha256 is " in said
    assert said.endswith(f"expected {smollm2.sha256}")
