"""Results stay within what a client takes."""

import json
from typing import Any

import pytest

from whet.client.openenv_models import RolloutResult, RolloutTurn
from whet.serve.openenv.sizes import HTTP_BYTES, SOCKET_BYTES, encode_result
from whet.serve.openenv.tools import ToolAnswer


def result_with(turns: int, tokens: int, samples: int = 1, **fields: Any) -> RolloutResult:
    made = RolloutResult(
        rollout_id="r1",
        reward=0.5,
        proxy_turns=[
            RolloutTurn(
                turn=place,
                completion_tokens=["token"] * tokens,
                completion_token_ids=list(range(tokens)),
                per_token_logps=[-0.123456789012] * tokens,
                prompt_token_ids=list(range(tokens * (place + 1))),
                loss_mask=[0] * (tokens * (place + 2)),
                request_messages=[{"role": "user", "content": 'say "x"' * tokens}],
            )
            for place in range(turns)
        ],
        training_trace={"schema_version": 1, "turns": [{"prompt_token_ids": list(range(tokens))}] * turns},
        files={"/home/user/workdir/a.py": "x" * 8000},
        **fields,
    )
    return made if samples == 1 else RolloutResult(reward=0.5, group_id="g", rollouts=[made] * samples)


def frame_bytes(quoted: bytes) -> int:
    import msgspec

    return len(msgspec.json.encode({"type": "observation", "data": ToolAnswer(quoted).as_result()}))


def decode(quoted: bytes) -> RolloutResult:
    return RolloutResult.model_validate_json(json.loads(quoted))


def test_a_small_result_is_whole() -> None:
    given = result_with(turns=3, tokens=20)
    assert decode(encode_result(given, SOCKET_BYTES)) == given


@pytest.mark.parametrize(("turns", "tokens", "samples"), [(20, 300, 1), (60, 800, 1), (400, 100, 1), (40, 100, 16)])
def test_a_large_result_fits_into_a_frame_of_old_clients(turns: int, tokens: int, samples: int) -> None:
    quoted = encode_result(result_with(turns, tokens, samples), SOCKET_BYTES)
    assert frame_bytes(quoted) < 1 << 20
    read = decode(quoted)
    assert (read.reward, read.truncated) == (0.5, True)
    assert "training_trace" in read.truncated_fields
    for one in (read, *read.rollouts):
        for turn in one.proxy_turns:
            assert len(turn.per_token_logps) == len(turn.completion_token_ids)


def test_the_ids_of_a_long_rollout_reach_a_client_that_takes_them() -> None:
    read = decode(encode_result(result_with(turns=60, tokens=800), HTTP_BYTES))
    assert not read.truncated
    assert len(read.proxy_turns[59].completion_token_ids) == 800


def test_what_was_left_out_can_be_fetched_by_id() -> None:
    read = decode(encode_result(result_with(turns=60, tokens=800), SOCKET_BYTES))
    assert read.rollout_id == "r1"


def test_even_the_largest_group_fits() -> None:
    group = result_with(turns=2, tokens=10, samples=256, agent_log_tail="x" * 2000, answer="y" * 4000)
    assert frame_bytes(encode_result(group, SOCKET_BYTES)) < 1 << 20
    assert len(decode(encode_result(group, SOCKET_BYTES)).rollouts) == 256
