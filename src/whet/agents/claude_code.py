"""`claude-code`: Anthropic's Claude Code. It is configured by environment variables only."""

import base64
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from whet.agents.agent import ModelEndpoint
from whet.agents.cli import CliAgent
from whet.agents.launch import AgentOutput, Launch, Output, Start, Traits

MODELS = ("MODEL", "SMALL_FAST_MODEL", *(f"DEFAULT_{tier}_MODEL" for tier in ("OPUS", "SONNET", "HAIKU", "FABLE")))
QUIET = {
    "IS_SANDBOX": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_MAX_RETRIES": "1",
    "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
}
SETTINGS = ".claude/given-settings.json"
ENDING = "This is the whole task."


class ClaudeCode(CliAgent):
    """Claude Code's print mode."""

    kind: Literal["claude-code"] = "claude-code"
    traits: ClassVar[Traits] = Traits(
        dialect="messages",
        skills=".claude/skills",
        memory=".claude/CLAUDE.md",
        system=True,
        images=True,
        schema=True,
        subagents=True,
        chooses_tools=True,
        modes=("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan"),
        takes_settings=True,
        settings=(
            ".claude.json",
            ".claude/settings.json",
            ".claude/.credentials.json",
            ".claude/skills",
            ".claude/CLAUDE.md",
        ),
        credentials=(".claude/.credentials.json",),
        login_url="https://api.anthropic.com",
        toolless=("--tools", ""),
        transcripts=".claude/projects",
        moved_by=(("CLAUDE_CONFIG_DIR", ".claude"),),
    )

    def config(self, launch: Launch) -> Mapping[str, str]:  # noqa: ARG002 - an empty home will do
        return {} if self.settings is None else {SETTINGS: self.merge_settings({})}

    def start(self, launch: Launch) -> Start:
        argv = [*launch.command, "-p", "--output-format", "stream-json", "--verbose", *self._options(launch)]
        argv += ["--resume", launch.resumed] if launch.resumed else ["--session-id", launch.session]
        if launch.system:
            argv += ["--append-system-prompt", launch.system]
        if launch.schema is not None:
            argv += ["--json-schema", json.dumps(launch.schema)]
        as_message = launch.images or _would_be_interpreted(launch.instruction)
        if as_message:
            # It ignores messages from a file and exits with 0; it reads them from a pipe.
            argv = ["sh", "-c", 'cat | "$@"', "sh", *argv, "--input-format", "stream-json"]
        argv += launch.args
        return Start(
            tuple(argv),
            QUIET if launch.endpoint is None else QUIET | self._variables(launch.endpoint),
            stdin=_message(launch) if as_message else launch.instruction,
        )

    def _options(self, launch: Launch) -> list[str]:
        mode = self.permission_mode
        options = ["--permission-mode", mode] if mode else ["--dangerously-skip-permissions"]
        if self.allowed_tools is not None:
            options += ["--tools", ",".join(self.allowed_tools)]
        if self.settings is not None:
            options += ["--settings", f"{launch.home}/{SETTINGS}"]
        return options

    def _variables(self, endpoint: ModelEndpoint) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.model_url(endpoint),
            **({"ANTHROPIC_API_KEY": endpoint.key} if self.home != "login" else {}),
            "CLAUDE_CODE_SUBAGENT_MODEL": endpoint.model,
            **{f"ANTHROPIC_{name}": endpoint.model for name in MODELS},
        }

    def read_output(self, output: Output) -> AgentOutput:
        events = [*output.events()]
        for event in reversed(events):
            if event.get("type") == "result":
                text = str(event.get("result") or "")
                failed = bool(event.get("is_error"))
                return AgentOutput(
                    text="" if failed else text,
                    session=event.get("session_id"),
                    error=(text or "; ".join(map(str, event.get("errors", ()))) or "an error") if failed else None,
                    answer=event.get("structured_output") or (_last_structured(events) if failed else None),
                )
        return AgentOutput(answer=_last_structured(events))


def _last_structured(events: list[dict[str, Any]]) -> Any:
    """The last structured answer among the tool calls: if the program ends with an error, its result has none."""
    for event in reversed(events):
        match event:
            case {"type": "assistant", "message": {"content": [*parts]}}:
                for part in parts:
                    match part:
                        case {"type": "tool_use", "name": "StructuredOutput", "input": answer}:
                            return answer
    return None


def _would_be_interpreted(instruction: str) -> bool:
    """Whether the program would interpret part of an instruction as a file name or a command."""
    return "@" in instruction or instruction.lstrip().startswith("/")


def _message(launch: Launch) -> str:
    """The instruction and its images as one line of the program's JSON input. It interprets only what comes last, and
    only if that is text."""
    content: list[dict[str, Any]] = [{"type": "text", "text": launch.instruction}]
    if not launch.images:
        content.append({"type": "text", "text": ENDING})
    for image in launch.images:
        data = base64.b64encode(image.data).decode()
        source = {"type": "base64", "media_type": image.media_type, "data": data}
        content.append({"type": "image", "source": source})
    return json.dumps({"type": "user", "message": {"role": "user", "content": content}}) + "\n"
