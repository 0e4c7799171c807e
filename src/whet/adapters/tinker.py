"""tinker-cookbook 0.5: a rollout strategy whose rollouts whet runs. Give it to `Config.rollout_error_tolerance`, and
data sets whose batches are `WhetGroup`s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whet.adapters.groups import run_group
from whet.adapters.rollouts import Finished, Server, check_temperature
from whet.installers import require_extra

require_extra("tinker_cookbook", "tinker", "rollout strategies of tinker-cookbook")

import tinker  # noqa: E402
from tinker_cookbook.completers import TokensWithLogprobs  # noqa: E402
from tinker_cookbook.exceptions import AllTrajectoriesFailedError  # noqa: E402
from tinker_cookbook.rl.rollout_strategy import RolloutResult, RolloutStrategy  # noqa: E402
from tinker_cookbook.rl.types import Env, EnvGroupBuilder, RolloutError, Trajectory, Transition  # noqa: E402


@dataclass(frozen=True)
class WhetGroup(EnvGroupBuilder):
    """A task and the number of its rollouts. Only `WhetStrategy` can run it."""

    task: Any
    """The id of a served task, or fields of a request."""
    samples: int
    key: str | None = None
    """A name of this group that is used once, such as batch and task. A repeated name gets the recorded rollouts."""
    tags: tuple[str, ...] = ()

    async def make_envs(self) -> Sequence[Env]:
        """Refuse: whet runs the environment."""
        raise NotImplementedError("a WhetGroup has no environments; set `rollout_error_tolerance` to a WhetStrategy")

    def logging_tags(self) -> list[str]:
        """The names under which metrics are grouped."""
        return list(self.tags)


@dataclass(frozen=True)
class WhetStrategy(RolloutStrategy):
    """Runs a group at a server. Rollouts without a reward are left out, and reported as errors of the group."""

    server: Server
    min_group: int = 2
    """A group with fewer rollouts to train on is skipped."""

    @property
    def catches_group_errors(self) -> bool:
        """A group that fails is skipped and counted, and training continues."""
        return True

    async def execute(self, env_group_builder: Any, policy: Any) -> Any:
        """The trajectories of a group. `policy` is not called: the server's model samples."""
        if not isinstance(env_group_builder, WhetGroup):
            raise TypeError(f"{type(env_group_builder).__name__} is not a WhetGroup")
        temperature = getattr(policy, "temperature", None)
        sampling = {"temperature": temperature}
        request = self.server.make_request(env_group_builder.task, env_group_builder.samples, sampling)
        async with self.server.open() as client:
            rollouts = await run_group(client, request, env_group_builder.key, self.server.max_tokens)
        check_temperature(rollouts, temperature)
        kept = [(rollout, rollout.reward) for rollout in rollouts if rollout.reward is not None]
        trajectories = [_trajectory(rollout, reward) for rollout, reward in kept]
        errors = [RolloutError("NoReward", one.why_missing()) for one in rollouts if one.reward is None]
        trainable = sum(bool(rollout.rows) for rollout, _ in kept)
        if trainable < min(self.min_group, len(rollouts)):
            reasons = "; ".join(error.error_message for error in errors)
            raise AllTrajectoriesFailedError(
                f"{trainable} of {len(rollouts)} rollouts can be trained on, fewer than {self.min_group}: {reasons}"
            )
        return RolloutResult(trajectories=trajectories, envs=[_DoneEnv() for _ in trajectories], errors=errors)


def _trajectory(rollout: Finished, reward: float) -> Any:
    """One transition per trained call, chain by chain. A rollout without a row has one that is empty: its reward
    counts in the baseline, and nothing of it is trained."""
    assert rollout.view is not None
    transitions = [
        Transition(
            ob=tinker.ModelInput.from_ints(row.tokens[: reply.start]),
            ac=TokensWithLogprobs(
                tokens=row.tokens[reply.start : reply.end],
                maybe_logprobs=row.logprobs[reply.start : reply.end],
                stop_reason="length" if reply.finish == "length" else "stop",
            ),
            reward=0.0,
            episode_done=False,
        )
        for row in rollout.rows
        for reply in row.replies
        if reply.trained
    ] or [
        Transition(tinker.ModelInput.empty(), TokensWithLogprobs(tokens=[], maybe_logprobs=[]), 0.0, episode_done=False)
    ]
    last = transitions[-1]
    last.reward, last.episode_done = reward, True
    last.metrics = {
        "whet/placeholder_rows": int(not rollout.rows),
        "whet/straddled": int(rollout.view.straddled),
        "whet/staleness": rollout.view.staleness or 0,
    }
    last.logs = {"whet/rollout": rollout.id, "whet/weight_versions": ",".join(rollout.versions)}
    return Trajectory(transitions=transitions, final_ob=tinker.ModelInput.empty())


class _DoneEnv(Env):
    """Stands for the environment of a rollout that is over."""

    async def initial_observation(self) -> Any:
        raise NotImplementedError("the rollout is over")

    async def step(self, action: Any, *, extra: Any = None) -> Any:
        raise NotImplementedError("the rollout is over")
