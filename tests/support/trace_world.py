"""What the tests of traces share: exchanges of any dialect, made of neutral messages as an agent would send them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from whet.exchange import Exchange, Kind, Speaker, Usage
from whet.gateway.dialects import DIALECTS
from whet.gateway.dialects.neutral import Message, Part, Reply, Request, Stop, Text, Tool, ToolCall, ToolResult
from whet.gateway.token_capture import check_tokens

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/m:generateContent",
}
BASH = Tool("bash", "runs a command", {"type": "object", "properties": {"command": {"type": "string"}}})
MAIN = Speaker(Kind.MAIN, "main", None, "a test")
FULL = {"temperature": 1.0, "top_p": 1, "top_k": -1, "min_p": 0, "repetition_penalty": 1}
"""What a request says to be sampled from the model's whole distribution."""
SYSTEM = Message("system", (Text("You work."),))


def asked(text: str) -> Message:
    return Message("user", (Text(text),))


def said(*parts: Part) -> Message:
    return Message("assistant", parts)


def calls(command: str, id_: str = "c1") -> ToolCall:
    return ToolCall(id_, "bash", msgspec.json.encode({"command": command}).decode())


def answered(text: str, id_: str = "c1") -> Message:
    return Message("user", (ToolResult(id_, (Text(text),), "bash"),))


def exchange(
    index: int,
    messages: Sequence[Message],
    reply: Message,
    *,
    dialect: str = "chat",
    speaker: Speaker | None = MAIN,
    tools: tuple[Tool, ...] = (BASH,),
    **more: Any,
) -> Exchange:
    """A call that sends these messages and gets this reply."""
    speaks = DIALECTS[dialect]
    request = Request("m", tuple(messages), tools)
    body, _ = speaks.write_request(request)
    stop = Stop.TOOLS if any(isinstance(part, ToolCall) for part in reply.parts) else Stop.END
    response = speaks.write_reply(Reply(f"r{index}", "m", reply.parts, stop, Usage(7, 3)), request)
    facts: dict[str, Any] = {
        "session": "s",
        "index": index,
        "dialect": dialect,
        "path": PATHS[dialect],
        "request_headers": (),
        "request": body,
        "upstream": "http://127.0.0.1:1",
        "status": 200,
        "response_headers": (("Content-Type", "application/json"),),
        "response": response,
        "attempts": 1,
        "error": None,
        "started": float(index),
        "first_byte": index + 0.2,
        "ended": index + 0.5,
        "usage": Usage(7, 3),
        "speaker": speaker,
    }
    return Exchange(**facts | more)


def with_tokens(
    call: Exchange,
    prompt: Sequence[int],
    sampled: Sequence[int],
    logprobs: Sequence[float],
    *,
    finish: str = "stop",
    **policy: Any,
) -> Exchange:
    """The same call, answered by an engine that tells its tokens. By default it is sampled as training wants it."""
    reply = msgspec.json.decode(call.response)
    (choice,) = reply["choices"]
    choice |= {
        "token_ids": list(sampled),
        "logprobs": {"content": [{"token": "x", "logprob": logprob} for logprob in logprobs]},
        "finish_reason": finish,
    }
    reply |= {
        "prompt_token_ids": list(prompt),
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(sampled)},
    }
    response = msgspec.json.encode(reply)
    sent = msgspec.json.encode(FULL | policy)
    return replace(call, response=response, sent=sent, tokens=check_tokens(response, streamed=False))
