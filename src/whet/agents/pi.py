"""`pi`: the Pi coding agent. It exits with 0 even if its model fails, so errors are read from its events."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from whet.agents.cli import CliAgent
from whet.agents.launch import AgentOutput, Launch, Output, Start, Traits

SETTINGS = {"retry": {"enabled": False, "provider": {"maxRetries": 0, "timeoutMs": 3_600_000}}}


class Pi(CliAgent):
    """Pi's print mode."""

    kind: Literal["pi"] = "pi"
    traits: ClassVar[Traits] = Traits(
        dialect="chat",
        skills=".agents/skills",
        memory=".pi/agent/AGENTS.md",
        system=True,
        images=True,
        chooses_tools=True,
        takes_settings=True,
        settings=(".pi/agent/models.json", ".pi/agent/settings.json", ".pi/agent/auth.json", ".agents/skills"),
        credentials=(".pi/agent/auth.json",),
        transcripts=".pi/agent/sessions",
        moved_by=(("PI_CODING_AGENT_DIR", ".pi/agent"),),
    )

    def config(self, launch: Launch) -> Mapping[str, str]:
        if launch.endpoint is None:
            return {}
        model = {
            "id": launch.endpoint.model,
            "name": launch.endpoint.model,
            "reasoning": False,
            "input": ["text", "image"],
            "contextWindow": 200_000,
            "maxTokens": 32_000,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        }
        url = f"{launch.endpoint.url}/v1"
        provider = {"baseUrl": url, "api": "openai-completions", "apiKey": "MODEL_KEY", "models": [model]}
        return {
            ".pi/agent/models.json": json.dumps({"providers": {"local": provider}}, indent=1),
            ".pi/agent/settings.json": self.merge_settings(SETTINGS),
        }

    def start(self, launch: Launch) -> Start:
        argv, env = [*launch.command, "--mode", "json", "-p"], {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
        if launch.endpoint is not None:
            argv += ["--provider", "local", "--model", launch.endpoint.model]
            env["MODEL_KEY"] = launch.endpoint.key
        if self.allowed_tools is not None:
            argv += ["--tools", ",".join(self.allowed_tools)]
        if launch.resumed:
            argv += ["--session", launch.resumed]
        if launch.system:
            argv += ["--append-system-prompt", launch.system]
        images = [f"@{image.path}" for image in launch.images]
        return Start((*argv, *launch.args, *images), env, stdin=launch.instruction)

    def read_output(self, output: Output) -> AgentOutput:
        found = AgentOutput()
        for event in output.events():
            match event:
                case {"type": "session", "id": str(session)}:
                    found = AgentOutput(session=session)
                case {"type": "message_end", "message": {"role": "assistant"} as message}:
                    failed = message.get("stopReason") == "error"
                    error = str(message.get("errorMessage") or "an error") if failed else None
                    found = AgentOutput(_text(message), found.session, error)
        return found


def _text(message: Mapping[str, Any]) -> str:
    return "".join(part["text"] for part in message.get("content", ()) if part.get("type") == "text")
