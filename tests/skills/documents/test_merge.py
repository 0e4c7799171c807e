"""Merging versions: the changes of both, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.skills.documents.merge import merge_documents, merge_texts, section_titles

FRONT = "---\nname: s\n---\n"
BASE = {"": "Be kind.\n", "# A": "- a\n", "## B": "- b\n", "# C": "- c\n"}

bodies = st.lists(st.sampled_from(["- a\n", "- b\n", "text\n", "\n"]), max_size=3).map("".join)


def written(sections: dict[str, str]) -> str:
    return FRONT + "".join(f"{heading}\n{body}" if heading else body for heading, body in sections.items())


@given(st.data())
def test_changes_of_different_sections_are_both_kept(data: st.DataObject) -> None:
    mine = data.draw(st.sets(st.sampled_from(sorted(BASE)), min_size=1, max_size=3))
    one = {**BASE, **{heading: f"{BASE[heading]}- mine {data.draw(bodies)}\n" for heading in mine}}
    theirs = data.draw(st.sets(st.sampled_from(sorted(BASE.keys() - mine)), min_size=1))
    other = {**BASE, **{heading: f"{BASE[heading]}- theirs {data.draw(bodies)}\n" for heading in theirs}}
    both = {**BASE, **{heading: one[heading] for heading in mine}, **{heading: other[heading] for heading in theirs}}
    assert merge_texts(written(BASE), written(one), written(other)) == written(both)
    assert merge_texts(written(BASE), written(other), written(one)) == written(both)


@given(st.sampled_from(sorted(BASE)))
def test_two_changes_of_one_section_are_not_merged(heading: str) -> None:
    one, other = ({**BASE, heading: f"- {who}\n"} for who in ("mine", "theirs"))
    assert merge_texts(written(BASE), written(one), written(other)) is None


def test_documents_are_merged_each_by_itself_and_one_conflict_is_enough() -> None:
    def changed(*headings: str) -> str:
        return written({**BASE, **{heading: f"- {heading} changed\n" for heading in headings}})

    before = {"SKILL.md": written(BASE), "AGENTS.md": written(BASE)}
    one, other = before | {"SKILL.md": changed("# A")}, {"SKILL.md": changed("# C"), "AGENTS.md": changed("# A")}
    both = {"SKILL.md": changed("# A", "# C"), "AGENTS.md": changed("# A")}
    assert merge_documents(before, one, other) == merge_documents(before, other, one) == both
    assert merge_documents(before, both, other) == both, "what both changed alike is no conflict"
    assert merge_documents(before, {**one, "AGENTS.md": written({**BASE, "# A": "- mine\n"})}, other) is None


def test_what_one_of_them_added_or_took_away_is_kept() -> None:
    one = written({**BASE, "# D": "- d\n"})
    other = written({heading: body for heading, body in BASE.items() if heading != "## B"})
    both = {**BASE, "# D": "- d\n"}
    del both["## B"]
    assert merge_texts(written(BASE), one, other) == written(both)
    assert merge_texts(written(BASE), other, one) == written(both)


def test_a_new_section_stands_behind_the_one_that_it_followed() -> None:
    other = written({"": "Be kind.\n", "# A": "- a\n", "# New": "- n\n", "## B": "- b\n", "# C": "- c\n"})
    both = merge_texts(written(BASE), written({**BASE, "# C": "- c!\n"}), other)
    assert both is not None
    assert section_titles(both) == ("", "A", "New", "B", "C")


@pytest.mark.parametrize("other", [BASE, {**BASE, "# A": "- mine\n"}])
def test_nothing_is_merged_with_itself_or_with_its_ancestor(other: dict[str, str]) -> None:
    one = written({**BASE, "# A": "- mine\n"})
    assert merge_texts(written(BASE), one, written(other)) is None


def test_sections_of_one_title_are_told_apart_and_lines_are_not_joined() -> None:
    base = "# A\n- 1\n# A\n- 2"
    assert (
        merge_texts(base, "# A\n- 1!\n# A\n- 2", "# A\n- 1\n# A\n- 2\n# B\n- 3\n") == "# A\n- 1!\n# A\n- 2\n# B\n- 3\n"
    )
