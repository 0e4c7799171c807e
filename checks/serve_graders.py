"""OpenEnv's own judges of a server: the runtime graders, as far as they run without Docker, and its TrainingTrace.

python serve_graders.py URL MODEL_URL KEY
"""

import json
import sys
import urllib.request
from types import SimpleNamespace
from typing import Any

from openenv.core.harness.training import TrainingTrace
from openenv.validation.graders.runtime import ObservationSchemaGrader, RewardWellFormedGrader, StateContractGrader
from openenv.validation.runtime.collector import collect_runtime_evidence
from openenv.validation.runtime.contracts import RuntimePlan

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


def main(url: str, model_url: str, key: str) -> int:
    endpoint = {"base_url": model_url, "api_key": key, "model": "scripted", "agent": "loop"}
    arguments: dict[str, Any] = {
        **endpoint,
        "instruction": "Write right.",
        "verify": ["grep -qx right answer.txt", "test -e missing || true"],
        "sampling_params": SAMPLING,
    }
    for name, wrong in (*grade(url, arguments), ("training_trace", check_trace(url, arguments))):
        print(json.dumps({"check": name, "wrong": wrong}), flush=True)
    return 0


def grade(url: str, arguments: dict[str, Any]) -> list[tuple[str, str]]:
    """What each grader finds in an episode of two rollouts."""
    action = {"type": "call_tool", "tool_name": "run_rollout", "arguments": arguments}
    plan = RuntimePlan(
        plan_schema_version="1",
        reset={"episode_id": "graded", "seed": 7, "options": {}},
        actions=[action, {**action, "arguments": {**arguments, "verify": ["false"]}}],
    )
    evidence = collect_runtime_evidence(url, plan, episode_timeout_s=120)
    if evidence.failure_reason:
        return [("runtime", evidence.failure_reason)]
    subject = SimpleNamespace(
        runtime_evidence=evidence, manifest=SimpleNamespace(reward=SimpleNamespace(range=(0.0, 1.0)))
    )
    graders = (RewardWellFormedGrader(), ObservationSchemaGrader(), StateContractGrader())
    found = [(grader.check_id, grader.run(subject)) for grader in graders]
    return [(name, "" if result.status.value == "pass" else str(result.evidence)) for name, result in found]


def check_trace(url: str, arguments: dict[str, Any]) -> str:
    """What is wrong with the training trace of a rollout."""
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "run_rollout", "arguments": arguments},
    }
    body = json.dumps(request).encode()
    asked = urllib.request.Request(f"{url}/mcp", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=120) as reply:
        result = json.loads(json.load(reply)["result"]["data"])
    try:
        trace = TrainingTrace.model_validate(result["training_trace"])
    except ValueError as error:
        return str(error)
    turns = [turn for turn in result["proxy_turns"] if turn["trainable"]]
    if [turn.node_id for turn in trace.turns] != [turn["node_id"] for turn in turns] or not turns:
        return f"{len(trace.turns)} turns are traced, {len(turns)} are trainable"
    return ""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
