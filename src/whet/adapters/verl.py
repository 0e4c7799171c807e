"""verl 0.9: an agent loop whose rollouts whet runs. Its place is the file of `agent.agent_loop_config_path`:

    - {name: whet, _target_: whet.adapters.verl.WhetAgentLoop, url: "http://127.0.0.1:8000", request: {agent: opencode}}

The data set has the columns `agent_name` (whet) and `whet`: the id of a served task, or fields of a request.
"""

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from whet.adapters.groups import run_group
from whet.adapters.rollouts import PLACEHOLDERS, Finished, NoReward, Server, check_temperature, make_key
from whet.adapters.rows import Row, find_main_row
from whet.installers import require_extra

require_extra("verl", "verl", "agent loops of verl")

from omegaconf import OmegaConf  # noqa: E402
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput  # noqa: E402

log = logging.getLogger(__name__)


class WhetAgentLoop(AgentLoopBase):
    """One rollout of whet per session of verl.

    With verl's TransferQueue worker a rollout gives any number of rows, and one without a reward gives none. The older
    worker takes exactly one row and needs a reward: there a rollout without one raises `NoReward`, and the batch fails.
    """

    def __init__(
        self,
        url: str,
        request: Mapping[str, Any] | None = None,
        column: str = "whet",
        **given: Any,
    ) -> None:
        # AgentLoopBase builds a tokenizer of its own in __init__, which fails for model families that it does not know.
        # whet's rows have their tokens already.
        self.rollout_config = given["trainer_config"].config.actor_rollout_ref.rollout
        self.column = column
        limit = self.rollout_config.prompt_length + self.rollout_config.response_length
        fields = OmegaConf.to_container(request, resolve=True) if OmegaConf.is_config(request) else request
        self.server = Server(url, os.environ.get("WHET_TOKEN"), fields or {}, limit)

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> Any:
        """The rows of a rollout: a list for the TransferQueue worker, which passes `session_id`, else one output."""
        several, began = "session_id" in columns, time.monotonic()
        request = self.server.make_request(_plain(columns.get(self.column)), 1, sampling_params)
        key = make_key(columns["uid"], columns["session_id"]) if several else None
        async with self.server.open() as client:
            (rollout,) = await run_group(client, request, key, self.server.max_tokens)
        if sampling_params.get("temperature") == self.rollout_config.temperature:  # validation has its own
            check_temperature([rollout], self.rollout_config.temperature)
        seconds = time.monotonic() - began
        if rollout.reward is None and not several:
            raise NoReward(rollout.why_missing())
        if rollout.reward is None:
            log.warning("no rows for verl: %s", rollout.why_missing())
            return []
        limits = self.rollout_config.prompt_length, self.rollout_config.response_length
        rows = [fitting for row in rollout.rows if (fitting := row.fit(*limits)) is not None]
        if several:
            return [_output(rollout, row, seconds) for row in rows] or [_output(rollout, None, seconds)]
        return _output(rollout, find_main_row(rows), seconds)


def _output(rollout: Finished, row: Row | None, seconds: float) -> Any:
    """A row as verl takes it. A rollout without a row gets a placeholder that is not trained, which keeps its reward in
    the baseline of the group."""
    if row is None:
        log.warning("placeholder for verl: %s", rollout.why_missing())
    steps = [int(version) for version in rollout.versions if version.isdecimal()]
    return AgentLoopOutput(
        prompt_ids=row.tokens[: row.prompt_len] if row else [0],
        response_ids=row.tokens[row.prompt_len :] if row else [0],
        response_mask=row.loss_mask[row.prompt_len :] if row else [0],
        response_logprobs=row.logprobs[row.prompt_len :] if row else [0.0],
        reward_score=rollout.reward,
        num_turns=len(row.replies) if row else 0,
        metrics=AgentLoopMetrics(generate_sequences=seconds),
        extra_fields={
            "reward_extra_info": {PLACEHOLDERS: int(row is None)},
            "min_global_steps": min(steps, default=None),
            "max_global_steps": max(steps, default=None),
            "whet_rollout": rollout.id,
            "whet_versions": list(rollout.versions),
        },
    )


def _plain(value: Any) -> Any:
    """A value of a data set, which may hold arrays, as plain Python."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value
