"""`whet doctor`: every line is ok, or names the command that adds what is missing."""

import re
from pathlib import Path

import pytest

from support.whet_program import Project
from whet.agents import CLIS
from whet.agents.install.packages import PACKAGES
from whet.models import PROVIDERS

KEYS = {name: "" for provider in PROVIDERS.values() for name in (*provider.key_env, *provider.url_env)}
TOKENS = {name: "" for agent in CLIS for name in agent.traits.token_env}
NOBODY = {"VLLM_BASE_URL": "http://127.0.0.1:9/v1", "OLLAMA_HOST": "127.0.0.1:9"}


@pytest.fixture
def bare(project: Project, tmp_path: Path) -> Project:
    """A machine without agents, keys and models."""
    empty = {"WHET_AGENTS": str(tmp_path / "agents"), "WHET_MODELS": str(tmp_path / "models")}
    return Project(project.path, project.tmp, {**KEYS, **TOKENS, **NOBODY, **empty, "HOME": str(tmp_path)})


def states(text: str) -> dict[str, tuple[str, str]]:
    """The state of each thing, and what is said of it."""
    rows = re.findall(r"^\w+ +([\w-]+) +(ok|missing) +(.+)$", text, re.MULTILINE)
    return {name: (state, said) for name, state, said in rows}


def test_a_bare_machine_is_told_what_to_type(bare: Project) -> None:
    done = bare.whet("doctor")
    found = states(done.stdout)
    assert found["bubblewrap"][0] == "ok"
    assert found["git"][0] == "ok"
    assert {found[agent] for agent in ("codex", "pi")} == {
        ("missing", "whet agents install codex"),
        ("missing", "whet agents install pi"),
    }
    assert found["anthropic"] == ("missing", "export ANTHROPIC_API_KEY=...")
    assert found["local"] == ("missing", "whet models pull smollm2")
    assert found.keys() >= {*PACKAGES, *PROVIDERS}
    assert done.returncode == 1
    assert done.stderr == "Nothing can run here: whet needs its sandbox and one model.\n"


def test_one_key_is_enough_and_is_not_shown(bare: Project) -> None:
    done = Project(bare.path, bare.tmp, {**bare.env, "OPENAI_API_KEY": "sk-0123456789"}).whet("doctor")
    assert (done.returncode, states(done.stdout)["openai"]) == (0, ("ok", "OPENAI_API_KEY is set"))
    assert "sk-0123456789" not in done.stdout


def test_a_login_is_enough(bare: Project, tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "auth.json").write_text("{}")
    done = bare.whet("doctor")
    assert (done.returncode, states(done.stdout)["login"]) == (0, ("ok", "codex: for --login"))


def test_a_sandbox_that_does_not_work_is_named_with_its_package(bare: Project, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("git", "prlimit", "setpriv", "choom"):
        (programs / name).symlink_to("/bin/true")
    done = Project(bare.path, bare.tmp, {**bare.env, "PATH": str(programs), "OPENAI_API_KEY": "k"}).whet("doctor")
    assert states(done.stdout)["bubblewrap"] == ("missing", "sudo apt-get install bubblewrap")
    assert "bubblewrap: sandbox 'bubblewrap' needs the program 'bwrap'" in done.stdout
    assert done.returncode == 1
