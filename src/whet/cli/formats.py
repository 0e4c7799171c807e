"""How data leaves a verb: as a table for people, as Markdown for a page, as CSV or JSON for programs."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whet.cli.output import visible

if TYPE_CHECKING:
    from whet.cli.tables import TextTable


class Format(StrEnum):
    """What a verb prints."""

    TABLE = "table"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="table, md (Markdown), csv or json.")]


def to_json(document: Any) -> str:
    """JSON on several lines, in which what is not JSON's own (a path, a name of a closed list) is a text."""
    return json.dumps(document, indent=1, default=str)


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """A line per record. What a record lacks is empty; lists and counts are one text.

    >>> print(to_csv([{"task": "a", "score": 1.0, "tools": {"bash": 2}}, {"task": "b", "flags": ["canary"]}]), end="")
    task,score,tools,flags
    a,1.0,bash 2,
    b,,,canary
    """
    stream = io.StringIO()
    columns = dict.fromkeys(key for record in records for key in record)
    writer = csv.DictWriter(stream, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _plain(value) for key, value in record.items()} for record in records)
    return stream.getvalue()


def to_markdown(*tables: "TextTable") -> str:
    """Tables of Markdown, with a blank line between them. No text of a cell can end it."""
    return "\n".join("\n".join(_markdown_lines(table)) + "\n" for table in tables)


def _markdown_lines(table: "TextTable") -> Iterable[str]:
    yield _markdown_row(column.heading for column in table.columns)
    yield _markdown_row("---:" if column.right else "---" for column in table.columns)
    for row in table.rows:
        yield _markdown_row(_escape(cell.plain) for cell in row)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    for character in "\\|`*_<[":
        text = text.replace(character, f"\\{character}")
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        value = ", ".join(f"{key} {_plain(count)}" for key, count in value.items())
    elif isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    return " ".join(visible(value).split("\n")) if isinstance(value, str) else value
