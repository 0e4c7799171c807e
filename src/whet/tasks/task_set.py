"""Reads `NAME.tasks.toml`: how the columns of a data set become tasks."""

import csv
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from whet.errors import UserError, did_you_mean
from whet.validation_errors import explain, user_error

SUFFIX = ".tasks.toml"
_COLUMN = re.compile(r"\{(\w+)\}")
_TEXTS = frozenset({"id", "answer"})
"""Keys whose values are often numbers in data sets."""


class Band(BaseModel):
    """The rows to keep: those whose number in a column lies between two bounds, which belong to the band."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    column: str
    min: float | None = None
    max: float | None = None

    def holds(self, row: Mapping[str, Any], where: str) -> bool:
        """Whether a row is kept. UserError when its column holds no number."""
        value = _column(self.column, row, where)
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise UserError(f"{where}: column '{self.column}' is {value!r}; expected a number") from error
        return (self.min is None or number >= self.min) and (self.max is None or number <= self.max)


class TaskSet(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: Path
    """The data set: a .jsonl, .parquet or .csv file, relative to this file."""
    instruction: str = Field(min_length=1)
    """The instruction, with `{column}` for what a row holds in that column."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Which column another key of a task comes from, such as answer = "solution"."""
    difficulty: Band | None = None
    """Keeps rows by their difficulty, or by any other number."""
    task: dict[str, Any] = Field(default_factory=dict)
    """Keys that all tasks have, such as `judge` and `limits`."""

    @field_validator("columns")
    @classmethod
    def _instruction_is_a_template(cls, columns: dict[str, str]) -> dict[str, str]:
        if "instruction" in columns:
            raise ValueError("has 'instruction'; expected the key 'instruction' with a text such as \"{question}\"")
        return columns

    @model_validator(mode="after")
    def _each_key_comes_from_one_place(self) -> Self:
        if both := sorted({*self.columns, "instruction"} & self.task.keys()):
            raise ValueError(f"gives '{both[0]}' in 'task' and elsewhere; expected it in one place")
        return self

    def make_row(self, row: Mapping[str, Any], where: str) -> dict[str, Any] | None:
        """A row of the data set as the row of a task; None when it is not kept."""
        if self.difficulty is not None and not self.difficulty.holds(row, where):
            return None
        columns = {key: _column(column, row, where) for key, column in self.columns.items()}
        named = {key: str(value) if key in _TEXTS else value for key, value in columns.items()}
        instruction = _COLUMN.sub(lambda found: str(_column(found[1], row, where)), self.instruction)
        return {**self.task, **named, "instruction": instruction}


def _column(name: str, row: Mapping[str, Any], where: str) -> Any:
    """What a row holds in a column."""
    if name not in row:
        raise UserError(f"{where}: has no column '{name}'; {did_you_mean(name, list(row))}")
    return row[name]


def read_task_set(file: Path) -> TaskSet:
    """Read and check the file."""
    try:
        given = TaskSet.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: not TOML: {error}") from error
    except ValidationError as error:
        raise user_error(explain(error, str(file), TaskSet)) from error
    return given.model_copy(update={"rows": file.parent / given.rows})


def csv_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a CSV file with a heading. An empty field counts as absent."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            for row in csv.DictReader(lines, strict=True):
                yield {key: value for key, value in row.items() if key is not None and value not in (None, "")}
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {error}; expected a CSV file in UTF-8 with a heading") from error
