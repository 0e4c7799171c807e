"""A recorded rollout gone through again: calls find their replies by thread and place, and differences are noticed."""

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from support.trace_world import MAIN, SYSTEM, answered, asked, calls, exchange, said
from whet.exchange import CallError, Exchange, Kind, Speaker
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects.neutral import Message, Part, Reply, Text, disassemble
from whet.gateway.replay.recording import RecordedReply
from whet.trace.conversations.replies import read_reply
from whet.trace.conversations.tree import Messages
from whet.trace.replay.session import DIVERGED, Prefix, ReplaySession

DIALECT_NAMES = sorted(DIALECTS)
STREAM = (("Content-Type", "text/event-stream"),)


def speaker(kind: Kind, thread: str, name: str = "") -> Speaker:
    return Speaker(kind, thread, None, "a test", name)


def turns(task: str, *steps: tuple[str, str]) -> list[tuple[list[Message], Message]]:
    """A conversation, call by call: each step is a command, and what it prints."""
    conversation: list[Message] = [SYSTEM, asked(task)]
    found = []
    for number, (command, output) in enumerate(steps):
        reply = said(Text(f"Step {number}."), calls(command, f"c{number}"))
        found.append(([*conversation], reply))
        conversation += [reply, answered(output, f"c{number}")]
    return [*found, (conversation, said(Text("Done.")))]


def record(*threads: tuple[Speaker, list[tuple[list[Message], Message]]], dialect: str = "chat") -> list[Exchange]:
    """Threads that speak by turns."""
    order = sorted((place, number) for number, (_, made) in enumerate(threads) for place in range(len(made)))
    return [
        exchange(index, *threads[number][1][place], dialect=dialect, speaker=threads[number][0])
        for index, (place, number) in enumerate(order)
    ]


def ask(session: ReplaySession, call: Exchange, who: Speaker | None = None) -> RecordedReply | None:
    speaks = who or call.speaker
    assert speaks is not None
    return session.answer(speaks, call.dialect, call.path, call.request)


def bodies(replies: Iterable[RecordedReply | None]) -> list[bytes | None]:
    return [reply.body if reply else None for reply in replies]


WORK = turns("Count.", ("ls", "a.txt"), ("wc a.txt", "3"), ("date", "05:11:59"))


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@pytest.mark.parametrize("at", [1, 2, 4, 5])
def test_calls_before_the_fork_get_their_replies_and_later_ones_none(dialect: str, at: int) -> None:
    then = record((MAIN, WORK), dialect=dialect)
    session = ReplaySession(Prefix(tuple(then), at))
    given = [ask(session, call) for call in then]
    assert bodies(given) == [call.response for call in then[: at - 1]] + [None] * (len(then) - at + 1)
    assert session.diverged is None
    assert (session.given, session.live_from) == (at - 1, at if at <= len(then) else None)
    assert session.fell_short() is None
    assert session.model_name == "m"


@pytest.mark.parametrize("seed", range(10))
def test_sub_agents_beside_each_other_keep_their_own_order_only(seed: int) -> None:
    subs = [(speaker(Kind.SUB, f"s{n}", "explore"), turns(f"Errand {n}.", (f"cat {n}", f"is {n}"))) for n in range(3)]
    titles = [(speaker(Kind.UTILITY, f"t{n}", "title"), turns(f"A title for part {n}.")) for n in range(2)]
    then = record((MAIN, WORK), *subs, *titles)
    session = ReplaySession(Prefix(tuple(then), 5))
    waiting = [[call for call in then if call.speaker == who] for who, _ in [(MAIN, WORK), *subs, *titles]]
    chance = random.Random(seed)
    while waiting := [one for one in waiting if one]:
        call = chance.choice(waiting).pop(0)
        assert call.speaker is not None
        # The programs call their threads otherwise each time.
        now = speaker(call.speaker.kind, f"new {call.speaker.thread}", call.speaker.name)
        reply = ask(session, call, now)
        assert reply is not None, session.diverged
        assert reply.body == call.response
    assert (session.diverged, session.unknown, session.fell_short()) == (None, 0, None)


def test_sub_agents_on_the_same_errand_are_given_a_record_each() -> None:
    errand = [asked("Look for the tests.")]
    found = [exchange(n + 4, errand, said(Text(text)), speaker=speaker(Kind.SUB, text)) for n, text in enumerate("ab")]
    session = ReplaySession(Prefix((*record((MAIN, WORK)), *found), 5))
    assert bodies(ask(session, found[0], speaker(Kind.SUB, name)) for name in "xy") == [one.response for one in found]


