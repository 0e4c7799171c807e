"""What is said behind the mention of an unknown name."""

from hypothesis import given
from hypothesis import strategies as st

from whet.errors import did_you_mean

NAMES = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1)


def test_the_nearest_name_is_offered() -> None:
    assert did_you_mean("bubblwrap", ["local", "bubblewrap"]) == "did you mean 'bubblewrap'? (known: bubblewrap, local)"


def test_nothing_is_offered_when_nothing_is_near() -> None:
    assert did_you_mean("docker", ["local", "bubblewrap"]) == "known: bubblewrap, local"
    assert did_you_mean("docker", []) == "none is known"


@given(NAMES, st.sets(NAMES))
def test_every_known_name_is_listed_and_only_known_ones_are_offered(given: str, known: set[str]) -> None:
    said = did_you_mean(given, known)
    offered, _, listing = said.rpartition("known: ")
    if known:
        assert listing.rstrip(")").split(", ") == sorted(known)
    assert not offered or offered.split("'")[1] in known
