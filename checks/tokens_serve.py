"""`make check-tokens`, its second part: OpenEnv's example against `whet serve` and the real engine.

The real OpenCode works in a box, vLLM samples, and the client gets every turn with its token ids and
log-probabilities. The engine itself says which ids each request has, and transformers what they are worth.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tokens_checks import TOLERANCE
from tokens_engine import MODEL, Engine, tokenize
from whet.client.openenv import OpenCodeEnv, RolloutResult, RolloutTurn

START_SEC = 60.0
INSTRUCTION = "What is a river? Answer in one short sentence."
SETUP = ["echo 'sorted lists' > notes.txt"]
VERIFY = [
    "test -f /home/user/workdir/notes.txt",
    "test -f /home/user/task/instruction.md",
    "echo 0.75 > /home/user/logs/verifier/reward.txt",
]
WHOLE = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "seed": 1}


def main(home: Path) -> int:
    engine, work = Engine(home), home / "last-served"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    with engine.serving(work / "engine.log") as address, serve(work) as url, OpenCodeEnv(base_url=url) as env:
        env.reset()
        result = env.run_rollout(
            base_url=f"{address}/v1",
            api_key="none",
            model=MODEL,
            capture="vllm",
            sampling_params=WHOLE,
            max_tokens_cap=1500,
            instruction=INSTRUCTION,
            setup=SETUP,
            verify=VERIFY,
            agent_timeout_s=900,
        )
        complaints = [*look(result), *(line for turn in result.proxy_turns for line in compare(turn, address))]
    complaints += re_score(engine, result)
    show(result)
    Console().print("\n".join(complaints) or "every turn has its ids and log-probabilities, and they are the engine's")
    return 1 if complaints else 0


@contextmanager
def serve(work: Path) -> Iterator[str]:
    """`whet serve` for clients that bring their own model on this machine."""
    argv = [sys.executable, "-m", "whet", "serve", "--agent", "opencode", "--allow", "127.0.0.1:*"]
    argv += ["--port", "0", "--json", "--out", "served", "--drain-sec", "0"]
    log = work / "server.log"
    with log.open("w") as output:
        server = subprocess.Popen(argv, cwd=work, stdout=output, stderr=subprocess.STDOUT, env=dict(os.environ))
    try:
        deadline = time.monotonic() + START_SEC
        while "\n" not in (text := log.read_text()):
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server did not start; see {log}")
            time.sleep(0.1)
        yield str(json.loads(text.splitlines()[0])["url"])
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def look(result: RolloutResult) -> Iterator[str]:
    """What is wrong with a result as a trainer sees it."""
    if result.error:
        yield f"the rollout failed: {result.error}"
    if result.reward != 0.75 or result.reward_source != "verifier":
        yield f"the reward is {result.reward} from {result.reward_source}; the verify commands wrote 0.75"
    if not any(turn.role == "agent" for turn in result.proxy_turns):
        yield "no turn is the agent's"
    if result.capture_level != "tokens" or not result.training_trace:
        yield f"captured: {result.capture_level}; a training trace: {bool(result.training_trace)}"
    for turn in result.proxy_turns:
        sampled = len(turn.completion_token_ids)
        if not sampled or sampled != len(turn.per_token_logps) or not turn.prompt_token_ids:
            yield f"turn {turn.turn}: {sampled} ids, {len(turn.per_token_logps)} log-probabilities"
        if any(value > 0 for value in turn.per_token_logps):
            yield f"turn {turn.turn}: a log-probability is above 0"


def compare(turn: RolloutTurn, address: str) -> Iterator[str]:
    """Whether the engine makes the same ids of the request that the result tells."""
    told = tokenize(address, {"messages": turn.request_messages, "tools": turn.request_tools or None})
    if told != turn.prompt_token_ids:
        yield f"turn {turn.turn}: the engine makes other ids of its request: {len(told)}, {len(turn.prompt_token_ids)}"


def re_score(engine: Engine, result: RolloutResult) -> Iterator[str]:
    """Whether transformers gives the sampled ids the same log-probabilities."""
    asked: list[dict[str, Any]] = []
    for turn in result.proxy_turns:
        first, whole = len(turn.prompt_token_ids), [*turn.prompt_token_ids, *turn.completion_token_ids]
        chat = {"messages": turn.request_messages, "tools": turn.request_tools}
        positions = list(range(first, len(whole)))
        asked.append({"tokens": whole, "positions": positions, "spans": [(first, len(whole))], "chat": chat})
    for turn, oracle in zip(result.proxy_turns, engine.ask_oracle(asked), strict=True):
        pairs = zip(turn.per_token_logps, oracle["logprobs"], strict=True)
        most = max(abs(one - other) for one, other in pairs)
        if most > TOLERANCE:
            yield f"turn {turn.turn}: its log-probabilities differ by up to {most:.2g}; expected {TOLERANCE:g}"


def show(result: RolloutResult) -> None:
    table = Table("turn", "role", "prompt ids", "sampled ids", "log-probabilities", "finish", box=None)
    for turn in result.proxy_turns:
        counts = (len(turn.prompt_token_ids), len(turn.completion_token_ids), len(turn.per_token_logps))
        table.add_row(str(turn.turn), turn.role, *map(str, counts), turn.finish_reason)
    console = Console(width=120)
    console.print(table)
    console.print(f"reward {result.reward} ({result.reward_source}), {result.n_trainable_tokens} trainable tokens")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
