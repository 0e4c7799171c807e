"""`gemini`: Google's Gemini CLI. It needs a settings file that selects how it logs in."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from whet.agents.cli import CliAgent
from whet.agents.launch import AgentOutput, Launch, Output, Start, Traits
from whet.agents.own_command import command_files, prompt_argument

SETTINGS = {
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": 2},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
}


class Gemini(CliAgent):
    """The Gemini CLI without a terminal."""

    kind: Literal["gemini"] = "gemini"
    traits: ClassVar[Traits] = Traits(
        dialect="gemini",
        skills=".agents/skills",
        memory=".gemini/GEMINI.md",
        images=True,
        subagents=True,
        chooses_tools=True,
        modes=("default", "auto_edit", "yolo", "plan"),
        takes_settings=True,
        settings=(".gemini/settings.json", ".gemini/oauth_creds.json", ".gemini/GEMINI.md", ".agents/skills"),
        credentials=(".gemini/oauth_creds.json", ".gemini/google_accounts.json"),
        transcripts=".gemini/tmp",
        moved_by=(("GEMINI_CLI_HOME", ""),),
    )

    def config(self, launch: Launch) -> Mapping[str, str]:
        kind = "oauth-personal" if self.home == "login" else "gemini-api-key"
        settings: dict[str, Any] = SETTINGS | {"security": {"auth": {"selectedType": kind}}}
        if self.allowed_tools is not None:
            settings["tools"] = {"core": list(self.allowed_tools)}
        own = launch.endpoint is None and self.home == "own"
        files = {} if own else {".gemini/settings.json": self.merge_settings(settings)}
        return files | command_files(launch, ".gemini/commands")

    def start(self, launch: Launch) -> Start:
        session = ("--resume", launch.resumed) if launch.resumed else ("--session-id", launch.session)
        argv = [*launch.command, *session, "--approval-mode", self.permission_mode or "yolo", "-o", "stream-json"]
        env = {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
        if launch.endpoint is not None:
            # Without a model name it calls a model to choose one.
            argv += ["-m", launch.endpoint.model]
            env |= {"GOOGLE_GEMINI_BASE_URL": launch.endpoint.url, "GEMINI_API_KEY": launch.endpoint.key}
        return Start((*argv, *launch.args), env, prompt_argument(launch))

    def read_output(self, output: Output) -> AgentOutput:
        text, session, error = "", None, None
        for event in output.events():
            match event:
                case {"type": "init", "session_id": str(identity)}:
                    session = identity
                case {"type": "message", "role": "assistant", "content": str(content)}:
                    text = text + content if event.get("delta") else content
                case {"type": "tool_use"}:
                    text = ""
                case {"type": "result", "status": "error", "error": {"message": str(message)}}:
                    error = message
        return AgentOutput(text, session, error)
