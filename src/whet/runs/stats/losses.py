"""What missing scores leave open: the bounds of a mean, and whether two arms lose unevenly."""

import math

UNEVEN = 0.05
"""Level of Fisher's exact test: below it, two arms lose scores unevenly."""
MANY = 0.02
"""Where a larger share of the scores is missing, a mean is shown with its bounds."""


def uneven(lost: int, of: int, other_lost: int, other_of: int) -> float:
    """Two-sided p value of Fisher's exact test that both arms lose scores at the same rate.

    >>> round(uneven(6, 12, 0, 12), 4), uneven(0, 12, 0, 12)
    (0.0137, 1.0)
    """
    for count, whole in ((lost, of), (other_lost, other_of)):
        if not 0 <= count <= whole:
            raise ValueError(f"lost {count} of {whole}; expected 0 <= lost <= of")
    total = lost + other_lost
    first, last = max(0, total - other_of), min(of, total)
    # Exact integers: ways to lose k here and the rest there. No rounding decides whether a table is as rare.
    ways = math.comb(of, first) * math.comb(other_of, total - first)
    each = [ways]
    for k in range(first, last):
        ways = ways * (of - k) * (total - k) // ((k + 1) * (other_of - total + k + 1))
        each.append(ways)
    seen = each[lost - first]
    as_rare = sum(ways for ways in each if ways <= seen)
    whole = math.comb(of + other_of, total)
    return as_rare / whole
