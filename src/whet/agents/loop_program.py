"""The program of the `loop` agent: reads its task as JSON on standard input, prints the final answer.

It needs only Python's standard library. Exit codes: 0 the model finished, 3 the model's endpoint failed,
4 the turn limit was reached.
"""

from __future__ import annotations  # boxes may hold an older Python

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

SYSTEM = """\
You are a capable engineer working alone on a Linux machine through the tool `bash`. Every command runs in a new
shell in the working directory {workdir}. Look before you change things, check your work by running it, and
when the task is done reply with a short final answer and no tool call."""

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a bash command and see its output and exit code.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command line."}},
            "required": ["command"],
        },
    },
}

OUTPUT_LIMIT = 10_000
ASKED_AGAIN = "the model's reply was empty; it is asked again"
MODEL_FAILED = 3
OUT_OF_TURNS = 4


class ModelError(Exception):
    """The endpoint did not return a complete reply."""


def main() -> int:
    work = json.load(sys.stdin)
    system = SYSTEM.format(workdir=Path.cwd())
    if work.get("system"):
        system += "\n\n" + work["system"]
    if work["skill"]:
        system += "\n\n# Skill\n\n" + work["skill"]
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
    waiting, reminders = list(work["instructions"]), work["reminders"]
    first = waiting.pop(0)
    content = [{"type": "text", "text": first}, *work["images"]] if work["images"] else first
    messages.append({"role": "user", "content": content})
    for _ in range(work["max_turns"]):
        try:
            reply = ask(messages)
        except (ModelError, OSError, http.client.HTTPException, ValueError) as error:
            log(f"the model failed: {error}")
            return MODEL_FAILED
        calls = reply.get("tool_calls") or []
        if not calls and not reply["content"].strip() and reminders:
            log(ASKED_AGAIN)
            reminders -= 1
            # The empty reply is left out: some endpoints refuse an empty message.
            messages.append({"role": "user", "content": work["reminder"]})
            continue
        messages.append(reply)
        if not calls and waiting:
            messages.append({"role": "user", "content": waiting.pop(0)})
        elif not calls:
            print(reply["content"].encode(errors="replace").decode())  # half a character cannot be printed
            return 0
        for call in calls:
            result = run_tool(call["function"], work["command_sec"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    log("the turn limit was reached")
    return OUT_OF_TURNS


def ask(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Make one streamed model call and return the assistant's message."""
    url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
    connect = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = connect(url.netloc, timeout=3600)
    body = {
        "model": os.environ["OPENAI_MODEL"],
        "messages": messages,
        "tools": [BASH],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    try:
        connection.request("POST", url.path + "/chat/completions", json.dumps(body).encode(), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise ModelError(f"status {response.status}: {response.read(2000).decode(errors='replace')}")
        return assemble(events(response))
    finally:
        connection.close()


def events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The JSON payloads of a stream, to its end."""
    for line in response:
        if line.startswith(b"data:"):
            data = line[5:].strip()
            if data == b"[DONE]":
                return
            yield json.loads(data.decode(errors="replace"))
    raise ModelError("the reply was cut off")


def assemble(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Join the pieces of a stream into one message."""
    text = ""
    calls: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        if "error" in chunk:
            raise ModelError(chunk["error"].get("message", "error in the stream"))
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            text += delta.get("content") or ""
            for part in delta.get("tool_calls") or []:
                call = calls.setdefault(part.get("index", 0), {"id": "", "name": "", "arguments": ""})
                call["id"] = part.get("id") or call["id"]
                function = part.get("function") or {}
                call["name"] += function.get("name") or ""
                call["arguments"] += function.get("arguments") or ""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for _, c in sorted(calls.items())
        ]
    return message


def run_tool(function: dict[str, Any], seconds: float) -> str:
    if function["name"] != "bash":
        return f"There is no tool '{function['name']}'; the only tool is 'bash'."
    try:
        command = json.loads(function["arguments"])["command"]
    except (ValueError, KeyError, TypeError, RecursionError):
        command = None
    if not isinstance(command, str):
        return "The arguments must be a JSON object with the string 'command'."
    log("$ " + command)
    try:
        return run_bash(command, seconds)
    except (OSError, ValueError) as error:  # longer than the system accepts, or with invalid characters
        return f"The command cannot be run: {error}"


def run_bash(command: str, seconds: float) -> str:
    # The key of the model's endpoint is for this program, not for the commands of the model.
    env = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    # Output goes to a file: a background process would keep a pipe open, and this program would wait for it.
    with tempfile.TemporaryFile() as output:
        shell = subprocess.Popen(
            ["bash", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        try:
            ending = f"[exit code {shell.wait(seconds)}]"
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
            ending = f"[killed after {seconds:g} seconds]"
        return read_ends(output.fileno()) + ending


def read_ends(output: int) -> str:
    """The content of a file, or its beginning and its end. Reads by position, which does not disturb writers."""
    size = os.fstat(output).st_size
    if size <= OUTPUT_LIMIT:
        return os.pread(output, size, 0).decode(errors="replace")
    half = OUTPUT_LIMIT // 2
    head, tail = (os.pread(output, half, start).decode(errors="replace") for start in (0, size - half))
    return f"{head}\n[... {size - 2 * half} bytes left out ...]\n{tail}"


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