def test_only_what_came_before_the_fork_is_replayed() -> None:
    sub = speaker(Kind.SUB, "s", "explore")
    then = record((MAIN, WORK), (sub, turns("Errand.", ("x", "y"), ("z", "w"))))
    prefix = Prefix(tuple(then), 3)
    assert [(one.speaker.kind, one.index) for one in prefix.calls_to_replay if one.speaker] == [
        ("main", 0),
        ("sub", 1),
        ("main", 2),
        ("sub", 3),
    ]
    session = ReplaySession(prefix)
    given = [ask(session, call) is not None for call in then if call.speaker == sub]
    assert given == [True, True, False]
    assert session.diverged is None


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_another_result_of_a_tool_is_a_divergence_and_ends_the_replay(dialect: str) -> None:
    then = record((MAIN, WORK), dialect=dialect)
    now = record((MAIN, turns("Count.", ("ls", "a.txt"), ("wc a.txt", "4"), ("date", "05:11:59"))), dialect=dialect)
    session = ReplaySession(Prefix(tuple(then), 5))
    given = [ask(session, call) for call in now]
    assert bodies(given[:2]) == [call.response for call in then[:2]]
    assert given[2:] == [DIVERGED, DIVERGED]
    assert session.fell_short() == "call 3: result of bash: recorded '3', now '4'"
    assert (session.given, session.live_from) == (2, None)


def test_on_demand_it_goes_live_where_it_diverges() -> None:
    now = record((MAIN, turns("Count.", ("ls", "b.txt"), ("wc a.txt", "3"))))
    session = ReplaySession(Prefix(tuple(record((MAIN, WORK))), 4, live_if_diverged=True))
    given = [ask(session, call) for call in now]
    assert [reply is not None for reply in given] == [True, False, False]
    assert (session.live_from, session.fell_short()) == (2, None)
    assert session.diverged is not None


def test_surroundings_and_times_make_no_difference() -> None:
    """Another system text and a reminder before the first reply; a skill that has another text; the time of day."""
    then = record((MAIN, turns("Count.", ("cat SKILL.md", "Be careful."), ("date", "Mon Nov 16 05:34:10 UTC 2026"))))
    made = turns("Count.", ("cat SKILL.md", "Be bold.\nAnd quick."), ("date", "Tue Nov 17 06:00:01 UTC 2026"))
    other = Message("system", (Text("You work otherwise."),))
    now = record((MAIN, [([other, asked("A reminder: 16 files."), *sent[1:]], reply) for sent, reply in made]))
    lines = frozenset({"Be careful.", "Be bold.", "And quick."})
    session = ReplaySession(Prefix(tuple(then), 4, lines))
    assert bodies(ask(session, call) for call in now) == [call.response for call in then]
    strict = ReplaySession(Prefix(tuple(then), 4))
    assert ask(strict, now[0])
    assert ask(strict, now[1]) == DIVERGED


def test_a_history_cut_short_alike_is_the_same() -> None:
    summary = [SYSTEM, asked("You were counting; there is one file.")]
    cut = [
        (summary, said(calls("wc a.txt", "d1"))),
        ([*summary, said(calls("wc a.txt", "d1")), answered("3", "d1")], said(Text("3"))),
    ]
    then = record((MAIN, [*WORK[:2], *cut]))
    session = ReplaySession(Prefix(tuple(then), 5))
    assert bodies(ask(session, call) for call in then) == [call.response for call in then]
    assert session.diverged is None


@pytest.mark.parametrize("begins", [b"{", b'{"stream":true,'], ids=["whole", "streamed"])
def test_ids_that_a_program_makes_up_anew_are_put_into_the_replies(begins: bytes) -> None:
    dialect = "responses"
    old, new = "01a1e2df-47ee-7dd0-840f-a61bc9f76af9", "99f0c3aa-0000-4bbb-8ccc-123456789abc"
    steps = [("spawn", "agent {}"), ("wait {}", "{} is done")]
    then, now = (
        record((MAIN, turns("Go.", *((one.format(id_), other.format(id_)) for one, other in steps))), dialect=dialect)
        for id_ in (old, new)
    )
    then[1] = streamed(then[1])
    session = ReplaySession(Prefix(tuple(then), 4))
    replies = [ask(session, replace(call, request=begins + call.request[1:])) for call in now]
    assert session.diverged is None
    second = replies[1]
    assert second is not None
    (_, call) = read_reply(dialect, second.body).parts
    assert call == calls(f"wait {new}", "c1")


