"""`whet gateway`: any client's calls, live and as a run folder; and the variables that point a client at it."""

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.whet_program import REPOSITORY, Project, said_to_user
from whet.gateway.client_recipes import RECIPES

SCRIPT = '[[scene]]\n[[scene.reply]]\ntext = "Forty-seven."\n'
MESSAGES = [{"role": "user", "content": "2F?"}]


@dataclass
class Serving:
    """A gateway under way."""

    process: "subprocess.Popen[str]"
    project: Project
    banner: list[str]
    out: str = ""

    @property
    def port(self) -> int:
        found = re.match(r"http://127\.0\.0\.1:(\d+) serves ", self.banner[0])
        assert found is not None
        return int(found[1])

    def env(self, *arguments: str) -> dict[str, str]:
        """The variables that `whet gateway env` sets in a shell."""
        done = self.project.whet("gateway", "env", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        before = {"PATH": os.environ["PATH"]}
        script = f"eval {shlex.quote(done.stdout)}\nexec env -0"
        shown = subprocess.run(["sh", "-euc", script], env=before, capture_output=True, text=True, check=True).stdout
        after = dict(line.split("=", 1) for line in shown.split("\0") if line)
        return {name: value for name, value in after.items() if name not in {"PATH", "PWD", "OLDPWD", "SHLVL", "_"}}

    def stop(self, how: signal.Signals = signal.SIGTERM) -> list[str]:
        """End it; the lines that it printed since its banner."""
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=30)
        assert (self.process.returncode, err) == (130, "")
        return out.splitlines()


@contextmanager
def serving(
    project: Project, *options: str, model: str = "scripted:script.toml", out: str = "out"
) -> Iterator[Serving]:
    """A gateway on a free port, whose key this test's project alone can find."""
    project.write("script.toml", SCRIPT)
    at_home = replace(project, env={**project.env, "XDG_STATE_HOME": str(project.path / "state")})
    arguments = ("gateway", "--model", model, "--port", "0", "--out", out, *options)
    with at_home.start(*arguments) as process:
        assert process.stdout is not None
        banner = [process.stdout.readline()]
        while not banner[-1].startswith("or, with --agent"):
            assert banner[-1], process.communicate()
            banner.append(process.stdout.readline())
        yield Serving(process, at_home, banner)


def post(url: str, body: dict[str, Any], **headers: str) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=20) as reply:
        return json.load(reply)


def ask(env: dict[str, str]) -> str:
    reply = post(
        f"{env['OPENAI_BASE_URL']}/chat/completions",
        {"model": env["MODEL"], "messages": MESSAGES},
        Authorization=f"Bearer {env['OPENAI_API_KEY']}",
    )
    return str(reply["choices"][0]["message"]["content"])


def test_clients_of_any_dialect_are_answered_watched_and_recorded(project: Project) -> None:
    with serving(project) as gateway:
        env = gateway.env()
        assert ask(env) == "Forty-seven."
        anthropic = post(
            f"{env['ANTHROPIC_BASE_URL']}/v1/messages",
            {"model": env["MODEL"], "messages": MESSAGES, "max_tokens": 9},
            **{"x-api-key": env["ANTHROPIC_API_KEY"]},
        )
        assert anthropic["content"] == [{"type": "text", "text": "Forty-seven."}]
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            post(f"{env['OPENAI_BASE_URL']}/chat/completions", {"messages": MESSAGES})
        refused.value.close()
        *lines, summary, command = gateway.stop(signal.SIGINT)
    assert [re.split(r"\s{2,}", line)[1:4] for line in lines] == [["0", "chat", "200"], ["1", "messages", "200"]]
    assert re.fullmatch(r"2 calls, \d+\+\d+ tokens, cost \$0\.0000; out", summary)
    assert command.endswith("show out gateway")
    assert env["OPENAI_API_KEY"] not in "".join(gateway.banner + lines)
    assert env["OPENAI_API_KEY"].encode() not in (project.path / "out" / "run.db").read_bytes()
    assert "Forty-seven." in project.whet("show", "out", "gateway").stdout
    whole = project.whet("show", "out")
    assert (whole.returncode, whole.stderr) == (0, "")
    assert re.search(r"^gateway +gateway +missing: interrupted +2 ", whole.stdout, re.MULTILINE)


