"""What changed between two snapshots: the kinds are exact, and the diffs are right, short, and soon made."""

import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.ids import digest
from whet.workspace import DIFF_LIMIT, DIFFS_LIMIT, Change, Entry, Snapshot, changes, walk_order


def text(content: str) -> Entry:
    return Entry(len(content), 0, digest(content.encode()), content)


def binary(content: bytes) -> Entry:
    return Entry(len(content), 0, digest(content))


def diff_of(before: str | None, after: str | None) -> str | None:
    """The diff of one file, which is missing where it is None."""
    trees = [Snapshot({} if content is None else {"file": text(content)}) for content in (before, after)]
    (change,) = changes(*trees)
    return change.diff


NAMES = st.lists(st.sampled_from(["a", "b", "ab", "Zoë", "\udcff"]), min_size=1, max_size=3).map("/".join)
ENTRIES = st.one_of(st.text(max_size=5).map(text), st.binary(max_size=5).map(binary))
TREES = st.dictionaries(NAMES, ENTRIES, max_size=8)


def truly(before: dict[str, Entry], after: dict[str, Entry]) -> dict[str, str]:
    """What became of every name whose content is another."""
    kinds = {}
    for name in before.keys() | after.keys():
        if name not in before:
            kinds[name] = "added"
        elif name not in after:
            kinds[name] = "removed"
        elif before[name].content != after[name].content:
            kinds[name] = "changed"
    return kinds


def shown(name: str) -> str:
    return name.replace("\udcff", "\\xff")


@given(TREES, TREES)
def test_the_kinds_are_exact(before: dict[str, Entry], after: dict[str, Entry]) -> None:
    told = {change.path: change.kind for change in changes(Snapshot(before), Snapshot(after))}
    assert told == {shown(name): kind for name, kind in truly(before, after).items()}


@given(TREES)
def test_nothing_changed_where_nothing_changed(tree: dict[str, Entry]) -> None:
    assert changes(Snapshot(tree), Snapshot(dict(tree))) == ()


@given(TREES, TREES, st.integers(0, 8), st.integers(0, 8))
def test_what_a_snapshot_did_not_reach_is_unchanged(
    before: dict[str, Entry], after: dict[str, Entry], first: int, second: int
) -> None:
    def reached(tree: dict[str, Entry], number: int) -> Snapshot:
        names = sorted(tree, key=walk_order)
        if number == 0 or number >= len(names):
            return Snapshot(tree)
        return Snapshot({name: tree[name] for name in names[:number]}, names[number - 1])

    told = {change.path: change.kind for change in changes(reached(before, first), reached(after, second))}
    assert told.items() <= {shown(name): kind for name, kind in truly(before, after).items()}.items()


def test_a_renamed_file_is_one_removed_and_one_added() -> None:
    told = changes(Snapshot({"old": text("x\n")}), Snapshot({"new": text("x\n")}))
    assert [(change.path, change.kind) for change in told] == [("new", "added"), ("old", "removed")]


def test_a_large_file_is_told_by_size_and_time() -> None:
    before = Snapshot({"same": Entry(9, 1, None), "grown": Entry(9, 1, None), "touched": Entry(9, 1, "d")})
    after = Snapshot({"same": Entry(9, 1, "d"), "grown": Entry(10, 1, None), "touched": Entry(9, 2, None)})
    assert [change.path for change in changes(before, after)] == ["grown", "touched"]


def test_a_change_survives_being_stored() -> None:
    (change,) = changes(Snapshot({}), Snapshot({"\udcff": text("a\n")}))
    assert Change.model_validate_json(change.model_dump_json()) == change


def test_a_diff_reads_as_diffs_do() -> None:
    before = "".join(f"{n}\n" for n in range(100))
    assert diff_of(before, before.replace("50\n", "fifty\n")) == (
        "--- a/file\n+++ b/file\n@@ -48,7 +48,7 @@\n 47\n 48\n 49\n-50\n+fifty\n 51\n 52\n 53\n"
    )
    assert diff_of(None, "a\n") == "--- /dev/null\n+++ b/file\n@@ -0,0 +1 @@\n+a\n"
    assert diff_of("a\n", None) == "--- a/file\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    assert diff_of("a\n", "a") == ("--- a/file\n+++ b/file\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n")


