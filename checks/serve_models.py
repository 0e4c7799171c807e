"""What a client of OpenEnv's `opencode_env` has: its models and `run_rollout`, on the released MCPToolClient.

The package `opencode_env` is not on the registry, so this is written from the description of the wire. It runs in the
environments of checks/openenv-*.txt, which do not have whet.
"""

import json
from typing import Any

from openenv.core.mcp_client import MCPToolClient
from pydantic import BaseModel, Field


class RolloutTurn(BaseModel):
    turn: int
    finish_reason: str | None = None
    completion_tokens: list[str] = Field(default_factory=list)
    completion_token_ids: list[int] = Field(default_factory=list)
    per_token_logps: list[float] = Field(default_factory=list)
    latency_s: float = 0.0
    timestamp: float = 0.0
    upstream_status: int | None = None
    upstream_error: dict[str, Any] | None = None


class CommandResult(BaseModel):
    cmd: str
    exit_code: int
    stdout: str = ""
    stderr: str = ""
    duration_s: float = 0.0


class RolloutResult(BaseModel):
    task_id: str = ""
    sandbox_id: str = ""
    reward: float | None = None
    agent_exit_code: int | None = None
    wall_s: float = 0.0
    mode: str = "transparent_proxy"
    setup_results: list[CommandResult] = Field(default_factory=list)
    verify_results: list[CommandResult] = Field(default_factory=list)
    proxy_turns: list[RolloutTurn] = Field(default_factory=list)
    files: dict[str, str] = Field(default_factory=dict)
    files_extra: list[str] = Field(default_factory=list)
    agent_log_tail: str = ""
    proxy_log_tail: str = ""
    error: str | None = None


FOURTEEN: dict[str, Any] = {
    "endpoint": "",
    "base_url": "",
    "api_key": "",
    "model": "",
    "instruction": "",
    "setup": [],
    "verify": [],
    "task_id": "",
    "mode": "transparent_proxy",
    "disable_thinking": None,
    "max_tokens_cap": 4096,
    "top_logprobs": 5,
    "agent_timeout_s": 600.0,
    "template": "",
}
"""All arguments, as `run_rollout` sends them."""


class OpenCodeEnv(MCPToolClient):  # type: ignore[misc] # the package has no types here
    """The client, with the long time limit that it has."""

    def __init__(self, base_url: str, message_timeout_s: float = 1800.0, **settings: Any) -> None:
        super().__init__(base_url, message_timeout_s=message_timeout_s, **settings)

    def run_rollout(self, **arguments: Any) -> RolloutResult:
        """Only where `call_tool` is no coroutine: core 0.2.1."""
        return read(self.call_tool("run_rollout", **{**FOURTEEN, **arguments}))


def read(raw: Any) -> RolloutResult:
    """The result in what a client got: text, or an object that holds it."""
    return RolloutResult.model_validate_json(text_of(raw))


def text_of(raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    if isinstance(raw, dict) and raw.get("content"):
        return str(raw["content"][0]["text"])
    return json.dumps(raw, default=str)
