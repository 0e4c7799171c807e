"""Adapts a scripted reply to the agent that sent the request: its tools, side requests, answers and way to end."""

import re
import shlex
from itertools import takewhile
from typing import Any

import msgspec

from whet.testing.schemas import minimal_object, minimal_value, required
from whet.testing.script import ScriptedReply, ScriptedToolCall, call, say
from whet.testing.tools import SPAWN, WAIT, plain_name, translate_call
from whet.testing.wire import ScriptedCall

_ANSWER_TOOLS = frozenset({"StructuredOutput", "structured_output"})
_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""mini-swe-agent ends when a command prints this line; what the command prints after it is the final text."""
_FINISH = "complete_task"
"""The tool by which a sub-agent of Gemini CLI ends."""
_AGENT_ID = re.compile(r'"agent_id"\s*:\s*"([^"]+)"')
_WAIT_MS = 600_000
_TITLE = re.compile(r"(?i)title generator|\b(?:generate|write|create)\b[^.\n]{0,60}\b(?:title|summary|topic)\b")


def adapt_reply(reply: ScriptedReply, request: ScriptedCall) -> ScriptedReply:
    """The reply in the form that the agent understands, or another reply that must come first."""
    return (
        _wait(request)
        or _errand(reply, request)
        or _end(_translate_calls(_add_answer(reply, request), request), request)
    )


def _wait(request: ScriptedCall) -> ScriptedReply | None:
    """A call that waits for the sub-agents that the last reply started, for an agent that would end without them."""
    backwards = request.conversation[::-1]
    results = list(takewhile(lambda turn: turn.role == "tool", backwards))
    last = takewhile(lambda turn: turn.role == "assistant", backwards[len(results) :])
    wait = next((tool for tool in request.tools if plain_name(tool.name) == WAIT), None)
    if wait is None or not any(plain_name(name) == SPAWN for turn in last for name, _ in turn.calls):
        return None
    started = [agent for result in reversed(results) for agent in _AGENT_ID.findall(result.text)]
    return call(wait.name, targets=started, timeout_ms=_WAIT_MS) if started else None


def _errand(reply: ScriptedReply, request: ScriptedCall) -> ScriptedReply | None:
    """A reply to a side request, such as one for a title of the conversation."""
    if request.tools or reply.fault is not None:
        return None
    if request.schema is not None:
        fits = _fits(_add_answer(reply, request), request.schema)
        return None if fits else say(_json(minimal_value(request.schema)))
    wants_title = any(_TITLE.search(text) for text in _prompt(request))
    return say("Scripted") if reply.tools and wants_title else None


def _fits(reply: ScriptedReply, schema: Any) -> bool:
    try:
        value = msgspec.json.decode(reply.text or "", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return False
    return not reply.tools and isinstance(schema, dict) and value.keys() >= set(required(schema))


def _add_answer(reply: ScriptedReply, request: ScriptedCall) -> ScriptedReply:
    """The reply with its answer as the request wants it."""
    if reply.answer is None:
        return reply
    for tool in request.tools:
        if tool.name in _ANSWER_TOOLS:
            return reply.model_copy(update={"tools": (ScriptedToolCall(name=tool.name, arguments=reply.answer),)})
    text = _json(reply.answer)
    if request.schema is None:
        text = "\n".join(filter(None, (reply.text, f"<answer>{text}</answer>")))
    return reply.model_copy(update={"text": text})


def _translate_calls(reply: ScriptedReply, request: ScriptedCall) -> ScriptedReply:
    """The reply with its calls in the words of the tools that are offered."""
    prompt = _prompt(request) if reply.tools else []
    return reply.model_copy(
        update={"tools": tuple(translate_call(tool, request.tools, prompt) for tool in reply.tools)}
    )


def _end(reply: ScriptedReply, request: ScriptedCall) -> ScriptedReply:
    """The reply, with text alone made a call for agents that only end by a call."""
    if reply.text is None or reply.tools:
        return reply
    for tool in request.tools:
        if tool.name == _FINISH:
            finish = ScriptedToolCall(name=_FINISH, arguments=minimal_object(tool.parameters, reply.text))
            return reply.model_copy(update={"text": None, "tools": (finish,)})
    if len(request.tools) == 1 and any(_SUBMIT in text for text in _prompt(request)):
        submit = call("bash", command=f"echo {_SUBMIT} && printf %s {shlex.quote(reply.text)}")
        return _translate_calls(reply.model_copy(update={"text": None, "tools": submit.tools}), request)
    return reply


def _prompt(request: ScriptedCall) -> list[str]:
    """The texts of the system and the user."""
    return [turn.text for turn in request.conversation if turn.role in {"system", "user"}]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
