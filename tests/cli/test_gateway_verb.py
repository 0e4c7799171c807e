"""`whet gateway`: any client's calls, live and as a run folder."""

import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from typing import Any

import pytest
from whet_program import Project
from whet_program import project_fixture as project_fixture

SCRIPT = '[[scene]]\n[[scene.reply]]\ntext = "Forty-seven."\n'


def variables(whet: "subprocess.Popen[str]") -> dict[str, str]:
    """The variables that the gateway prints for its clients."""
    assert whet.stdout is not None
    assert whet.stdout.readline() == "recording to out; Ctrl-C ends it. For your client:\n"
    lines = [whet.stdout.readline().strip() for _ in range(7)]
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)


def post(url: str, body: dict[str, Any], **headers: str) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=20) as reply:
        return json.load(reply)


def test_clients_of_any_dialect_are_answered_watched_and_recorded(project: Project) -> None:
    project.write("script.toml", SCRIPT)
    messages = [{"role": "user", "content": "2F?"}]
    with project.start("gateway", "--model", "scripted:script.toml", "--port", "0", "--out", "out") as whet:
        env = variables(whet)
        chat = post(
            f"{env['OPENAI_BASE_URL']}/chat/completions",
            {"model": env["MODEL"], "messages": messages},
            Authorization=f"Bearer {env['OPENAI_API_KEY']}",
        )
        assert chat["choices"][0]["message"]["content"] == "Forty-seven."
        anthropic = post(
            f"{env['ANTHROPIC_BASE_URL']}/v1/messages",
            {"model": env["MODEL"], "messages": messages, "max_tokens": 9},
            **{"x-api-key": env["ANTHROPIC_API_KEY"]},
        )
        assert anthropic["content"] == [{"type": "text", "text": "Forty-seven."}]
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            post(f"{env['OPENAI_BASE_URL']}/chat/completions", {"messages": messages})
        refused.value.close()
        whet.send_signal(signal.SIGTERM)
        out, err = whet.communicate(timeout=30)
    assert (whet.returncode, err) == (130, "")
    lines = out.splitlines()
    assert [re.split(r"\s{2,}", line)[1:4] for line in lines] == [["0", "chat", "200"], ["1", "messages", "200"]]
    assert env["OPENAI_API_KEY"].encode() not in (project.path / "out" / "run.db").read_bytes()
    shown = project.whet("show", "out", "gateway").stdout
    assert "Forty-seven." in shown


def test_a_port_that_is_taken_is_one_line(project: Project) -> None:
    project.write("script.toml", SCRIPT)
    with project.start("gateway", "--model", "scripted:script.toml", "--port", "0", "--out", "out") as whet:
        port = variables(whet)["ANTHROPIC_BASE_URL"].rpartition(":")[2]
        done = project.whet("gateway", "--model", "scripted:script.toml", "--port", port, "--out", "other")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"whet: port {port}: Address already in use; name another one with --port\n"
        whet.send_signal(signal.SIGTERM)
        whet.communicate(timeout=30)