def test_several_clients_at_once_all_get_their_reply(project: Project) -> None:
    replies = []
    with serving(project) as gateway:
        env = gateway.env()
        clients = [threading.Thread(target=lambda: replies.append(ask(env))) for _ in range(8)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(timeout=30)
        lines = gateway.stop()
    assert replies == ["Forty-seven."] * 8
    assert lines[-2].startswith("8 calls, ")


def test_a_port_that_is_taken_is_one_line_and_leaves_no_folder(project: Project) -> None:
    with serving(project) as gateway:
        port = str(gateway.port)
        for option in ("--port", "--metrics-port"):
            free = [] if option == "--port" else ["--port", "0"]
            done = gateway.project.whet("gateway", "--model", "scripted:script.toml", *free, option, port, "--out", "b")
            assert said_to_user(done) == f"whet: port {port}: Address already in use; name another one with {option}"
            assert not (project.path / "b").exists()
        gateway.stop()


def test_the_commands_of_the_document_work_and_metrics_have_a_port_of_their_own(project: Project) -> None:
    project.write("whet.toml", '[models.scripted]\nscript = "script.toml"\n')
    document = (REPOSITORY / "docs" / "gateway.md").read_text()
    served, evaluated, shown = re.findall(r"^```\n((?:whet|eval) .*)$", document, re.MULTILINE)
    options = [re.sub(r"^\d+$", "0", word) for word in shlex.split(served)[2:]]
    with serving(project, *options, model="scripted") as gateway:
        env = gateway.env(*shlex.split(shlex.split(evaluated)[1].strip("$()"))[3:])
        reply = post(
            f"{env['ANTHROPIC_BASE_URL']}/v1/messages?beta=true",
            {"model": env["ANTHROPIC_MODEL"], "messages": MESSAGES, "max_tokens": 9},
            **{"x-api-key": env["ANTHROPIC_API_KEY"]},
        )
        assert reply["content"][0]["text"] == "Forty-seven."
        (address,) = [line.removeprefix("metrics at ").strip() for line in gateway.banner if "metrics at" in line]
        with urllib.request.urlopen(address, timeout=20) as scraped:
            assert scraped.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            families = {family.name: family for family in text_string_to_metric_families(scraped.read().decode())}
        with urllib.request.urlopen(address.replace("/metrics", "/health"), timeout=20) as health:
            assert json.load(health) == {"status": "ok"}
        with pytest.raises(urllib.error.HTTPError, match="404") as nothing:
            urllib.request.urlopen(address.replace("/metrics", "/v1/models"), timeout=20)
        nothing.value.close()
        gateway.stop()
    assert [sample.value for sample in families["whet_calls"].samples] == [1]
    assert [sample.value for sample in families["whet_cost_dollars"].samples] == [0]
    assert "Forty-seven." in project.whet(*shlex.split(shown)[1:]).stdout


def test_each_program_is_given_the_address_the_key_and_the_model(project: Project) -> None:
    with serving(project) as gateway:
        key = gateway.env()["OPENAI_API_KEY"]
        for agent in RECIPES:
            given = gateway.project.whet("gateway", "env", "--agent", agent).stdout
            assert f"http://127.0.0.1:{gateway.port}" in given
            assert "scripted" in given
            assert key in gateway.env("--agent", agent).values()
        said = said_to_user(gateway.project.whet("gateway", "env", "--agent", "claude"))
        assert said.startswith("whet: --agent is 'claude'; did you mean 'claude-code'? (known: ")
        gateway.stop()


def test_a_client_with_its_own_login_has_the_secret_in_the_address(project: Project) -> None:
    project.write("whet.toml", '[models.theirs]\nurl = "http://127.0.0.1:9"\nauth = "own"\nattempts = 1\n')
    with serving(project, model="theirs") as gateway:
        env = gateway.env()
        assert not any(name.endswith("KEY") for name in env)
        with pytest.raises(urllib.error.HTTPError, match="502") as unreachable:
            post(f"{env['OPENAI_BASE_URL']}/chat/completions", {"model": "m", "messages": MESSAGES})
        unreachable.value.close()
        gateway.stop()


def test_only_the_user_can_read_the_key_and_it_is_gone_afterwards(project: Project) -> None:
    with serving(project) as gateway:
        folder = project.path / "state" / "whet"
        (file,) = folder.iterdir()
        assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, file)] == [0o700, 0o600]
        gateway.stop()
    assert not list(folder.iterdir())
    gone = said_to_user(gateway.project.whet("gateway", "env"))
    assert gone == "whet: no gateway runs; start one in another terminal: whet gateway --model NAME"


def test_a_gateway_that_was_killed_is_not_taken_for_a_running_one(project: Project) -> None:
    with serving(project) as gateway:
        gateway.process.kill()
        gateway.process.communicate(timeout=30)
    assert list((project.path / "state" / "whet").iterdir())
    assert "no gateway runs" in said_to_user(gateway.project.whet("gateway", "env"))


def test_of_several_gateways_one_is_named(project: Project) -> None:
    with serving(project) as first, serving(project, out="other") as second:
        said = said_to_user(first.project.whet("gateway", "env"))
        assert said.startswith("whet: several gateways run; name one with --port (running: ")
        assert second.env("--port", str(second.port))["ANTHROPIC_BASE_URL"].endswith(str(second.port))
        assert "--port is 9; no gateway runs there" in said_to_user(first.project.whet("gateway", "env", "--port", "9"))
        first.stop()
        second.stop()


def test_replies_are_kept_and_replayed_without_the_model(project: Project, tmp_path: Path) -> None:
    cached = replace(project, env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    with serving(cached, "--cache", "write") as gateway:
        ask(gateway.env())
        gateway.stop()
    project.write("script.toml", SCRIPT.replace("Forty-seven", "Forty-eight"))
    with serving(cached, "--cache", "replay-only", out="again") as gateway:
        project.write("script.toml", SCRIPT.replace("Forty-seven", "Forty-eight"))
        assert ask(gateway.env()) == "Forty-seven."
        gateway.stop()
