"""What a user chooses between by name. Without weight, so that the command line can name it before any work."""

from enum import StrEnum


class SearchKind(StrEnum):
    """How better skills are looked for on training tasks."""

    RATCHET = "ratchet"
    """One proposal after the other, from the leader."""
    RACE = "race"
    """Several proposals at once, on the same tasks; those that fall behind are dropped early."""
    PARETO = "pareto"
    """From whatever is best on some task, section by section; versions are merged."""


class GateKind(StrEnum):
    """What has the last word on a skill."""

    CERTIFY = "certify"
    """An exam: what passes is better, but for an error of the level that was set."""
    STRICT = "strict"
    """The mean score of one pass over the validation tasks is higher. This rule and those below prove nothing."""
    SOFT = "soft"
    """The same as strict, by the name of its metric."""
    HARD = "hard"
    """More validation tasks are passed in full."""
    MIXED = "mixed"
    """The mean of both metrics is higher."""
    NO_REGRESSION = "no-regression"
    """The mean score is higher, and no task fails that was passed before."""
