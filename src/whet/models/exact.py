"""In front of llama.cpp's server: chat replies tell the ids of their tokens, where a request asks for them as of vLLM.

The ids of the reply are those that llama.cpp says it sampled, with the end of the turn if it came to that. The ids of
the prompt are what its own template and tokenizer make of the same request; they are told only when they are as many
as llama.cpp has read, and read as the same text.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from whet.models.sampled import entries_of

MAX_BODY = 256 * 1024**2
CHAT = ("/v1/chat/completions", "/chat/completions")
INSIDE = "__verbose"
"""Where llama.cpp tells more than clients expect: the sampled ids, and the text that it has read."""
_LLAMA: web.AppKey[aiohttp.ClientSession] = web.AppKey("llama", aiohttp.ClientSession)


def exact_front(llama: Path) -> web.Application:
    """The application that passes calls on to the server at this socket file."""
    app = web.Application(client_max_size=MAX_BODY)

    async def connect(app: web.Application) -> AsyncIterator[None]:
        patient = aiohttp.ClientTimeout(total=None)
        # llama.cpp hangs up after a stream without saying so, which a connection that is used again would run into.
        connector = aiohttp.UnixConnector(str(llama), limit=0, force_close=True)
        async with aiohttp.ClientSession(
            "http://llama", connector=connector, timeout=patient, read_bufsize=MAX_BODY
        ) as session:
            app[_LLAMA] = session
            yield

    app.cleanup_ctx.append(connect)
    for path in CHAT:
        app.router.add_post(path, _chat)
    app.router.add_route("*", "/{path:.*}", _pass_on)
    return app


async def _chat(request: web.Request) -> web.StreamResponse:
    try:
        request_body = json.loads(await request.read())
    except ValueError:
        request_body = None  # for llama.cpp to refuse
    if not isinstance(request_body, dict) or request_body.get("return_token_ids") is not True:
        return await _pass_on(request)
    llama = request.app[_LLAMA]
    top = request_body["top_logprobs"] if isinstance(request_body.get("top_logprobs"), int) else 0
    # In one piece: streams of llama.cpp leave the end of the turn out, and lose ids inside of tool calls.
    whole = {name: value for name, value in request_body.items() if name != "stream_options"}
    whole |= {"stream": False, "return_tokens": True, "logprobs": True, "top_logprobs": max(1, top)}
    async with llama.post(CHAT[0], json=whole) as reply:
        if reply.status != 200:
            return web.Response(status=reply.status, body=await reply.read(), content_type=reply.content_type)
        reply_body = await reply.json()
    await _tell_ids(llama, request_body, reply_body, keep_top=top > 0)
    if not request_body.get("stream"):
        return web.json_response(reply_body)
    with_usage = bool((request_body.get("stream_options") or {}).get("include_usage"))
    events = (*(f"data: {json.dumps(chunk)}\n\n" for chunk in _chunks(reply_body, with_usage)), "data: [DONE]\n\n")
    return web.Response(text="".join(events), content_type="text/event-stream")


async def _tell_ids(
    llama: aiohttp.ClientSession, request_body: dict[str, Any], reply_body: dict[str, Any], *, keep_top: bool
) -> None:
    """Put the ids into the reply. What cannot be told exactly is left out."""
    inside = reply_body.pop(INSIDE)
    (choice,) = reply_body["choices"]  # llama.cpp refuses to give more
    entries = (choice.get("logprobs") or {}).get("content") or []
    sampled = choice["token_ids"] = inside["tokens"]
    prompt = await _prompt_ids(llama, request_body, inside["prompt"])
    if len(prompt) == reply_body["usage"]["prompt_tokens"]:
        reply_body["prompt_token_ids"] = prompt
        entries = await entries_of(llama, prompt, sampled, entries)
    for entry in entries:
        entry["top_logprobs"] = entry["top_logprobs"] if keep_top else []
    choice["logprobs"] = {"content": entries}


async def _prompt_ids(llama: aiohttp.ClientSession, request_body: dict[str, Any], read: str) -> list[int]:
    """What llama.cpp makes of the messages before it reads them; empty when that is another text than it has read."""
    async with llama.post("/apply-template", json=request_body, raise_for_status=True) as reply:
        text = (await reply.json())["prompt"]
    # As its chat endpoint does it: special tokens are read, and a first one is put where the model wants it.
    content = {"content": text, "add_special": True, "parse_special": True}
    async with llama.post("/tokenize", json=content, raise_for_status=True) as reply:
        ids: list[int] = (await reply.json())["tokens"]
    async with llama.post("/detokenize", json={"tokens": ids}, raise_for_status=True) as reply:
        return ids if (await reply.json())["content"] == read else []


def _chunks(reply_body: dict[str, Any], with_usage: bool) -> Iterator[dict[str, Any]]:
    """A whole reply as a stream: one piece of it all, then why it ended, then what it used."""
    common: dict[str, Any] = {"id": reply_body["id"], "created": reply_body["created"], "model": reply_body["model"]}
    common["object"] = "chat.completion.chunk"
    prompt = {"prompt_token_ids": reply_body["prompt_token_ids"]} if "prompt_token_ids" in reply_body else {}
    for choice in reply_body["choices"]:
        delta = dict(choice["message"])
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
        index = choice["index"]
        content = {name: choice[name] for name in ("logprobs", "token_ids") if name in choice}
        yield {**common, **prompt, "choices": [{"index": index, "delta": delta, "finish_reason": None, **content}]}
        yield {**common, "choices": [{"index": index, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if with_usage:
        yield {**common, "choices": [], "usage": reply_body["usage"]}


async def _pass_on(request: web.Request) -> web.StreamResponse:
    """The call as it is, and the reply line by line as it comes. Of the headers only the kind of content goes along:
    llama.cpp would let every web page call it."""
    llama = request.app[_LLAMA]
    headers = {"Content-Type": request.headers["Content-Type"]} if "Content-Type" in request.headers else {}
    async with llama.request(request.method, request.path_qs, data=await request.read(), headers=headers) as reply:
        kind = {"Content-Type": reply.headers.get("Content-Type", "application/json")}
        answer = web.StreamResponse(status=reply.status, headers=kind)
        await answer.prepare(request)
        async for line in reply.content:
            await answer.write(_without_inside(line))
        await answer.write_eof()
        return answer


def _without_inside(line: bytes) -> bytes:
    """
    >>> _without_inside(b'data: {"id": 1, "__verbose": {}}\\n')
    b'data: {"id": 1}\\n'
    """
    start = line.find(b"{")
    if INSIDE.encode() not in line or line[:start] not in {b"", b"data: "}:
        return line
    reply_body = json.loads(line[start:])
    reply_body.pop(INSIDE, None)
    return line[:start] + json.dumps(reply_body).encode() + (b"\n" if line.endswith(b"\n") else b"")
