"""Several amounts of each row as bars, one column for each kind of amount."""

from collections.abc import Sequence
from dataclasses import dataclass

from whet.look.numbers import UNKNOWN
from whet.look.plots.drawing import Bar, Data, Drawing

ROW = 22.0
_TOP = 24.0
_NAMES = 96.0
_BAR = 110.0


@dataclass(frozen=True, slots=True)
class Amounts:
    """One column: values, None where they are unknown, and how each reads."""

    name: str
    values: Sequence[float | None]
    texts: Sequence[str]


def draw_amounts(title: str, rows: Sequence[str], columns: Sequence[Amounts], width: float) -> Drawing:
    """Bars in columns; each column has its own scale."""
    drawing = Drawing(width, _TOP + ROW * len(rows) + 8, title)
    for place, name in enumerate(rows):
        drawing.text(0, _middle(place) + 4, name)
    room = (width - _NAMES) / max(1, len(columns))
    for number, column in enumerate(columns):
        _draw_column(drawing, column, _NAMES + number * room)
    return drawing


def _draw_column(drawing: Drawing, column: Amounts, start: float) -> None:
    drawing.text(start, _TOP - 10, column.name, "faint")
    most = max((value for value in column.values if value is not None), default=0) or 1
    for place, (value, text) in enumerate(zip(column.values, column.texts, strict=True)):
        middle = _middle(place)
        long = _BAR * (value or 0) / most
        if value:
            data: Data = {"name": column.name, "value": value}
            drawing.add(Bar(start, middle - 7, max(long, 1), 14, "quiet", data=data))
        drawing.text(start + (long + 8 if value else 0), middle + 4, UNKNOWN if value is None else text, "faint")


def _middle(place: int) -> float:
    return _TOP + ROW * (place + 0.5)
