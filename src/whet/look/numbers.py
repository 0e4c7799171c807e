"""How numbers read: the same in pages, reports and on the terminal. Pages write a true minus; missing is not zero."""

import math
import re
from datetime import UTC, datetime

MINUS = "\u2212"
MISSING, UNKNOWN, FREE = "missing", "unknown", "free"
_HYPHEN = re.compile(r"(?<![\w./-])-(?=\d)")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
HEAT = (-0.1, -0.7, -2.0, -5.0)
"""Log-probabilities that part the five shades of sampled tokens."""


def true_minus(text: str) -> str:
    """A sentence of whet with a true minus before its numbers. Ranges, names and options keep their hyphens.

    >>> true_minus("-20.1 to +1.5 points, task fix-0041, [-3, 4]")
    '−20.1 to +1.5 points, task fix-0041, [−3, 4]'
    """
    return _HYPHEN.sub(MINUS, text)


def number(value: float | None, digits: int = 0) -> str:
    """
    >>> number(-1234.5, 1), number(20_273), number(None)
    ('−1,234.5', '20,273', 'unknown')
    """
    return UNKNOWN if value is None else _without_negative_zero(f"{value:,.{digits}f}")


def percent(share: float | None, digits: int = 1) -> str:
    """
    >>> percent(0.613), percent(1.0, 0), percent(None)
    ('61.3%', '100%', 'missing')
    """
    return MISSING if share is None else f"{number(share * 100, digits)}%"


def percent_range(low: float, high: float) -> str:
    """
    >>> percent_range(0.584, 0.641)
    '[58.4, 64.1]'
    """
    return f"[{number(low * 100, 1)}, {number(high * 100, 1)}]"


def points(share: float | None, digits: int = 1) -> str:
    """A difference of scores in points, with its sign.

    >>> points(0.061), points(-0.2), points(0.0), points(-0.0004), points(None)
    ('+6.1', '−20.0', '0.0', '0.0', 'missing')
    """
    if share is None:
        return MISSING
    text = number(share * 100, digits)
    return text if text.startswith(MINUS) or not any(digit in text for digit in "123456789") else f"+{text}"


def points_range(low: float, high: float, digits: int = 1) -> str:
    """
    >>> points_range(-0.04, 0.393)
    '[−4.0, +39.3]'
    """
    return f"[{points(low, digits)}, {points(high, digits)}]"


def points_between(low: float, high: float) -> str:
    """The bounds of a difference that has no mean.

    >>> points_between(0.035, 0.863)
    '+3.5 … +86.3'
    """
    return f"{points(low)} … {points(high)}"


def score(value: float | None) -> str:
    """
    >>> score(0.5), score(1.0), score(None)
    ('0.50', '1.00', 'missing')
    """
    return MISSING if value is None else number(value, 2)


def e_value(log: float) -> str:
    """An e-value from its natural logarithm, which may be too large for a float.

    >>> e_value(0.0), e_value(4.8), e_value(-0.524), e_value(2000.0), e_value(-40.0)
    ('1.00', '122', '0.592', '3.9×10⁸⁶⁸', '4.2×10⁻¹⁸')
    """
    power = log / math.log(10)
    if -3 <= power < 4:
        return number(math.exp(log), max(0, 2 - math.floor(power)))
    exponent = math.floor(power)
    mantissa = f"{10 ** (power - exponent):.1f}"
    return f"{mantissa}×{power_of_ten(exponent)}"


def level(chance: float) -> str:
    """The level of a test.

    >>> level(0.05), level(0.003125), level(0.1 * 0.5**10)
    ('0.05', '0.003125', '9.8×10⁻⁵')
    """
    return f"{chance:g}" if chance >= 1e-3 else e_value(math.log(chance))


def needed(level: float) -> str:
    """The e-value that a test needs at a level.

    >>> needed(0.05), needed(0.1 * 0.5**7), needed(0.3)
    ('20', '1,280', '3.33')
    """
    value = 1 / level
    return number(value, 0 if math.isclose(value, round(value), rel_tol=1e-9) or value >= 100 else 2)


