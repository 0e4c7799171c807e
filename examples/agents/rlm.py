"""An agent that calls itself: the model writes Python, and the Python may ask the model again, also many times at once.

Long texts stay in files; the model reads them by code and passes parts of them on. `ask(prompt)` starts a conversation
of its own, which may run Python and ask again, down to RLM_DEPTH. Its calls carry the header `X-RLM-Role: sub`, so
that whet tells them from the main thread. It needs only Python's standard library.
"""

import io
import json
import os
import sys
import traceback
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

DEPTH = int(os.environ.get("RLM_DEPTH", "2"))
TURNS = int(os.environ.get("RLM_TURNS", "30"))
SHOWN = 8000
SYSTEM = """\
You work in {folder}. Run Python with the tool `python`; its variables stay from call to call, and you see what it \
prints. Do not print long texts. Split them, and let others read the parts: ask(prompt) returns the answer of a model \
that sees only this prompt, and ask_all(prompts) asks many at once. Once you have the answer, \
reply without a tool call."""
TOOL = {
    "type": "function",
    "function": {
        "name": "python",
        "description": "Run Python code and see what it prints.",
        "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
    },
}


def solve(prompt: str, depth: int = 0) -> str:
    """Answer a prompt in a conversation of its own. At the greatest depth it has no tool."""
    names: dict = {"ask": lambda text: solve(text, depth + 1), "ask_all": lambda texts: ask_all(texts, depth + 1)}
    messages: list = [{"role": "user", "content": prompt}]
    if depth < DEPTH:
        messages.insert(0, {"role": "system", "content": SYSTEM.format(folder=Path.cwd())})
    for _ in range(TURNS):
        reply = call_model(messages, depth)
        messages.append(reply)
        if not reply.get("tool_calls"):
            return reply.get("content") or ""
        for call in reply["tool_calls"]:
            output = run_python(call["function"]["arguments"], names)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    return "no answer within the limit of turns"


def ask_all(prompts: list[str], depth: int) -> list[str]:
    with ThreadPoolExecutor(max_workers=8) as threads:
        return list(threads.map(lambda prompt: solve(prompt, depth), prompts))


def call_model(messages: list, depth: int) -> dict:
    body: dict = {"model": os.environ["OPENAI_MODEL"], "messages": messages}
    if depth < DEPTH:
        body["tools"] = [TOOL]
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    if depth:
        headers["X-RLM-Role"] = "sub"
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=3600) as response:
        return json.load(response)["choices"][0]["message"]


def run_python(arguments: str, names: dict) -> str:
    printed = io.StringIO()
    names["print"] = partial(print, file=printed)  # not sys.stdout: others may run at the same time
    try:
        exec(json.loads(arguments)["code"], names)
    except Exception:
        printed.write(traceback.format_exc(limit=0))
    text = printed.getvalue()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}\n[... {len(text) - SHOWN} more characters ...]"


if __name__ == "__main__":
    print(solve(sys.stdin.read()))
