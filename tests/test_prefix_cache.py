"""What is remembered of earlier bodies changes nothing but the time: every result is that of looking at all of it."""

import json
import sqlite3
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from whet.gateway import Model
from whet.gateway.guards import Guarded, check_tools, guard_request
from whet.gateway.guards.checks import Permits
from whet.gateway.guards.screened import WORTH, ScreenedRequests
from whet.gateway.guards.strict_json import split_object
from whet.prefix_cache import BRANCHES, RECENT, SMALL_PIECE, PrefixCache, layout
from whet.runs.store import schema
from whet.runs.store.blobs import Blobs
from whet.text.redact import Redactor

SECRET = "sk-live-0123456789"
REMOTE = {"type": "image_url", "image_url": {"url": "https://elsewhere.example/a.png"}}

texts = st.sampled_from(["", "a", "b" * 50, "c" * SMALL_PIECE, "d\u00e9" * 300, '"}]', "https://x", SECRET, "sk-live-"])
messages: st.SearchStrategy[Any] = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, texts),
    st.builds(lambda text: {"role": "user", "content": [{"type": "text", "text": text}]}, texts),
    texts,
    st.sampled_from([7, None, [], {}, {"url": "x"}, "url", REMOTE]),
)
tails: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"stream": True},
        {"tools": [{"type": "web_search"}]},
        {"tools": ["t" * 2000], "input": ["i" * 200, {"n": "j" * 200}]},
        {"system": {"url": "http://elsewhere.example"}},
    ]
)
damages = st.one_of(
    st.none(),
    st.tuples(st.floats(0, 1), st.sampled_from([b"", b",", b"}", b"]", b'"', b"\\u0068", b":", b" ", b"\xff"])),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[bytes]:
    """Bodies that mostly grow, and sometimes change at any place, break off, or repeat a key."""
    key, indent = draw(st.sampled_from(["messages", "input", "contents"])), draw(st.sampled_from([None, 1]))
    said: list[Any] = []
    bodies = []
    for _ in range(draw(st.integers(1, 8))):
        said = said[: draw(st.one_of(st.just(len(said)), st.integers(0, len(said))))]
        said = [*said, *draw(st.lists(messages, max_size=4))]
        body = json.dumps(
            {"model": "m", key: said, **draw(tails)}, indent=indent, ensure_ascii=draw(st.booleans())
        ).encode()
        if (damage := draw(damages)) is not None:
            at = int(damage[0] * len(body))
            body = body[:at] + damage[1] + body[at + draw(st.integers(0, 1)) :]
        if draw(st.integers(0, 9)) == 0:
            body = body[:-1] + b',"' + key.encode() + b'":[]}'
        bodies.append(body)
    return bodies


def rows(db: sqlite3.Connection) -> list[Any]:
    return [db.execute(f"SELECT * FROM {table} ORDER BY id").fetchall() for table in ("blob", "piece")]


@settings(deadline=None)
@given(conversations())
def test_the_store_holds_the_same_pieces_whether_or_not_it_remembers(bodies: list[bytes]) -> None:
    dbs = [sqlite3.connect(":memory:", isolation_level=None) for _ in range(2)]
    for db in dbs:
        schema.migrate(db)
    remembering, plain = map(Blobs, dbs)
    nodes = []
    for body in bodies:
        nodes.append(remembering.put_body(body, "one"))
        plain.forget()
        assert plain.put_body(body) == nodes[-1]
        assert rows(dbs[0]) == rows(dbs[1])
    stored = remembering.bodies(nodes)
    assert [stored.body(node) for node in nodes] == bodies
    for db in dbs:
        db.close()


MODEL = Model(name="m", url="http://127.0.0.1:9", upstream_name="m", key=None)


def verdict(fresh: bytes, body: bytes, dialect: str = "chat") -> Guarded | str:
    """What is changed in a request, or why it is refused."""
    try:
        return guard_request(split_object(fresh), body, dialect, MODEL)
    except ValueError as error:
        return str(error).partition(":")[0]  # behind it, a parser may count bytes


def refused(fresh: bytes, body: bytes) -> bool:
    return isinstance(verdict(fresh, body), str)


@settings(deadline=None)
@given(conversations(), st.sampled_from(["chat", "responses", "messages", "gemini"]))
@example([b'{"model": "m", "tools": [{"type": "web_s\xffearch"}],"messages":[]}'], "chat")
def test_guards_judge_the_fresh_part_as_they_judge_the_whole(bodies: list[bytes], dialect: str) -> None:
    growing = PrefixCache[None](1 << 20)
    for body in bodies:
        look = growing.look("one", body)
        found = verdict(look.fresh, body, dialect)
        assert found == verdict(body, body, dialect)
        if not isinstance(found, str) and found.keeps_conversation:
            lasting = look.layout().lasting
            assert set(lasting) <= set(layout(body).edges)
            growing.keep(look, [(end, None) for end in lasting])


@settings(deadline=None)
@given(conversations(), st.integers(0, 3))
def test_the_record_has_no_secret_whatever_was_cleared_before(bodies: list[bytes], learns_at: int) -> None:
    padding = b" " * WORTH
    seen, redactor = ScreenedRequests(), Redactor([])
    for number, body in enumerate(bodies):
        asked = seen.look(body + padding, "chat")
        asked.accept()
        if number == learns_at:
            redactor = redactor.also(SECRET)
        assert asked.redact(redactor) == redactor.bytes(body + padding)


def said(*texts: str, tail: str = "") -> bytes:
    return f'{{"model":"m","messages":[{",".join(texts)}]{tail}}}'.encode()


def text(number: int, size: int = 3000) -> str:
    return json.dumps({"role": "user", "content": f"{number} " + "x" * size})


@pytest.mark.parametrize(
    "hidden",
    [
        json.dumps({"role": "user", "content": [REMOTE]}),
        json.dumps({"role": "user", "content": [REMOTE]}).replace("https", "\\u0068ttps"),
        json.dumps({"role": "user", "content": [REMOTE]}).replace("//", "\\/\\/"),
    ],
    ids=["plain", "escaped letter", "escaped slash"],
)
def test_a_remote_address_is_found_behind_all_that_passed(hidden: str) -> None:
    seen, turns = ScreenedRequests(), [text(number) for number in range(20)]

    def is_refused(body: bytes) -> bool:
        return refused(seen.look(body, "chat").fresh, body)

    for count in range(8, 20):
        asked = seen.look(said(*turns[:count]), "chat")
        assert not refused(asked.fresh, asked.body)
        asked.accept()
    for at in (0, 5, 18, 19):  # in place of what passed, and behind it
        assert is_refused(said(*turns[:at], hidden, *turns[at:]))
    assert not is_refused(said(*turns))


def test_what_passed_in_one_dialect_is_new_to_another() -> None:
    seen, turns = ScreenedRequests(), [text(number) for number in range(20)]
    seen.look(said(*turns), "chat").accept()
    assert len(seen.look(said(*turns), "chat").fresh) < WORTH
    assert len(seen.look(said(*turns), "messages").fresh) == len(said(*turns))


@pytest.mark.parametrize("rest", [".5]}", "5]}", ",]}", "e3]}", ': "https://elsewhere.example"]}', '"https://x"]}'])
@pytest.mark.parametrize("last", ["", ',{"pad":"%s"},"url"' % ("x" * 115), ",7"], ids=["message", "text", "number"])
def test_no_json_behind_the_known_part_is_none(last: str, rest: str) -> None:
    growing, begun = PrefixCache[None](1 << 20), said(text(1), text(2)).removesuffix(b"]}") + last.encode()
    look = growing.look("one", begun + b"]}")
    growing.keep(look, [(end, None) for end in look.layout().lasting])
    body = begun + rest.encode()
    look = growing.look("one", body)
    assert look.known
    assert verdict(look.fresh, body) == verdict(body, body)


def test_a_secret_across_the_edge_of_what_was_cleared_is_found() -> None:
    redactor = Redactor([SECRET])
    data = b"." * 100 + SECRET.encode()
    assert all(redactor.finds(data, start) for start in range(len(data)))
    assert not redactor.finds(data + b"..", len(data))


def test_a_tool_of_the_provider_is_found_behind_all_that_passed() -> None:
    seen, turns = ScreenedRequests(), [text(number) for number in range(20)]
    seen.look(said(*turns[:19]), "chat").accept()
    asked = seen.look(said(*turns, tail=',"tools":[{"type":"web_search"}]'), "chat")
    assert len(asked.fresh) < len(asked.body) / 4
    assert check_tools(split_object(asked.fresh)["tools"], "chat", Permits()).withheld == ("tool web_search",)


def test_only_what_is_new_is_looked_at() -> None:
    growing, turns = PrefixCache[None](1 << 24), [text(number) for number in range(200)]
    for count in range(100, 200):
        marked = text(-count)  # a mark that moves on with each request
        look = growing.look("one", said(*turns[:count], marked))
        assert count == 100 or len(look.body) - look.known < 4 * len(marked)
        growing.keep(look, [(end, None) for end in look.layout().lasting])


def test_conversations_side_by_side_are_told_apart_and_memory_is_bounded() -> None:
    growing = PrefixCache[None](100_000)
    for turn in range(1, 2 * RECENT):
        for owner in ("a", "b"):
            for branch in range(BRANCHES):
                body = said(*(text(100 * branch + number, 200) for number in range(turn)))
                look = growing.look(owner, body)
                assert turn == 1 or look.known > 200 * (turn - 1)
                growing.keep(look, [(end, None) for end in look.layout().lasting])
    for number in range(100):
        look = growing.look(number, said(text(number, 5000)))
        growing.keep(look, [(end, None) for end in look.layout().lasting])
        assert (
            growing._held
            == sum(len(p.data) for ts in growing._trunks.values() for t in ts for p in t.pieces)
            <= 100_000
        )


def test_what_is_undone_is_forgotten_by_the_store() -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(db)
    blobs = Blobs(db)
    db.execute("BEGIN")
    blobs.put_body(said(text(1), text(2)), 1)
    blobs.forget()
    db.rollback()
    body = said(text(1), text(2), text(3))
    node = blobs.put_body(body, 1)
    assert blobs.bodies([node]).body(node) == body
    db.close()
