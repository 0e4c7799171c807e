"""The official SDKs behind one face: a conversation in the tests' words, and what came back in the SDK's own types.

A `Front` is one dialect as an agent speaks it. Its SDK comes in a sync and an async form that differ only in who waits.
The SDKs take seconds to import, so that only the tests that use one import it.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

MODEL = "tiny"
MAX_TOKENS = 512
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = ("bash", "read")

Conversation = dict[str, Any]
"""What a call of the SDK is given."""


@dataclass(frozen=True)
class Called:
    id: str
    name: str
    arguments: Any


@dataclass(frozen=True)
class Said:
    """A reply, in the SDK's words for stop."""

    text: str
    thinking: str
    calls: tuple[Called, ...]
    stop: str
    input_tokens: int
    output_tokens: int
    turn: Any = None
    """The reply as the SDK wants it back."""


@dataclass(frozen=True)
class Result:
    """What a tool gave."""

    call: Called
    text: str
    failed: bool = False


@dataclass(frozen=True)
class Stops:
    """An SDK's words for why the model stopped."""

    tools: str
    end: str
    length: str


class FailedStreamError(Exception):
    """The last event of the stream tells of an error. Only the SDK for responses leaves it to its user to look."""


@dataclass(frozen=True)
class Failures:
    """The exceptions of an SDK."""

    in_stream: type[Exception]
    """An error after the beginning of the reply."""
    bad_request: type[Exception]
    refused_key: type[Exception]
    not_found: type[Exception]
    rate_limit: type[Exception]
    server: type[Exception]


class Front(Protocol):
    """One dialect as an agent speaks it."""

    name: str
    tells_failures: bool
    """Whether a tool's result can say that it is an error."""
    stops: Stops

    @property
    def failures(self) -> Failures: ...

    def client(self, url: str, key: str, *, sync: bool) -> Any: ...

    def begin(self, system: str, text: str) -> Conversation:
        """A conversation with a picture and with tools."""
        ...

    def go_on(self, conversation: Conversation, said: Said, results: Sequence[Result]) -> Conversation: ...

    def ask(self, client: Any, conversation: Conversation, *, stream: bool) -> Any:
        """What the SDK returns: a reply or a stream of events, or what must be awaited for it."""
        ...

    def whole(self, reply: Any) -> Said: ...

    def streamed(self, events: Sequence[Any]) -> Said: ...


@asynccontextmanager
async def connected(front: Front, url: str, key: str, *, sync: bool = False) -> AsyncIterator[Any]:
    """A client of the SDK that does not try again by itself."""
    client = front.client(url, key, sync=sync)
    try:
        yield client
    finally:
        if sync:
            client.close()
        else:
            await (client.aio.aclose() if hasattr(client, "aio") else client.close())


async def ask(front: Front, client: Any, conversation: Conversation, *, stream: bool, sync: bool = False) -> Said:
    """What the model says to the conversation. A sync client waits in a thread."""
    if sync:
        return await asyncio.to_thread(_ask_sync, front, client, conversation, stream)
    reply = await front.ask(client.aio if hasattr(client, "aio") else client, conversation, stream=stream)
    return front.streamed(await _received(reply)) if stream else front.whole(reply)


async def _received(stream: AsyncIterator[Any]) -> list[Any]:
    import openai
    from openai.types.responses import ResponseFailedEvent

    events: list[Any] = []
    try:
        async for event in stream:
            events.append(event)  # noqa: PERF401 - what came before a break is needed
    except openai.APIConnectionError as error:
        # The connection is broken off after the event that tells of a failure.
        if events and isinstance(events[-1], ResponseFailedEvent) and (told := events[-1].response.error):
            raise FailedStreamError(told.message) from error
        raise
    return events


def _ask_sync(front: Front, client: Any, conversation: Conversation, stream: bool) -> Said:
    reply = front.ask(client, conversation, stream=stream)
    return front.streamed(list(reply)) if stream else front.whole(reply)


def _openai_client(url: str, key: str, *, sync: bool) -> Any:
    import openai

    kind = openai.OpenAI if sync else openai.AsyncOpenAI
    return kind(base_url=f"{url}/v1", api_key=key, max_retries=0)


def _failures_of(sdk: Any) -> Failures:
    """The exceptions of the SDKs of OpenAI and Anthropic, which have the same names."""
    return Failures(
        in_stream=sdk.APIError,
        bad_request=sdk.BadRequestError,
        refused_key=sdk.AuthenticationError,
        not_found=sdk.NotFoundError,
        rate_limit=sdk.RateLimitError,
        server=sdk.InternalServerError,
    )


