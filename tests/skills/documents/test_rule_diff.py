"""What became of each rule between two versions of a document."""

from hypothesis import given
from hypothesis import strategies as st

from whet.skills.documents.rule_diff import RuleChange, compare_rules


def changes(old: str, new: str) -> list[tuple[str, str, str]]:
    return [(one.change.value, one.old, one.new) for one in compare_rules(old, new)]


def test_a_rule_with_other_words_is_changed_and_another_rule_is_not() -> None:
    old, new = "- Answer in one word.\n- Be kind.\n", "- Answer in two words.\n- Never guess a number.\n"
    assert changes(old, new) == [
        ("changed", "- Answer in one word.", "- Answer in two words."),
        ("added", "", "- Never guess a number."),
        ("removed", "- Be kind.", ""),
    ]


def test_a_rule_that_is_elsewhere_now_was_moved_and_is_named_once() -> None:
    assert changes("- a\n- b\n- c\n", "- c\n- a\n- b\n") == [
        ("moved", "- c", "- c"),
        ("kept", "- a", "- a"),
        ("kept", "- b", "- b"),
    ]


def test_the_description_counts_as_a_rule() -> None:
    head = "---\nname: x\ndescription: {}\n---\n- a\n"
    (description, rule) = changes(head.format("How to do sums."), head.format("How to do long sums."))
    assert description == ("changed", "description: How to do sums.", "description: How to do long sums.")
    assert rule[0] == "kept"


RULES = st.lists(st.sampled_from(["- a", "- a b", "- a b c", "- x", "- y z"]), max_size=6)


@given(RULES, RULES)
def test_it_holds_every_rule_of_both_versions(old: list[str], new: list[str]) -> None:
    found = compare_rules("\n".join(old), "\n".join(new))
    assert [one.new for one in found if one.new] == new
    assert sorted(one.old for one in found if one.old) == sorted(old)
    assert all((one.old == one.new) == (one.change in {RuleChange.KEPT, RuleChange.MOVED}) for one in found)
