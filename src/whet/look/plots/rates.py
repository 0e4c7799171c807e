"""How much was done in each part of a time, as bars in one row."""

from collections.abc import Sequence

from whet.look.numbers import number
from whet.look.plots.drawing import Bar, Data, Drawing, Line

WIDTH, HEIGHT = 320.0, 56.0
_GAP = 1.0


def draw_rates(title: str, per_minute: Sequence[float]) -> Drawing:
    """One bar for each part of the time, the last part at the right. All parts are equally long."""
    drawing = Drawing(WIDTH, HEIGHT, title)
    room, most = WIDTH / max(1, len(per_minute)), max(per_minute, default=0.0) or 1.0
    drawing.add(Line(0, HEIGHT - 0.5, WIDTH, HEIGHT - 0.5, "grid"))
    for place, rate in enumerate(per_minute):
        if rate:
            height = max(1.0, (HEIGHT - 2) * rate / most)
            shown = number(rate, 0 if rate >= 10 else 1)
            data: Data = {"rate": shown}
            x = place * room + _GAP / 2
            drawing.add(Bar(x, HEIGHT - 1 - height, room - _GAP, height, "quiet", f"{shown} a minute", data))
    return drawing
