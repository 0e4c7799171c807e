"""SkyRL 0.3: a generator whose rollouts whet runs. The data set's column `whet` has the id of a served task, or fields
of a request; SkyRL passes it on in `env_extras`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from whet.adapters.groups import run_groups
from whet.adapters.rollouts import PLACEHOLDERS, Finished, Server, check_temperature, make_key
from whet.adapters.rows import Row
from whet.errors import UserError
from whet.ids import new_name
from whet.installers import require_extra

require_extra("skyrl", "skyrl", "generators of SkyRL")

from skyrl.train.generators.base import GeneratorInterface  # noqa: E402


class WhetGenerator(GeneratorInterface):
    """Rollouts of whet, in the order of the batch. It never raises for a rollout that failed.

    SkyRL needs a reward for every rollout. One that has none gets a placeholder that is not trained, with the mean
    reward of its siblings, so that it does not move their baseline.
    """

    def __init__(
        self,
        server: Server,
        *,
        step_wise: bool = False,
        policy: str | None = None,
        run: str = "",
        column: str = "whet",
    ) -> None:
        self.server = server
        self.step_wise = step_wise
        """One entry per trained call, as `generator.step_wise_trajectories` expects. Otherwise one per rollout: the
        longest row of its main thread."""
        self.policy = policy
        """The model at the server whose weight version is set to SkyRL's step before each batch (scope admin)."""
        self.run = run or new_name()
        """The name of the training run. A run that continues under its name gets recorded rollouts again."""
        self.column = column

    async def generate(self, input_batch: Any) -> Any:
        """The batch as a GeneratorOutput."""
        ids, metadata = input_batch["trajectory_ids"], input_batch.get("batch_metadata")
        sampling = input_batch.get("sampling_params") or {}
        members = _group(input_batch.get("env_extras"), ids, self.column)
        step = (metadata.training_phase, metadata.global_step) if metadata else (new_name(),)
        async with self.server.open() as client:
            if self.policy and metadata:
                await client.update_model(self.policy, weight_version=str(metadata.global_step))
            found = await run_groups(
                client,
                [
                    (self.server.make_request(task, len(places), sampling), make_key(self.run, *step, instance))
                    for instance, (task, places) in members.items()
                ],
                self.server.max_tokens,
            )
        rollouts: dict[int, tuple[Finished, float]] = {}
        for (_, places), group in zip(members.values(), found, strict=True):
            if not metadata or metadata.training_phase == "train":
                check_temperature(group, sampling.get("temperature"))
            rewards = [one.reward for one in group if one.reward is not None]
            mean = sum(rewards) / len(rewards) if rewards else 0.0
            for place, rollout in zip(places, group, strict=True):
                rollouts[place] = rollout, mean if rollout.reward is None else rollout.reward
        return self._output([rollouts[place] for place in range(len(ids))], ids)

    def _output(self, rollouts: Sequence[tuple[Finished, float]], ids: Sequence[Any]) -> dict[str, Any]:
        entries = [
            (entry, rollout, id_)
            for (rollout, reward), id_ in zip(rollouts, ids, strict=True)
            for entry in self._entries(rollout, reward)
        ]
        views = [rollout.view for rollout, _ in rollouts if rollout.view is not None]
        return {
            "prompt_token_ids": [entry.prompt for entry, _, _ in entries],
            "response_ids": [entry.response for entry, _, _ in entries],
            "rewards": [entry.scores if self.step_wise else entry.reward for entry, _, _ in entries],
            "loss_masks": [entry.mask for entry, _, _ in entries],
            "stop_reasons": [entry.finish for entry, _, _ in entries],
            "rollout_logprobs": [entry.logprobs for entry, _, _ in entries],
            "trajectory_ids": [id_ for _, _, id_ in entries],
            "is_last_step": [entry.last for entry, _, _ in entries] if self.step_wise else None,
            "trajectory_generation_times": [rollout.seconds for _, rollout, _ in entries],
            "rollout_metrics": {
                PLACEHOLDERS: sum(entry.placeholder for entry, _, _ in entries),
                "whet/rollouts_without_reward": sum(rollout.reward is None for rollout, _ in rollouts),
                "whet/straddled": sum(view.straddled for view in views),
                "whet/staleness_max": max((view.staleness or 0 for view in views), default=0),
            },
        }

    def _entries(self, rollout: Finished, reward: float) -> "Iterator[_Entry]":
        """The entries of a rollout: one, or one per trained call."""
        main = rollout.main_row
        if self.step_wise and rollout.rows:
            steps = [(row, reply) for row in rollout.rows for reply in row.replies if reply.trained]
            for number, (row, reply) in enumerate(steps, 1):
                yield _Entry.cut(row, reply.start, reply.end, reply.finish, reward, last=number == len(steps))
        elif main is not None:
            yield _Entry.cut(main, main.prompt_len, len(main.tokens), main.replies[-1].finish, reward, last=True)
        else:
            yield _Entry([0], [0], [0], [0.0], "error", reward, last=True, placeholder=True)


@dataclass(frozen=True, slots=True)
class _Entry:
    prompt: list[int]
    response: list[int]
    mask: list[int]
    logprobs: list[float]
    finish: str
    reward: float
    last: bool
    placeholder: bool = False

    @classmethod
    def cut(cls, row: Row, start: int, end: int, finish: str | None, reward: float, *, last: bool) -> "_Entry":
        tokens, mask, logprobs = row.tokens[start:end], row.loss_mask[start:end], row.logprobs[start:end]
        return cls(row.tokens[:start], tokens, mask, logprobs, finish or "stop", reward, last)

    @property
    def scores(self) -> list[float]:
        """The reward on the last token of the rollout's last entry, and 0 elsewhere."""
        return [0.0] * (len(self.response) - 1) + [self.reward if self.last else 0.0]


def _group(extras: Sequence[Any] | None, ids: Sequence[Any], column: str) -> dict[str, tuple[Any, list[int]]]:
    """Places of the batch by instance, with the task of each instance. Repetitions of an instance are a group."""
    members: dict[str, tuple[Any, list[int]]] = {}
    for place, id_ in enumerate(ids):
        extra = extras[place] if extras else {}
        if column not in extra:
            raise UserError(f"env_extras of '{id_.instance_id}' has no '{column}'; expected a column of the data set")
        members.setdefault(id_.instance_id, (extra[column], []))[1].append(place)
    return members
