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
