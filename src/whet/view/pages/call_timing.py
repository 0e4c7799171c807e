"""When a model call was sent and when its reply arrived, piece by piece."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from whet.exchange import Exchange
from whet.look.numbers import size
from whet.look.plots.drawing import NARROW, WIDE, Curve, Dot, Drawing, Figure, Label, Line
from whet.look.plots.scales import Scale, ticks

MOST_PIECES = 600
"""Pieces of a reply that are drawn; of more, every second, third, … one."""
_HEIGHT, _LEFT, _BOTTOM = 200, 64, 30


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a call, in seconds."""

    before_sent: float | None
    """Waiting for a free place, and earlier tries; None where that is not recorded."""
    to_first_byte: float | None
    """From sending to the first byte of the reply."""
    streaming: float | None
    """From the first byte to the last."""
    whole: float
    pieces: int
    longest_pause: float | None
    """Between two pieces of the reply."""
    curve: Figure | None


def read_timing(exchange: Exchange) -> Timing:
    """The times of a call and its curve of arrivals."""
    arrivals = exchange.arrivals
    first = None if exchange.first_byte is None else exchange.first_byte - exchange.started
    waited = arrivals[0][0] if arrivals else None
    pauses = [later - earlier for (earlier, _), (later, _) in pairwise(arrivals)]
    return Timing(
        before_sent=None if first is None or waited is None else max(0.0, first - waited),
        to_first_byte=waited if waited is not None else first,
        streaming=None if exchange.first_byte is None else exchange.ended - exchange.first_byte,
        whole=exchange.ended - exchange.started,
        pieces=len(arrivals),
        longest_pause=max(pauses, default=None),
        curve=Figure(_curve(arrivals, WIDE), _curve(arrivals, NARROW)) if arrivals else None,
    )


def _curve(arrivals: Sequence[tuple[float, int]], width: float) -> Drawing:
    """Bytes over seconds, as steps: nothing is known between two arrivals."""
    drawing = Drawing(width, _HEIGHT, f"Bytes of the reply that had arrived, over time, in {len(arrivals)} pieces")
    last, total = arrivals[-1]
    x, y = Scale(0, last or 1, _LEFT, width - 8), Scale(0, total or 1, _HEIGHT - _BOTTOM, 12)
    for value in ticks(0, total or 1, 4):
        drawing.add(Line(_LEFT, y(value), width, y(value), "zero" if value == 0 else "grid"))
        drawing.add(Label(_LEFT - 6, y(value) + 4, size(round(value)), "faint", "end"))
    for value in ticks(0, last or 1, 6 if width == WIDE else 3):
        drawing.add(Label(x(value), _HEIGHT - 10, f"{value:g} s", "faint", "middle"))
    drawn = arrivals[:: -(-len(arrivals) // MOST_PIECES)]
    points, height = [(x(0), y(0))], y(0)
    for seconds, received in [*drawn, arrivals[-1]]:
        points += [(x(seconds), height), (x(seconds), height := y(received))]
        words = f"{seconds:.3f} s: {received:,} bytes"
        drawing.add(Dot(x(seconds), height, "better", "datum", words, {"x": f"{seconds:.3f}", "y": words}))
    drawing.add(Curve(tuple(points), "better"))
    return drawing
