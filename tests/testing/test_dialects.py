"""What holds in every dialect of the scripted model: one reply, told in different words."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scripted_wires import WIRES, Json, Said, Wire, arguments, name
from support.scripted_world import JSON, REPLIES
from whet.testing import Reply, call, say
from whet.testing.dialect import BadRequestError

KEYS = st.sampled_from(["role", "content", "parts", "type", "text"])

each_dialect = pytest.mark.parametrize("wire", WIRES, ids=name)


def _body(wire: Wire, text: str = "Hi") -> bytes:
    return json.dumps(wire.body(wire.ask(text), stream=True)).encode()


def _whole(wire: Wire, reply: Reply, text: str = "Hi") -> Json:
    answer: Json = json.loads(wire.module.whole(wire.module.read(_body(wire, text)), reply))
    return answer


@each_dialect
@given(reply=REPLIES)
def test_the_stream_assembles_to_the_whole_answer(wire: Wire, reply: Reply) -> None:
    request = wire.module.read(_body(wire))
    assert wire.assemble(b"".join(wire.module.events(request, reply))) == _whole(wire, reply)


@each_dialect
@given(reply=REPLIES)
def test_the_answer_says_what_the_script_says(wire: Wire, reply: Reply) -> None:
    calls = [
        (tool.name, arguments(tool.arguments) if isinstance(tool.arguments, str) else tool.arguments)
        for tool in reply.tools
    ]
    assert wire.said(_whole(wire, reply)) == Said(reply.thinking or "", reply.text or "", calls)


@given(reply=REPLIES, text=st.text())
def test_the_same_call_costs_the_same_in_every_dialect(reply: Reply, text: str) -> None:
    chat, *others = [wire.spent(_whole(wire, reply, text)) for wire in WIRES]
    assert all(spent == chat for spent in others)
    assert chat.total == chat.input + chat.output


def test_what_was_said_before_costs_the_same_in_every_dialect() -> None:
    reply = Reply(thinking="Where?", text="Let me look.", tools=call("bash", command="ls").tools)
    inputs = []
    for wire in WIRES:
        answer = _whole(wire, reply)
        history = [*wire.ask("Hi"), *wire.back(answer), *wire.result(answer, "x.py")]
        request = wire.module.read(json.dumps(wire.body(history, stream=False)).encode())
        inputs.append(request.tokens)
    said = 'You code.HiWhere?Let me look.bash{"command":"ls"}x.py'
    assert inputs == [-(-len(said) // 4)] * 4


@each_dialect
def test_ids_come_from_the_request_and_differ_within_an_answer(wire: Wire) -> None:
    def ids(text: str) -> list[str]:
        found: list[str] = []

        def collect(value: Json) -> Json:
            found.extend(value[key] for key in ("id", "call_id", "responseId") if key in value)
            return value

        request = wire.module.read(_body(wire, text))
        json.loads(wire.module.whole(request, Reply(tools=(*call("a").tools, *call("a").tools))), object_hook=collect)
        return found

    first = ids("one")
    assert len(first) >= 3
    assert first == ids("one")
    assert len({*first, *ids("two")}) == 2 * len(first)


@each_dialect
def test_the_model_answers_to_the_name_it_was_called_by(wire: Wire) -> None:
    request = wire.module.read(_body(wire), **({"model": "m"} if name(wire) == "gemini" else {}))
    answer = json.loads(wire.module.whole(request, say("Hi.")))
    assert answer.get("model", answer.get("modelVersion")) == "m"


@each_dialect
@given(body=st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_reads_or_is_refused(wire: Wire, body: bytes) -> None:
    with contextlib.suppress(BadRequestError):
        assert wire.module.read(body).conversation


@each_dialect
@given(value=JSON | st.lists(st.dictionaries(KEYS, JSON, max_size=3), max_size=2))
def test_any_history_reads_or_is_refused(wire: Wire, value: object) -> None:
    key = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}[name(wire)]
    with contextlib.suppress(BadRequestError):
        wire.module.read(json.dumps(wire.body([], stream=True) | {key: value}).encode())


@each_dialect
def test_a_body_that_is_nested_too_deeply_is_refused(wire: Wire) -> None:
    with pytest.raises(BadRequestError):
        wire.module.read(b'{"x":' * 100_000)
