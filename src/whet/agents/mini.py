"""`mini-swe-agent`: one tool, one conversation. Only its trajectory file holds the answer."""

import json
import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from whet.agents.cli import CliAgent
from whet.agents.launch import AgentOutput, Launch, Output, Start, Traits
from whet.text.plain import read_json

TASK = ".mini/task.yaml"
RECORD = ".mini/trajectory.json"


class MiniSweAgent(CliAgent):
    """mini-swe-agent's `mini`."""

    kind: Literal["mini-swe-agent"] = "mini-swe-agent"
    traits: ClassVar[Traits] = Traits(
        dialect="chat",
        resumes=False,
        settings=(".config/mini-swe-agent",),
        transcripts=".mini",
        moved_by=(("MSWEA_GLOBAL_CONFIG_DIR", ".config/mini-swe-agent"), ("XDG_CONFIG_HOME", ".config")),
    )
    answer_file: ClassVar[str | None] = RECORD

    def config(self, launch: Launch) -> Mapping[str, str]:
        # As an argument, the task would be limited to 128 kB and visible in the process list.
        return {TASK: f"run:\n  task: {_yaml(launch.instruction)}\n"}

    def start(self, launch: Launch) -> Start:
        record = f"{launch.home}/{RECORD}"
        config = [
            part for name in ("mini.yaml", f"{launch.home}/{TASK}", "environment.timeout=600") for part in ("-c", name)
        ]
        argv = [*launch.command, "-y", "--exit-immediately", "--cost-limit", "0", *config, "-o", record]
        env = {
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        if launch.endpoint is not None:
            argv += ["-m", f"openai/{launch.endpoint.model}"]
            env |= {"OPENAI_API_BASE": f"{launch.endpoint.url}/v1", "OPENAI_API_KEY": launch.endpoint.key}
        return Start((*argv, *launch.args), env)

    def read_output(self, output: Output) -> AgentOutput:
        try:
            record = read_json(output.file or b"{}")
        except ValueError:
            return AgentOutput(error="its record is not JSON")
        info = record.get("info") if isinstance(record, dict) else None
        info = info if isinstance(info, dict) else {}
        status = info.get("exit_status")
        ended = status in {None, "Submitted", "LimitsExceeded"}
        return AgentOutput(str(info.get("submission") or "").strip(), error=None if ended else str(status))


def _yaml(text: str) -> str:
    """Write a text as a YAML scalar. Unlike JSON, YAML has no surrogates and allows few unescaped characters.

    >>> print(_yaml('a "fox": 🦊'))
    "a \\"fox\\": \\U0001f98a"
    """
    return re.sub(r"[^ -~]", lambda found: f"\\U{ord(found[0]):08x}", json.dumps(text, ensure_ascii=False))
