"""Cutting a stream into events does not depend on where its chunks end."""

from hypothesis import given
from hypothesis import strategies as st

from whet.gateway.sse import EventFramer, data_lines, data_lines_from_end

line_ends = st.sampled_from([b"\n", b"\r\n"])
texts = st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"").replace(b"\r", b""))


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    parts = []
    for text in draw(st.lists(texts, max_size=8)):
        parts += [b"data: ", text, draw(line_ends), draw(line_ends)]
    return b"".join([*parts, draw(texts)])


@given(stream=streams(), data=st.data())
def test_any_split_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=10)))
    whole, split = EventFramer(), EventFramer()
    expected = whole.feed(stream)
    events = [
        event
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for event in split.feed(stream[start:end])
    ]
    assert events == expected
    assert split.rest() == whole.rest()
    assert b"".join(events) + split.rest() == stream
    assert all(event.endswith((b"\n\n", b"\n\r\n")) for event in events)


def test_a_long_event_is_not_searched_again_with_every_chunk() -> None:
    """Quadratic work on 16 MB in 1 kB pieces would take minutes."""
    framer = EventFramer()
    for _ in range(16 << 10):
        assert framer.feed(b"x" * 1024) == []
    (event,) = framer.feed(b"\n\n")
    assert len(event) == (16 << 20) + 2


@given(st.lists(texts))
def test_data_lines_read_the_same_in_both_directions(lines: list[bytes]) -> None:
    body = b"".join(b"event: x\ndata: " + line + b"!\n\n" for line in lines)
    forward = list(data_lines(body))
    assert forward == [line + b"!" for line in lines]
    assert list(data_lines_from_end(body, b"!")) == forward[::-1]
