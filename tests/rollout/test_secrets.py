"""Secrets: an agent that looks everywhere and tells everybody finds no key of ours, and no record holds one."""

import asyncio
import json
import logging
import sqlite3
from pathlib import Path

import pytest
import zstandard

from support.box_helpers import carriers
from support.rollout_world import attempted, python, scripted_model, shell
from support.run_world import read_results
from whet.agents.command import CommandAgent
from whet.agents.loop import LoopAgent
from whet.errors import UserError
from whet.rollout.result import Result
from whet.runs.config import Config, ModelConfig
from whet.runs.options import RunOptions
from whet.runs.run import Event, run
from whet.runs.scheduler import Ended
from whet.runs.store.store import Store
from whet.tasks import Task
from whet.testing import Reply, call, say

KEY = "sk-live-2f7c1e9ab04d43d8"
OTHER_KEY = "ghp_Q2hhbmdlIG1lIG5vdw0123"

SNOOP = r"""
import glob, json, os, pathlib, urllib.request
paths = [*glob.glob("/proc/*/environ"), *glob.glob("/proc/*/cmdline"), *glob.glob("/proc/*/fd/*"), "/proc/mounts"]
for folder in ("/home", "/workspace", "/tmp", "/logs", "/run", "/etc"):
    paths += glob.glob(folder + "/**", recursive=True, include_hidden=True)
found = [json.dumps(dict(os.environ))]
for path in map(pathlib.Path, paths):
    try:
        if path.is_file() and path.stat().st_size < 1 << 20:
            found.append(f"{path}: {path.read_bytes()!r}")
    except OSError:
        pass
print("\n".join(found))
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
body = json.dumps({"model": key, "user": key, "messages": [{"role": "user", "content": "\n".join(found)}]}).encode()
headers = {"Authorization": "Bearer " + key, "X-Copy": key, "Content-Type": "application/json"}
request = urllib.request.Request(base + "/chat/completions?copy=" + key, body, headers)
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""
"""Prints its environment, all of /proc and every file that it can read, and sends them to the model."""


@pytest.fixture
def snooped_tasks(tmp_path: Path) -> Path:
    (tmp_path / "snoop.py").write_text(SNOOP)
    row = {"id": "snoop", "instruction": "Look around.", "verify": ["env; true"], "attachments": ["snoop.py"]}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    return tmp_path / "tasks.jsonl"


async def test_a_key_is_nowhere_in_a_run_whose_agent_looked_for_it(
    snooped_tasks: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", KEY)
    monkeypatch.setenv("GITHUB_TOKEN", OTHER_KEY)
    caplog.set_level(logging.DEBUG)
    out = tmp_path / "run"
    ended: list[Event] = []
    # It answers late, so that the agent can be looked at while it waits.
    async with scripted_model(Reply(text="Nothing to see.", delay=0.4)) as scripted:
        config = Config(models={"small": ModelConfig(url=scripted.url, key_env="PROVIDER_KEY")})
        request = RunOptions(
            tasks=snooped_tasks, out=out, agents=("command:python3 attachments/snoop.py",), models=("small",)
        )
        running = asyncio.create_task(run(request, config, ended.append))
        async with asyncio.timeout(20):
            while not scripted.requests:  # noqa: ASYNC110 - the scripted model has no event to wait for
                await asyncio.sleep(0.01)
        assert carriers("snoop.py"), "the agent should be waiting for its model"
        for key in (KEY, OTHER_KEY):
            assert carriers(key) == []
        await running
    (sent,) = scripted.requests
    secret = json.loads(sent.body)["user"]
    assert secret.startswith("sk-whet-")
    assert sent.headers["authorization"] == f"Bearer {KEY}"

    (last,) = [event for event in ended if isinstance(event, Ended)]
    assert last.result.score.value == 1
    assert last.result.report is not None
    assert "OPENAI_API_KEY" in last.result.report.stdout
    printed = "".join(capfd.readouterr()) + caplog.text
    for key in (KEY, OTHER_KEY):
        assert key.encode() not in sent.body
    for key in (KEY, OTHER_KEY, secret):
        assert key not in last.result.model_dump_json()
        assert key not in printed
        for where, data in everything_in(out).items():
            assert key.encode() not in data, where


def everything_in(run_folder: Path) -> dict[str, bytes]:
    """The bytes of every file of a run, and of every blob, value and exchange in its database, uncompressed."""
    found = {str(path): path.read_bytes() for path in run_folder.rglob("*") if path.is_file()}
    with sqlite3.connect(run_folder / "run.db") as db:
        for number, data in db.execute("SELECT id, data FROM blob").fetchall():
            found[f"blob {number}"] = zstandard.ZstdDecompressor().decompress(data)
        for table in ("run", "task", "skill", "rollout", "attempt", "exchange", "log"):
            found[table] = repr(db.execute(f"SELECT * FROM {table}").fetchall()).encode()
    db.close()
    with Store.open_read(run_folder) as store:
        for result in store.results():
            for exchange in store.exchanges(result.attempt.id):
                found[f"exchange {exchange.index}"] = repr(exchange).encode()
            found |= {f"log {name}": data for name, data in store.logs(result.attempt.id).items()}
    assert any(name.startswith("exchange ") for name in found)
    assert any(name.startswith("log ") for name in found)
    return found


TASK = Task(id="t", instruction="-", verify=('echo "$OPENAI_API_KEY[$TOKEN]"',))


async def test_the_key_of_the_session_is_masked_in_what_the_agent_prints() -> None:
    done = await attempted(TASK, shell('echo "$OPENAI_API_KEY"; echo "$OPENAI_API_KEY" >&2'))
    assert done.result.report is not None
    assert (done.result.report.text, done.result.report.stderr) == ("[redacted]", "[redacted]\n")


async def test_the_judge_does_not_hold_the_key_of_the_session() -> None:
    (command,) = (await attempted(TASK, shell("true"))).result.judgements["verify"].details["commands"]
    assert command["output"] == "[]\n"


@pytest.mark.parametrize("token", ['quote"and\\slash-0123456789', "clé-ключ-0123456789", "ab cd\tef-0123456789"])
async def test_a_secret_of_a_task_is_masked(token: str) -> None:
    task = TASK.model_copy(update={"env": {"TOKEN": "${TOKEN}"}})
    done = await attempted(task, shell('echo "got $TOKEN"'), host_env={"TOKEN": token}, secrets=(token,))
    assert done.result.report is not None
    assert done.result.report.text == "got [redacted]"
    assert done.result.judgements["verify"].details["commands"][0]["output"] == "[[redacted]]\n"
    assert Result.model_validate_json(done.result.model_dump_json()) == done.result


async def test_the_models_key_is_masked_though_nobody_named_it_a_secret() -> None:
    done = await attempted(TASK, python(f"print('{KEY[:9]}' + '{KEY[9:]}')"), key=KEY)
    assert done.result.report is not None
    assert done.result.report.text == "[redacted]"


async def test_no_record_holds_a_piece_of_a_key_that_was_cut(tmp_path: Path) -> None:
    # The reason of `exact` cuts the answer at 80 characters, and output is cut in its middle.
    row = {"id": "t", "instruction": "-", "answer": "4", "judge": {"kind": "exact"}}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    script = 'import os; key = os.environ["OPENAI_API_KEY"]; print("x" * 60 + key)'
    noise = 'import os, sys; key = os.environ["OPENAI_API_KEY"]; sys.stderr.write(key * (4 << 16))'
    async with scripted_model(Reply(text="-")) as scripted:
        agents = {
            "loud": CommandAgent(argv=("python3", "-c", script)),
            "noisy": CommandAgent(argv=("python3", "-c", f"{script}; {noise}")),
        }
        config = Config(models={"small": ModelConfig(url=scripted.url, key_env="PROVIDER_KEY")}, agents=agents)
        request = RunOptions(
            tasks=tmp_path / "tasks.jsonl", out=tmp_path / "run", agents=tuple(agents), models=("small",)
        )
        await run(request, config, lambda _: None, {"PROVIDER_KEY": KEY})
    with Store.open_read(tmp_path / "run") as store:
        attempts = [row.attempt for row in store.results()]
        logs = [data for attempt in attempts for data in store.logs(attempt.id).values()]
    reasons = [result.score.reason for _, result in read_results(tmp_path / "run")]
    assert reasons == [f"the answer is '{'x' * 60}[redacted]'"] * 2
    words = [word for data in logs for word in data.replace(b"[redacted]", b" ").split()]
    assert max(len(word) for word in words if not word.startswith(b"xxx")) < 12
    assert any(b"bytes left out" in data for data in logs)


async def test_a_key_in_the_command_line_of_a_declared_agent_is_masked(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"id": "t", "instruction": "-", "verify": ["true"]}) + "\n")
    other, third = "0123456789abcdef-other", "fedcba9876543210-third"
    async with scripted_model(Reply(text="-")) as scripted:
        words = ("solve", KEY, "--api-key", other, f"Authorization: Bearer {third}")
        agent = CommandAgent(argv=("sh", "-c", 'echo "$@"; printenv MINE', *words), env={"MINE": "${GITHUB_TOKEN}"})
        config = Config(models={"small": ModelConfig(url=scripted.url, key_env="PROVIDER_KEY")}, agents={"mine": agent})
        request = RunOptions(tasks=tmp_path / "tasks.jsonl", out=tmp_path / "run", agents=("mine",), models=("small",))
        env = {"PROVIDER_KEY": KEY, "GITHUB_TOKEN": OTHER_KEY}
        for again in (False, True):
            await run(request.model_copy(update={"resume": again}), config, lambda _: None, env)
    with Store.open_read(tmp_path / "run") as store:
        declared = store.get("agents")["mine"]
        (row,) = store.results()
        assert store.logs(row.attempt.id)["agent stdout"].splitlines()[-1] == b"[redacted]"
    masked = "[redacted]"
    assert declared["argv"][3:] == ["solve", masked, "--api-key", masked, f"Authorization: Bearer {masked}"]
    found = {str(path): path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    for key in (KEY, other, third, OTHER_KEY):
        assert not [name for name, data in found.items() if key.encode() in data]


@pytest.mark.parametrize("words", [f"solve {KEY}", "solve --token 0123456789abcdef0123"])
async def test_an_agent_whose_name_would_hold_a_secret_is_refused(tmp_path: Path, words: str) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"id": "t", "instruction": "-", "verify": ["true"]}) + "\n")
    config = Config(models={"small": ModelConfig(url="http://127.0.0.1:9", key_env="PROVIDER_KEY")})
    request = RunOptions(
        tasks=tmp_path / "tasks.jsonl", out=tmp_path / "run", agents=(f"command:{words}",), models=("small",)
    )
    with pytest.raises(UserError, match=r"a secret is in its command line; declare the agent in whet.toml") as refused:
        await run(request, config, lambda _: None, {"PROVIDER_KEY": KEY})
    assert "[redacted]" in str(refused.value)
    assert words.split()[-1] not in str(refused.value)
    assert not (tmp_path / "run").exists()


async def test_what_looks_like_a_secret_is_masked_in_what_people_read_and_not_in_the_record_of_calls() -> None:
    token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    leak = f"echo token {token}; echo {token} > found.txt; echo GITHUB_TOKEN={token} >&2"
    task = Task(id="t", instruction="Look around.", verify=(f"cat found.txt; echo {token}",))
    done = await attempted(task, LoopAgent(), call("bash", command=leak), say(f"It is {token}."))
    assert token not in done.result.model_dump_json()
    assert done.result.report is not None
    assert done.result.report.text == "It is [redacted:github-token:1]."
    assert "+[redacted:github-token:1]" in (done.result.changes[0].diff or "")
    # What a model is trained on is what it said, byte for byte.
    assert token.encode() in done.exchanges[1].request
