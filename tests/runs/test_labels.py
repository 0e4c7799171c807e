"""Labels: only ever added, read while a run lives, a score by an explicit act alone, and never read by statistics."""

import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from support.run_world import perform, questions, read_results, scripted, values, write_rows
from whet.errors import UserError
from whet.runs.config import Config, read_config
from whet.runs.export import export_run
from whet.runs.labels import DEFAULT_SETS, LABELS, LONGEST_NOTE, NOTE, NewLabel, RunLabels
from whet.runs.options import ExportOptions, RejudgeOptions
from whet.runs.rejudge import Judged, rejudge
from whet.runs.store.store import Store
from whet.scoring import Cause
from whet.testing import Reply

SOURCES = Path(__file__).parents[2] / "src" / "whet"


def label(value: str | None = "good", author: str = "ana", attempt: int = 1, **more: object) -> NewLabel:
    return NewLabel(author, f"r{attempt}", attempt, **{"name": "verdict", "value": value, **more})  # type: ignore[arg-type]


def shown(folder: Path) -> list[tuple[str, str | None]]:
    return [(one.author, one.value) for one in RunLabels(folder).current()]


def rows(folder: Path) -> int:
    db = sqlite3.connect(folder / LABELS)
    (count,) = db.execute("SELECT count(*) FROM label").fetchone()
    db.close()
    return int(count)


def test_a_correction_is_a_row_that_replaces_another(tmp_path: Path) -> None:
    labels = RunLabels(tmp_path)
    labels.add([label("good"), label("bad", "li")], at=1.0)
    labels.add([label("cheat")], at=2.0)
    assert shown(tmp_path) == [("li", "bad"), ("ana", "cheat")]
    assert rows(tmp_path) == 3
    (_, newest) = labels.current()
    assert (newest.at, newest.replaces) == (2.0, 1)


def test_a_label_of_a_step_does_not_replace_that_of_the_whole(tmp_path: Path) -> None:
    labels = RunLabels(tmp_path)
    labels.add([label("good"), label("bad", step=7)], at=1.0)
    assert [(one.value, one.step) for one in labels.current()] == [("good", None), ("bad", 7)]


def test_taking_back_adds_a_row_and_is_for_the_author_alone(tmp_path: Path) -> None:
    labels = RunLabels(tmp_path)
    labels.add([label("good")], at=1.0)
    (first,) = labels.current()
    with pytest.raises(UserError, match="a label of 'li' that still holds"):
        labels.withdraw(first.id, "li", at=2.0)
    labels.withdraw(first.id, "ana", at=2.0)
    assert (shown(tmp_path), rows(tmp_path)) == ([], 2)
    with pytest.raises(UserError, match="that still holds"):
        labels.withdraw(first.id, "ana", at=3.0)


def test_notes_stay_side_by_side(tmp_path: Path) -> None:
    labels = RunLabels(tmp_path)
    for text in ("first", "second \udc80", "x" * 9000):
        labels.add([label("", name=NOTE, note=text)], at=1.0)
    assert [one.note for one in labels.current()] == ["first", "second �", "x" * LONGEST_NOTE]


def test_all_labels_of_one_call_are_set_or_none(tmp_path: Path) -> None:
    labels = RunLabels(tmp_path)
    broken = NewLabel("ana", "r2", "not a number", "verdict", "good")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="labels cannot be read or written"):
        labels.add([label("good"), broken], at=1.0)
    assert shown(tmp_path) == []


def test_reading_makes_no_file_and_works_in_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    assert shown(tmp_path) == []
    assert not (tmp_path / LABELS).exists()
    RunLabels(tmp_path).add([label("good")], at=1.0)
    (tmp_path / LABELS).chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert shown(tmp_path) == [("ana", "good")]
    finally:
        tmp_path.chmod(0o700)


def test_labels_are_set_while_the_run_is_written(tmp_path: Path) -> None:
    with Store.create(tmp_path) as store:
        before = (tmp_path / "run.db").read_bytes()
        RunLabels(tmp_path).add([label("good")], at=1.0)
        assert shown(tmp_path) == [("ana", "good")]
        assert (tmp_path / "run.db").read_bytes() == before
        store.set("still", "writable")


