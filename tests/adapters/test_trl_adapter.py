"""TRL's rollout function and sessions, against a real server. `make check-trainers` runs them inside TRL."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from support.adapters_world import serve_tasks
from whet.adapters.rollouts import PLACEHOLDERS, Server
from whet.adapters.trl import RolloutFunction, Session, SessionFactory, reward, task_prompt
from whet.client import Client
from whet.client.models import Outcome
from whet.errors import UserError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve_tasks(tmp_path_factory.mktemp("server")) as url:
        yield Server(url)


def trainer(step: int = 0, temperature: float = 1.0, **args: Any) -> Any:
    """What the function reads of TRL's trainer."""
    return SimpleNamespace(
        model=SimpleNamespace(training=True),
        state=SimpleNamespace(global_step=step),
        accelerator=SimpleNamespace(process_index=0, is_main_process=True, wait_for_everyone=lambda: None),
        args=SimpleNamespace(temperature=temperature, top_p=1.0, mask_truncated_completions=False, **args),
    )


def test_rows_come_in_the_order_of_the_prompts(server: Server) -> None:
    prompts = [task_prompt(task) for task in ("four", "five", "four", "five")]
    columns = RolloutFunction(server)(prompts, trainer())
    assert columns["whet_reward"] == [1.0, 0.0, 1.0, 0.0]
    with Client(server.url) as client:
        for place, name in enumerate(columns["whet_rollout"]):
            (row,) = client.rows(name).rows
            assert columns["prompt_ids"][place] + columns["completion_ids"][place] == row["tokens"]
            assert [0] * row["prompt_len"] + columns["env_mask"][place] == row["loss_mask"]
            assert [0.0] * row["prompt_len"] + columns["logprobs"][place] == row["logprobs"]
        assert client.rollout(columns["whet_rollout"][0]).group == client.rollout(columns["whet_rollout"][2]).group


def test_a_rollout_without_a_reward_is_a_masked_placeholder_that_is_counted(server: Server) -> None:
    columns = RolloutFunction(server)([task_prompt("four"), task_prompt("lost")], trainer())
    assert columns["whet_reward"] == [1.0, None]
    assert columns["env_mask"][1] == [0]
    logged: dict[str, float] = {}
    assert reward(**columns, log_metric=logged.__setitem__) == [1.0, None]
    assert logged == {PLACEHOLDERS: 1.0, "whet/rollouts_without_reward": 1.0}


def test_the_step_is_the_version_of_the_weights(server: Server) -> None:
    function = RolloutFunction(server, policy="policy")
    for step in (41, 42):
        assert function([task_prompt("four")], trainer(step))["whet_versions"] == [[str(step)]]


def test_a_run_that_continues_under_its_name_gets_the_recorded_rollouts(server: Server) -> None:
    prompts = [task_prompt("four")] * 2
    first, again = [RolloutFunction(server, run="mine")(prompts, trainer(3)) for _ in range(2)]
    other = RolloutFunction(server)(prompts, trainer(3))
    assert first == again
    assert not set(first["whet_rollout"]) & set(other["whet_rollout"])


def test_each_batch_of_a_step_has_rollouts_of_its_own(server: Server) -> None:
    function = RolloutFunction(server)
    first, second = [function([task_prompt("four")], trainer(3)) for _ in range(2)]
    assert first["whet_rollout"] != second["whet_rollout"]


async def test_it_works_where_a_loop_runs_already(server: Server) -> None:
    assert RolloutFunction(server)([task_prompt("four")], trainer())["whet_reward"] == [1.0]


def test_a_task_may_be_described_in_the_prompt(server: Server) -> None:
    task = {"instruction": "2 + 2?", "answer": "4"}
    assert RolloutFunction(server)([task_prompt(task)], trainer())["whet_reward"] == [1.0]


def test_a_prompt_without_a_task_is_an_error(server: Server) -> None:
    with pytest.raises(UserError, match="names no task; expected what `task_prompt` returns"):
        RolloutFunction(server)([[{"role": "user", "content": "2 + 2?"}]], trainer())


def test_settings_that_would_train_nothing_are_errors(server: Server) -> None:
    given = trainer()
    given.args.mask_truncated_completions = True
    with pytest.raises(UserError, match="`mask_truncated_completions`"):
        RolloutFunction(server)([task_prompt("four")], given)
    with pytest.raises(UserError, match=r"the trainer expects 0\.5"):
        RolloutFunction(server)([task_prompt("four")], trainer(temperature=0.5))


def started(server: Server, session: Session) -> str:
    with Client(server.url) as client:
        return next(one.id for one in client.rollouts() if one.task == "slow")


def test_a_session_that_takes_too_long_says_so_and_is_cancelled_when_it_is_closed(server: Server) -> None:
    session = SessionFactory(server, sampling={}).create(task_prompt("slow"), seed=1, episode_id="one")
    with pytest.raises(TimeoutError, match="is still"):
        session.wait_for_completion(0.1)
    name = started(server, session)
    session.close()
    session.close()
    with Client(server.url) as client:
        assert client.rollout(name).outcome is Outcome.CANCELLED
