"""A trace file gives any part of a trace: chunks, lines, single texts, images, and the places of a text."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.trace_world import SYSTEM, asked, calls, exchange, said
from support.view_worlds import long_trace, write_trace
from whet.gateway.dialects.neutral import Image, Message, Text, Thinking, ToolResult
from whet.trace.steps.steps import StepKind
from whet.view.derive.jobs import DeriveTrace, Done
from whet.view.derive.trace_data import ALL_LAYERS, BlockKind, Layer, TraceStep
from whet.view.derive.trace_file import TraceFile
from whet.view.derive.worker import Worker

KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"[:36]
PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + b"\0\0\0\1" * 2


def derive(folder: Path) -> TraceFile:
    file = folder / "x.trace"
    assert Worker().do(DeriveTrace("run", str(folder / "run"), 1, (str(file),))) == Done()
    return TraceFile(file)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TraceFile]:
    """80 turns, 2 sub-agents, texts of 300 bytes."""
    folder = tmp_path_factory.mktemp("long")
    write_trace(folder / "run", long_trace(80, 300, (20, 50)))
    with derive(folder) as trace:
        yield trace


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[TraceFile]:
    """Every kind of part, long texts, a key, and an image."""
    image = Image("image/png", base64.b64encode(PNG).decode())
    told = Message("user", (ToolResult("c1", (Text(f"needle in {KEY} hay"), image), "bash"),))
    looks = said(Thinking("I think about parsers."), Text("Let us see."), calls("ls -l"))
    ends = said(Text("x" * 70_000 + "Ünïcode end_of_text"))
    write_trace(
        tmp_path / "run",
        [
            exchange(0, [SYSTEM, asked("Go.")], looks),
            exchange(1, [SYSTEM, asked("Go."), looks, told], ends),
            exchange(2, [SYSTEM, asked("Go."), looks, told, ends, asked("On.")], said(Text("")), status=500),
        ],
    )
    with derive(tmp_path) as trace:
        yield trace


def all_steps(trace: TraceFile, **options: object) -> list[TraceStep]:
    found: list[TraceStep] = []
    first: int | None = 1
    while first is not None:
        chunk = trace.chunk(first, **options)  # type: ignore[arg-type]
        found += chunk.steps
        first = chunk.next
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    layers=st.sets(st.sampled_from(list(Layer))),
    errors=st.booleans(),
    most=st.integers(1, 90),
    most_bytes=st.integers(1, 200_000),
)
def test_chunks_of_any_size_hold_every_step_once(
    long: TraceFile, layers: set[Layer], errors: bool, most: int, most_bytes: int
) -> None:
    steps = all_steps(long, layers=layers, errors=errors, most=most, most_bytes=most_bytes)
    hidden = {StepKind.RESULT: Layer.RESULTS, StepKind.SYSTEM: Layer.SYSTEM, StepKind.BREAK: Layer.BREAKS}
    expected = [
        step.number
        for step in all_steps(long)
        if (step.error or not errors) and (step.kind not in hidden or hidden[step.kind] in layers)
    ]
    assert [step.number for step in steps] == expected
    places = long.places(layers, errors=errors, most=most, most_bytes=most_bytes)
    assert sum(place.steps for place in places) == len(expected)
    assert [place.first for place in places] == [
        long.chunk(place.first, layers=layers, errors=errors, most=most, most_bytes=most_bytes).steps[0].number
        for place in places
    ]


def test_an_outline_has_a_line_for_all_but_results_and_system(long: TraceFile) -> None:
    lines = {line.number: line for line in long.outline().lines}
    shown = [step for step in all_steps(long) if step.kind not in {StepKind.RESULT, StepKind.SYSTEM}]
    assert list(lines) == [step.number for step in shown]
    assert lines[3].name == "read"
    assert lines[3].head.startswith("src/")
    failing = next(step for step in all_steps(long) if step.kind is StepKind.RESULT and step.error)
    assert lines[failing.number - 1].error, "the reply whose tool failed is marked"


def test_a_long_outline_is_folded_by_hundreds(long: TraceFile) -> None:
    outline = long.outline(limit=10)
    assert outline.lines == ()
    assert sum(fold.lines for fold in outline.folds) == len(long.outline().lines)
    first = outline.folds[0]
    assert len(long.lines(first=first.first, last=first.last)) == first.lines == 100


def test_a_thread_alone_has_its_own_steps(long: TraceFile) -> None:
    for thread in long.sub_agents():
        steps = all_steps(long, thread=thread.id)
        assert {step.thread for step in steps} == {thread.id}
        assert len(steps) == thread.steps
        assert (steps[0].number, steps[-1].number) == (thread.first, thread.last)


def test_an_anchor_names_a_step(long: TraceFile) -> None:
    anchors = [step.anchor for step in all_steps(long)]
    assert len(set(anchors)) == len(anchors)
    assert [long.number_of(anchor) for anchor in anchors] == list(range(1, long.count + 1))
    assert long.number_of("no.1") is None


def test_every_planted_word_is_found_where_it_is(long: TraceFile) -> None:
    for step in all_steps(long, cap=1 << 20):
        words = next((block.text for block in step.blocks if block.text), "").split()
        if len(words) > 3 and all(word.isalpha() for word in words[:3]):
            found = long.find(" ".join(words[:3]))
            assert step.number in [hit.number for hit in found.hits]
    assert long.find("zzzz").hits == ()
    assert long.find("zzzz").complete


def test_find_shows_the_place_and_its_surroundings(parts: TraceFile) -> None:
    (hit,) = parts.find("needle in").hits
    step = parts.step(hit.number)
    assert (step.kind, hit.hit) == (StepKind.RESULT, "needle in")
    assert hit.after.endswith(" hay")
    assert [parts.find(text).hits[0].hit for text in ("ünïcode", "end_of", "d_of_te", "ls -l")] == [
        "Ünïcode",
        "end_of",
        "d_of_te",
        "ls -l",
    ]
    assert parts.find("").hits == ()


def test_a_long_text_is_read_in_pieces(parts: TraceFile) -> None:
    step = next(step for step in all_steps(parts) if step.length > 70_000)
    (block,) = step.blocks
    assert (len(block.text), block.is_cut, block.length) == (4000, True, 70_019)
    whole = "".join(parts.block(step.number, 0, at, 9_999).text for at in range(0, block.length, 9_999))
    assert whole == "x" * 70_000 + "Ünïcode end_of_text"
    assert parts.block(step.number, 0, 65_530, 12).text == "x" * 12
    with pytest.raises(KeyError):
        parts.block(step.number, 1)


def test_parts_are_apart_and_can_be_switched_off(parts: TraceFile) -> None:
    reply = next(step for step in all_steps(parts) if step.kind is StepKind.REPLY)
    assert [block.kind for block in reply.blocks] == [BlockKind.THINKING, BlockKind.TEXT, BlockKind.CALL]
    without = parts.chunk(reply.number, layers=ALL_LAYERS - {Layer.THINKING}).steps[0]
    assert [(block.kind, block.place) for block in without.blocks] == [(BlockKind.TEXT, 1), (BlockKind.CALL, 2)]


def test_an_image_is_kept_with_its_bytes(parts: TraceFile) -> None:
    block = next(block for step in all_steps(parts) for block in step.blocks if block.kind is BlockKind.IMAGE)
    assert (block.media_type, block.size) == ("image/png", len(PNG))
    assert parts.image(block.digest) == ("image/png", PNG)
    assert parts.image("0" * 32) is None


def test_keys_are_masked_in_texts_and_in_what_is_found(parts: TraceFile) -> None:
    assert KEY not in str(all_steps(parts, cap=1 << 20))
    assert KEY not in str(parts.find("needle"))


def test_a_call_without_an_answer_is_a_step(parts: TraceFile) -> None:
    last = all_steps(parts)[-1]
    assert (last.kind, last.exchange) == (StepKind.FAILED, 2)
    assert "not answered" in last.note
    assert last.facts is not None
    assert last.facts.status == 500


def test_a_reply_has_the_facts_of_its_call(parts: TraceFile) -> None:
    reply = next(step for step in all_steps(parts) if step.kind is StepKind.REPLY)
    assert reply.facts is not None
    assert (reply.facts.input_tokens, reply.facts.output_tokens, reply.facts.seconds) == (7, 3, 0.5)
    assert reply.source is not None
