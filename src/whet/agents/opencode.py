"""`opencode`: OpenCode. It prints events. It calls the model for a title unless it is given one."""

import json
import platform
from collections.abc import Mapping
from typing import ClassVar, Literal

from whet.agents.agent import ModelEndpoint
from whet.agents.cli import CliAgent
from whet.agents.launch import AgentOutput, Launch, Output, Start, Traits

CONFIG = ".config/opencode"
RIPGREP = f"node_modules/@vscode/ripgrep-linux-{'arm64' if platform.machine() == 'aarch64' else 'x64'}/bin"
"""Without this program it can neither search nor load a skill."""


class OpenCode(CliAgent):
    """OpenCode's `run`."""

    kind: Literal["opencode"] = "opencode"
    traits: ClassVar[Traits] = Traits(
        dialect="chat",
        skills=".agents/skills",
        memory=f"{CONFIG}/AGENTS.md",
        images=True,
        subagents=True,
        chooses_tools=True,
        takes_settings=True,
        settings=(".config/opencode", ".local/share/opencode/auth.json"),
        credentials=(".local/share/opencode/auth.json",),
        transcripts=".local/share/opencode",
        moved_by=(("OPENCODE_DB", ".local/share/opencode/opencode.db"), ("XDG_DATA_HOME", ".local/share")),
    )

    def config(self, launch: Launch) -> Mapping[str, str]:
        # It would install this package in the background unless it is listed as installed.
        plugin = {"dependencies": {"@opencode-ai/plugin": launch.version}}
        lock = {"name": "opencode", "lockfileVersion": 3, "requires": True, "packages": {"": plugin}}
        return {
            f"{CONFIG}/package.json": json.dumps(plugin),
            f"{CONFIG}/package-lock.json": json.dumps(lock),
            f"{CONFIG}/node_modules/.keep": "",
            **({} if launch.endpoint is None else {f"{CONFIG}/opencode.json": self._config(launch.endpoint)}),
        }

    def start(self, launch: Launch) -> Start:
        resume = ("--session", launch.resumed) if launch.resumed else ("--title", "task")
        files = [part for image in launch.images for part in ("--file", image.path)]
        return Start(
            (*launch.command, "run", "--format", "json", *resume, "--dir", launch.workdir, *launch.args, *files),
            {
                "PATH": f"{launch.folder}/{RIPGREP}:{launch.path}",
                "MODEL_KEY": launch.endpoint.key if launch.endpoint else "",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            },
            stdin=launch.instruction,
        )

    def read_output(self, output: Output) -> AgentOutput:
        found = AgentOutput()
        for event in output.events():
            match event:
                case {"type": "text", "sessionID": str(session), "part": {"text": str(text)}}:
                    found = AgentOutput(text, session)
                case {"type": "error", "error": {"name": name, "data": {"message": message}}}:
                    found = AgentOutput(found.text, found.session, error=f"{name}: {message}")
                case {"type": "error", "error": error}:
                    found = AgentOutput(found.text, found.session, error=str(error))
                case {"sessionID": str(session)}:
                    found = AgentOutput(found.text, session, found.error)
        return found

    def _config(self, endpoint: ModelEndpoint) -> str:
        model = {
            "name": endpoint.model,
            "attachment": True,
            "modalities": {"input": ["text", "image"], "output": ["text"]},
            "limit": {"context": 200_000, "output": 32_000},
        }
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Local",
            "options": {"baseURL": f"{endpoint.url}/v1", "apiKey": "{env:MODEL_KEY}", "timeout": 3_600_000},
            "models": {endpoint.model: model},
        }
        allowed = {"*": "deny", **dict.fromkeys(self.allowed_tools or (), "allow")}
        config = {
            "model": f"local/{endpoint.model}",
            "small_model": f"local/{endpoint.model}",
            "autoupdate": False,
            "share": "disabled",
            "permission": "allow" if self.allowed_tools is None else allowed,
            "provider": {"local": provider},
        }
        return self.merge_settings(config)