class Chat:
    name = "chat"
    tells_failures = False
    stops = Stops("tool_calls", "stop", "length")
    client = staticmethod(_openai_client)

    @cached_property
    def failures(self) -> Failures:
        import openai

        return _failures_of(openai)

    def begin(self, system: str, text: str) -> Conversation:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
        return {
            "model": MODEL,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": [{"type": "text", "text": text}, picture]},
            ],
            "tools": [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOLS],
        }

    def go_on(self, conversation: Conversation, said: Said, results: Sequence[Result]) -> Conversation:
        told = [{"role": "tool", "tool_call_id": result.call.id, "content": result.text} for result in results]
        return conversation | {"messages": [*conversation["messages"], said.turn, *told]}

    def ask(self, client: Any, conversation: Conversation, *, stream: bool) -> Any:
        streamed = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        return client.chat.completions.create(**conversation, **streamed)

    def whole(self, reply: Any) -> Said:
        (choice,) = reply.choices
        message = choice.message
        return Said(
            text=message.content or "",
            thinking=getattr(message, "reasoning_content", None) or "",
            calls=tuple(
                Called(call.id, call.function.name, json.loads(call.function.arguments))
                for call in message.tool_calls or ()
            ),
            stop=choice.finish_reason,
            input_tokens=reply.usage.prompt_tokens,
            output_tokens=reply.usage.completion_tokens,
            turn=message.model_dump(exclude_none=True),
        )

    def streamed(self, events: Sequence[Any]) -> Said:
        from openai.lib.streaming.chat import ChatCompletionStreamState

        state: ChatCompletionStreamState[Any] = ChatCompletionStreamState()
        for chunk in events:
            state.handle_chunk(chunk)
        return self.whole(state.current_completion_snapshot)


class Responses:
    name = "responses"
    tells_failures = False
    stops = Stops("completed", "completed", "incomplete: max_output_tokens")
    client = staticmethod(_openai_client)

    @cached_property
    def failures(self) -> Failures:
        return replace(FRONTS["chat"].failures, in_stream=FailedStreamError)

    def begin(self, system: str, text: str) -> Conversation:
        picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}
        said = {"role": "user", "content": [{"type": "input_text", "text": text}, picture]}
        tools = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in TOOLS]
        return {"model": MODEL, "instructions": system, "input": [said], "tools": tools}

    def go_on(self, conversation: Conversation, said: Said, results: Sequence[Result]) -> Conversation:
        told = [
            {"type": "function_call_output", "call_id": result.call.id, "output": result.text} for result in results
        ]
        return conversation | {"input": [*conversation["input"], *said.turn, *told]}

    def ask(self, client: Any, conversation: Conversation, *, stream: bool) -> Any:
        return client.responses.create(**conversation, stream=stream)

    def whole(self, reply: Any) -> Said:
        thoughts = [part.text for item in reply.output if item.type == "reasoning" for part in item.summary]
        cut_short = f": {reply.incomplete_details.reason}" if reply.incomplete_details else ""
        return Said(
            text=reply.output_text,
            thinking="".join(thoughts),
            calls=tuple(
                Called(item.call_id, item.name, json.loads(item.arguments))
                for item in reply.output
                if item.type == "function_call"
            ),
            stop=reply.status + cut_short,
            input_tokens=reply.usage.input_tokens,
            output_tokens=reply.usage.output_tokens,
            turn=[item.model_dump(exclude_none=True) for item in reply.output],
        )

    def streamed(self, events: Sequence[Any]) -> Said:
        reply = events[-1].response
        assert [event.sequence_number for event in events] == list(range(len(events)))
        live = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert live == reply.output_text
        return self.whole(reply)