def patched(before: str, diff: str) -> str:
    """The text that a diff makes of another."""
    old = re.findall(r"[^\n]*\n|[^\n]+", before)
    new: list[str] = []
    taken = 0
    for line in re.findall(r"[^\n]*\n", diff.replace("\n\\ No newline at end of file\n", "\0\n"))[2:]:
        if line.startswith("@@"):
            found = re.match(r"@@ -(\d+)(,0)?", line)
            assert found is not None
            start = int(found[1]) - (0 if found[2] else 1)
            new += old[taken:start]
            taken = start
            continue
        mark, content = line[0], line[1:].replace("\0\n", "")
        if mark in " -":
            assert old[taken] == content
            taken += 1
        if mark in " +":
            new.append(content)
    return "".join(new + old[taken:])


LINES = st.lists(st.sampled_from(["", "x", "y", "@@ -1 +1 @@", "- z", "\r", "\f", "\u2028"]), max_size=40)
TEXTS = st.tuples(LINES, st.sampled_from(["", "end"])).map(
    lambda made: "".join(f"{line}\n" for line in made[0]) + made[1]
)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_a_diff_makes_the_new_text_of_the_old(head: str, old: str, new: str, tail: str) -> None:
    before, after = head + old + tail, head + new + tail
    if before != after:
        diff = diff_of(before, after)
        assert diff is not None
        assert patched(before, diff) == after


@pytest.mark.parametrize(("before", "after"), [(b"\0", "text"), ("text", b"\0"), (b"\0", b"\1"), (b"\0", None)])
def test_what_is_no_text_has_no_diff(before: str | bytes, after: str | bytes | None) -> None:
    def tree(content: str | bytes | None) -> Snapshot:
        if content is None:
            return Snapshot({})
        return Snapshot({"file": text(content) if isinstance(content, str) else binary(content)})

    (change,) = changes(tree(before), tree(after))
    assert change.diff is None


def test_a_long_diff_is_cut_and_says_so() -> None:
    for content in ("line\n" * 50_000, "x" * 250_000):
        diff = diff_of(None, content)
        assert diff is not None
        assert len(diff) <= DIFF_LIMIT
        assert diff.startswith("--- /dev/null\n+++ b/file\n@@ -0,0 +1")
        assert diff.endswith("\n[the rest of this diff is left out]\n")


def test_all_diffs_together_are_bounded() -> None:
    tree = {f"{n:04}": text("line\n" * 1000) for n in range(500)}
    told = changes(Snapshot({}), Snapshot(tree))
    assert len(told) == 500
    total = sum(len(change.diff or "") for change in told)
    assert DIFFS_LIMIT // 2 < total <= DIFFS_LIMIT
    assert told[0].diff is not None
    assert told[-1].diff is None


def swapped(lines: list[str]) -> list[str]:
    return [line for n in range(0, len(lines) - 1, 2) for line in (lines[n + 1], lines[n])]


HARD = {
    "each line its own": [f"{n}\n" for n in range(20_000)],
    "a hundred lines, over and over": [f"{n % 100}\n" for n in range(40_000)],
    "lines that come twenty times": [f"{n % 3000}\n" for n in range(40_000)],
    "one line": ["\n"] * 100_000,
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("files", [1, 100])
def test_no_file_keeps_the_diff_busy_for_long(name: str, files: int) -> None:
    lines = HARD[name] if files == 1 else HARD[name][:1500]
    mixed = list(lines)
    random.Random(0).shuffle(mixed)
    between = [line for n, old in enumerate(lines) for line in (old, f"new {n}\n")]
    began = time.monotonic()
    for other in (swapped(lines), mixed, between):
        before, after = text("".join(lines)), text("".join(other))
        changes(Snapshot({str(n): before for n in range(files)}), Snapshot({str(n): after for n in range(files)}))
    assert time.monotonic() - began < 60


def test_small_edits_of_a_long_file_have_their_diff() -> None:
    lines = [f"{n}\n" for n in range(20_000)]
    after = ["first\n", *lines[:9_000], "between\n", *lines[9_001:], "last\n"]
    diff = diff_of("".join(lines), "".join(after))
    assert diff is not None
    assert [line for line in diff.split("\n")[2:] if line[:1] in "+-" and line] == [
        "+first",
        "-9000",
        "+between",
        "+last",
    ]


def test_one_edit_among_lines_that_are_all_alike_has_its_diff() -> None:
    lines = ["same\n"] * 30_000
    diff = diff_of("".join(lines), "".join([*lines[:9_000], "other\n", *lines[9_000:]]))
    assert diff == "--- a/file\n+++ b/file\n@@ -8998,6 +8998,7 @@\n same\n same\n same\n+other\n same\n same\n same\n"
