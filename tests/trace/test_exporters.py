"""Exports for trainers: the worked example in each one's form, conversations, and what is counted or left out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import export_world as w
from support.trace_world import SYSTEM, answered, asked, exchange, said, with_tokens
from whet.errors import UserError
from whet.exchange import RECORDED, Exchange, Kind, Speaker
from whet.gateway.dialects.neutral import Image, Message, Text
from whet.runs.episodes import best_of_each_task
from whet.trace.export import FORMATS, export
from whet.trace.export.filters import read_filter
from whet.trace.training.calls import Training

TOKENS = [1, 2, 3, 10, 11, 20, 21, 12]
FORMS: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / "worked_example.json").read_text())
"""The worked example in the form of each trainer."""


@pytest.mark.parametrize("name", FORMS)
def test_the_worked_example_in_the_form_of_each_trainer(name: str) -> None:
    (record,) = json.loads(json.dumps(w.exported(name)))
    assert {key: record[key] for key in FORMS[name]} == FORMS[name]


def test_the_reward_of_verl_is_on_the_last_trained_token() -> None:
    (record,) = w.exported("verl")
    assert record["extra_fields"]["token_level_scores"] == [0, 0, 0, 0, 1]


def test_the_reward_of_skyrl_is_on_the_last_token() -> None:
    longer = with_tokens(w.SECOND, [1, 2, 3, 10, 11, 20, 21], [12, 13], [-0.3, -0.4])
    (record,) = w.exported("skyrl", w.episode([w.WORKED[0], longer], reward=0.5))
    assert record["rewards"] == [[0, 0], [0, 0.5]]


def test_the_temperatures_of_prime_rl_are_those_that_were_sent() -> None:
    warm = [
        with_tokens(w.FIRST, [1, 2, 3], [10, 11], [-0.1, -0.2], temperature=0.7),
        with_tokens(w.SECOND, [1, 2, 3, 10, 11, 20, 21], [12], [-0.3], temperature=0.5),
    ]
    assert w.exported("prime-rl", w.episode(warm))[0]["temperatures"] == [1, 1, 1, 0.7, 0.7, 1, 1, 0.5]
    assert w.exported("prime-rl-split", w.episode(warm))[0]["temperature"] == 0.5


def test_the_advantage_of_prime_rl_is_on_every_token() -> None:
    (known,), (unknown,) = w.exported("prime-rl", w.episode(advantage=0.5)), w.exported("prime-rl")
    assert (known["advantages"], unknown["advantages"]) == ([0.5] * 8, None)


def test_a_truncated_row_that_is_kept_says_so() -> None:
    cut = w.episode([w.WORKED[0], with_tokens(w.SECOND, [1, 2, 3, 10, 11, 20, 21], [12], [-0.3], finish="length")])
    assert [one["truncated"] for one in w.exported("openrlhf", cut, keep_truncated=True)] == [True]
    assert [one["status"] for one in w.exported("slime", cut, keep_truncated=True)] == ["truncated"]


def test_images_stay_in_the_messages_of_the_chat() -> None:
    shown = Message("user", (Text("See:"), Image("image/png", "aGk=")))
    (record,) = w.exported("chat", w.episode([exchange(0, [shown], w.LAST)]))
    assert record["messages"][0]["content"] == [
        {"type": "text", "text": "See:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]


def test_samples_of_slime_share_the_number_of_their_group() -> None:
    records = w.exported("slime", w.episode(), w.episode(rollout="r2"), w.episode(rollout="r3", group="g2"))
    assert [(record["group_index"], record["index"]) for record in records] == [(0, 0), (0, 1), (1, 2)]


def test_a_training_trace_has_a_turn_for_each_call() -> None:
    (trace,) = w.exported("trl-trace")
    first, second = trace["turns"]
    assert (first["loss_mask"], second["loss_mask"]) == ([0, 0, 0, 1, 1], [0] * 7 + [1])
    assert (first["per_token_logps"], second["per_token_logps"]) == ([-0.1, -0.2], [-0.3])
    assert second["request"]["messages"] == w.MESSAGES[:-1]
    assert second["response"]["choices"] == [{"message": w.MESSAGES[-1], "finish_reason": "stop"}]
    assert first["response"]["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "bash"
    assert len({turn["node_id"] for turn in trace["turns"]}) == 2


def test_a_broken_chain_is_two_rows_of_one_rollout() -> None:
    broken = [w.WORKED[0], with_tokens(w.SECOND, [1, 2, 3, 10, 99, 20, 21], [12], [-0.3])]
    first, second = w.exported("slime", w.episode(broken))
    assert first["rollout_id"] == second["rollout_id"]
    assert (first["reward"], second["reward"]) == (1.0, 1.0)
    assert [one["extra_fields"]["row_weight"] for one in w.exported("verl", w.episode(broken))] == [0.5, 0.5]
    assert [sum(one["extra_fields"]["token_level_scores"]) for one in w.exported("verl", w.episode(broken))] == [0, 1]
    (longest,) = w.exported("trl-grpo", w.episode(broken))
    assert longest["completion_ids"] == [12]


def test_chat_is_the_last_request_and_its_reply() -> None:
    (record,) = w.exported("chat")
    spoken = [{key: value for key, value in message.items() if key != "weight"} for message in record["messages"]]
    assert spoken == w.MESSAGES
    assert [message["weight"] for message in record["messages"] if message["role"] == "assistant"] == [1, 1]
    assert record["tools"][0]["function"]["name"] == "bash"
    assert (record["reward"], record["task_id"]) == (1.0, "count")


def test_helper_calls_are_no_conversations_of_the_chat() -> None:
    title = exchange(2, [asked("A title?")], said(Text("Files")), speaker=Speaker(Kind.UTILITY, "t", None, "", "title"))
    assert [record["thread_id"] for record in w.exported("chat", w.episode([*w.WORKED, title]))] == ["main"]


def test_what_a_broken_thread_copied_from_before_has_no_weight() -> None:
    edited = exchange(2, [SYSTEM, w.ASKED, w.CALLED, answered("c")], said(Text("Again.")))
    first, second = w.exported("chat", w.episode([w.FIRST, w.SECOND, edited]))
    assert [one["weight"] for one in first["messages"] if one["role"] == "assistant"] == [1, 1]
    assert [one["weight"] for one in second["messages"] if one["role"] == "assistant"] == [0, 1]


def test_pairs_are_the_best_and_worst_of_a_group() -> None:
    worse = [w.FIRST, exchange(1, [SYSTEM, w.ASKED, w.CALLED, w.TOLD], said(Text("Dunno.")))]
    group = [w.episode(), w.episode(worse, rollout="r2", reward=0.0), w.episode(rollout="r3", reward=None)]
    other = [w.episode(group="g2", rollout="r4"), w.episode(worse, group="g2", rollout="r5")]
    (pair,) = w.exported("trl-pairs", *group, *other)
    assert pair["prompt"] == w.MESSAGES[:-1]
    assert pair["chosen"] == [w.MESSAGES[-1]]
    assert pair["rejected"] == [{"role": "assistant", "content": "Dunno."}]
    assert pair["rollout_ids"] == ["r1", "r2"]


FORKED = [replace(w.WORKED[0], upstream=RECORDED), w.WORKED[1]]
"""A fork: its first reply is the one that another rollout was given."""


def test_what_a_fork_repeats_of_another_rollout_is_neither_trained_nor_counted() -> None:
    assert w.exported("rows", w.episode(FORKED))[0]["loss_mask"] == [0] * 7 + [1]
    (spoken,) = w.exported("chat", w.episode(FORKED))
    assert [message["weight"] for message in spoken["messages"] if message["role"] == "assistant"] == [0, 1]
    (rollout, *_) = (row for table, row in w.exported("parquet", w.episode(FORKED)) if table == "rollouts")
    assert (rollout["calls"], rollout["input_tokens"], rollout["output_tokens"]) == (2, 7, 3)


def test_no_pair_prefers_what_a_fork_only_repeats() -> None:
    worse = w.episode([exchange(0, [SYSTEM, w.ASKED], said(Text("Dunno.")))], rollout="r2", reward=0.0)
    assert len(w.exported("trl-pairs", w.episode(), worse)) == 1
    assert w.exported("trl-pairs", w.episode(FORKED), worse) == []


def test_the_manifest_counts_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    truncated = [w.WORKED[0], with_tokens(w.SECOND, [1, 2, 3, 10, 11, 20, 21], [12], [-0.3], finish="length")]
    cold = [with_tokens(w.FIRST, [1], [2], [-0.1], temperature=0)]
    out = tmp_path / "rows.jsonl"
    export(
        [
            w.episode(),
            w.episode(rollout="r2", reward=None),
            w.episode(truncated, rollout="r3"),
            w.episode(cold, rollout="r4"),
            w.episode([w.FIRST, replace(w.FIRST, index=1, status=500)], rollout="r5"),
            w.episode(rollout="r6", group="of one alone"),
        ],
        FORMATS["verl"],
        out,
        Training(),
    )
    manifest = json.loads((tmp_path / "rows.jsonl.manifest.json").read_text())
    told = {
        "rollouts": 6,
        "rollouts left out": {"without a score": 1},
        "records": 2,
        "calls seen": 9,
        "calls answered": 8,
        "calls without ids": 1,
        "calls not trained": {"temperature was 0": 1},
        "rows apart by reason": {"output limit": 1},
        "groups without variance": 1,
    }
    assert {key: manifest[key] for key in told} == told
    (apart,) = map(json.loads, (tmp_path / "rows.jsonl.apart.jsonl").read_text().splitlines())
    assert apart["apart"] == "the reply of call 1 ended at the output limit"
    assert len(out.read_text().splitlines()) == 2


def test_rows_that_are_too_long_are_counted_as_that(tmp_path: Path) -> None:
    found = export([w.episode()], FORMATS["verl"], tmp_path / "out", Training(max_tokens=7))
    assert (found.truncated, found.records) == ({"too long": 1}, 0)


def test_without_ids_there_are_no_rows_and_it_says_what_there_is(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    with pytest.raises(UserError, match=r"`format` 'verl' needs token ids, and none of 2 calls has them.*chat, atif"):
        export([w.episode([w.FIRST, w.SECOND])], FORMATS["verl"], out, Training())
    assert list(tmp_path.iterdir()) == []
    export([w.episode([w.FIRST, w.SECOND])], FORMATS["chat"], out, Training())
    assert len(out.read_text().splitlines()) == 1


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    export([w.episode()], FORMATS["chat"], tmp_path / "out", Training())
    assert {file.name for file in tmp_path.iterdir()} == {"out", "out.manifest.json"}
    for left in ("out.manifest.json", "out"):
        with pytest.raises(UserError, match=f"{left}: exists already"):
            export([w.episode()], FORMATS["chat"], tmp_path / "out", Training())
        (tmp_path / left).unlink()


@pytest.mark.parametrize("name", FORMATS)
def test_a_rollout_without_any_call_is_no_trouble(name: str) -> None:
    w.exported(name, w.episode([]))


def told_by_version(call: Exchange, version: str) -> Exchange:
    reply = json.loads(call.response) | {"metadata": {"weight_version": version}}
    return replace(call, response=json.dumps(reply).encode())


def test_the_version_of_the_weights_comes_from_the_engine() -> None:
    versioned = [told_by_version(w.WORKED[0], "7"), told_by_version(w.WORKED[1], "8")]
    (row,) = w.exported("rows", w.episode(versioned))
    assert [span["weight_version"] for span in row["spans"]] == [None, "7", None, "8"]
    assert w.exported("slime", w.episode(versioned))[0]["weight_versions"] == ["7", "8"]
    assert w.exported("areal", w.episode(versioned))[0]["versions"] == [[-1, -1, -1, 7, 7, -1, -1, 8]]
    named = [told_by_version(one, "step-7") for one in w.WORKED]
    assert w.exported("areal", w.episode(named))[0]["versions"] == [[-1, -1, -1, 0, 0, -1, -1, 0]]
    (unknown,) = w.exported("rows")
    assert {span["weight_version"] for span in unknown["spans"]} == {None}
    assert w.exported("slime")[0]["weight_versions"] == []


def test_each_call_of_its_own_has_the_reward_discounted_from_the_end() -> None:
    first, last = w.exported("areal-individual", discount=0.5)
    assert (first["input_ids"], last["input_ids"]) == ([TOKENS[:5]], [TOKENS])
    assert (first["loss_mask"], last["loss_mask"]) == ([[0, 0, 0, 1, 1]], [[0] * 7 + [1]])
    assert (first["logprobs"], last["logprobs"]) == ([[0, 0, 0, -0.1, -0.2]], [[0] * 7 + [-0.3]])
    assert first["versions"] == [[-1, -1, -1, 0, 0]]
    assert (first["rewards"], last["rewards"]) == ([0.5], [1.0])
    assert [one["rewards"] for one in w.exported("areal-individual")] == [[1.0], [1.0]]


def test_a_conversation_that_an_earlier_line_has_can_be_left_out(tmp_path: Path) -> None:
    renamed = [
        replace(one, request=one.request.replace(b"c1", b"c9"), response=one.response.replace(b"c1", b"c9"))
        for one in w.WORKED
    ]
    both = [w.episode(), w.episode(renamed, rollout="r2")]
    every = export(both, FORMATS["chat"], tmp_path / "every", Training())
    once = export(both, FORMATS["chat"], tmp_path / "once", Training(), distinct=True)
    assert (every.records, every.repeated) == (2, 0)
    assert (once.records, once.repeated) == (1, 1)
    with pytest.raises(UserError, match="`distinct`: records of rows are never the same; expected the format 'chat'"):
        export(both, FORMATS["rows"], tmp_path / "rows", Training(), distinct=True)


def test_the_best_rollouts_of_each_task_can_be_chosen() -> None:
    rewards: dict[str, list[float | None]] = {"a": [0.5, None, 1.0], "b": [0.0, 0.0]}
    found = [
        (w.episode(task=task, rollout=f"{task}{n}", reward=reward), n)
        for task, all_of_it in rewards.items()
        for n, reward in enumerate(all_of_it)
    ]
    assert [one.rollout for one, _ in best_of_each_task(found, 1)] == ["a2", "b0"]
    assert [one.rollout for one, _ in best_of_each_task(found, 2)] == ["a0", "a2", "b0", "b1"]


@pytest.mark.parametrize("name", FORMATS)
def test_exporting_twice_gives_the_same_bytes(name: str) -> None:
    assert json.dumps(w.exported(name)) == json.dumps(w.exported(name, replace(w.episode(), exchanges=iter(w.WORKED))))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("score>=0.5", True),
        ("score<0.5", False),
        ("agent=loop", True),
        ("agent!=loop", False),
        ("tag=math", True),
        ("tag!=math", False),
        ("flag=canary", True),
        ("flag!=canary", False),
        ("task = count", True),
    ],
)
def test_filters(text: str, holds: bool) -> None:
    assert read_filter(text).holds(w.episode(tags=("math", "easy"), flags=("canary",))) is holds


def test_a_rollout_without_a_score_meets_no_condition_on_scores() -> None:
    assert not read_filter("score<=1").holds(w.episode(reward=None))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("score", "expected NAME=VALUE"),
        ("scor>1", "unknown name 'scor'; did you mean 'score'"),
        ("score>high", "the score is 'high'; expected a number"),
        ("agent>loop", "agent is text"),
    ],
)
def test_a_filter_that_is_none_says_what_was_expected(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_filter(text)
