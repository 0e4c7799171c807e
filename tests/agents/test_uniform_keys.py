"""`allowed_tools`, `permission_mode`, `settings` and `program`: the same keys for all CLIs that have the option."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.contract_world import named, rolled_out, scene, task
from whet.agents import CLIS, CliAgent, ModelEndpoint, agent_named
from whet.agents.launch import Launch
from whet.errors import UserError
from whet.testing import call, say

LAUNCH = Launch(("run",), "/f", "1", "/bin", "/home/agent", "/workspace", ModelEndpoint("http://m", "k", "m"), "s")


def cli(kind: str, **fields: Any) -> CliAgent:
    agent = agent_named(kind, {})
    assert isinstance(agent, CliAgent)
    return type(agent).model_validate(fields)


def all_that_it_is_given(agent: CliAgent) -> str:
    """The command line and the files of a start."""
    return " ".join([*agent.start(LAUNCH).argv, *agent.config(LAUNCH).values()])


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("claude-code", "--tools a,b"),
        ("copilot", "--available-tools a b"),
        ("pi", "--tools a,b"),
        ("qwen", "--core-tools=a --core-tools=b --exclude-tools=tool_search"),
        ("gemini", '"core": [\n   "a",\n   "b"\n  ]'),
        ("opencode", '"*": "deny",\n  "a": "allow",\n  "b": "allow"'),
    ],
)
def test_tools_are_named_by_one_key(kind: str, option: str) -> None:
    assert option in all_that_it_is_given(cli(kind, allowed_tools=["a", "b"]))
    assert cli(kind, allowed_tools="a, b") == cli(kind, allowed_tools=["a", "b"])
    assert option not in all_that_it_is_given(cli(kind))


@pytest.mark.parametrize(
    ("kind", "mode", "option"),
    [
        ("claude-code", "plan", "--permission-mode plan"),
        ("gemini", "auto_edit", "--approval-mode auto_edit"),
        ("qwen", "plan", "--approval-mode plan"),
    ],
)
def test_a_permission_mode_replaces_that_nothing_is_asked(kind: str, mode: str, option: str) -> None:
    given = all_that_it_is_given(cli(kind, permission_mode=mode))
    assert option in given
    assert "yolo" not in given
    assert "--dangerously" not in given


@pytest.mark.parametrize("kind", ["claude-code", "gemini", "qwen", "pi", "opencode"])
def test_a_settings_file_is_merged_below_what_whet_needs(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"mine": {"deep": 1}, "privacy": {"usageStatisticsEnabled": true, "x": 1}, "permission": "ask"}')
    (text,) = [text for text in cli(kind, settings=file).config(LAUNCH).values() if '"mine"' in text]
    settings = json.loads(text)
    assert settings["mine"] == {"deep": 1}
    if kind in {"gemini", "qwen"}:
        assert settings["privacy"] == {"usageStatisticsEnabled": False, "x": 1}
    if kind == "opencode":
        assert settings["permission"] == "allow"


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("codex", {"allowed_tools": "x"}, "agent 'codex' has no option for 'allowed_tools'; leave the key out"),
        ("codex", {"permission_mode": "read-only"}, "agent 'codex' has no option for 'permission_mode'"),
        ("copilot", {"settings": "s.json"}, "agent 'copilot' has no option for 'settings'"),
        ("gemini", {"permission_mode": "yoyo"}, "key 'permission_mode' is 'yoyo'; did you mean 'yolo'"),
        ("pi", {"settings": "/none.json"}, "agent 'pi': key 'settings' is '/none.json': "),
        ("codex", {"program": "/none/codex"}, "agent 'codex': /none/codex is not a program; expected an executable"),
    ],
)
def test_what_a_program_cannot_do_is_refused(kind: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refusal:
        cli(kind, **fields).check()
    assert message in str(refusal.value)


def test_mini_swe_agent_has_none_of_these_options() -> None:
    (mini,) = [one for one in CLIS if one.kind == "mini-swe-agent"]
    assert (mini.traits.chooses_tools, mini.traits.modes, mini.traits.takes_settings) == (False, (), False)


async def test_the_program_does_what_the_keys_say(tmp_path: Path) -> None:
    (tmp_path / "claude.json").write_text(json.dumps({"env": {"OWN": "yes"}}))
    (tmp_path / "codex.toml").write_text('[shell_environment_policy]\nset = { OWN = "yes" }\n')
    given: dict[str, dict[str, Any]] = {
        "claude-code": {"allowed_tools": ("Bash",), "settings": tmp_path / "claude.json"},
        "codex": {"settings": tmp_path / "codex.toml"},
    }
    for name, fields in given.items():
        agent = named(name)
        assert isinstance(agent, CliAgent)
        replies = scene(call("bash", command='echo "own: $OWN"'), say("Done."))
        done = await rolled_out(agent.model_copy(update=fields), task(verify=("true",)), replies)
        assert b"own: yes" in done.requests[-1].body, name
        if name == "claude-code":
            assert [tool["name"] for tool in json.loads(done.requests[-1].body)["tools"]] == ["Bash"]
