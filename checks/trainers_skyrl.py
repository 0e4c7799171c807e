"""SkyRL's own validator, merge and advantages take what the generator returns."""

import asyncio
import sys
import typing
from typing import Any

import typing_extensions

# SkyRL 0.3.0 gives typing.TypedDict to pydantic, which takes it from Python 3.12 on.
typing.TypedDict = typing_extensions.TypedDict

from skyrl.train.generators.base import BatchMetadata, TrajectoryID  # noqa: E402
from skyrl.train.generators.utils import merge_stepwise_output  # noqa: E402
from skyrl.train.utils.trainer_utils import validate_generator_output  # noqa: E402

from trainers_world import SAMPLING, UNSCORED, check_cancel, report, rows_by_tokens  # noqa: E402
from whet.adapters.rollouts import PLACEHOLDERS, Server  # noqa: E402
from whet.adapters.skyrl import WhetGenerator  # noqa: E402


def batch(*groups: tuple[str, Any, int], step: int) -> dict[str, Any]:
    """A batch of instances, each with its task and repetitions, interleaved as SkyRL may have them."""
    members = [(name, task, number) for name, task, times in groups for number in range(times)]
    members.sort(key=lambda one: one[2])
    return {
        "prompts": [[{"role": "user", "content": name}] for name, _, _ in members],
        "env_classes": ["whet"] * len(members),
        "env_extras": [{"whet": task} for _, task, _ in members],
        "sampling_params": SAMPLING,
        "trajectory_ids": [TrajectoryID(name, number) for name, _, number in members],
        "batch_metadata": BatchMetadata(global_step=step, training_phase="train"),
    }


def generate(generator: WhetGenerator, given: dict[str, Any]) -> Any:
    output = asyncio.run(generator.generate(given))
    validate_generator_output(len(given["prompts"]), output, step_wise=generator.step_wise)
    return output


def check_rows(url: str, output: Any, step: int) -> None:
    rows = rows_by_tokens(url)
    columns = ("prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs")
    for entry in zip(*(output[name] for name in columns), output["rewards"], strict=True):
        prompt, response, mask, logprobs, reward = entry
        row = rows[tuple(prompt + response)]
        assert (mask, logprobs) == (row["loss_mask"][len(prompt) :], row["logprobs"][len(prompt) :])
        assert row["loss_mask"][: len(prompt)] == [0] * len(prompt)
        assert sum(reward) == row["reward"] if isinstance(reward, list) else reward == row["reward"]
        assert {span["weight_version"] for span in row["spans"] if span["trained"]} == {str(step)}


def main(url: str) -> None:
    whole = generate(WhetGenerator(Server(url), policy="policy"), batch(("a", "draw", 3), ("b", "draw", 3), step=1))
    check_rows(url, whole, 1)
    report("6 rollouts of 2 instances: entries equal the rows, sampled by the version of the step")
    steps = WhetGenerator(Server(url), policy="policy", step_wise=True, run="named")
    stepwise = generate(steps, batch(("a", "draw", 2), step=2))
    merged = merge_stepwise_output(stepwise)
    assert len(stepwise["response_ids"]) == 4
    assert len(merged["response_ids"]) == 2
    check_rows(url, merged, 2)
    report("step-wise entries merge to the rows")
    assert generate(steps, batch(("a", "draw", 2), step=2))["response_ids"] == stepwise["response_ids"]
    report("the same step of a named run gets the recorded rollouts")
    check_missing(url)
    asyncio.run(check_cancel(url, WhetGenerator(Server(url)).generate(batch(("w", "wait", 1), step=4))))
    report("a cancelled batch is cancelled at the server")


def check_missing(url: str) -> None:
    given = batch(("a", "pass", 2), ("b", "fail", 2), ("c", UNSCORED, 1), step=3)
    output = generate(WhetGenerator(Server(url)), given)
    masked = [
        id_.instance_id
        for id_, mask in zip(given["trajectory_ids"], output["loss_masks"], strict=True)
        if not any(mask)
    ]
    assert sorted(masked) == ["b", "b", "c"]
    assert output["rollout_metrics"][PLACEHOLDERS] == 3
    assert output["rollout_metrics"]["whet/rollouts_without_reward"] == 3
    report("failed and unscored rollouts: masked placeholders, counted")
    output = generate(WhetGenerator(Server(url, max_tokens=20)), batch(("a", "pass", 2), step=3))
    assert output["rollout_metrics"] | {PLACEHOLDERS: 2, "whet/rollouts_without_reward": 0} == output["rollout_metrics"]
    assert output["rewards"] == [1.0, 1.0]
    report("prompts that are too long: rewards stay, nothing is trained, placeholders are counted")


if __name__ == "__main__":
    main(sys.argv[1])
