"""`gemini`: Google's Gemini CLI. Without a settings file that says how it logs in, it does not start."""

import json
from collections.abc import Mapping
from typing import ClassVar, Literal

from whet.agents.cli import CliAgent, Launch, Output, Said, Start, Traits

SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
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
        transcripts=".gemini/tmp",
    )

    def home(self, launch: Launch) -> Mapping[str, str]:  # noqa: ARG002 - always the same
        return {".gemini/settings.json": json.dumps(SETTINGS, indent=1)}

    def start(self, launch: Launch) -> Start:
        session = ("--resume", launch.resumed) if launch.resumed else ("--session-id", launch.session)
        images = "".join(f"@{image.path}\n" for image in launch.images)
        return Start(
            (*launch.command, *session, "--yolo", "-m", launch.endpoint.model, "-o", "stream-json"),
            {
                "GOOGLE_GEMINI_BASE_URL": launch.endpoint.url,
                "GEMINI_API_KEY": launch.endpoint.key,
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
            },
            stdin=images + launch.instruction,
        )

    def said(self, output: Output) -> Said:
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
        return Said(text, session, error)