def streamed(one: Exchange) -> Exchange:
    """The same reply, as a stream with its words in pieces."""
    dialect = DIALECTS[one.dialect]
    writer = dialect.EventWriter(dialect.read_request(one.request, one.path))
    events = disassemble(dialect.read_reply(one.response))
    body = b"".join(writer.write(event) for event in events)
    return replace(one, response=body, response_headers=STREAM)


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_a_stream_is_given_in_one_piece_to_who_wants_that(dialect: str) -> None:
    then = [streamed(call) for call in record((MAIN, WORK), dialect=dialect)]
    now = record((MAIN, WORK), dialect=dialect)
    session = ReplaySession(Prefix(tuple(then), 5))
    for call in now:
        reply = ask(session, call)
        assert reply is not None
        assert parts(dialect, reply.body) == parts(dialect, call.response)
        assert not reply.reshaped


def parts(dialect: str, body: bytes) -> tuple[Part, ...]:
    reply: Reply = read_reply(dialect, body)
    return reply.parts


def test_passing_failures_are_not_made_again_and_refusals_are() -> None:
    made = [*WORK[:2], WORK[1], WORK[1], *WORK[2:]]
    then = record((MAIN, made))
    then[1] = replace(then[1], status=429, error=CallError.STATUS)
    then[2] = replace(then[2], status=400, error=CallError.STATUS, response=b'{"error":{"message":"too long"}}')
    session = ReplaySession(Prefix(tuple(then), 5))
    again = [then[0], then[2], then[3], then[4], then[5]]
    given = [ask(session, call) for call in again]
    assert [reply.status for reply in given if reply] == [200, 400, 200, 200, 200]
    assert (session.given, session.diverged) == (4, None)


def test_an_agent_that_ends_early_falls_short() -> None:
    then = record((MAIN, WORK))
    session = ReplaySession(Prefix(tuple(then), 4))
    assert ask(session, then[0])
    assert session.fell_short() == "the agent ended after call 1; the recorded agent continued"


def test_a_sub_agent_that_nobody_sent_is_a_divergence() -> None:
    then = record((MAIN, WORK))
    session = ReplaySession(Prefix(tuple(then), 4))
    errand, title = (
        exchange(0, [asked("An errand.")], said(Text("x"))),
        exchange(0, [asked("A title.")], said(Text("x"))),
    )
    assert ask(session, title, speaker(Kind.UTILITY, "t", "title")) is None
    assert (session.unknown, session.diverged) == (1, None)
    assert ask(session, errand, speaker(Kind.SUB, "s", "explore")) == DIVERGED
    assert session.fell_short() == "call 1 of sub explore: a conversation not on record"


def test_a_helper_that_asks_again_gets_the_next_reply() -> None:
    title = speaker(Kind.UTILITY, "t", "title")
    question = [asked("A title.")]
    then = [exchange(n, question, said(Text(text)), speaker=title) for n, text in enumerate(("First", "Second"))]
    then += [replace(call, index=call.index + 2) for call in record((MAIN, WORK))]
    session = ReplaySession(Prefix(tuple(then), 1))
    assert bodies(ask(session, then[0]) for _ in range(3)) == [then[0].response, then[1].response, None]
    assert session.unknown == 1
    assert ask(session, then[2]) is None
    assert ask(session, then[0]) is None
    assert session.unknown == 1, "once the model is asked, nothing is expected on record"


def test_only_what_is_new_in_a_long_conversation_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    then = record((MAIN, turns("Count.", *((f"echo {n}", f"{n}") for n in range(60)))))
    looked_at = 0
    behind = Messages.behind

    def counted(self: Messages, node: int | None, length: int) -> list[Message]:
        nonlocal looked_at
        found = behind(self, node, length)
        looked_at += len(found)
        return found

    monkeypatch.setattr(Messages, "behind", counted)
    session = ReplaySession(Prefix(tuple(then), 62))
    assert all(ask(session, call) for call in then)
    assert looked_at == 2 * 2 * 60
