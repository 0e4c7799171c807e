"""Packages that few need: whet runs without them, and names the extra where one is needed."""

import sys
from pathlib import Path

import pytest

from support.whet_program import Project, said_to_user
from whet.tasks import read_tasks


@pytest.fixture
def plain(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project of somebody who typed `pip install whet`."""
    for name in ("pyarrow", "math_verify", "xllamacpp", "azure", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    project.write("script.toml", '[[scene]]\n[[scene.reply]]\ntext = "42"\n')
    return project


def run(project: Project, **row: object) -> list[str]:
    tasks = project.rows("t.jsonl", {"id": "t", "instruction": "What is 6 times 7?", **row})
    return ["run", tasks, "--agent", "chat", "--model", "scripted:script.toml", "--out", "out"]


def test_runs_and_text_exports_need_no_extra(plain: Project) -> None:
    assert plain.whet(*run(plain, answer="42")).returncode == 0
    assert plain.whet("show", "out").returncode == 0
    assert plain.whet("export", "out", "--format", "chat", "--out", "chat.jsonl").returncode == 0


def test_tables_name_their_extra(plain: Project) -> None:
    assert plain.whet(*run(plain, answer="42")).returncode == 0
    said = said_to_user(plain.whet("export", "out", "--format", "parquet", "--out", "tables"))
    assert said == "whet: Parquet files and Arrow tables need one more package: pip install 'whet[parquet]'"
    assert not (plain.path / "tables").exists()


def test_rows_in_parquet_name_their_extra(plain: Project, tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    with pytest.raises(Exception, match=r"pip install 'whet\[parquet\]'"):
        read_tasks(tmp_path / "t.parquet")


def test_math_names_its_extra_before_anything_is_run(plain: Project) -> None:
    said = said_to_user(plain.whet(*run(plain, answer="42", judge="math")))
    assert said.endswith("t.jsonl:1: judges of kind 'math' need one more package: pip install 'whet[math]'")
    assert not (plain.path / "out").exists()
