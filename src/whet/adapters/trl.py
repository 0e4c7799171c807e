"""TRL 1.16: rollouts of whet for GRPOTrainer (`rollout_func`) and, over OpenEnv's sessions, for AsyncGRPOTrainer.

from whet.adapters.trl import RolloutFunction, reward, task_prompt
data = Dataset.from_list([{"prompt": task_prompt("fix-1")}, ...])
GRPOTrainer(model, reward, rollout_func=RolloutFunction(Server("http://127.0.0.1:8000")), train_dataset=data)
"""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from whet.adapters.groups import run_groups
from whet.adapters.rollouts import PLACEHOLDERS, Finished, Server, check_temperature, make_key
from whet.client import Client
from whet.client.models import RolloutView, Status
from whet.errors import UserError
from whet.event_loop import run_coroutine
from whet.ids import new_name

log = logging.getLogger(__name__)


def task_prompt(task: str | Mapping[str, Any]) -> list[dict[str, str]]:
    """The prompt of a data set that names a task: TRL passes nothing else to a rollout function."""
    fields = {"task": task} if isinstance(task, str) else dict(task)
    return [{"role": "user", "content": json.dumps(fields, sort_keys=True)}]


def read_prompt(prompt: Any) -> str:
    """The task that `task_prompt` wrote."""
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        raise UserError(f"prompt {str(prompt)[:100]!r} names no task; expected what `task_prompt` returns")
    return text


def reward(whet_reward: list[float | None], whet_placeholder: list[int], **given: Any) -> list[float | None]:
    """The reward function that goes with `RolloutFunction`. None leaves a rollout out of the baseline."""
    if log_metric := given.get("log_metric"):
        log_metric(PLACEHOLDERS, float(sum(whet_placeholder)))
        log_metric("whet/rollouts_without_reward", float(sum(one is None for one in whet_reward)))
    return whet_reward


class RolloutFunction:
    """A `rollout_func`: one row per prompt, the longest row of the rollout's main thread.

    A rollout without a row gets a placeholder that is not trained. Its reward stays in the baseline if it has one;
    otherwise it is None.
    """

    def __init__(self, server: Server, *, policy: str | None = None, run: str = "") -> None:
        self.server = server
        self.policy = policy
        """The model at the server whose weight version is set to TRL's step before rollouts (scope admin)."""
        self.run = run or new_name()
        """The name of the training run. A run that continues under its name gets recorded rollouts again."""
        self._last = ("", -1, 0)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """The rows of these prompts. Equal prompts are the samples of one group."""
        if trainer.args.mask_truncated_completions:
            raise UserError("`mask_truncated_completions` skips every row that does not end with EOS; expected False")
        mode, step = "train" if trainer.model.training else "eval", trainer.state.global_step
        tasks = [read_prompt(prompt) for prompt in prompts]
        again = self._last[2] + 1 if self._last[:2] == (mode, step) else 0
        self._last = mode, step, again
        name = make_key(self.run, mode, step, trainer.accelerator.process_index, again)
        if self.policy is not None and trainer.accelerator.is_main_process:
            with Client(self.server.url, self.server.token) as client:
                client.update_model(self.policy, weight_version=str(step))
        trainer.accelerator.wait_for_everyone()
        sampling = {"temperature": trainer.args.temperature, "top_p": trainer.args.top_p}
        rollouts = run_coroutine(self._collect(tasks, name, sampling))
        check_temperature(rollouts, trainer.args.temperature)
        return _columns(rollouts)

    async def _collect(self, tasks: Sequence[str], name: str, sampling: Mapping[str, Any]) -> list[Finished]:
        samples = Counter(tasks)
        requests = [
            (self.server.make_request(task, times, sampling), make_key(name, number))
            for number, (task, times) in enumerate(samples.items())
        ]
        async with self.server.open() as client:
            found = await run_groups(client, requests, self.server.max_tokens)
        waiting = {task: iter(group) for task, group in zip(samples, found, strict=True)}
        return [next(waiting[task]) for task in tasks]


def _columns(rollouts: Sequence[Finished]) -> dict[str, list[Any]]:
    rows = [rollout.main_row for rollout in rollouts]
    for rollout, row in zip(rollouts, rows, strict=True):
        if row is None:
            log.warning("placeholder for TRL: %s", rollout.why_missing())
    return {
        "prompt_ids": [row.tokens[: row.prompt_len] if row else [0] for row in rows],
        "completion_ids": [row.tokens[row.prompt_len :] if row else [0] for row in rows],
        "logprobs": [row.logprobs[row.prompt_len :] if row else [0.0] for row in rows],
        "env_mask": [row.loss_mask[row.prompt_len :] if row else [0] for row in rows],
        "whet_reward": [rollout.reward for rollout in rollouts],
        "whet_placeholder": [int(row is None) for row in rows],
        "whet_rollout": [rollout.id for rollout in rollouts],
        "whet_versions": [list(rollout.versions) for rollout in rollouts],
    }


class SessionFactory:
    """Sessions for TRL's HarnessRolloutWorker: `harness_session_factory=functools.partial(SessionFactory, server)`."""

    def __init__(self, server: Server, sampling: Mapping[str, Any] | None = None) -> None:
        self.server = server
        self.sampling = dict(sampling or {})

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> "Session":
        """Start a rollout. `seed` numbers TRL's group; whet draws samples of its own."""
        del seed
        return Session(self.server, read_prompt(task), self.sampling, episode_id)


class Session:
    """A rollout, as TRL's worker drives it from a thread. Another thread may close it meanwhile, so each operation has
    a connection of its own."""

    def __init__(self, server: Server, task: str, sampling: Mapping[str, Any], episode_id: str | None) -> None:
        self._server = server
        request = server.make_request(task, 1, sampling)
        with self._open() as client:
            self._view: RolloutView = client.submit(request, key=episode_id).rollouts[0]

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        """Wait for the rollout. TimeoutError if it takes longer."""
        with self._open() as client:
            self._view = client.wait(self._view.id, timeout_s)
        if self._view.status is not Status.DONE:
            raise TimeoutError(f"rollout {self._view.id} is still {self._view.status} after {timeout_s} seconds")
        return self._view.exit_code or 0

    def fetch_training_trace(self) -> Any:
        """The calls to train on, as OpenEnv's TrainingTrace; none if the rollout has no reward."""
        from openenv.core.harness import TrainingTrace  # TRL's worker needs it, so it is installed

        if self._view.reward is None:
            log.warning("no trace for TRL: %s", Finished(self._view).why_missing())
            return TrainingTrace(turns=[])
        with self._open() as client:
            found = client.rows(self._view.id, format="trl-trace", max_tokens=self._server.max_tokens).rows
        return TrainingTrace.model_validate(found[0] if found else {"turns": []})

    def verify(self, transcript: Any, final_state: Any = None) -> Any:
        """The reward; None if there is none."""
        from openenv.core.harness import VerifyResult

        del transcript, final_state
        metrics = {"rollout": self._view.id, "weight_versions": list(self._view.weight_versions)}
        return VerifyResult(env_reward=self._view.reward, done=True, metrics=metrics)

    def close(self) -> None:
        """Cancel the rollout if it is not done."""
        if self._view.status is not Status.DONE:
            with self._open() as client:
                self._view = client.cancel(self._view.id)

    def _open(self) -> Client:
        return Client(self._server.url, self._server.token)
