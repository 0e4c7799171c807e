"""`codex`: OpenAI's Codex. It reads its endpoint from a file only, and supports only the Responses dialect."""

import json
from collections.abc import Mapping
from typing import ClassVar, Literal

from whet.agents.cli import CliAgent
from whet.agents.launch import AgentOutput, Launch, Output, Start, Traits
from whet.text.plain import read_json

MODEL = """\
model = {model}
model_provider = "local"
"""
PROVIDER = """\

[model_providers.local]
name = "Local"
base_url = {url}
wire_api = "responses"
{credential}
request_max_retries = 1
stream_max_retries = 1
stream_idle_timeout_ms = 3600000
"""
CONFIG = """\
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
apps = false
plugins = false
unbounded_connection_retries = false

[skills.bundled]
enabled = false

[shell_environment_policy]
inherit = "core"
"""
PROFILE = "given"
SCHEMA = ".codex/answer.schema.json"


class Codex(CliAgent):
    """Codex's `exec`."""

    kind: Literal["codex"] = "codex"
    traits: ClassVar[Traits] = Traits(
        dialect="responses",
        skills=".agents/skills",
        memory=".codex/AGENTS.md",
        images=True,
        schema=True,
        subagents=True,
        takes_settings=True,
        settings=(".codex/config.toml", ".codex/auth.json", ".codex/AGENTS.md", ".agents/skills"),
        credentials=(".codex/auth.json",),
        login_url="https://chatgpt.com/backend-api/codex",
        transcripts=".codex/sessions",
        moved_by=(("CODEX_HOME", ".codex"),),
    )

    def config(self, launch: Launch) -> Mapping[str, str]:
        files = {} if launch.schema is None else {SCHEMA: json.dumps(launch.schema)}
        if given := self.read_settings():
            files[f".codex/{PROFILE}.config.toml"] = given
        if launch.endpoint is not None:
            # JSON strings are valid TOML.
            url, model = json.dumps(f"{self.model_url(launch.endpoint)}/v1"), json.dumps(launch.endpoint.model)
            credential = "requires_openai_auth = true" if self.home == "login" else 'env_key = "MODEL_KEY"'
            provider = PROVIDER.format(url=url, credential=credential)
            files[".codex/config.toml"] = MODEL.format(model=model) + CONFIG + provider
        elif self.home == "login":
            files[".codex/config.toml"] = CONFIG
        return files

    def start(self, launch: Launch) -> Start:
        argv = [*launch.command, "exec"]
        if launch.resumed:
            argv += ["resume", launch.resumed]
        argv += ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        if self.settings is not None:
            argv += ["--profile", PROFILE]
        if launch.schema is not None:
            argv += ["--output-schema", f"{launch.home}/{SCHEMA}"]
        for image in launch.images:
            argv += ["--image", image.path]
        env = {"MODEL_KEY": launch.endpoint.key} if launch.endpoint else {}
        return Start((*argv, *launch.args, "--", "-"), env, stdin=launch.instruction)

    def read_output(self, output: Output) -> AgentOutput:
        text, session, error = "", None, None
        for event in output.events():
            match event:
                case {"type": "thread.started", "thread_id": str(thread)}:
                    session = thread
                case {"type": "item.completed", "item": {"type": "agent_message", "text": str(message)}}:
                    text = message
                case {"type": "turn.failed", "error": {"message": str(message)}}:
                    error = message
        return AgentOutput(text, session, error, answer=_json(text))


def _json(text: str) -> object:
    """Parse the answer to a request with a schema; None if it is not a JSON object."""
    try:
        value = read_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