class Messages:
    name = "messages"
    tells_failures = True
    stops = Stops("tool_use", "end_turn", "max_tokens")

    @cached_property
    def failures(self) -> Failures:
        import anthropic

        return _failures_of(anthropic)

    def client(self, url: str, key: str, *, sync: bool) -> Any:
        import anthropic

        kind = anthropic.Anthropic if sync else anthropic.AsyncAnthropic
        return kind(base_url=url, api_key=key, max_retries=0)

    def begin(self, system: str, text: str) -> Conversation:
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
        return {
            "model": MODEL,
            "max_tokens": MAX_TOKENS,
            "system": system,
            "messages": [{"role": "user", "content": [{"type": "text", "text": text}, picture]}],
            "tools": [{"name": name, "input_schema": SCHEMA} for name in TOOLS],
        }

    def go_on(self, conversation: Conversation, said: Said, results: Sequence[Result]) -> Conversation:
        told = [
            {"type": "tool_result", "tool_use_id": result.call.id, "content": result.text, "is_error": result.failed}
            for result in results
        ]
        turns = [{"role": "assistant", "content": said.turn}, {"role": "user", "content": told}]
        return conversation | {"messages": [*conversation["messages"], *turns]}

    def ask(self, client: Any, conversation: Conversation, *, stream: bool) -> Any:
        return client.messages.create(**conversation, stream=stream)

    def whole(self, reply: Any) -> Said:
        return Said(
            text="".join(block.text for block in reply.content if block.type == "text"),
            thinking="".join(block.thinking for block in reply.content if block.type == "thinking"),
            calls=tuple(
                Called(block.id, block.name, block.input) for block in reply.content if block.type == "tool_use"
            ),
            stop=reply.stop_reason,
            input_tokens=reply.usage.input_tokens,
            output_tokens=reply.usage.output_tokens,
            turn=[block.model_dump(exclude_none=True) for block in reply.content],
        )

    def streamed(self, events: Sequence[Any]) -> Said:
        message, pieces = events[0].message, dict[int, str]()
        for event in events:
            match event.type:
                case "content_block_start":
                    assert event.index == len(message.content)
                    message.content.append(event.content_block)
                case "content_block_delta" if event.delta.type == "input_json_delta":
                    pieces[event.index] = pieces.get(event.index, "") + event.delta.partial_json
                case "content_block_delta":
                    field = event.delta.type.removesuffix("_delta")
                    block = message.content[event.index]
                    setattr(block, field, getattr(block, field) + getattr(event.delta, field))
                case "message_delta":
                    message.stop_reason = event.delta.stop_reason
                    message.usage.input_tokens = event.usage.input_tokens
                    message.usage.output_tokens = event.usage.output_tokens
        for index, arguments in pieces.items():
            message.content[index].input = json.loads(arguments)
        assert events[-1].type == "message_stop"
        return self.whole(message)


class Gemini:
    name = "gemini"
    tells_failures = True
    stops = Stops("STOP", "STOP", "MAX_TOKENS")

    @cached_property
    def failures(self) -> Failures:
        from google.genai import errors

        refused = errors.ClientError
        return Failures(errors.APIError, refused, refused, refused, refused, errors.ServerError)

    def client(self, url: str, key: str, *, sync: bool) -> Any:
        import httpx2
        from google import genai
        from google.genai import types

        # Left to itself it uses aiohttp, in a way that warns and that leaves the connections of broken streams open.
        options = types.HttpOptions(base_url=url, async_client_args={"transport": httpx2.AsyncHTTPTransport()})
        return genai.Client(api_key=key, http_options=options)

    def begin(self, system: str, text: str) -> Conversation:
        from google.genai import types

        picture = types.Part.from_bytes(data=b64decode(PNG), mime_type="image/png")
        declared = [types.FunctionDeclaration(name=name, parameters_json_schema=SCHEMA) for name in TOOLS]
        return {
            "model": MODEL,
            "contents": [types.Content(role="user", parts=[types.Part(text=text), picture])],
            "config": types.GenerateContentConfig(
                system_instruction=system,
                tools=[types.Tool(function_declarations=declared)],
                automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            ),
        }

    def go_on(self, conversation: Conversation, said: Said, results: Sequence[Result]) -> Conversation:
        from google.genai import types

        told = [
            types.FunctionResponse(
                id=result.call.id,
                name=result.call.name,
                response={"error" if result.failed else "output": result.text},
            )
            for result in results
        ]
        answered = types.Content(role="user", parts=[types.Part(function_response=result) for result in told])
        return conversation | {"contents": [*conversation["contents"], said.turn, answered]}

    def ask(self, client: Any, conversation: Conversation, *, stream: bool) -> Any:
        create = client.models.generate_content_stream if stream else client.models.generate_content
        return create(**conversation)

    def whole(self, reply: Any) -> Said:
        return self.streamed([reply])

    def streamed(self, events: Sequence[Any]) -> Said:
        from google.genai import types

        parts = [part for event in events for part in event.candidates[0].content.parts or ()]
        last = events[-1]
        return Said(
            text="".join(part.text or "" for part in parts if not part.thought),
            thinking="".join(part.text or "" for part in parts if part.thought),
            calls=tuple(
                Called(part.function_call.id, part.function_call.name, part.function_call.args)
                for part in parts
                if part.function_call
            ),
            stop=last.candidates[0].finish_reason.value,
            input_tokens=last.usage_metadata.prompt_token_count,
            output_tokens=(last.usage_metadata.candidates_token_count or 0)
            + (last.usage_metadata.thoughts_token_count or 0),
            turn=types.Content(role="model", parts=parts),
        )


FRONTS: dict[str, Front] = {front.name: front for front in (Chat(), Responses(), Messages(), Gemini())}
