"""How numbers, tables and prose look on a terminal."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from whet.cli.output import terminal_stream, visible, width_of, wrap

UNLIMITED = 1_000_000
"""The width of a pipe or file."""
GAP = 2
"""Blanks between two columns."""
LEAST = 40
"""A column that gives way keeps so many characters, or all that it needs; otherwise it stands below its rows."""


class Terminal(Console):
    """A console on which only rich itself moves the cursor and sets colours, and no text that is printed."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)

    def say(self, *parts: RenderableType) -> None:
        """Print prose, which is wrapped at words, and tables, which fit themselves to the width."""
        for part in parts or ("",):
            self.print(Prose(part) if isinstance(part, str) else part, soft_wrap=True)


def terminal() -> Terminal:
    """Where verbs print. A pipe or file has no width, so nothing is wrapped or cut there."""
    # Names of tasks, agents and folders are printed as they are: rich would take their brackets for its own markup.
    stream = terminal_stream()
    width = None if width_of(stream) else UNLIMITED
    return Terminal(file=stream, highlight=False, markup=False, emoji=False, width=width)


@dataclass(frozen=True, slots=True)
class Prose:
    """A text that is wrapped at words to the width of the terminal."""

    text: str
    styles: Mapping[str, str] = field(default_factory=dict)
    """Styles of what matches a pattern."""
    hang: int = 0
    """Indents what follows the first line."""

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        shown = Text(wrap(self.text, options.max_width, self.hang))
        for pattern, style in self.styles.items():
            shown.highlight_regex(pattern, style)
        yield shown


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. Its cells are never broken or cut, unless it gives way."""

    heading: str
    drop: int = 0
    """A narrow terminal leaves out the columns with the highest numbers first, and those with 0 never."""
    right: bool = False
    """Numbers stand at the right."""
    gives_way: bool = False
    """Its cells are cut at the end where the terminal is narrow, or stand below their rows."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table without lines, laid out for the width at hand. Where even the columns that are never left out do not
    fit, each row becomes a few lines of whole cells. The last column may give way."""

    columns: Sequence[Column]
    rows: list[tuple[Text, ...]] = field(default_factory=list)

    def add(self, *cells: str | Text) -> None:
        self.rows.append(tuple(_one_line(cell) for cell in cells))

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        width = options.max_width
        shown = self._columns_within(width)
        if shown is None:
            yield from self._flow(width)
            return
        widths = self._shrink(shown, width)
        headings = tuple(Text(column.heading, style="bold") for column in self.columns)
        left_out = [at for at in range(len(self.columns)) if at not in shown]
        below = next((at for at in left_out if self.columns[at].gives_way), None)
        for row in (headings, *self.rows):
            yield _join_cells(row, self.columns, widths)
            if below is not None and row is not headings and row[below].plain:
                yield _cut(Text.assemble(" " * 2 * GAP, row[below]), width)
        if names := [self.columns[at].heading for at in left_out if at != below]:
            yield Text(wrap(f"left out at this width: {', '.join(names)}", width), style="dim")

    @property
    def width(self) -> int:
        """What it takes to show everything."""
        return sum(map(self._natural, range(len(self.columns)))) + GAP * (len(self.columns) - 1)

    def _columns_within(self, width: int) -> list[int] | None:
        """The columns that fit; None if not even those fit that are never left out."""
        everything = list(range(len(self.columns)))
        beside = [at for at in everything if not self.columns[at].gives_way]
        shown = self._drop_until_fit(everything, width)
        # What stands below its rows leaves room for others again.
        return self._drop_until_fit(beside, width) if shown and not set(shown) - set(beside) else shown

    def _drop_until_fit(self, shown: list[int], width: int) -> list[int] | None:
        shown = list(shown)
        while sum(self._least(at) for at in shown) + GAP * (len(shown) - 1) > width:
            at = max(reversed(shown), key=lambda one: self.columns[one].drop)
            if not self.columns[at].drop:
                return None
            shown.remove(at)
        return shown

    def _natural(self, at: int) -> int:
        return max(cell_len(self.columns[at].heading), *(row[at].cell_len for row in self.rows), 0)

    def _least(self, at: int) -> int:
        return min(LEAST, self._natural(at)) if self.columns[at].gives_way else self._natural(at)

    def _shrink(self, shown: list[int], width: int) -> dict[int, int]:
        """The width of each column: what it needs, less what those that give way have to."""
        widths = {at: self._natural(at) for at in shown}
        over = sum(widths.values()) + GAP * (len(shown) - 1) - width
        for at in (one for one in shown if self.columns[one].gives_way):
            taken = max(0, min(over, widths[at] - self._least(at)))
            widths[at] -= taken
            over -= taken
        return widths

    def _flow(self, width: int) -> Iterator[Text]:
        for row in self.rows:
            line = Text()
            for column, cell in zip(self.columns, row, strict=True):
                if not cell.plain:
                    continue
                shown = Text.assemble(f"{column.heading} ", cell) if column.right else cell
                if line.plain.strip() and line.cell_len + GAP + shown.cell_len > width:
                    yield line
                    line = Text(" " * 2 * GAP)
                elif line.plain:
                    line.append(" " * GAP)
                line.append_text(shown)
            yield line


def _one_line(cell: str | Text) -> Text:
    """A cell without line breaks, in which every character takes the room that it is shown with."""
    text = cell if isinstance(cell, Text) else Text(visible(cell))
    return Text(" ".join(visible(text.plain).split("\n")).strip(), style=text.style)


def _cut(text: Text, width: int) -> Text:
    cut = text.copy()
    cut.truncate(width, overflow="ellipsis")
    return cut


@dataclass(frozen=True, slots=True)
class FirstFit:
    """A table, or another with shorter headings and names where it does not fit, with what the short ones mean."""

    full: TextTable
    short: TextTable
    legend: str = ""

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if self.full.width <= options.max_width:
            yield self.full
            return
        yield self.short
        if self.legend:
            yield Prose(self.legend)


def _join_cells(row: Sequence[Text], columns: Sequence[Column], widths: dict[int, int]) -> Text:
    line = Text()
    for at, width in widths.items():
        cell = _cut(row[at], width)
        blanks = " " * (width - cell.cell_len)
        line.append_text(Text.assemble(blanks, cell) if columns[at].right else Text.assemble(cell, blanks))
        line.append(" " * GAP)
    line.rstrip()
    return line
