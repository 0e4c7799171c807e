"""Edits apply exactly as they say or are refused with the reason; what is protected stays as it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.skills.documents.document import END_LEARNED, END_PROTECT, LEARNED, PROTECT, Document, Policy
from whet.skills.documents.edits import Edit, Op, apply_edits

SKILL = """---
name: tidy
description: Tidies up.
---

# Tidy

Be kind.

## Rules

- Say what you do.
- Say why.

## Notes

Nothing yet.
"""


def edit(op: str, **fields: str) -> Edit:
    return Edit(op=Op(op), **fields)


def changed(given: Edit, text: str = SKILL, **policy: object) -> str:
    done = apply_edits({"": text}, [given], Policy.model_validate(policy))
    assert done.applied == (given,), done.refused
    return done.text


def refusal(given: Edit, text: str = SKILL, **policy: object) -> str:
    done = apply_edits({"": text}, [given], Policy.model_validate(policy))
    assert done.text == text
    (refused,) = done.refused
    return refused.reason


def test_every_operation_does_what_it_says() -> None:
    assert changed(edit("add", text="- Last.")) == SKILL + "- Last.\n"
    after = changed(edit("insert_after", anchor="Say what", text="- Then."))
    assert "- Say what you do.\n- Then.\n- Say why.\n" in after
    assert "- Say how.\n" in changed(edit("replace", anchor="Say why.", text="Say how."))
    assert "- Say what you do.\n\n## Notes" in changed(edit("delete", anchor="- Say why."))
    assert "- Say what .\n" in changed(edit("delete", anchor="you do"))
    assert "- Say why.\n- Say what you do.\n" in changed(edit("move", anchor="Say what", to="Say why"))
    assert "Be kind.\n- Say why.\n\n## Rules\n\n- Say what you do.\n\n" in changed(
        edit("move", anchor="Say why", to="Be kind")
    )


def test_lines_are_not_joined_and_gaps_of_the_author_stay() -> None:
    assert changed(edit("move", anchor="- a", to="- b"), "- a\n- b") == "- b\n- a\n"
    assert changed(edit("delete", anchor="- b"), "# A\n\n\n\n- a\n- b\n") == "# A\n\n\n\n- a\n"


def test_the_description_can_be_edited_unless_the_policy_closes_it() -> None:
    given = edit("replace", anchor="Tidies up.", text="Tidies up. Use it for every mess.")
    expected = SKILL.replace("Tidies up.", "Tidies up. Use it for every mess.")
    assert changed(given) == changed(given, opens="description") == expected
    assert "protected text" in refusal(given, opens="learned")
    assert "protected text" in refusal(given, opens="sections", sections=["Rules"])
    assert "protected text" in refusal(edit("replace", anchor="Be kind.", text="Be rude."), opens="description")
    assert "protected text" in refusal(edit("add", text="- New."), opens="description")
    quoted = SKILL.replace("Tidies up.", '"Tidies up: all."')
    assert '"Tidies up: all rooms."' in changed(edit("replace", anchor="all.", text="all rooms."), quoted)
    assert "valid YAML" in refusal(edit("replace", anchor="all.", text='all "rooms".'), quoted)
    twice = SKILL.replace("Be kind.", "Tidies up.")
    assert "description: Tidies up." in changed(edit("replace", anchor="Tidies up.", text="Cleans."), twice), (
        "body first"
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (edit("replace", anchor="Say", text="Tell"), "occurs 2 times; include more of the surrounding text"),
        (edit("replace", anchor="Sing.", text="Tell"), "is not in the document"),
        (edit("delete", anchor="e"), "occurs"),
        (edit("delete"), "it has no anchor"),
        (edit("add", text=" \n"), "no text"),
        (edit("add", text="-  say WHY."), "already contains this text"),
        (edit("replace", anchor="Be kind.", text="Be kind."), "does not change the document"),
        (edit("move", anchor="Say why", to="Say why"), "into itself"),
        (edit("replace", anchor="name: tidy", text="name: all"), "is not in the document"),
        (edit("replace", anchor="Tidies up.", text="Does all.\nmodel: large"), "must stay one line"),
        (edit("replace", anchor="Tidies up.", text="Use it when: always"), "would not be valid YAML"),
        (edit("replace", anchor="Tidies up.", text="a" * 1025), "would have 1025 characters; the limit is 1024"),
        (edit("delete", anchor="Tidies up."), "the description must stay one line"),
        (edit("insert_after", anchor="Tidies up.", text="More."), "it would change protected text"),
        (edit("add", text=f"{PROTECT} mine"), "a mark that only whet may write"),
    ],
)
def test_an_edit_that_cannot_apply_is_refused_with_the_reason(given: Edit, reason: str) -> None:
    assert reason in refusal(given)


def test_protection_is_by_overlap_wherever_an_edit_begins() -> None:
    text = f"# A\nopen\n{PROTECT}\nmine\n{END_PROTECT}\n# B\nopen too\n"
    assert "protected" in refusal(edit("replace", anchor="mine", text="yours"), text)
    assert "protected" in refusal(edit("replace", anchor=f"open\n{PROTECT}\nmi", text=""), text)
    assert "protected" in refusal(edit("insert_after", anchor="mine", text="- more"), text)
    assert "protected" in refusal(edit("move", anchor="open too", to="mine"), text)
    assert "protected" in refusal(edit("move", anchor="mine", to="open too"), text)
    assert changed(edit("insert_after", anchor="open too", text="- more"), text).endswith("open too\n- more\n")


def test_a_protected_part_without_an_end_reaches_to_the_end() -> None:
    text = f"# A\n{PROTECT}\nmine\n{END_PROTECT}\nopen\n{PROTECT}\nmine too\n\n# B\nmine as well\n"
    for anchor in ("mine too", "mine as well"):
        assert "protected" in refusal(edit("delete", anchor=anchor), text)
    assert "- more" in changed(edit("insert_after", anchor="open", text="- more"), text)


def test_what_is_added_joins_what_was_learned_where_all_is_open() -> None:
    text = f"# A\n{LEARNED}\n- a\n{END_LEARNED}\n# B\n- b\n"
    assert changed(edit("add", text="- c"), text) == f"# A\n{LEARNED}\n- a\n- c\n{END_LEARNED}\n# B\n- b\n"


def test_only_the_learned_block_is_open_where_the_policy_says_so() -> None:
    assert "protected" in refusal(edit("replace", anchor="Be kind.", text="Be brief."), opens="learned")
    begun = changed(edit("add", text="- One."), opens="learned")
    assert begun == f"{SKILL}\n{LEARNED}\n- One.\n{END_LEARNED}\n"
    more = changed(edit("add", text="- Two."), begun, opens="learned")
    assert more == f"{SKILL}\n{LEARNED}\n- One.\n- Two.\n{END_LEARNED}\n"
    assert "- Three.\n- Two." in changed(edit("replace", anchor="One.", text="Three."), more, opens="learned")
    assert "- Two.\n" not in changed(edit("delete", anchor="- Two."), more, opens="learned")


def test_only_named_sections_are_open_where_the_policy_says_so() -> None:
    def rules(given: Edit) -> str:
        done = apply_edits({"": SKILL}, [given], Policy(opens="sections", sections=("rules",)))
        return done.refused[0].reason if done.refused else done.text

    assert "- Say how." in rules(edit("replace", anchor="Say why.", text="Say how."))
    assert "- Say why.\n- Say how.\n" in rules(edit("insert_after", anchor="Say why.", text="- Say how."))
    assert "protected" in rules(edit("replace", anchor="Nothing yet.", text="All."))
    assert "protected" in rules(edit("insert_after", anchor="Be kind.", text="- Say how."))
    assert "- Say why.\n- Last.\n\n## Notes" in rules(edit("add", text="- Last."))


def test_a_document_that_is_too_long_may_shrink() -> None:
    assert "the limit is 100" in refusal(edit("add", text="- " + "x" * 50), max_chars=100)
    assert len(changed(edit("delete", anchor="Nothing yet."), max_chars=10)) < len(SKILL)


def test_headings_in_code_are_no_sections() -> None:
    text = "intro\n# A\n```sh\n# not a heading\n```\n## B ##\nrest\n"
    document = Document(text)
    assert [(one.title, one.level) for one in document.sections] == [("", 0), ("A", 1), ("B", 2)]
    assert "".join(text[one.span.start : one.span.end] for one in document.sections) == text
    for code in ("~~~\n```\n# no\n~~~\n", "````\n```\n# no\n````\n", "```\n# no\n# to the end\n"):
        assert [one.title for one in Document(f"# A\n{code}").sections] == ["A"]


words = st.text(alphabet="ab\n# -`", max_size=12)
anchors = st.sampled_from(["a", "b", "# a", "ab", "- a", "\n", "keep", "zz"])
some_edits = st.lists(st.builds(Edit, op=st.sampled_from(Op), anchor=anchors, text=words, to=anchors), max_size=6)


@given(words, words, some_edits, st.sampled_from(["anything", "learned"]))
def test_no_edits_ever_change_what_is_protected(before: str, after: str, edits: list[Edit], opens: str) -> None:
    guarded = f"{PROTECT}\nkeep me\n{END_PROTECT}"
    text = f"---\nname: x\n---\n{before}\n{guarded}\n{after}"
    done = apply_edits({"": text}, edits, Policy.model_validate({"opens": opens}))
    assert done.text.startswith("---\nname: x\n---\n")
    assert done.text.count(guarded) == 1
    assert len(done.applied) + len(done.refused) == len(edits)
    if opens == "learned" and LEARNED in done.text:
        assert done.text.split(LEARNED)[0].rstrip() == text.rstrip()


@given(words)
def test_sections_cover_a_document_without_gaps(text: str) -> None:
    document = Document(text)
    assert "".join(text[one.span.start : one.span.end] for one in document.sections) == text[document.body :]


def test_what_is_added_goes_to_the_section_that_is_open() -> None:
    text = "# One\n- a\n\n# Two\n- b\n"
    rule = Edit(op=Op.ADD, text="- c")
    for title, expected in (
        ("One", "# One\n- a\n- c\n\n# Two\n- b\n"),
        ("two", "# One\n- a\n\n# Two\n- b\n- c\n"),
    ):
        assert apply_edits({"": text}, [rule], Policy(opens="sections", sections=(title,))).text == expected
    assert apply_edits({"": text}, [rule], Policy(opens="sections", sections=("Two", "One"))).text.endswith(
        "- b\n- c\n"
    ), "the last"
    (refused,) = apply_edits({"": text}, [rule], Policy(opens="sections", sections=("Three",))).refused
    assert refused.reason == "the document has no section 'Three'"


def test_a_policy_is_narrowed_to_a_section_that_it_opens() -> None:
    one = Policy(opens="sections", sections=("One",), max_chars=99)
    assert Policy(max_chars=99).within("One") == one
    assert Policy(opens="sections", sections=("one", "two"), max_chars=99).within("One") == one
    assert one.within("Two") is None
    assert Policy(opens="learned").within("One") == Policy(opens="learned")
