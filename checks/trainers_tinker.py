"""tinker-cookbook's own functions turn whet's rollouts into the data of a training step."""

import asyncio
import pickle
import sys
from typing import Any

from tinker_cookbook.completers import TokenCompleter
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.rollouts import do_group_rollout

from trainers_world import UNSCORED, check_cancel, read_rows, report
from whet.adapters.rollouts import Server
from whet.adapters.tinker import WhetGroup, WhetStrategy


def run(server: Server, group: WhetGroup, **options: Any) -> Any:
    strategy = pickle.loads(pickle.dumps(WhetStrategy(server, **options)))
    return do_group_rollout(pickle.loads(pickle.dumps(group)), TokenCompleter(), strategy)


def check_data(url: str) -> None:
    """Each datum is a row, shifted by one, with the centred reward."""
    group = asyncio.run(run(Server(url), WhetGroup("draw", 4, "first")))
    rewards = group.get_total_rewards()
    data, metadata = assemble_training_data([group], compute_advantages([group]))
    assert len(data) == len(group.trajectories_G) == 4 == len(set(rewards))
    for datum, about in zip(data, metadata, strict=True):
        trajectory = group.trajectories_G[about["traj_idx"]]
        (row,) = read_rows(url, trajectory.transitions[-1].logs["whet/rollout"])
        inputs = {name: one.data for name, one in datum.loss_fn_inputs.items()}
        assert datum.model_input.to_ints() + inputs["target_tokens"][-1:] == row["tokens"]
        assert inputs["mask"] == row["loss_mask"][1:]
        assert all(abs(a - b) < 1e-6 for a, b in zip(inputs["logprobs"], row["logprobs"][1:], strict=True))
        advantage = row["reward"] - sum(rewards) / 4
        expected = [advantage * one for one in inputs["mask"]]
        assert all(abs(a - b) < 1e-6 for a, b in zip(inputs["advantages"], expected, strict=True))
    report("4 rollouts of a group: tokens, masks, log-probabilities and advantages of the data are those of the rows")
    again = asyncio.run(run(Server(url), WhetGroup("draw", 4, "first")))
    assert again.get_total_rewards() == rewards
    report("the same key gives the recorded group")


def check_missing(url: str) -> None:
    for task in ("fail", UNSCORED):
        try:
            asyncio.run(run(Server(url), WhetGroup(task, 2)))
        except AllTrajectoriesFailedError as error:
            report(f"a group without rewards is dropped: {str(error)[:90]}...")
        else:
            raise AssertionError("a group without rewards was returned")
    group = asyncio.run(run(Server(url, max_tokens=20), WhetGroup("pass", 2), min_group=0))
    assert assemble_training_data([group], compute_advantages([group])) == ([], [])
    assert group.get_total_rewards() == [1.0, 1.0]
    assert [one.transitions[-1].metrics["whet/placeholder_rows"] for one in group.trajectories_G] == [1, 1]
    report("prompts that are too long: rewards stay, nothing is trained, placeholders are counted")


if __name__ == "__main__":
    URL = sys.argv[1]
    check_data(URL)
    check_missing(URL)
    asyncio.run(check_cancel(URL, run(Server(URL), WhetGroup("wait", 1))))
    report("a cancelled group is cancelled at the server")
