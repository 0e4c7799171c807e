"""Who speaks in a call when the headers do not tell: the conversations do, in every dialect."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.exchange import Kind, Speaker
from whet.gateway.attribution.threads import WATCHED, ThreadAnswer, Threads
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects import neutral as n

OBJECT = {"type": "object", "properties": {}}
TOOLS = tuple(n.Tool(name, "A tool.", OBJECT) for name in ("bash", "task"))
EXPLORE_TOOLS = tuple(n.Tool(name, "A tool.", OBJECT) for name in ("read", "grep"))
COMPACT = "Your task is to create a detailed summary of the conversation so far, paying attention to requests."


@pytest.fixture(params=list(DIALECTS), name="dialect")
def dialect_fixture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@dataclass
class Talk:
    """One conversation of an agent, as it would send it."""

    first: str
    system: str = "You are an agent."
    tools: tuple[n.Tool, ...] = TOOLS
    messages: list[n.Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.messages.append(n.Message("user", (n.Text(self.first),)))

    def body(self, dialect: str) -> bytes:
        system = (n.Message("system", (n.Text(self.system),)),)
        request = n.Request("m", (*system, *self.messages), self.tools, stream=True)
        return DIALECTS[dialect].write_request(request)[0]

    def goes_on(self, call: n.ToolCall, result: str) -> None:
        self.messages.append(n.Message("assistant", (n.Text("I see."), call)))
        self.messages.append(n.Message("user", (n.ToolResult(call.id, (n.Text(result),), call.name),)))

    def says(self, text: str, then: str) -> None:
        self.messages.append(n.Message("assistant", (n.Text(text),)))
        self.messages.append(n.Message("user", (n.Text(then),)))


class World:
    """A session whose calls are placed one by one."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.threads = Threads()
        self.indices = itertools.count()
        self.ids = itertools.count()

    def ask(self, body: bytes | Talk, path: str = "/v1/x", **headers: str) -> tuple[int, Speaker]:
        """A call begins."""
        index = next(self.indices)
        sent = body.body(self.dialect) if isinstance(body, Talk) else body
        given = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return index, self.threads.place(index, self.dialect, path, given, sent)

    def call(self, tool: str, **arguments: Any) -> n.ToolCall:
        return n.ToolCall(f"call_{next(self.ids)}", tool, json.dumps(arguments))

    def answer(self, index: int, *parts: n.ToolCall | n.Text, streamed: bool = False) -> None:
        """A call ends with this reply."""
        written = _stream(self.dialect, parts) if streamed else _whole(self.dialect, parts)
        self.threads.end(index, ThreadAnswer(self.dialect, written, streamed))

    def step(self, talk: Talk, **headers: str) -> Speaker:
        """A call that is answered with a tool call, which is done."""
        index, speaker = self.ask(talk, **headers)
        call = self.call("bash", command="ls")
        self.answer(index, call)
        talk.goes_on(call, "a.py")
        return speaker


def _whole(dialect: str, parts: Sequence[n.ToolCall | n.Text]) -> bytes:
    asked = n.Request("m", (), TOOLS)
    return DIALECTS[dialect].write_reply(n.Reply("r", "m", tuple(parts), n.Stop.TOOLS), asked)


def _stream(dialect: str, parts: Sequence[n.ToolCall | n.Text]) -> bytes:
    writer = DIALECTS[dialect].EventWriter(n.Request("m", (), TOOLS, stream=True))
    events: list[n.Event] = [n.Begin("r", "m")]
    for part in parts:
        if isinstance(part, n.Text):
            events.append(n.TextDelta(part.text))
        else:
            # Arguments come in pieces, so no piece holds the prompt of a sub-agent whole.
            half = len(part.arguments) // 2
            pieces = (part.arguments[:half], part.arguments[half:])
            events += [n.CallBegin(part.id, part.name), *(n.CallDelta(piece) for piece in pieces)]
    return b"".join(writer.write(event) for event in [*events, n.End(n.Stop.TOOLS)])


