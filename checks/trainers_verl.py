"""verl's workers run the agent loop: the batch worker in this process, and the TransferQueue worker as a Ray actor."""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray
import transfer_queue as tq
import verl
from hydra import compose, initialize_config_dir
from tensordict import NonTensorData
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from trainers_model import write_model
from trainers_world import UNSCORED, check_cancel, read_rows, report
from whet.adapters.rollouts import PLACEHOLDERS, NoReward

PROMPT, RESPONSE = 4000, 2000


def write_config(url: str, work: Path) -> Callable[..., Any]:
    """Write the file that names the agent loop. Returns a function that composes verl's whole configuration."""
    loop = {"name": "whet", "_target_": "whet.adapters.verl.WhetAgentLoop", "url": url, "request": {"agent": "loop"}}
    (work / "loops.yaml").write_text(json.dumps([loop]))
    write_model(work / "model")
    folder = Path(verl.__file__).parent / "trainer/config"

    def configure(prompt: int = PROMPT, n: int = 1) -> Any:
        rollout = {
            "name": "vllm",
            "prompt_length": prompt,
            "response_length": RESPONSE,
            "n": n,
            "calculate_log_probs": "true",
            "agent.agent_loop_config_path": work / "loops.yaml",
        }
        given = [f"actor_rollout_ref.rollout.{name}={value}" for name, value in rollout.items()]
        with initialize_config_dir(str(folder), version_base=None):
            return compose("ppo_trainer", [f"actor_rollout_ref.model.path={work / 'model'}", *given])

    return configure


def samples(tasks: tuple[Any, ...]) -> list[dict[str, Any]]:
    prompt = [{"role": "user", "content": "as the server has it"}]
    return [
        {"raw_prompt": prompt, "agent_name": "whet", "whet": task, "uid": f"group-{number}", "index": number}
        for number, task in enumerate(tasks)
    ]


def batch(*tasks: Any) -> Any:
    columns: dict[str, Any] = {}
    for name in ("raw_prompt", "agent_name", "whet", "uid", "index"):
        columns[name] = np.empty(len(tasks), dtype=object)
        for place, sample in enumerate(samples(tasks)):
            columns[name][place] = sample[name]
    return DataProto(non_tensor_batch=columns, meta_info={"global_steps": 7})


def check_batch_worker(url: str, configure: Callable[..., Any]) -> None:
    worker = AgentLoopWorker(configure(), None)
    output = asyncio.run(worker.generate_sequences(batch("draw", "draw", "pass")))
    for place, rollout in enumerate(output.non_tensor_batch["whet_rollout"]):
        (row,) = read_rows(url, rollout)
        entry = {name: value[place].tolist() for name, value in output.batch.items()}
        ends = PROMPT - row["prompt_len"], PROMPT + len(row["tokens"]) - row["prompt_len"]
        kept = slice(0, len(row["tokens"]) - row["prompt_len"])
        assert entry["input_ids"][slice(*ends)] == row["tokens"]
        assert entry["response_mask"][kept] == row["loss_mask"][row["prompt_len"] :]
        assert np.allclose(entry["rollout_log_probs"][kept], row["logprobs"][row["prompt_len"] :])
        assert np.isclose(sum(entry["rm_scores"]), row["reward"])
        assert np.isclose(entry["rm_scores"][kept][-1], row["reward"])
    report("3 rollouts: ids, masks, log-probabilities and rewards of the batch are those of the rows")
    for task in ("fail", UNSCORED):
        try:
            asyncio.run(worker.generate_sequences(batch("pass", task)))
        except NoReward as error:
            report(f"a rollout without a reward fails the batch: {error}")
        else:
            raise AssertionError("a rollout without a reward was trained")
    short = AgentLoopWorker(configure(prompt=16), None)
    output = asyncio.run(short.generate_sequences(batch("pass")))
    assert output.batch["response_mask"].sum() == 0
    assert output.batch["rm_scores"].sum() == 1
    assert output.non_tensor_batch[PLACEHOLDERS].tolist() == [1]
    report("a prompt that is too long: the reward stays, nothing is trained, the placeholder is counted")
    asyncio.run(check_cancel(url, worker.generate_sequences(batch("wait"))))
    report("a cancelled batch is cancelled at the server")


def check_queue_worker(url: str, configure: Callable[..., Any]) -> None:
    """Two sessions for each of two prompts. Those of 'fail' leave no rows, and do not fail their group."""
    # TransferQueue starts actors of its own, and each reserves a processor. They do not need one.
    environment = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
    ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    try:
        tq.init()
        given = [{**sample, "global_steps": 7} for sample in samples(("draw", "fail"))]
        prompts = list_of_dict_to_tensordict(given)
        prompts["validate"] = NonTensorData(False)
        worker = AgentLoopWorkerTQ.remote(configure(n=2), None)
        ray.get(worker.generate_sequences.remote(prompts))
        tags = wait_for_groups(2)
        keys = sorted(key for key, tag in tags.items() if tag["status"] == "success")
        assert keys == ["group-0_0_0", "group-0_1_0"], tags
        found = tq.kv_batch_get(keys, "train")
        for place, about in enumerate(found["extra_fields"]):
            (row,) = read_rows(url, about["whet_rollout"])
            assert found["input_ids"][place].tolist() == row["tokens"]
            assert found["response_mask"][place].tolist() == row["loss_mask"][row["prompt_len"] :]
            assert np.allclose(found["rollout_log_probs"][place].tolist(), row["logprobs"][row["prompt_len"] :])
            assert np.isclose(found["rm_scores"][place].sum().item(), row["reward"])
    finally:
        ray.shutdown()
    report("TransferQueue: the rows of 2 sessions are stored, 2 failed sessions leave none, no group fails")


def wait_for_groups(number: int) -> dict[str, Any]:
    """The tags in the queue when all groups are settled."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        tags: dict[str, Any] = tq.kv_list("train").get("train", {})
        settled = [tag.get("status") for key, tag in tags.items() if key.count("_") == 0]
        if len(settled) == number and set(settled) <= {"finished", "failure"}:
            assert set(settled) == {"finished"}, tags
            return tags
        time.sleep(0.2)
    raise AssertionError("the groups are not settled after 60 seconds")


if __name__ == "__main__":
    os.environ["RAY_AUTH_MODE"] = "disabled"
    CONFIGURE = write_config(sys.argv[1], Path(sys.argv[2]))
    check_batch_worker(sys.argv[1], CONFIGURE)
    check_queue_worker(sys.argv[1], CONFIGURE)
