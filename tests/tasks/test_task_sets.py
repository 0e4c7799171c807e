"""Data sets with columns of their own: what `NAME.tasks.toml` makes of them, and what is said of mistakes."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whet.errors import UserError
from whet.tasks import read_tasks

SET = """
rows = "math.jsonl"
instruction = '''Solve it.

{question}

Put the result into \\boxed{}.'''
columns = { id = "uid", answer = "solution", tags = "topics" }
difficulty = { column = "avg_reward", min = 0.1, max = 0.9 }
task = { judge = "math", limits = { agent_sec = 60 } }
"""
ROWS = [
    {"uid": 7, "question": "1 + {1}?", "solution": 2, "avg_reward": 0.5, "topics": ["sums"], "source": "book"},
    {"uid": 8, "question": "1 + 2?", "solution": 3, "avg_reward": 0.95, "topics": []},
    {"uid": 9, "question": "1 + 3?", "solution": 4, "avg_reward": "0.9", "topics": []},
]


def write_set(folder: Path, text: str = SET, rows: list[dict[str, object]] | None = None) -> Path:
    (folder / "math.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows or ROWS))
    (folder / "math.tasks.toml").write_text(text)
    return folder / "math.tasks.toml"


def test_columns_become_tasks_and_a_band_of_difficulty_is_kept(tmp_path: Path) -> None:
    first, second = read_tasks(write_set(tmp_path))
    assert first.instruction == "Solve it.\n\n1 + {1}?\n\nPut the result into \\boxed{}."
    assert (first.id, first.answer, first.tags, first.judge[0].kind) == ("7", "2", ("sums",), "math")
    assert first.limits.agent_sec == 60
    assert second.id == "9"
    assert read_tasks(tmp_path) == [first, second]  # the data set itself is not taken for tasks


def test_data_sets_can_be_parquet_and_csv(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([{"q": "2 + 2?", "a": 4}]), tmp_path / "sums.parquet")
    (tmp_path / "sums.csv").write_text('q,a\n"2 + 2, or so?",4\n')
    for data, question in (("sums.parquet", "2 + 2?"), ("sums.csv", "2 + 2, or so?")):
        chosen = tmp_path / "sums.tasks.toml"
        chosen.write_text(f'rows = "{data}"\ninstruction = "{{q}}"\ncolumns = {{ answer = "a" }}\n')
        (task,) = read_tasks(chosen)
        assert (task.id, task.instruction, task.answer) == ("sums-1", question, "4")
    (tmp_path / "rows.csv").write_text("instruction,answer\n2 + 2?,4\n")
    assert read_tasks(tmp_path / "rows.csv")[0].answer == "4"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SET.replace("{question}", "{qestion}"), "math.jsonl:1: has no column 'qestion'; did you mean 'question'?"),
        (SET.replace("avg_reward", "topics"), "math.jsonl:1: column 'topics' is ['sums']; expected a number"),
        (SET.replace("columns", "colums"), "unknown key 'colums'; did you mean 'columns'?"),
        (SET.replace('judge = "math"', 'answer = "4"'), "gives 'answer' in 'task' and elsewhere"),
        (SET.replace("math.jsonl", "math.xlsx"), "expected a .jsonl, .parquet or .csv file"),
        (SET.replace('judge = "math"', 'juge = "math"'), "unknown key 'juge'; did you mean 'judge'?"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError) as told:
        read_tasks(write_set(tmp_path, text))
    assert said in str(told.value)
