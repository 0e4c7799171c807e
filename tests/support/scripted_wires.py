"""The four dialects as a client of the scripted model sees them: how to ask, and how to read what comes back."""

import json
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

from whet.testing import chat, gemini, messages, responses

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What an answer says, whatever its dialect."""

    thinking: str
    text: str
    calls: list[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class Spent:
    """What an answer says it cost."""

    input: int
    output: int
    total: int


class Wire(Protocol):
    """A client's side of one dialect."""

    module: ModuleType

    def path(self, stream: bool) -> str:
        """Where requests go."""
        ...

    def ask(self, text: str) -> list[Any]:
        """The history that begins with this."""
        ...

    def back(self, answer: Json) -> list[Any]:
        """The answer as it is sent back in the history."""
        ...

    def result(self, answer: Json, text: str) -> list[Any]:
        """The result of every tool that the answer asks for."""
        ...

    def body(self, history: list[Any], stream: bool) -> Json:
        """The request."""
        ...

    def said(self, answer: Json) -> Said:
        """What a whole answer says."""
        ...

    def spent(self, answer: Json) -> Spent:
        """What a whole answer cost."""
        ...

    def assemble(self, stream: bytes) -> Json:
        """The whole answer that a complete stream amounts to."""
        ...


def arguments(text: str) -> Any:
    """The object in a text, or the text when it holds none."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def unnamed_events(stream: bytes) -> list[str]:
    *events, rest = stream.decode().split("\n\n")
    assert rest == ""
    assert all(event.startswith("data: ") for event in events)
    return [event.removeprefix("data: ") for event in events]


def named_events(stream: bytes) -> list[Json]:
    *events, rest = stream.decode().split("\n\n")
    assert rest == ""
    decoded = []
    for event in events:
        name, _, data = event.partition("\n")
        decoded.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {decoded[-1]['type']}"
    return decoded


class Chat:
    module: ModuleType = chat

    def path(self, stream: bool) -> str:
        return "/v1/chat/completions"

    def ask(self, text: str) -> list[Any]:
        return [{"role": "user", "content": text}]

    def back(self, answer: Json) -> list[Any]:
        return [answer["choices"][0]["message"]]

    def result(self, answer: Json, text: str) -> list[Any]:
        calls = answer["choices"][0]["message"]["tool_calls"]
        return [{"role": "tool", "tool_call_id": call["id"], "content": text} for call in calls]

    def body(self, history: list[Any], stream: bool) -> Json:
        body = {"model": "m", "messages": [{"role": "system", "content": "You code."}, *history], "stream": stream}
        return body | ({"stream_options": {"include_usage": True}} if stream else {})

    def said(self, answer: Json) -> Said:
        message = answer["choices"][0]["message"]
        assert answer["choices"][0]["finish_reason"] == ("tool_calls" if message.get("tool_calls") else "stop")
        functions = [call["function"] for call in message.get("tool_calls", ())]
        calls = [(function["name"], arguments(function["arguments"])) for function in functions]
        return Said(message.get("reasoning_content", ""), message["content"] or "", calls)

    def spent(self, answer: Json) -> Spent:
        usage = answer["usage"]
        return Spent(usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"])

    def assemble(self, stream: bytes) -> Json:
        *events, done = unnamed_events(stream)
        assert done == "[DONE]"
        *chunks, last = [json.loads(event) for event in events]
        assert all(chunk["usage"] is None for chunk in chunks)
        head = {key: last[key] for key in ("id", "created", "model")}
        assert all(chunk.items() >= head.items() for chunk in chunks)
        message: Json = {}
        for chunk in chunks:
            _add_delta(message, chunk["choices"][0]["delta"])
        choice = {"index": 0, "message": message, "finish_reason": chunks[-1]["choices"][0]["finish_reason"]}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": last["usage"]}


def _add_delta(message: Json, delta: Json) -> None:
    message |= {key: delta[key] for key in ("role",) if key in delta}
    for key in delta.keys() & {"content", "reasoning_content"}:
        message[key] = message[key] + delta[key] if key in message else delta[key]
    for piece in delta.get("tool_calls", ()):
        calls = message.setdefault("tool_calls", [])
        if piece["index"] == len(calls):
            calls.append({key: piece[key] for key in ("id", "type", "function")})
        else:
            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]


class Responses:
    module: ModuleType = responses

    def path(self, stream: bool) -> str:
        return "/v1/responses"

    def ask(self, text: str) -> list[Any]:
        return [{"role": "user", "content": [{"type": "input_text", "text": text}]}]

    def back(self, answer: Json) -> list[Any]:
        return list(answer["output"])

    def result(self, answer: Json, text: str) -> list[Any]:
        calls = [item for item in answer["output"] if item["type"].endswith("_call")]
        return [{"type": f"{call['type']}_output", "call_id": call["call_id"], "output": text} for call in calls]

    def body(self, history: list[Any], stream: bool) -> Json:
        return {"model": "m", "instructions": "You code.", "input": history, "stream": stream}

    def said(self, answer: Json) -> Said:
        assert answer["status"] == "completed"
        thoughts = [item["summary"][0]["text"] for item in answer["output"] if item["type"] == "reasoning"]
        texts = [item["content"][0]["text"] for item in answer["output"] if item["type"] == "message"]
        functions = [item for item in answer["output"] if item["type"] == "function_call"]
        calls = [(function["name"], arguments(function["arguments"])) for function in functions]
        return Said("".join(thoughts), "".join(texts), calls)

    def spent(self, answer: Json) -> Spent:
        usage = answer["usage"]
        return Spent(usage["input_tokens"], usage["output_tokens"], usage["total_tokens"])

    def assemble(self, stream: bytes) -> Json:
        events = named_events(stream)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        created, begun, *filling, completed = events
        assert [created["type"], begun["type"]] == ["response.created", "response.in_progress"]
        assert completed["type"] == "response.completed"
        output = [item for item in map(_Filled(), filling) if item is not None]
        usage = completed["response"]["usage"]
        return {**created["response"], "status": "completed", "output": output, "usage": usage}


class _Filled:
    """Fills one item of a responses stream after the other, by what is added to it alone."""

    def __init__(self) -> None:
        self.index = -1
        self.item: Json = {}

    def __call__(self, event: Json) -> Json | None:
        kind = event["type"].removeprefix("response.")
        assert event["output_index"] == self.index + (kind == "output_item.added")
        assert event.get("item_id", self.item.get("id")) == self.item.get("id")
        match kind:
            case "output_item.added":
                self.index, self.item = event["output_index"], event["item"]
            case "reasoning_summary_part.added":
                self.item["summary"].append(event["part"])
            case "content_part.added":
                self.item["content"].append(event["part"])
            case "reasoning_summary_text.delta":
                self.item["summary"][event["summary_index"]]["text"] += event["delta"]
            case "output_text.delta":
                self.item["content"][event["content_index"]]["text"] += event["delta"]
            case "function_call_arguments.delta":
                self.item["arguments"] += event["delta"]
            case "custom_tool_call_input.delta":
                self.item["input"] += event["delta"]
            case "reasoning_summary_text.done" | "reasoning_summary_part.done":
                assert self.item["summary"][0]["text"] == event.get("text", event.get("part", {}).get("text"))
            case "output_text.done" | "content_part.done":
                assert self.item["content"][0]["text"] == event.get("text", event.get("part", {}).get("text"))
            case "function_call_arguments.done":
                assert self.item["arguments"] == event["arguments"]
            case "custom_tool_call_input.done":
                assert self.item["input"] == event["input"]
            case "output_item.done":
                # The state of an item and the seal of a thought come with its end.
                late = {key: event["item"][key] for key in ("status", "encrypted_content") if key in event["item"]}
                return self.item | late
            case _:
                raise AssertionError(f"unknown event {kind}")
        return None


class Messages:
    module: ModuleType = messages

    def path(self, stream: bool) -> str:
        return "/v1/messages?beta=true"

    def ask(self, text: str) -> list[Any]:
        return [{"role": "user", "content": [{"type": "text", "text": text}]}]

    def back(self, answer: Json) -> list[Any]:
        return [{"role": "assistant", "content": answer["content"]}]

    def result(self, answer: Json, text: str) -> list[Any]:
        uses = [block for block in answer["content"] if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": use["id"], "content": text} for use in uses]
        return [{"role": "user", "content": results}]

    def body(self, history: list[Any], stream: bool) -> Json:
        system = [{"type": "text", "text": "You code."}]
        return {"model": "m", "max_tokens": 9, "system": system, "messages": history, "stream": stream}

    def said(self, answer: Json) -> Said:
        blocks = answer["content"]
        calls = [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
        assert answer["stop_reason"] == ("tool_use" if calls else "end_turn")
        return Said(
            "".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
            "".join(block["text"] for block in blocks if block["type"] == "text"),
            calls,
        )

    def spent(self, answer: Json) -> Spent:
        usage = answer["usage"]
        input_tokens = sum(usage[key] for key in usage if key.endswith("input_tokens"))
        return Spent(input_tokens, usage["output_tokens"], input_tokens + usage["output_tokens"])

    def assemble(self, stream: bytes) -> Json:
        start, *filling, delta, stop = named_events(stream)
        assert [start["type"], delta["type"], stop["type"]] == ["message_start", "message_delta", "message_stop"]
        blocks: list[Json] = []
        inputs: dict[int, str] = {}
        for event in filling:
            if event["type"] == "content_block_start":
                assert event["index"] == len(blocks)
                blocks.append(event["content_block"])
            elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
                inputs[event["index"]] = inputs.get(event["index"], "") + event["delta"]["partial_json"]
            elif event["type"] == "content_block_delta":
                ((key, value),) = ((key, value) for key, value in event["delta"].items() if key != "type")
                blocks[event["index"]][key] += value
            else:
                assert event["type"] in {"ping", "content_block_stop"}
        for index, block in enumerate(blocks):
            if block["type"] == "tool_use":
                assert block["input"] == {}
                block["input"] = arguments(inputs.get(index, ""))
        return {**start["message"], **delta["delta"], "content": blocks, "usage": delta["usage"]}


class Gemini:
    module: ModuleType = gemini

    def path(self, stream: bool) -> str:
        return f"/v1beta/models/m:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"

    def ask(self, text: str) -> list[Any]:
        return [{"role": "user", "parts": [{"text": text}]}]

    def back(self, answer: Json) -> list[Any]:
        return [answer["candidates"][0]["content"]]

    def result(self, answer: Json, text: str) -> list[Any]:
        parts = answer["candidates"][0]["content"]["parts"]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        results = [{"id": call["id"], "name": call["name"], "response": {"output": text}} for call in calls]
        return [{"role": "user", "parts": [{"functionResponse": result} for result in results]}]

    def body(self, history: list[Any], stream: bool) -> Json:
        return {"systemInstruction": {"role": "user", "parts": [{"text": "You code."}]}, "contents": history}

    def said(self, answer: Json) -> Said:
        assert answer["candidates"][0]["finishReason"] == "STOP"
        parts = answer["candidates"][0]["content"]["parts"]
        return Said(
            "".join(part["text"] for part in parts if part.get("thought")),
            "".join(part.get("text", "") for part in parts if not part.get("thought")),
            [(part["functionCall"]["name"], part["functionCall"]["args"]) for part in parts if "functionCall" in part],
        )

    def spent(self, answer: Json) -> Spent:
        usage = answer["usageMetadata"]
        output = usage["candidatesTokenCount"] + usage["thoughtsTokenCount"]
        return Spent(usage["promptTokenCount"], output, usage["totalTokenCount"])

    def assemble(self, stream: bytes) -> Json:
        return self.merge([json.loads(event) for event in unnamed_events(stream)])

    def merge(self, chunks: list[Json]) -> Json:
        *begun, last = chunks
        assert all("finishReason" not in chunk["candidates"][0] for chunk in begun)
        assert all("usageMetadata" not in chunk for chunk in begun)
        parts: list[Json] = []
        for part in (part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]):
            if parts and "text" in part and "text" in parts[-1] and part.get("thought") == parts[-1].get("thought"):
                parts[-1] |= part | {"text": parts[-1]["text"] + part["text"]}
            elif part != {"text": ""} or not parts:
                parts.append(part)
        last["candidates"][0]["content"]["parts"] = parts
        return last


WIRES: list[Wire] = [Chat(), Responses(), Messages(), Gemini()]


def name(wire: Wire) -> str:
    """The name of a dialect, for the ids of tests."""
    return type(wire).__name__.lower()