def test_steps_of_one_conversation_are_one_thread(dialect: str) -> None:
    world, talk = World(dialect), Talk("Fix the bug.")
    speakers = [world.step(talk) for _ in range(4)]
    assert {(one.kind, one.thread, one.parent) for one in speakers} == {(Kind.MAIN, "main", None)}
    assert [one.evidence for one in speakers] == [
        "first conversation of the session",
        "continues call 0",
        "continues call 1",
        "continues call 2",
    ]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_conversation_that_a_tool_call_began_is_a_sub_agent(dialect: str, streamed: bool) -> None:
    world, main = World(dialect), Talk("Fix the bug.")
    world.step(main)
    index, _ = world.ask(main)
    task = world.call("task", subagent_type="explore", prompt="Find where the parser lives.")
    world.answer(index, task, streamed=streamed)
    sub = Talk("Find where the parser lives.", "You explore.", EXPLORE_TOOLS)
    begun, gone_on = world.step(sub), world.step(sub)
    assert (begun.kind, begun.thread, begun.parent, begun.name) == (Kind.SUB, "sub-2", "main", "explore")
    assert begun.evidence == "has its prompt from the call of task that answered call 1"
    assert begun.label == gone_on.label == "sub explore"
    assert (gone_on.thread, gone_on.evidence) == ("sub-2", "continues call 2")
    main.goes_on(task, "In parser.py.")
    back = world.step(main)
    assert (back.kind, back.thread, back.evidence) == (Kind.MAIN, "main", "continues call 1")


def test_a_conversation_inside_a_tool_call_is_a_sub_agent(dialect: str) -> None:
    world, main = World(dialect), Talk("Fix the bug.")
    index, _ = world.ask(main)
    world.answer(index, world.call("bash", command="agent --do something"))
    speaker = world.step(Talk("Something else entirely.", "You help.", EXPLORE_TOOLS))
    assert (speaker.kind, speaker.parent) == (Kind.SUB, "main")
    assert speaker.evidence == "began while the call of bash that answered call 0 was open"


def test_a_conversation_beside_a_call_under_way_is_a_sub_agent(dialect: str) -> None:
    world = World(dialect)
    world.ask(Talk("Fix the bug."))
    _, speaker = world.ask(Talk("Look around.", "You help.", EXPLORE_TOOLS))
    assert (speaker.kind, speaker.parent) == (Kind.SUB, "main")
    assert speaker.evidence == "began beside call 0, which was under way"


def test_a_conversation_after_all_others_have_ended_is_another_main_thread(dialect: str) -> None:
    world = World(dialect)
    index, _ = world.ask(Talk("Fix the bug."))
    world.answer(index, n.Text("Done."))
    _, speaker = world.ask(Talk("Now the next one."))
    assert (speaker.kind, speaker.thread) == (Kind.MAIN, "main-1")
    assert "no other was open" in speaker.evidence


@pytest.mark.parametrize(
    ("system", "text", "label"),
    [
        (
            "You are a title generator. You output ONLY a thread title.",
            "Generate a title for this conversation:",
            "title",
        ),
        ("Generate a concise, sentence-case title for this session.", "Fix the bug.", "title"),
        ("You are a context summarization assistant.", "<conversation>...</conversation>", "compaction"),
        ("Write a short summary of the change.", "diff --git", "summary"),
        ("Say whether this command is safe.", "rm -rf build", "utility"),
    ],
)
def test_a_conversation_without_tools_is_a_helper(dialect: str, system: str, text: str, label: str) -> None:
    world, main = World(dialect), Talk("Fix the bug.")
    world.step(main)
    _, speaker = world.ask(Talk(text, system, ()))
    assert (speaker.kind, speaker.label, speaker.parent) == (Kind.UTILITY, label, "main")
    assert "tools" in speaker.evidence
    assert world.step(main).thread == "main"