def test_many_write_at_once(tmp_path: Path) -> None:
    def write(author: str) -> None:
        for attempt in range(5):
            RunLabels(tmp_path).add([label("good", author, attempt)], at=1.0)

    writers = [threading.Thread(target=write, args=(f"a{n}",)) for n in range(4)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert len(shown(tmp_path)) == 20


def test_some_other_database_is_refused(tmp_path: Path) -> None:
    RunLabels(tmp_path).add([label("good")], at=1.0)
    db = sqlite3.connect(tmp_path / LABELS)
    db.execute("CREATE VIEW endless AS SELECT 1")
    db.commit()
    with pytest.raises(UserError, match="some other database"):
        RunLabels(tmp_path).current()
    db.execute("DROP VIEW endless")
    db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(UserError, match="use a newer whet"):
        RunLabels(tmp_path).current()
    (tmp_path / LABELS).write_bytes(b"no database, but long enough to look at" * 100)
    with pytest.raises(UserError, match=str(tmp_path / LABELS)):
        RunLabels(tmp_path).current()


def test_whet_toml_names_the_labels(tmp_path: Path) -> None:
    assert Config().view.labels == DEFAULT_SETS
    file = tmp_path / "whet.toml"
    file.write_text('[view.labels]\nquality = ["high", "low"]\n')
    assert read_config(file).view.labels == {"quality": ("high", "low")}
    for wrong in ("quality = []", 'note = ["a"]', 'Quality = ["a"]'):
        file.write_text(f"[view.labels]\n{wrong}\n")
        with pytest.raises(UserError, match="view"):
            read_config(file)


async def test_rejudge_makes_a_score_of_labels_when_a_file_says_so(tmp_path: Path) -> None:
    await perform(questions(tmp_path, "a", "b", "c"), scripted(tmp_path, {"": Reply(text="yes")}))
    before = values(tmp_path / "run")
    with Store.open_read(tmp_path / "run") as store:
        attempts = {row.rollout.task: row.attempt.id for row in store.results()}
    labels = RunLabels(tmp_path / "run")
    labels.add([label("good", "ana", attempts["a"]), label("bad", "li", attempts["a"])], at=1.0)
    labels.add([label("unsure", "ana", attempts["b"]), label("good", "ana", attempts["c"], step=3)], at=1.0)
    assert values(tmp_path / "run") == before  # nothing else makes a score of them

    file = tmp_path / "labels.toml"
    file.write_text("[[human]]\nscores = {good = 1, bad = 0}\n")
    seen: list[Judged] = []
    await rejudge(RejudgeOptions(run=tmp_path / "run", judge=file), Config(), seen.append, env={})
    found = {row.task: result for row, result in read_results(tmp_path / "run")}
    human = {task: result.judgements["human"] for task, result in found.items()}
    assert (human["a"].value, human["a"].reason) == (0.5, "verdict: good (ana), bad (li)")
    assert (human["b"].value, human["b"].cause) == (None, Cause.JUDGE)
    assert "nobody has set one" in human["c"].reason  # a label of one step is not about the whole
    assert found["b"].score.cause is Cause.JUDGE  # missing is never zero
    with Store.open_read(tmp_path / "run") as store:
        assert "result 1" in store.log_names(attempts["a"])

    file.write_text("[[human]]\nweight = 0\nauthors = ['ana']\nscores = {good = 1, bad = 0}\n")
    await rejudge(RejudgeOptions(run=tmp_path / "run", judge=file), Config(), seen.append, env={})
    again = {row.task: result for row, result in read_results(tmp_path / "run")}
    assert again["a"].judgements["human"].value == 1
    assert values(tmp_path / "run") == before  # recorded, and it does not count


async def test_exports_have_labels_only_on_request(tmp_path: Path) -> None:
    await perform(questions(tmp_path, "a", "b"), scripted(tmp_path, {"": Reply(text="yes")}))
    run = tmp_path / "run"
    with Store.open_read(run) as store:
        attempt = next(row.attempt.id for row in store.results() if row.rollout.task == "a")
    RunLabels(run).add([label("cheat", "ana", attempt, note="copied", step=2)], at=5.0)
    expected = {"author": "ana", "at": 5.0, "name": "verdict", "value": "cheat", "note": "copied", "step": 2}

    def exported(kind: str, **options: bool) -> Path:
        out = tmp_path / f"{kind}-{len(options)}"
        export_run(ExportOptions(run=run, format=kind, out=out, **options))
        return out

    def lines(out: Path) -> dict[str, dict[str, Any]]:
        return {one["task_id"]: one for one in map(json.loads, out.read_text().splitlines())}

    with_labels = lines(exported("chat", labels=True))
    assert (with_labels["a"]["labels"], with_labels["b"]["labels"]) == ([expected], [])
    assert "labels" not in exported("chat").read_text()
    documents = [json.loads(path.read_text()) for path in exported("atif", labels=True).glob("*.json")]
    assert {one["extra"]["task_id"]: one["extra"]["labels"] for one in documents} == {"a": [expected], "b": []}
    assert not any("labels" in path.read_text() for path in exported("atif").glob("*.json"))
    pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    column = pq.read_table(exported("parquet", labels=True) / "rollouts.parquet")["labels"].to_pylist()
    assert sorted(map(json.loads, column), key=len) == [[], [expected]]
    assert pq.read_table(exported("parquet") / "rollouts.parquet")["labels"].to_pylist() == [None, None]
    with pytest.raises(
        UserError, match="format 'verl' has no place for them; expected one of rows, chat, atif, parquet"
    ):
        exported("verl", labels=True)


def test_a_task_cannot_name_people_as_its_judge(tmp_path: Path) -> None:
    from whet.tasks import read_tasks

    rows_file = write_rows(tmp_path, {"id": "q", "instruction": "q", "judge": {"kind": "human", "scores": {"good": 1}}})
    with pytest.raises(UserError, match=r"human.*rejudge"):
        read_tasks([rows_file])


def test_only_few_modules_know_of_labels() -> None:
    """import-linter forbids imports; this looks for the file's name, so that nothing reads it in another way."""
    knowing = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if "labels.db" in path.read_text(encoding="utf-8") or "runs.labels" in path.read_text(encoding="utf-8")
    }
    measuring = ("runs/stats/", "runs/index", "runs/progress", "skills/", "sleep/", "serve/", "rollout/", "scoring/")
    assert [name for name in knowing if name.startswith(measuring)] == []
