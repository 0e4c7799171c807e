"""The kinds of search and gate that users choose by name. A module without imports, so that the help stays fast."""

from enum import StrEnum


class SearchKind(StrEnum):
    """How to search for better skills on training tasks."""

    RATCHET = "ratchet"
    """One proposal after the other, each an edit of the leader."""
    RACE = "race"
    """Several proposals at once, on the same tasks; the worse half is dropped early."""
    PARETO = "pareto"
    """Edit any skill that is best on some task, one section at a time, and merge versions."""


class GateKind(StrEnum):
    """What decides whether a skill is accepted."""

    CERTIFY = "certify"
    """An exam. A skill that passes is better, with at most the chosen error rate."""
    STRICT = "strict"
    """A higher mean score in one pass over the validation tasks. This rule and those below prove nothing."""
    SOFT = "soft"
    """The same as strict, named after its metric."""
    HARD = "hard"
    """More fully passed validation tasks."""
    MIXED = "mixed"
    """A higher mean of both metrics."""
    NO_REGRESSION = "no-regression"
    """A higher mean score, and no passed task fails now."""
