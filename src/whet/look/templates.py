"""The template environment of pages and reports: everything is escaped, and an unknown name is an error."""

import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from whet.look import markup, numbers
from whet.look.plots.scales import join_points
from whet.look.unseen import legible

LOOK = Path(__file__).parent
"""Where the style sheets are."""
TEMPLATES = LOOK / "templates"


def make_environment(*folders: Path) -> Environment:
    """An environment that finds templates in these folders first, then the components and style sheets of the look."""
    environment = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES, LOOK]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=markup.mark_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_filters())
    ranges = (numbers.percent_range, numbers.plural, numbers.points_between, numbers.points_range)
    environment.globals.update({function.__name__: function for function in ranges})
    return environment


def along(value: float, scale: tuple[float, float]) -> str:
    """Where a value lies on a scale, in percent of its length; values beyond it lie at its ends.

    >>> along(0.0, (-1.0, 1.0)), along(7.0, (-1.0, 1.0))
    ('50', '100')
    """
    low, high = scale
    share = (value - low) / ((high - low) or 1.0)
    return f"{min(max(share, 0.0), 1.0) * 100:.4g}"


def _filters() -> dict[str, Any]:
    reading = (
        numbers.age,
        numbers.brief_seconds,
        numbers.clock,
        numbers.duration,
        numbers.e_value,
        numbers.heat,
        numbers.level,
        numbers.moment,
        numbers.money,
        numbers.needed,
        numbers.number,
        numbers.percent,
        numbers.percent_range,
        numbers.plural,
        numbers.points,
        numbers.points_between,
        numbers.points_range,
        numbers.price,
        numbers.score,
        numbers.shade,
        numbers.short_digest,
        numbers.size,
        numbers.thousands,
        numbers.true_minus,
    )
    marking = (markup.ansi, markup.code, markup.diff, markup.exact, markup.markdown, markup.visible)
    named = {function.__name__: function for function in (*reading, *marking)}
    return {**named, "along": along, "exp": math.exp, "join_points": join_points, "legible": legible}
