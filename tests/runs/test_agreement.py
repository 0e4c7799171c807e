"""Agreement of labels equals examples that were computed by hand or published, and behaves at its bounds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.runs.stats.agreement import cohen_kappa, krippendorff_alpha, measure_agreement

LABELS = st.sampled_from("abc")


def test_kappa_of_a_published_table() -> None:
    # 50 grants: 20 both yes, 15 both no, 5 and 10 apart. Observed 0.7, expected 0.5.
    pairs = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15
    assert cohen_kappa(pairs) == pytest.approx(0.4)


def test_alpha_of_krippendorffs_own_example() -> None:
    # Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", C: nominal data, four observers, missing data.
    observers = [
        "1 2 3 3 2 1 4 1 2 . . .",
        "1 2 3 3 2 2 4 1 2 5 . 3",
        ". 3 3 3 2 3 4 2 2 5 1 .",
        "1 2 3 3 2 4 4 1 2 5 1 .",
    ]
    columns = zip(*(line.split() for line in observers), strict=True)
    units = [[value for value in column if value != "."] for column in columns]
    assert krippendorff_alpha(units) == pytest.approx(0.743, abs=5e-4)


def test_two_authors_get_kappa_and_three_get_alpha() -> None:
    two = [{"ana": "good", "li": "good"}, {"ana": "bad", "li": "good"}, {"ana": "bad"}]
    found = measure_agreement(two)
    assert found is not None
    assert (found.measure, found.units, found.authors, found.share) == ("Cohen's κ", 2, ("ana", "li"), 0.5)
    found = measure_agreement([*two[:2], {"ana": "bad", "bo": "bad"}])
    assert found is not None
    assert (found.measure, found.units, found.authors) == ("Krippendorff's α", 3, ("ana", "bo", "li"))


def test_without_a_common_thing_there_is_no_agreement() -> None:
    assert measure_agreement([{"ana": "good"}, {"li": "good"}]) is None
    assert measure_agreement([]) is None


def test_one_label_for_everything_shows_nothing() -> None:
    found = measure_agreement([{"ana": "good", "li": "good"}, {"ana": "good", "li": "good"}])
    assert found is not None
    assert (found.value, found.share) == (None, 1.0)


@given(st.lists(LABELS, min_size=2, max_size=40))
def test_full_agreement_is_one(values: list[str]) -> None:
    expected = None if len(set(values)) == 1 else 1.0
    assert cohen_kappa([(value, value) for value in values]) == expected
    alpha = krippendorff_alpha([[value] * 3 for value in values])
    assert alpha == expected


@given(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=40))
def test_names_of_labels_and_order_of_authors_do_not_matter(pairs: list[tuple[str, str]]) -> None:
    renamed = [(f"<{b}>", f"<{a}>") for a, b in pairs]
    kappa = cohen_kappa(pairs)
    assert cohen_kappa(renamed) == (None if kappa is None else pytest.approx(kappa))
    assert kappa is None or -1 <= kappa <= 1


@given(st.lists(st.lists(LABELS, max_size=4), max_size=30), st.randoms(use_true_random=False))
def test_alpha_does_not_depend_on_order(units: list[list[str]], rng: random.Random) -> None:
    alpha = krippendorff_alpha(units)
    shuffled = [rng.sample(values, len(values)) for values in rng.sample(units, len(units))]
    assert krippendorff_alpha(shuffled) == (None if alpha is None else pytest.approx(alpha))
    assert alpha is None or alpha <= 1


def test_labels_by_chance_agree_about_zero() -> None:
    rng = random.Random(5)
    pairs = [(rng.choice("ab"), rng.choice("ab")) for _ in range(20_000)]
    assert cohen_kappa(pairs) == pytest.approx(0, abs=0.03)
    assert krippendorff_alpha(pairs) == pytest.approx(0, abs=0.03)