def power_of_ten(exponent: int) -> str:
    """
    >>> power_of_ten(-18)
    '10⁻¹⁸'
    """
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def money(dollars: float | None) -> str:
    """
    >>> money(31.2), money(0.0421), money(0.0), money(None)
    ('$31.20', '$0.0421', '$0.0000', 'unknown')
    """
    return UNKNOWN if dollars is None else f"${dollars:.4f}" if dollars < 1 else f"${dollars:,.2f}"


def price(dollars: float | None) -> str:
    """What finished work cost. A model that costs nothing is free.

    >>> price(31.2), price(0.0), price(None)
    ('$31.20', 'free', 'unknown')
    """
    return FREE if dollars == 0 else money(dollars)


def plural(number: int, one: str, many: str) -> str:
    """
    >>> plural(1, "rollout", "rollouts"), plural(3, "rollout", "rollouts")
    ('1 rollout', '3 rollouts')
    """
    return f"{number} {one if number == 1 else many}"


def thousands(number: int) -> str:
    """
    >>> thousands(950), thousands(20_273), thousands(3_400_000)
    ('950', '20.3k', '3.4M')
    """
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)


def size(octets: int) -> str:
    """
    >>> size(950), size(61_233), size(1_074_000_000)
    ('950 B', '61.2 kB', '1.1 GB')
    """
    for unit, name in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")):
        if octets >= unit:
            return f"{octets / unit:.1f} {name}"
    return f"{octets} B"


def duration(seconds: float) -> str:
    """
    >>> duration(75), duration(4000)
    ('1 min 15 s', '1 h 06 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_left:02} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def clock(seconds: float | None) -> str:
    """A duration in a narrow column.

    >>> clock(9), clock(251), clock(4000), clock(None)
    ('0:09', '4:11', '1:06:40', 'unknown')
    """
    if seconds is None:
        return UNKNOWN
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours}:{minutes_left:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def brief_seconds(seconds: float | None) -> str:
    """A short duration with its tenths, as of one model call.

    >>> brief_seconds(1.234), brief_seconds(0.0421), brief_seconds(75), brief_seconds(None)
    ('1.2 s', '42 ms', '1 min 15 s', 'unknown')
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def age(seconds: float) -> str:
    """How long ago something was.

    >>> age(20), age(300), age(7300), age(90_000), age(400_000)
    ('just now', '5 min ago', '2 h ago', 'yesterday', '4 days ago')
    """
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{int(seconds // 60)} min ago"
    if seconds < 86_400:
        return f"{int(seconds // 3600)} h ago"
    return "yesterday" if seconds < 2 * 86_400 else f"{int(seconds // 86_400)} days ago"


def moment(at: float) -> str:
    """A time of the clock, in UTC: the same for every reader of an export.

    >>> moment(0)
    '1970-01-01 00:00 UTC'
    """
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def short_digest(digest: str) -> str:
    """
    >>> short_digest("3320cd9d5aa0f1e2")
    '3320cd9d'
    """
    return digest[:8]


def shade(share: float | None) -> str:
    """The class of a cell that shows a mean score, from shade-0 to shade-5.

    >>> shade(0.0), shade(0.5), shade(1.0), shade(None)
    ('shade-0', 'shade-3', 'shade-5', 'missing')
    """
    return MISSING if share is None else f"shade-{math.floor(min(max(share, 0.0), 1.0) * 5 + 0.5)}"


def heat(logprob: float) -> int:
    """The shade of a sampled token, from 1 (likely) to 5.

    >>> heat(0.0), heat(-0.5), heat(-9.0)
    (1, 2, 5)
    """
    return 1 + sum(logprob < bound for bound in HEAT)


def _without_negative_zero(text: str) -> str:
    """
    >>> _without_negative_zero("-0.0"), _without_negative_zero("-0.1")
    ('0.0', '−0.1')
    """
    bare = text.removeprefix("-")
    return bare if not any(digit in bare for digit in "123456789") else text.replace("-", MINUS)
