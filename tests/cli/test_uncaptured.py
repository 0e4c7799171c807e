"""`whet run --no-record` and `--user-config`: agents with settings and a login of their own, and no call on record."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from support.whet_program import Project
from whet.agents.install.packages import PACKAGES
from whet.agents.install.run import install
from whet.runs.store.store import Store
from whet.testing import Scene, Script, ScriptedModel, call, say

TASK = {"id": "made", "instruction": "Write made.txt.", "verify": ["grep -qx ready made.txt"]}
CONFIG = """\
model = "mine"
model_provider = "local"
[model_providers.local]
name = "Local"
base_url = "{url}/v1"
wire_api = "responses"
[features]
plugins = false
"""


async def test_an_agent_works_with_its_own_login_and_only_its_transcript_is_kept(
    project: Project, tmp_path: Path
) -> None:
    install(PACKAGES["codex"])
    project.write("t.jsonl", json.dumps(TASK) + "\n")
    script = Script(scenes=(Scene(replies=(call("bash", command="echo ready > made.txt"), say("Written."))),))
    async with ScriptedModel(script) as scripted:
        settings = tmp_path / "home/.codex/config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(CONFIG.format(url=scripted.url))
        own = replace(project, env={"HOME": str(tmp_path / "home")})
        words = "run t.jsonl --agent codex --no-record --user-config --sandbox local --out run"
        done = await asyncio.to_thread(own.run, *words.split())
    assert done.returncode == 0, done.stderr
    assert "not-captured in 1 rollout" in done.stdout
    assert "unknown  unknown" in done.stdout, "tokens and cost are not zero: nobody counted them"
    assert {json.loads(request.body)["model"] for request in scripted.requests} == {"mine"}
    with Store.open_read(project.path / "run") as store:
        ((_, (attempt,)),) = store.attempts_by_rollout()
        assert store.exchanges(attempt.id) == []
        transcripts = [data for name, data in store.logs(attempt.id).items() if name.startswith("transcript ")]
    assert any(b"Written." in data for data in transcripts)
    assert settings.read_text() == CONFIG.format(url=scripted.url)
    assert [path.name for path in settings.parent.iterdir()] == ["config.toml"], "what an agent writes stays in its box"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--agent codex --no-record", "--no-record needs the network, which sandbox 'bubblewrap' does not have; "),
        ("--agent loop --no-record --sandbox local", "agent 'loop' has no settings and no login of its own; "),
        ("--agent loop --user-config --model scripted:s.toml", "agent 'loop' has no settings and no login of its own"),
        ("--agent codex --no-record --sandbox local --model big", "--model is 'big', but with --no-record agents "),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(project: Project, options: str, line: str) -> None:
    install(PACKAGES["codex"])
    project.write("t.jsonl", json.dumps(TASK) + "\n")
    done = project.whet("run", "t.jsonl", *options.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"whet: {line}")
