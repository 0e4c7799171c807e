"""TRL trains a tiny random model for two steps on whet's rollouts, and its harness worker reads whet's traces."""

import functools
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset
from openenv.core.harness import TrainableSession
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer
from trl.experimental.async_grpo import async_rollout_worker
from trl.experimental.async_grpo.async_rollout_worker import _chain_to_sequences
from trl.experimental.async_grpo.openenv_harness import HarnessRolloutWorker, _turns_from_training_trace

from trainers_model import write_model
from trainers_world import SAMPLING, UNSCORED, find_rollout, read_rows, report, rows_by_tokens
from whet.adapters.rollouts import PLACEHOLDERS, Server
from whet.adapters.trl import RolloutFunction, SessionFactory, reward, task_prompt
from whet.client import Client
from whet.client.models import Outcome, Status


class Watched(GRPOTrainer):
    """Keeps what each step trains on."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.batches: list[dict[str, Any]] = []
        self.ids: list[list[str]] = []

    def _calculate_rewards(self, inputs: Any, *given: Any) -> Any:
        self.ids.append([one["whet_rollout"] for one in inputs])
        return super()._calculate_rewards(inputs, *given)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        self.batches.append(output)
        return output


def make_trainer(work: Path, server: Server, tasks: list[Any], **options: Any) -> Watched:
    model = AutoModelForCausalLM.from_pretrained(work / "model")
    tokenizer = AutoTokenizer.from_pretrained(work / "model")
    config = GRPOConfig(
        output_dir=str(work / "out"),
        use_cpu=True,
        bf16=False,
        num_generations=4,
        temperature=1.0,
        learning_rate=1e-2,
        report_to="none",
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        shuffle_dataset=False,
        **options,
    )
    data = Dataset.from_list([{"prompt": task_prompt(task)} for task in tasks])
    function = RolloutFunction(server, policy="policy")
    return Watched(model, reward, args=config, train_dataset=data, processing_class=tokenizer, rollout_func=function)


def check_training(url: str, work: Path) -> None:
    trainer = make_trainer(work, Server(url), ["draw", "draw"], per_device_train_batch_size=4, max_steps=2)
    before = {name: one.clone() for name, one in trainer.model.state_dict().items()}
    trainer.train()
    change = max((before[name] - one).abs().max().item() for name, one in trainer.model.state_dict().items())
    assert change > 1e-4, f"two steps changed the weights by {change}"
    assert len(trainer.batches) == len(trainer.ids) == 2
    for step, (batch, ids) in enumerate(zip(trainer.batches, trainer.ids, strict=True)):
        for place, rollout in enumerate(ids):
            check_entry(batch, place, read_rows(url, rollout), step)
    report(
        f"2 optimizer steps: ids, masks and versions of 8 rollouts are those of the rows; weights moved by {change:.4f}"
    )


def check_entry(batch: dict[str, Any], place: int, rows: list[dict[str, Any]], step: int) -> None:
    (row,) = rows
    prompt = batch["prompt_ids"][place][batch["prompt_mask"][place].bool()].tolist()
    kept = batch["completion_mask"][place].bool()
    assert prompt + batch["completion_ids"][place][kept].tolist() == row["tokens"]
    assert batch["tool_mask"][place][kept].tolist() == row["loss_mask"][row["prompt_len"] :]
    assert {span["weight_version"] for span in row["spans"] if span["trained"]} == {str(step)}


def check_missing(url: str, work: Path) -> None:
    """A group without rewards has no advantages, and does not disturb the other."""
    for task in ("fail", UNSCORED):
        trainer = make_trainer(work, Server(url), ["draw", task], per_device_train_batch_size=8, max_steps=1)
        trainer.train()
        (batch,), (log, *_) = trainer.batches, trainer.state.log_history
        assert (batch["advantages"] != 0).tolist() == [True] * 4 + [False] * 4
        assert (batch["tool_mask"] * batch["completion_mask"]).any(1).tolist() == [True] * 4 + [False] * 4
        assert (log["whet/rollouts_without_reward"], log[PLACEHOLDERS]) == (4, 4)
        assert torch.isfinite(torch.tensor(log["loss"]))
    report("failed and unscored rollouts: reward None, advantage 0, counted")
    trainer = make_trainer(work, Server(url, max_tokens=20), ["draw"], per_device_train_batch_size=4, max_steps=1)
    trainer.train()
    (batch,), (log, *_) = trainer.batches, trainer.state.log_history
    assert not (batch["tool_mask"] * batch["completion_mask"]).any()
    assert (batch["advantages"] != 0).all()
    assert (log[PLACEHOLDERS], log["whet/rollouts_without_reward"]) == (4, 0)
    report("prompts that are too long: rewards stay in the baseline, nothing is trained, placeholders are counted")


def check_worker(url: str, work: Path) -> None:
    """The worker of AsyncGRPOTrainer, in a process of its own, as the trainer starts it."""
    PartialState()
    async_rollout_worker.is_vllm_available = lambda: True  # it would only be called to sample, which whet does here
    tokenizer = AutoTokenizer.from_pretrained(work / "model")
    tokenizer.response_template = {}  # how to parse replies, which the worker does not do here
    worker = HarnessRolloutWorker(
        harness_session_factory=functools.partial(SessionFactory, Server(url)),
        model_name="policy",
        dataset=Dataset.from_list([{"prompt": task_prompt(task)} for task in ("fail", "draw")]),
        reward_funcs=[],
        processing_class=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        num_generations=3,
        max_inflight_tasks=6,
    )
    worker.update_model_version(1)
    worker.start()
    try:
        samples = [worker.rollout_buffer.get(timeout=120) for _ in range(3)]
        worker.check_health(60)
    finally:
        worker.stop()
    assert len({sample.group_id for sample in samples}) == 1
    rows = rows_by_tokens(url)
    for sample in samples:
        row = rows[tuple(sample.input_ids.tolist())]
        assert row["task_id"] == "draw"
        assert sample.completion_mask.tolist() == row["loss_mask"]
        assert np.allclose(sample.old_log_probs, row["logprobs"])
    report("the worker of the asynchronous trainer: 3 samples equal the rows; the group that failed gives none")


def check_sessions(url: str) -> None:
    """As TRL's HarnessRolloutWorker drives a session, with its own functions."""
    factory = SessionFactory(Server(url), sampling=SAMPLING)
    session = factory.create(task_prompt("draw"), seed=3, episode_id="episode")
    assert isinstance(session, TrainableSession)
    assert session.wait_for_completion() == 0
    turns = _turns_from_training_trace(session.fetch_training_trace())
    verified = session.verify([])
    (row,) = read_rows(url, verified.metrics["rollout"])
    sequences, tally = _chain_to_sequences(turns, "episode", 0)
    (sequence,) = sequences
    assert (len(turns), verified.env_reward) == (2, row["reward"])
    assert (sequence.input_ids, sequence.completion_mask) == (row["tokens"], row["loss_mask"]), (sequence, tally)
    session.close()
    failed = factory.create(task_prompt("fail"))
    failed.wait_for_completion()
    assert failed.fetch_training_trace().turns == []
    assert failed.verify([]).env_reward is None
    failed.close()
    report("sessions: TRL builds the row of the trace; a failed one has no turns and the reward None")
    waiting = factory.create(task_prompt("wait"))
    thread = threading.Thread(target=waiting.wait_for_completion, daemon=True)
    thread.start()
    while (found := find_rollout(url, "wait", Status.RUNNING)) is None:
        time.sleep(0.05)
    waiting.close()
    with Client(url) as client:
        assert client.wait(found.id, 20).outcome is Outcome.CANCELLED
    report("a closed session is cancelled at the server")


if __name__ == "__main__":
    URL, WORK = sys.argv[1], Path(sys.argv[2])
    write_model(WORK / "model")
    check_training(URL, WORK)
    check_missing(URL, WORK)
    check_sessions(URL)
    check_worker(URL, WORK)
