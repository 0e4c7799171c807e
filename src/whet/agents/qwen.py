"""`qwen`: Qwen Code. It reports errors of the model as if they were its answer."""

import json
from collections.abc import Mapping
from typing import ClassVar, Literal

from whet.agents.agent import openai_env
from whet.agents.cli import CliAgent
from whet.agents.launch import AgentOutput, Launch, Output, Start, Traits
from whet.agents.own_command import command_files, prompt_argument

SETTINGS = {
    "$version": 4,
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "memory": {"enableManagedAutoMemory": False},
    "model": {"generationConfig": {"maxRetries": 0, "timeout": 3_600_000, "modalities": {"image": True}}},
}
ALWAYS = ("tool_search", "agent", "task_stop", "send_message", "skill", "ask_user_question", "exit_plan_mode")
ERROR = "[API Error: "
EMPTY = "empty response text"
"""In the error that it prints when its model replied with nothing, several times."""


class Qwen(CliAgent):
    """Qwen Code without a terminal."""

    kind: Literal["qwen"] = "qwen"
    traits: ClassVar[Traits] = Traits(
        dialect="chat",
        skills=".agents/skills",
        memory=".qwen/QWEN.md",
        system=True,
        images=True,
        schema=True,
        subagents=True,
        chooses_tools=True,
        modes=("plan", "default", "auto-edit", "yolo"),
        takes_settings=True,
        settings=(".qwen/settings.json", ".qwen/oauth_creds.json", ".qwen/QWEN.md", ".agents/skills"),
        credentials=(".qwen/oauth_creds.json",),
        transcripts=".qwen/projects",
        moved_by=(("QWEN_RUNTIME_DIR", ".qwen"), ("QWEN_HOME", ".qwen")),
    )

    def config(self, launch: Launch) -> Mapping[str, str]:
        files = (
            {".qwen/settings.json": self.merge_settings(SETTINGS)} if launch.endpoint or self.home == "login" else {}
        )
        return files | command_files(launch, ".qwen/commands")

    def start(self, launch: Launch) -> Start:
        argv, env = [*launch.command, "--approval-mode", self.permission_mode or "yolo", "-o", "stream-json"], {}
        if self.allowed_tools is not None:
            argv += [f"--core-tools={tool}" for tool in self.allowed_tools]
            # It keeps these unless they are excluded by name.
            argv += [f"--exclude-tools={tool}" for tool in ALWAYS if tool not in self.allowed_tools]
        if launch.endpoint is not None:
            argv += ["--auth-type", "openai"]
            env = openai_env(launch.endpoint)
        elif self.home == "login":
            argv += ["--auth-type", "qwen-oauth"]
        argv += ["--resume", launch.resumed] if launch.resumed else ["--session-id", launch.session]
        if launch.system:
            # As one argument: a separate text that begins with a dash would be read as an option.
            argv += [f"--append-system-prompt={launch.system}"]
        if launch.schema is not None:
            argv += ["--json-schema", json.dumps(launch.schema)]
        return Start((*argv, *launch.args), env, prompt_argument(launch))

    def read_output(self, output: Output) -> AgentOutput:
        for event in reversed([*output.events()]):
            if event.get("type") == "result":
                text = str(event.get("result") or "")
                error = text.startswith(ERROR)
                if error and EMPTY in text:
                    return AgentOutput(session=event.get("session_id"))
                failed = bool(event.get("is_error")) or error
                return AgentOutput(
                    text="" if failed else text,
                    session=event.get("session_id"),
                    error=text or "an error" if failed else None,
                    answer=event.get("structured_result"),
                )
        return AgentOutput()