def test_a_title_asked_for_first_is_not_the_main_thread(dialect: str) -> None:
    world, main = World(dialect), Talk("Fix the bug.")
    _, title = world.ask(Talk("Fix the bug.", "You are a title generator. You output ONLY a thread title.", ()))
    assert title.label == "title"
    speakers = [world.step(main), world.step(main)]
    assert [(one.kind, one.thread) for one in speakers] == [(Kind.MAIN, "main")] * 2


def test_without_any_tools_a_conversation_is_the_main_thread(dialect: str) -> None:
    world, main = World(dialect), Talk("2+2?", tools=())
    assert world.ask(main)[1].kind is Kind.MAIN
    world.answer(0, n.Text("4"))
    main.says("4", "And 3+3?")
    assert world.ask(main)[1].evidence == "continues call 0"


@pytest.mark.parametrize("tools", [TOOLS, ()])
def test_a_thread_continues_after_its_compaction(dialect: str, tools: tuple[n.Tool, ...]) -> None:
    world, main = World(dialect), Talk("Fix the bug.")
    world.step(main)
    world.step(main)
    asking = Talk("-", tools=tools, messages=[*main.messages])
    asking.messages[-1] = n.Message("user", (n.Text(COMPACT),))
    index, compaction = world.ask(asking)
    world.answer(index, n.Text("We fixed half of it."))
    assert (compaction.kind, compaction.label, compaction.parent) == (Kind.UTILITY, "compaction", "main")
    assert "continues call 1" in compaction.evidence
    short = Talk("Summary: we fixed half of it. Go on.")
    broken, after = world.step(short), world.step(short)
    assert (broken.kind, broken.thread) == (Kind.MAIN, "main")
    assert broken.evidence == "same tools as call 1, after the compaction in call 2"
    assert (after.thread, after.evidence) == ("main", "continues call 3")


def test_a_call_of_the_compact_route_is_a_compaction() -> None:
    world, main = World("responses"), Talk("Fix the bug.")
    world.step(main)
    _, speaker = world.ask(main, "/v1/responses/compact")
    assert (speaker.label, speaker.parent) == ("compaction", "main")
    assert speaker.evidence == "POST /v1/responses/compact, and continues call 0"
    assert world.step(Talk("So far: nothing.")).evidence == "same tools as call 0, after the compaction in call 1"


def test_a_history_that_was_cut_back_is_still_the_same_thread(dialect: str) -> None:
    world, main = World(dialect), Talk("Fix the bug.")
    for _ in range(3):
        world.step(main)
    del main.messages[3:]
    main.says("I try another way.", "Do.")
    speaker = world.step(main)
    assert speaker.thread == "main"
    assert speaker.evidence == "continues call 1, and leaves out what came after it, up to call 2"


def test_a_system_text_that_is_written_anew_each_time_does_not_matter(dialect: str) -> None:
    world, main = World(dialect), Talk("Fix the bug.")
    for minute in range(4):
        main.system = f"You are an agent. It is 10:0{minute}. {'x' * minute}"
        assert world.step(main).thread == "main"


def test_equal_requests_at_once_are_told_apart_by_answers() -> None:
    world = World("chat")
    talks = [Talk("Write a poem."), Talk("Write a poem.")]
    asked = [world.ask(talk) for talk in talks]
    assert asked[1][1].evidence == "continues call 0, beside call 0, which is under way"
    for (index, _), talk in zip(asked, talks, strict=True):
        call = world.call("bash", command="ls")
        world.answer(index, call)
        talk.goes_on(call, "a.py")
    gone_on = [world.ask(talk)[1] for talk in reversed(talks)]
    assert [one.thread for one in gone_on] == [speaker.thread for _, speaker in reversed(asked)]
    assert gone_on[0].evidence == "continues call 1, whose answer it holds"


