"""`--login`: agents with the user's own login, in a sealed box, with every call on record and no other setting."""

import asyncio
import base64
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from support.whet_program import Project, said_to_user
from whet.agents.install.packages import PACKAGES
from whet.agents.install.run import install
from whet.runs.config import Config
from whet.runs.options import RunOptions
from whet.runs.store.store import Store
from whet.skills.sharpen.options import default_proposer_model
from whet.testing import Scene, Script, ScriptedModel, call, say

TOKEN = "sk-ant-oat01-0123456789abcdef"
TASK = {"id": "made", "instruction": "Write made.txt.", "verify": ["grep -qx ready made.txt"]}
VERDICT = '{"reason": "It asks nicely.", "score": 1}'
MARK = "the-users-own-secret-habit"
LOOK = "echo ready > made.txt; cat ~/.claude/.credentials.json ~/.codex/auth.json; cd; find . -type f"


def jwt(lifetime: float) -> str:
    """A token of the form that Codex reads."""
    account = {"chatgpt_account_id": "account-1", "chatgpt_plan_type": "pro"}
    claims = {"exp": int(time.time() + lifetime), "https://api.openai.com/auth": account}
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims))
    return ".".join([*parts, "c2lnbmF0dXJl"])


def logged_in(home: Path) -> dict[str, str]:
    """A home with logins, and with skills, hooks, MCP servers and memory that no rollout may see; the tokens."""
    tokens = {"claude-code": TOKEN, "codex": jwt(864_000)}
    expiry = int((time.time() + 86_400) * 1000)
    oauth = {"accessToken": TOKEN, "refreshToken": "sk-ant-ort01-fedcba9876543210", "expiresAt": expiry}
    chatgpt = {"id_token": tokens["codex"], "access_token": tokens["codex"], "refresh_token": "rt-0123456789abcdef"}
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    codex = {"OPENAI_API_KEY": None, "tokens": {**chatgpt, "account_id": "account-1"}, "last_refresh": stamp}
    files = {
        ".claude/.credentials.json": json.dumps({"claudeAiOauth": {**oauth, "scopes": ["user:inference"]}}),
        ".claude/CLAUDE.md": MARK,
        ".claude/settings.json": json.dumps({"hooks": {"SessionStart": [{"hooks": [{"command": f"touch {MARK}"}]}]}}),
        ".claude.json": json.dumps({"mcpServers": {MARK: {"command": "true"}}}),
        ".claude/skills/habit/SKILL.md": f"---\nname: habit\ndescription: {MARK}\n---\n",
        ".agents/skills/habit/SKILL.md": f"---\nname: habit\ndescription: {MARK}\n---\n",
        ".codex/auth.json": json.dumps(codex),
        ".codex/AGENTS.md": MARK,
        ".codex/config.toml": f'[mcp_servers.{MARK}]\ncommand = "true"\n',
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return tokens


def all_that_is_stored(run: Path) -> bytes:
    with Store.open_read(run) as store:
        (attempt,) = [attempt for _, attempts in store.attempts_by_rollout() for attempt in attempts]
        exchanges = [repr(exchange).encode() for exchange in store.exchanges(attempt.id)]
        bodies = [part for one in store.exchanges(attempt.id) for part in (one.request, one.response)]
        return b"".join([*exchanges, *bodies, *store.logs(attempt.id).values(), store.result_body(attempt) or b""])


@pytest.mark.parametrize("agent", ["claude-code", "codex"])
async def test_an_agent_works_with_its_login_alone_and_every_call_is_recorded(
    project: Project, tmp_path: Path, agent: str
) -> None:
    install(PACKAGES[agent])
    token = logged_in(tmp_path / "home")[agent]
    project.rows("t.jsonl", TASK)
    script = Script(scenes=(Scene(replies=(call("bash", command=LOOK), say("Written."))),))
    async with ScriptedModel(script) as scripted:
        project.write("whet.toml", f'[models.big]\nurl = "{scripted.url}"\nname = "big-1"\n')
        own = replace(project, env={"HOME": str(tmp_path / "home")})
        words = f"run t.jsonl --agent {agent} --model big --login --out run"
        done = await asyncio.to_thread(own.run, *words.split())
    assert done.returncode == 0, done.stderr
    assert "1/1" in done.stdout, done.stdout
    posts = [request for request in scripted.requests if request.body]
    assert len(posts) == 2
    assert {dict(request.headers)["Authorization"] for request in posts} == {f"Bearer {token}"}
    assert MARK.encode() not in b"".join(request.body for request in posts)
    stored = all_that_is_stored(project.path / "run")
    assert b"Written." in stored
    assert token.encode() not in stored
    assert (b"sk-ant-ort01-fedcba" if agent == "claude-code" else b"rt-0123456789abcdef") not in stored


async def test_a_login_answers_the_questions_of_a_judge(project: Project, tmp_path: Path) -> None:
    install(PACKAGES["claude-code"])
    logged_in(tmp_path / "home")
    judge = {"kind": "rubric", "rubric": "Is it polite?"}
    project.rows("t.jsonl", {"id": "q", "instruction": "Say it politely.", "judge": judge})
    scenes = (Scene.model_validate({"when": {"user": "polite"}, "reply": [say(VERDICT)]}), Scene(replies=(say("OK"),)))
    async with ScriptedModel(Script(scenes=scenes)) as scripted:
        login = f'[models.mine]\nlogin = "claude-code"\nname = "big-1"\nurl = "{scripted.url}"\n'
        project.write("script.toml", '[[scene]]\n[[scene.reply]]\ntext = "If you please."\n')
        project.write("whet.toml", login)
        own = replace(project, env={"HOME": str(tmp_path / "home")})
        words = "run t.jsonl --agent chat --model scripted:script.toml --judge-model mine --out run"
        done = await asyncio.to_thread(own.run, *words.split())
    assert done.returncode == 0, done.stderr
    assert "1/1" in done.stdout, done.stdout
    posts = [request for request in scripted.requests if request.body]
    assert {dict(request.headers)["Authorization"] for request in posts} == {f"Bearer {TOKEN}"}
    assert all(not json.loads(request.body).get("tools") for request in posts)
    assert TOKEN.encode() not in all_that_is_stored(project.path / "run")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--agent claude-code --model big", "agent 'claude-code': no login was found; expected it in ~/.claude/.cred"),
        ("--agent copilot --model big", "agent 'copilot': no login was found; expected it in COPILOT_GITHUB_TOKEN or "),
        ("--agent loop --model big", "agent 'loop' has no settings and no login of its own; run it without --login"),
        ("--agent gemini --model big", "agent 'gemini' sends its login to one endpoint only, so its calls cannot be "),
        ("--agent codex --no-record", "--no-record needs the network, which sandbox 'bubblewrap' does not have; "),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(project: Project, tmp_path: Path, options: str, line: str) -> None:
    for agent in ("claude-code", "codex", "copilot", "gemini"):
        install(PACKAGES[agent])
    project.rows("t.jsonl", TASK)
    for name in (".gemini/oauth_creds.json", ".codex/auth.json"):
        (tmp_path / "home" / name).parent.mkdir(parents=True)
        (tmp_path / "home" / name).write_text("{}")
    nobody = {"HOME": str(tmp_path / "home"), "GH_TOKEN": "", "GITHUB_TOKEN": "", "COPILOT_GITHUB_TOKEN": ""}
    done = replace(project, env=nobody).whet("run", "t.jsonl", "--login", *options.split())
    assert said_to_user(done).startswith(f"whet: {line}")


def test_the_login_answers_an_llm_proposer_too() -> None:
    run = RunOptions(agents=("claude-code",), models=("anthropic/claude-sonnet-4-5",), login=True)
    assert default_proposer_model("llm", run, Config()) == "login/claude-code/claude-sonnet-4-5"
    assert default_proposer_model("criteria", run, Config()) is None
    assert default_proposer_model("llm", run.model_copy(update={"login": False}), Config()) is None
