"""`copilot`: GitHub's Copilot CLI, offline and with a custom model."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from whet.agents.cli import CliAgent
from whet.agents.install.packages import CACHE
from whet.agents.launch import AgentOutput, Launch, Output, Start, Traits


class Copilot(CliAgent):
    """Copilot without a terminal."""

    kind: Literal["copilot"] = "copilot"
    traits: ClassVar[Traits] = Traits(
        dialect="chat",
        skills=".agents/skills",
        memory=".copilot/copilot-instructions.md",
        images=True,
        subagents=True,
        chooses_tools=True,
        settings=(
            ".copilot/config.json",
            ".copilot/mcp-config.json",
            ".copilot/copilot-instructions.md",
            ".agents/skills",
        ),
        token_env=("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"),
        transcripts=".copilot/session-state",
        moved_by=(("COPILOT_HOME", ".copilot"),),
    )

    def config(self, launch: Launch) -> Mapping[str, str]:  # noqa: ARG002 - it needs no files in its home
        return {}

    def start(self, launch: Launch) -> Start:
        attachments = [part for image in launch.images for part in ("--attachment", image.path)]
        options = ["--allow-all", "--no-ask-user", "--no-color", "--output-format", "json"]
        if self.allowed_tools is not None:
            options += ["--available-tools", *self.allowed_tools]
        # The same option starts a conversation and resumes it.
        session = ("--session-id", launch.resumed or launch.session)
        env = {"COPILOT_AUTO_UPDATE": "false", "COPILOT_CACHE_HOME": f"{launch.folder}/{CACHE}"}
        if launch.endpoint is not None:
            env |= {
                "COPILOT_OFFLINE": "true",
                "COPILOT_PROVIDER_TYPE": "openai",
                "COPILOT_PROVIDER_WIRE_API": "completions",
                "COPILOT_PROVIDER_BASE_URL": f"{launch.endpoint.url}/v1",
                "COPILOT_PROVIDER_API_KEY": launch.endpoint.key,
                "COPILOT_MODEL": launch.endpoint.model,
            }
        return Start((*launch.command, *session, *options, *launch.args, *attachments), env, stdin=launch.instruction)

    def read_output(self, output: Output) -> AgentOutput:
        text, session, error = "", None, None
        for event in output.events():
            match event:
                case {"ephemeral": True}:
                    continue
                case {"type": "assistant.message", "data": {"content": str(content)}} if "agentId" not in event:
                    text = content
                case {"type": "session.error", "data": {"message": str(message)}}:
                    error = message
                case {"type": "result", "sessionId": str(identity)}:
                    session = identity
        return AgentOutput(text, session, error)
