"""How far people who label the same things agree, beyond what chance alone would give."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

Given = Mapping[str, str]
"""Who gave something which label."""
COHEN, KRIPPENDORFF = "Cohen's κ", "Krippendorff's α"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two or more people agree."""

    measure: str
    value: float | None
    """1 is full agreement, 0 what chance would give; None when all labels are the same, which shows nothing."""
    units: int
    """Things that two or more people labelled."""
    authors: tuple[str, ...]
    share: float
    """Of all pairs of labels of one thing, those that are equal."""


def measure_agreement(labels: Iterable[Given]) -> Agreement | None:
    """Cohen's κ of two people, Krippendorff's α of more; None when no thing has labels of two people.

    >>> measure_agreement([{"ana": "good", "li": "good"}, {"ana": "bad", "li": "good"}]).share
    0.5
    """
    shared = [given for given in labels if len(given) > 1]
    if not shared:
        return None
    authors = tuple(sorted({author for given in shared for author in given}))
    if len(authors) == 2:
        measure, value = COHEN, cohen_kappa([(given[authors[0]], given[authors[1]]) for given in shared])
    else:
        measure, value = KRIPPENDORFF, krippendorff_alpha([list(given.values()) for given in shared])
    pairs = [one == other for given in shared for one, other in permutations(given.values(), 2)]
    return Agreement(measure, value, len(shared), authors, sum(pairs) / len(pairs))


def cohen_kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Cohen's κ of the labels that two people gave to the same things.

    >>> cohen_kappa([("a", "a"), ("a", "b"), ("b", "b"), ("b", "b")])
    0.5
    """
    count = len(pairs)
    firsts, seconds = (Counter(side) for side in zip(*pairs, strict=True))
    observed = sum(one == other for one, other in pairs) / count
    expected = sum(firsts[value] * seconds[value] for value in firsts) / count**2
    return None if expected == 1 else (observed - expected) / (1 - expected)


def krippendorff_alpha(units: Sequence[Sequence[str]]) -> float | None:
    """Krippendorff's α for labels without an order. Things may have different numbers of labels; those with one label
    do not count.

    >>> krippendorff_alpha([["a", "a", "a"], ["b", "b"], ["a"]])
    1.0
    """
    paired = [values for values in units if len(values) > 1]
    totals = Counter(value for values in paired for value in values)
    whole = totals.total()
    disagreement = sum(_disagreement(values) for values in paired)
    expected = whole**2 - sum(count**2 for count in totals.values())
    return None if expected == 0 else 1 - (whole - 1) * disagreement / expected


def _disagreement(values: Sequence[str]) -> float:
    """Ordered pairs of different labels of one thing, so weighted that each label counts once."""
    counts = Counter(values)
    return (len(values) ** 2 - sum(count**2 for count in counts.values())) / (len(values) - 1)
