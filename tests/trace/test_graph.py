"""The conversations of a rollout: each message once, branches, sub-agents and breaks where they belong."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.trace_world import PATHS, SYSTEM, answered, asked, calls, exchange, said
from whet.exchange import Exchange, Kind, Speaker
from whet.gateway.dialects.neutral import Message, Text, Thinking, ToolCall, ToolResult
from whet.trace.conversations.graph import BreakCause, Graph, build
from whet.trace.conversations.slices import Body
from whet.trace.conversations.tree import Rewrite

TURNS = [asked("How many files?"), said(calls("ls")), answered("a b"), said(calls("wc", "c2")), answered("2", "c2")]
LAST = said(Text("Two."))


def three_turns(dialect: str) -> list[Exchange]:
    sent = [[SYSTEM, *TURNS[:length]] for length in (1, 3, 5)]
    return [
        exchange(n, messages, reply, dialect=dialect)
        for n, (messages, reply) in enumerate(zip(sent, (TURNS[1], TURNS[3], LAST), strict=True))
    ]


def spoken(graph: Graph, turn: int = -1) -> list[tuple[str, str]]:
    return [(node.message.role, shown(node.message)) for node in graph.conversation(graph.turns[turn])]


def shown(message: Message) -> str:
    texts = []
    for part in message.parts:
        match part:
            case Text(text):
                texts.append(text)
            case ToolCall(_, name, arguments):
                texts.append(f"{name} {arguments}")
            case ToolResult(_, inner):
                texts += [one.text for one in inner if isinstance(one, Text)]
    return "|".join(texts)


@pytest.mark.parametrize("dialect", PATHS)
def test_each_message_is_stored_once_in_every_dialect(dialect: str) -> None:
    graph = build(three_turns(dialect))
    assert spoken(graph) == [
        ("system", "You work."),
        ("user", "How many files?"),
        ("assistant", 'bash {"command":"ls"}'),
        ("user", "a b"),
        ("assistant", 'bash {"command":"wc"}'),
        ("user", "2"),
        ("assistant", "Two."),
    ]
    assert len(graph.nodes) == 7
    assert [turn.broken for turn in graph.turns] == [None] * 3
    assert graph.unread == ()


@pytest.mark.parametrize("dialect", PATHS)
def test_every_node_lies_where_it_says(dialect: str) -> None:
    recorded = three_turns(dialect)
    graph = build(recorded)
    for node in graph.nodes:
        source = node.source
        body = recorded[source.exchange].request if source.place == "request" else recorded[source.exchange].response
        words = shown(node.message).split()[-1].strip('{}"').rpartition('"')[2]
        assert words.encode() in body[source.start : source.end]
    users = [node for node in graph.nodes if node.message.role == "user"]
    assert all(node.source.end - node.source.start < 160 for node in users)


@pytest.mark.parametrize("dialect", PATHS)
def test_results_name_the_call_that_they_answer(dialect: str) -> None:
    assert_results_name_their_calls(build(three_turns(dialect)))


def test_results_without_ids_name_their_calls() -> None:
    ids = re.compile(rb'"id":"c\d",?')
    bare = [
        replace(one, request=ids.sub(b"", one.request), response=ids.sub(b"", one.response))
        for one in three_turns("gemini")
    ]
    assert bare[1].request != three_turns("gemini")[1].request
    assert_results_name_their_calls(build(bare))


def assert_results_name_their_calls(graph: Graph) -> None:
    path = graph.path(graph.turns[-1].prompt)
    for called, told in pairwise(node.message.parts[0] for node in path):
        if isinstance(told, ToolResult):
            assert isinstance(called, ToolCall)
            assert told.call_id == called.id


def test_a_reply_sent_back_otherwise_is_the_same_message() -> None:
    thoughtful = said(Thinking("hm"), calls("ls"))
    spaced = said(ToolCall("c1", "bash", '{ "command": "ls" }'))
    graph = build(
        [
            exchange(0, [asked("Go.")], thoughtful),
            exchange(1, [asked("Go."), spaced, answered("a")], said(Text("Done."))),
        ]
    )
    assert len(graph.nodes) == 4
    assert graph.turns[1].broken is None
    assert graph.turns[1].rewritten == ((1, Rewrite.THINKING), (1, Rewrite.ARGUMENTS))


def test_marks_for_the_providers_cache_make_no_new_message() -> None:
    first, second, third = three_turns("messages")
    marked = second.request.replace(
        b'"type":"text","text":"How', b'"cache_control":{"type":"ephemeral"},"type":"text","text":"How'
    )
    assert marked != second.request
    graph = build([first, replace(second, request=marked), third])
    assert len(graph.nodes) == 7


SUB = Speaker(Kind.SUB, "sub-1", "main", "a test", "explore")
TITLE = Speaker(Kind.UTILITY, "main", None, "a test", "title")
COMPACTION = Speaker(Kind.UTILITY, "compaction-1", "main", "a test", "compaction")


def test_a_sub_agent_hangs_at_the_call_that_has_its_prompt() -> None:
    prompt = "Look for all the tests, please."
    spawning = said(calls("ls"), ToolCall("c2", "task", f'{{"prompt": "{prompt}"}}'))
    graph = build(
        [
            exchange(0, [asked("Go.")], spawning),
            exchange(1, [asked(prompt)], said(Text("None.")), speaker=SUB),
            exchange(2, [asked("Go."), spawning, answered("a"), answered("None.", "c2")], said(Text("Done."))),
        ]
    )
    main, sub = graph.threads
    assert (main.turns, sub.turns) == ((0, 2), (1,))
    assert (sub.parent, sub.spawned_at, sub.spawned_by, sub.name) == ("main", graph.turns[0].reply, "c2", "explore")


def test_a_helper_call_hangs_at_what_it_helps() -> None:
    graph = build(
        [
            exchange(0, [asked("Go.")], said(calls("ls"))),
            exchange(1, [asked("A title?")], said(Text("Files")), speaker=TITLE, tools=()),
            exchange(2, [asked("Go."), said(calls("ls")), answered("a")], said(Text("Done."))),
        ]
    )
    main, title = graph.threads
    assert main.turns == (0, 2)
    assert (title.id, title.parent, title.spawned_at) == ("main/title-1", "main", graph.turns[0].reply)


def test_compaction_is_a_marked_break() -> None:
    graph = build(
        [
            exchange(0, [SYSTEM, asked("Go.")], said(calls("ls"))),
            exchange(
                1,
                [SYSTEM, asked("Go."), said(calls("ls")), answered("a"), asked("Sum up.")],
                said(Text("S.")),
                speaker=COMPACTION,
            ),
            exchange(2, [SYSTEM, asked("So far: S.")], said(Text("Done."))),
            exchange(3, [SYSTEM, asked("Else.")], said(Text("Done."))),
        ]
    )
    broken = graph.turns[2].broken
    assert broken is not None
    assert (broken.cause, broken.shared) == (BreakCause.COMPACTION, None)
    assert [[turn.exchange for turn in segment] for segment in graph.segments(graph.threads[0])] == [[0], [2], [3]]
    later = graph.turns[3].broken
    assert later is not None
    assert later.cause is BreakCause.RESTARTED, "one summary explains one break"


@pytest.mark.parametrize(
    ("second", "cause", "shared"),
    [
        ([asked("Go."), said(Text("No.")), asked("Why?")], BreakCause.EDITED, 0),
        ([asked("Else.")], BreakCause.RESTARTED, None),
        ([asked("Go.")], BreakCause.REPEATED, 0),
    ],
)
def test_a_thread_that_does_not_go_on_says_how(second: list[Message], cause: BreakCause, shared: int | None) -> None:
    graph = build([exchange(0, [asked("Go.")], said(calls("ls"))), exchange(1, second, said(Text("Done.")))])
    broken = graph.turns[1].broken
    assert broken is not None
    assert (broken.cause, broken.shared) == (cause, shared)


def test_what_was_asked_again_counts_once() -> None:
    first = exchange(0, [asked("Go.")], said(calls("ls")))
    graph = build([first, exchange(1, [asked("Go.")], said(Text("Done.")))])
    assert [[turn.exchange for turn in segment] for segment in graph.segments(graph.threads[0])] == [[1]]


def test_what_cannot_be_read_and_what_was_not_answered_is_named() -> None:
    good = exchange(0, [asked("Go.")], said(Text("Done.")))
    graph = build([good, replace(good, index=1, request=b"torn"), replace(good, index=2, status=500)])
    assert [index for index, _ in graph.unread] == [1]
    assert graph.unanswered == ((2, "status 500 from http://127.0.0.1:1"),)
    assert len(graph.turns) == 1


def test_a_bare_text_as_input_is_read() -> None:
    bare = exchange(0, [asked("Go.")], said(Text("Done.")), dialect="responses")
    graph = build([replace(bare, request=b'{"model": "m", "input": "Go."}')])
    assert spoken(graph) == [("user", "Go."), ("assistant", "Done.")]


def test_what_the_assistant_said_may_go_on_in_the_next_request() -> None:
    begun, whole = said(Text("Let me see.")), said(Text("Let me see."), calls("ls"))
    graph = build(
        [
            exchange(0, [asked("Go."), begun], said(calls("ls")), dialect="responses"),
            exchange(1, [asked("Go."), whole, answered("a")], LAST, dialect="responses"),
        ]
    )
    assert spoken(graph) == [
        ("user", "Go."),
        ("assistant", 'Let me see.|bash {"command":"ls"}'),
        ("user", "a"),
        ("assistant", "Two."),
    ]


def test_of_a_growing_conversation_only_what_is_new_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int]] = []
    real = Body.read

    def counted(body: Body, start: int, end: int) -> tuple[Message, ...]:
        read.append((start, end))
        return real(body, start, end)

    monkeypatch.setattr(Body, "read", counted)
    messages: list[Message] = [asked("Go.")]
    recorded = []
    for n in range(60):
        recorded.append(exchange(n, messages, said(calls(f"ls {n}", f"c{n}"))))
        messages = [*messages, said(calls(f"ls {n}", f"c{n}")), answered(f"file {n} " * 20, f"c{n}")]
    graph = build(recorded)
    assert len(graph.nodes) == 120
    assert len(read) <= 4 * 60


words = st.sampled_from(["a", "b", "c" * 200])
users = st.builds(asked, words)
turns = st.one_of(
    st.tuples(st.builds(lambda text: said(Text(text)), words), users),
    st.tuples(st.builds(lambda text: said(calls(text)), words), st.builds(answered, words)),
)


@st.composite
def edited_histories(draw: st.DrawFn) -> list[list[Message]]:
    """Requests, of which each extends, cuts or changes the one before."""
    rng: random.Random = draw(st.randoms(use_true_random=False))
    history: list[Message] = [asked("go")]
    found = [history]
    for turn in draw(st.lists(turns, max_size=8)):
        keep = rng.choice([len(history), len(history), rng.randrange(1, len(history) + 1, 2)])
        history = [*history[:keep], *turn]
        found.append(history)
    return found


@given(edited_histories(), st.sampled_from(sorted(PATHS)))
def test_what_is_read_piece_by_piece_is_what_was_sent(histories: Sequence[Sequence[Message]], dialect: str) -> None:
    recorded = [exchange(n, [SYSTEM, *sent], said(Text("ok")), dialect=dialect) for n, sent in enumerate(histories)]
    graph = build(recorded)
    for turn, sent in zip(graph.turns, histories, strict=True):
        assert [shown(node.message) for node in graph.path(turn.prompt)] == [shown(message) for message in sent]
    for place, one in enumerate(recorded):
        alone = build([one])
        read = [shown(node.message) for node in graph.conversation(graph.turns[place])]
        assert read == [shown(node.message) for node in alone.conversation(alone.turns[0])]


def test_exchanges_out_of_order_are_refused() -> None:
    first, second, _ = three_turns("chat")
    with pytest.raises(ValueError, match="exchange 0 comes after exchange 1"):
        build([second, first])
