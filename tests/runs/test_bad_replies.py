"""No reply and no request ends a run: the rollout that it came from is scored, and so are the others."""

from pathlib import Path

import pytest
from aiohttp import web

from support.gateway_world import serving
from support.run_world import perform, questions, scripted, values, write_rows
from whet.runs.config import ModelConfig
from whet.runs.store.store import Store
from whet.testing import Reply

BAD = {
    "surrogate": '<answer>{"a":"\\ud800"}</answer>',
    "surrogate key": '<answer>{"\\udfff": 1}</answer>',
    "deep": "<answer>" + "[" * 100_000 + "</answer>",
    "less deep": "<answer>" + "[" * 300 + "]" * 300 + "</answer>",
    "huge number": "<answer>" + "9" * 4000 + "</answer>",
}


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD.keys())
async def test_a_bad_answer_is_scored_and_the_run_goes_on(tmp_path: Path, answer: str) -> None:
    tasks = questions(tmp_path, "bad", "good")
    await perform(tasks, scripted(tmp_path, {"bad": Reply(text=answer), "good": Reply(text="4")}), concurrency=1)
    assert values(tmp_path / "run") == {"bad": 0.0, "good": 1.0}


async def test_a_run_that_such_a_reply_ended_before_is_resumed(tmp_path: Path) -> None:
    tasks = questions(tmp_path, "bad", "good")
    models = scripted(tmp_path, {"bad": Reply(text=BAD["surrogate"]), "good": Reply(text="4")})
    await perform(tasks, models)
    with Store.open_write(tmp_path / "run") as store:  # as the crash left it: begun, and never finished
        (row,) = (row for row in store.rollouts() if row.task == "bad")
        clear = "UPDATE attempt SET value = NULL, final = 0, ended = NULL, result = NULL WHERE rollout = ?"
        store._db.execute(clear, (row.id,))
    await perform(tasks, models, resume=True)
    assert values(tmp_path / "run") == {"bad": 0.0, "good": 1.0}


@pytest.mark.parametrize("odd", [b"\xff", b"\\ud800", b"\xed\xa0\x80"], ids=["byte", "escape", "encoded"])
@pytest.mark.parametrize("agent", ["chat", "loop"])
async def test_a_reply_that_is_not_unicode_is_scored(tmp_path: Path, agent: str, odd: bytes) -> None:
    text = b"It is " + odd + b": <answer>4</answer>"
    usage = b'"usage": {"prompt_tokens": 3, "completion_tokens": 3}'

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        streamed = agent == "loop"
        part = b"delta" if streamed else b"message"
        choice = b'{"index": 0, "%b": {"role": "assistant", "content": "%b"}, "finish_reason": "stop"}' % (part, text)
        body = b'{"choices": [%b], %b}' % (choice, usage)
        if streamed:
            return web.Response(body=b"data: " + body + b"\n\ndata: [DONE]\n\n", content_type="text/event-stream")
        return web.Response(body=body, content_type="application/json", charset="utf-8")

    async with serving(model) as url:
        await perform(questions(tmp_path, "odd"), {"m": ModelConfig(url=url, attempts=1)}, agents=(agent,))
    assert values(tmp_path / "run") == {"odd": 1.0}


async def test_a_request_whose_path_and_headers_are_no_text_is_recorded(tmp_path: Path) -> None:
    program = r"""
import os, socket, urllib.parse
url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
body = b'{"messages": [{"role": "user", "content": "good?"}]}'
for path in (b"/v1/chat/completions", b"/v1/\xff\xed\xa0\x80", b"/v1/%FF%ED%A0%80"):
    with socket.create_connection((url.hostname, url.port)) as s:
        key = os.environ["OPENAI_API_KEY"].encode()
        s.sendall(b"POST %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Odd: \xff\xed\xa0\x80\r\nUser-Agent: \xff\r\n"
                  b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b" % (path, key, len(body), body))
        while s.recv(65536):
            pass
"""
    rows = ({"id": name, "instruction": name, "answer": "4", "files": {"odd.py": program}} for name in ("odd", "good"))
    agents = ("command:python3 odd.py", "chat")
    await perform(write_rows(tmp_path, *rows), scripted(tmp_path, {"": Reply(text="4")}), agents=agents)
    with Store.open_read(tmp_path / "run") as store:
        assert all(attempts[-1].value is not None for _, attempts in store.attempts_by_rollout())
