"""`whet models`: what is printed of models, and the proof that one works."""

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path

from support.models_world import smollm2_fixture as smollm2_fixture
from support.whet_program import Project, said_to_user
from whet.exchange import EXACT
from whet.models import PulledModel
from whet.testing import Scene, Script, ScriptedModel, say

KEY = "sk-0123456789abcdef"


def test_models_are_listed_with_what_is_known_of_them(project: Project, tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(b"GGUF" + bytes(2_000_000))
    empty = Project(project.path, project.tmp, {"WHET_MODELS": str(tmp_path / "models"), "COLUMNS": "300"})
    pulled = empty.whet("models", "pull", str(tmp_path / "own.gguf"), "--name", "mine")
    assert pulled.returncode == 0, pulled.stderr
    assert pulled.stdout.startswith("local/mine: 2 MB, sha256 ")
    lines = [line.split() for line in empty.whet("models").stdout.splitlines()]
    _, *rows = lines[lines.index(["local", "model", "size", "sha256", "pulled", "from", "file"]) :]
    assert rows[0][:4] == ["mine", "2", "MB", rows[0][3]]
    assert rows[0][4:] == ["yes", str(tmp_path / "own.gguf"), str(tmp_path / "models" / "mine" / "model.gguf")]
    assert rows[1] == ["smollm2", "98", "MB", "b179c9523d0e", "no", "smollm2", "-"]


def test_providers_are_listed_with_the_variables_that_are_set_and_never_with_values(project: Project) -> None:
    project.write("whet.toml", '[models.mine]\nurl = "http://h"\nname = "gpt-5"\n[models.other]\nurl = "http://h"\n')
    own = Project(project.path, project.tmp, {"OPENAI_API_KEY": KEY, "GOOGLE_API_KEY": KEY, "ANTHROPIC_API_KEY": ""})
    said = own.whet("models").stdout
    assert "ANTHROPIC_API_KEY: not set" in said
    assert "OPENAI_API_KEY: set" in said
    assert "GOOGLE_API_KEY: set" in said
    assert KEY not in said
    assert re.search(r"^mine +gpt-5 +1.25 +10 +0.125 +http://h$", said, re.MULTILINE)
    assert re.search(r"^other +other +unknown +unknown +http://h$", said, re.MULTILINE)
    assert re.search(
        r"List prices: genai-prices [\d.]+, taken on 20\d\d-\d\d-\d\d, \d+ days? ago\.$", said, re.MULTILINE
    )


async def test_a_check_of_a_provider_makes_one_call_and_tells_what_came_back(project: Project) -> None:
    async with ScriptedModel(Script(scenes=(Scene(replies=(say("OK."),)),)), key=KEY) as stand_in:
        env = {"ANTHROPIC_BASE_URL": stand_in.url, "ANTHROPIC_API_KEY": KEY}
        own = Project(project.path, project.tmp, env)
        good = await asyncio.to_thread(own.run, "models", "check", "anthropic/claude-sonnet-4-5")
        bad = replace(own, env={**env, "ANTHROPIC_API_KEY": "sk-another-0123456789"})
        refused = await asyncio.to_thread(bad.run, "models", "check", "anthropic/claude-sonnet-4-5")
    assert good.returncode == 0, good.stderr
    for told in (r"address +http://127.0.0.1:\d+/v1/messages", "dialect +messages", r"reply +OK\.", r"cost +\$0\.\d+"):
        assert re.search(told, good.stdout)
    assert refused.returncode == 1
    assert [call.path for call in stand_in.requests] == ["/v1/messages", "/v1/messages"]
    assert "/v1/messages refused the key (status 401): The key is not the one" in refused.stderr


def test_a_check_proves_that_tokens_are_exact_and_the_same_again(project: Project, smollm2: PulledModel) -> None:
    done = project.whet("models", "check", "smollm2")
    assert done.returncode == 0, done.stderr
    lines = dict(line.strip().split("  ", 1) for line in done.stdout.splitlines())
    said = {name: value.strip() for name, value in lines.items()}
    assert said["smollm2"] == "works"
    assert said["weights"] == "as they were pulled"
    assert said["ids and log-probabilities"] == EXACT
    assert said["ids decode to the text"] == "yes"
    assert said["same seed, same tokens"] == "bit-identical"
    assert float(said["speed"].split()[0]) > 0


def test_a_check_refuses_weights_that_have_changed(project: Project, smollm2: PulledModel, tmp_path: Path) -> None:
    (tmp_path / "copy.gguf").write_bytes(smollm2.file.read_bytes())
    other = Project(project.path, project.tmp, {"WHET_MODELS": str(tmp_path / "models")})
    assert other.whet("models", "pull", str(tmp_path / "copy.gguf")).returncode == 0
    with (tmp_path / "copy.gguf").open("r+b") as written:
        written.seek(-1, os.SEEK_END)
        written.write(b"!")
    said = said_to_user(other.whet("models", "check", "copy"))
    assert "copy/model.gguf: is not what was pulled: its sha256 is " in said
    assert said.endswith(f"expected {smollm2.sha256}")