def test_what_cannot_be_told_apart_is_said() -> None:
    world = World("chat")
    talks = [Talk("Write a poem."), Talk("Write a poem.")]
    for index, _ in [world.ask(talk) for talk in talks]:
        world.answer(index, n.Text("Roses are red."))
    talks[0].says("Roses are red.", "Another one.")
    assert world.ask(talks[0])[1].evidence == "continues call 0 or 1; which of them cannot be told"


def test_marks_for_the_providers_cache_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("messages")
    turns: list[dict[str, Any]] = [{"role": "user", "content": "Fix the bug."}]
    for number in range(12):
        sent = [{**turn} for turn in turns]
        for turn in sent[-3::2]:
            turn["content"] = [{"type": "text", "text": turn["content"], "cache_control": {"type": "ephemeral"}}]
        body = {"model": "m", "messages": sent, "tools": [{"name": "bash"}], "max_tokens": 9}
        index, speaker = world.ask(json.dumps(body).encode())
        assert (speaker.thread, speaker.kind) == ("main", Kind.MAIN)
        world.answer(index, n.Text("ok"))
        turns += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": f"go on {number} é"}]
        if number == 6:
            # From now on the bytes alone must tell.
            monkeypatch.setattr("whet.gateway.attribution.threads.read_conversation", None)


def test_another_message_is_not_taken_for_a_marked_one() -> None:
    world = World("messages")
    marked = {"cache_control": {"type": "ephemeral"}}

    def ask(*texts: str) -> Speaker:
        turns: list[dict[str, Any]] = [
            {"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)
        ]
        turns[-1]["content"] = [{"type": "text", "text": texts[-1], **marked}]
        body = {"messages": turns, "tools": [{"name": "bash"}]}
        index, speaker = world.ask(json.dumps(body).encode())
        world.answer(index, n.Text("ok"))
        return speaker

    ask("Fix the bug.")
    assert ask("Fix the bug.", "ok", "Go on.").evidence == "continues call 0"
    assert ask("Fix the bug.", "ok", "No, stop.").evidence == (
        "continues call 0, and leaves out what came after it, up to call 1"
    )


BODIES = st.one_of(
    st.binary(max_size=40),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["messages", "input", "contents", "role", "content", "type", "tools", "text", "system"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    ).map(lambda value: json.dumps(value).encode()),
)


@given(st.sampled_from(sorted(DIALECTS)), st.lists(st.tuples(BODIES, st.booleans()), max_size=6))
def test_whatever_is_sent_has_a_speaker(dialect: str, bodies: list[tuple[bytes, bool]]) -> None:
    world = World(dialect)
    for body, answered in bodies:
        index, speaker = world.ask(body)
        assert speaker.evidence
        if answered:
            world.threads.end(index, ThreadAnswer(dialect, body, streamed=False))


def test_json_that_nests_without_end_has_a_speaker() -> None:
    for body in (b'{"messages":' + b"[" * 100_000, b'{"messages":[' + b"[" * 5000 + b"]" * 5000 + b"]}"):
        assert World("chat").ask(body)[1].kind is Kind.MAIN


@given(
    st.sampled_from(sorted(DIALECTS)),
    st.integers(2, WATCHED + 2).flatmap(
        lambda count: st.lists(st.integers(0, count - 1), min_size=count, max_size=40).map(lambda turns: (count, turns))
    ),
    st.booleans(),
)
def test_threads_in_any_order_are_told_apart(dialect: str, plan: tuple[int, list[int]], same_setting: bool) -> None:
    count, turns = plan
    world = World(dialect)
    talks = [
        Talk(f"Task number {number}: é", "You are an agent." if same_setting else f"You are agent {number}.")
        for number in range(count)
    ]
    threads: dict[int, str] = {}
    alone: dict[int, int] = {}
    for turn, who in enumerate(turns):
        speaker = world.step(talks[who])
        assert threads.setdefault(who, speaker.thread) == speaker.thread
        if who in alone:
            assert speaker.evidence == f"continues call {alone[who]}"
        alone[who] = turn
    assert len({*threads.values()}) == len(threads)
