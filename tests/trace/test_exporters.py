"""Exports: the worked example in each trainer's form, conversations, spans and tables."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from trace_world import SYSTEM, answered, asked, calls, exchange, said, with_tokens

from whet.errors import UserError
from whet.exchange import RECORDED, CallError, Exchange, Kind, Speaker
from whet.gateway.dialects.neutral import Image, Message, Text, Thinking, ToolCall
from whet.runs.episodes import best_of_each_task
from whet.trace.calls import Training
from whet.trace.episode import Episode
from whet.trace.export import FORMATS, export, sinks
from whet.trace.export.filters import read_filter
from whet.trace.rows import harvest

ASKED, CALLED, TOLD, LAST = asked("Go."), said(Thinking("hm"), calls("ls")), answered("a b"), said(Text("Done."))
FIRST = exchange(0, [SYSTEM, ASKED], CALLED)
SECOND = exchange(1, [SYSTEM, ASKED, CALLED, TOLD], LAST)
WORKED = [
    with_tokens(FIRST, [1, 2, 3], [10, 11], [-0.1, -0.2], finish="tool_calls"),
    with_tokens(SECOND, [1, 2, 3, 10, 11, 20, 21], [12], [-0.3]),
]
MESSAGES = [
    {"role": "system", "content": "You work."},
    {"role": "user", "content": "Go."},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "a b"},
    {"role": "assistant", "content": "Done."},
]


def episode(exchanges: Sequence[Exchange] = WORKED, **more: Any) -> Episode:
    facts: dict[str, Any] = {
        "rollout": "r1",
        "group": "g1",
        "task": "count",
        "agent": "loop",
        "model": "m",
        "skill": "",
        "sample": 0,
        "attempt": 1,
        "reward": 1.0,
        "exchanges": exchanges,
        "rewards": {"exact": 1.0},
    }
    return Episode(**facts | more)


def exported(name: str, *episodes: Episode, **training: Any) -> list[Any]:
    return list(FORMATS[name].records(harvest(one, Training(**training)) for one in episodes or [episode()]))


RESPONSE, MASK, LOGPROBS = [10, 11, 20, 21, 12], [1, 1, 0, 0, 1], [-0.1, -0.2, 0, 0, -0.3]
TOKENS = [1, 2, 3, *RESPONSE]
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("rows", {"tokens": TOKENS, "loss_mask": [0, 0, 0, *MASK], "logprobs": [0, 0, 0, *LOGPROBS], "prompt_len": 3}),
    ("trl-grpo", {"prompt_ids": [1, 2, 3], "completion_ids": RESPONSE, "env_mask": MASK, "logprobs": LOGPROBS}),
    ("trl-sft", {"input_ids": TOKENS, "labels": [-100, -100, -100, 10, 11, -100, -100, 12]}),
    (
        "verl",
        {
            "prompt_ids": [1, 2, 3],
            "response_ids": RESPONSE,
            "response_mask": MASK,
            "response_logprobs": LOGPROBS,
            "reward_score": 1.0,
            "num_turns": 2,
        },
    ),
    (
        "skyrl",
        {
            "prompt_token_ids": [[1, 2, 3], [1, 2, 3, 10, 11, 20, 21]],
            "response_ids": [[10, 11], [12]],
            "rewards": [[0, 0], [1]],
            "loss_masks": [[1, 1], [1]],
            "is_last_step": [False, True],
            "stop_reasons": ["tool_calls", "stop"],
        },
    ),
    (
        "prime-rl",
        {
            "token_ids": TOKENS,
            "mask": [False, False, False, True, True, False, False, True],
            "logprobs": [0, 0, 0, *LOGPROBS],
            "temperatures": [1.0] * 8,
        },
    ),
    (
        "prime-rl-split",
        {
            "prompt_ids": [1, 2, 3],
            "prompt_mask": [False] * 3,
            "completion_ids": RESPONSE,
            "completion_mask": [True, True, False, False, True],
            "completion_logprobs": LOGPROBS,
        },
    ),
    (
        "areal",
        {
            "input_ids": [TOKENS],
            "loss_mask": [[0, 0, 0, *MASK]],
            "versions": [[-1, -1, -1, 0, 0, -1, -1, 0]],
            "attention_mask": [[True] * 8],
            "rewards": [1.0],
        },
    ),
    (
        "openrlhf",
        {
            "observation_tokens": TOKENS,
            "action_ranges": [(3, 5), (7, 8)],
            "rollout_log_probs": [0, 0, 0, *LOGPROBS],
            "reward": 1.0,
            "prompt": "Go.",
        },
    ),
    (
        "slime",
        {
            "tokens": TOKENS,
            "response_length": 5,
            "loss_mask": MASK,
            "rollout_log_probs": LOGPROBS,
            "status": "completed",
            "response": "\nDone.",
        },
    ),
]


@pytest.mark.parametrize(("name", "form"), FORMS, ids=[name for name, _ in FORMS])
def test_the_worked_example_in_the_form_of_each_trainer(name: str, form: dict[str, Any]) -> None:
    (record,) = exported(name)
    assert {key: record[key] for key in form} == form
    json.dumps(record)


def test_the_reward_of_verl_is_on_the_last_trained_token() -> None:
    (record,) = exported("verl")
    assert record["extra_fields"]["token_level_scores"] == [0, 0, 0, 0, 1]


def test_the_reward_of_skyrl_is_on_the_last_token_of_the_last_step() -> None:
    longer = with_tokens(SECOND, [1, 2, 3, 10, 11, 20, 21], [12, 13], [-0.3, -0.4])
    (record,) = exported("skyrl", episode([WORKED[0], longer], reward=0.5))
    assert record["rewards"] == [[0, 0], [0, 0.5]]


def test_the_temperatures_of_prime_rl_are_those_that_were_sent() -> None:
    warm = [
        with_tokens(FIRST, [1, 2, 3], [10, 11], [-0.1, -0.2], temperature=0.7),
        with_tokens(SECOND, [1, 2, 3, 10, 11, 20, 21], [12], [-0.3], temperature=0.5),
    ]
    assert exported("prime-rl", episode(warm))[0]["temperatures"] == [1, 1, 1, 0.7, 0.7, 1, 1, 0.5]
    assert exported("prime-rl-split", episode(warm))[0]["temperature"] == 0.5


def test_the_advantage_of_prime_rl_is_on_every_token_and_none_where_it_is_not_known() -> None:
    (known,), (unknown,) = exported("prime-rl", episode(advantage=0.5)), exported("prime-rl")
    assert (known["advantages"], unknown["advantages"]) == ([0.5] * 8, None)


def test_a_truncated_row_that_is_kept_says_so() -> None:
    cut = episode([WORKED[0], with_tokens(SECOND, [1, 2, 3, 10, 11, 20, 21], [12], [-0.3], finish="length")])
    assert [one["truncated"] for one in exported("openrlhf", cut, keep_truncated=True)] == [True]
    assert [one["status"] for one in exported("slime", cut, keep_truncated=True)] == ["truncated"]


def test_images_stay_in_the_messages_of_the_chat() -> None:
    shown = Message("user", (Text("See:"), Image("image/png", "aGk=")))
    (record,) = exported("chat", episode([exchange(0, [shown], LAST)]))
    assert record["messages"][0]["content"] == [
        {"type": "text", "text": "See:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]


def test_samples_of_slime_share_the_number_of_their_group() -> None:
    records = exported("slime", episode(), episode(rollout="r2"), episode(rollout="r3", group="g2"))
    assert [(record["group_index"], record["index"]) for record in records] == [(0, 0), (0, 1), (1, 2)]


def test_a_training_trace_has_a_turn_for_each_call_with_its_whole_prompt() -> None:
    (trace,) = exported("trl-trace")
    first, second = trace["turns"]
    assert (first["loss_mask"], second["loss_mask"]) == ([0, 0, 0, 1, 1], [0] * 7 + [1])
    assert (first["per_token_logps"], second["per_token_logps"]) == ([-0.1, -0.2], [-0.3])
    assert second["request"]["messages"] == MESSAGES[:-1]
    assert second["response"]["choices"] == [{"message": MESSAGES[-1], "finish_reason": "stop"}]
    assert first["response"]["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "bash"
    assert len({turn["node_id"] for turn in trace["turns"]}) == 2


def test_a_broken_chain_is_two_rows_that_share_their_rollout_and_its_weight() -> None:
    broken = [WORKED[0], with_tokens(SECOND, [1, 2, 3, 10, 99, 20, 21], [12], [-0.3])]
    first, second = exported("slime", episode(broken))
    assert first["rollout_id"] == second["rollout_id"]
    assert (first["reward"], second["reward"]) == (1.0, 1.0)
    assert [one["extra_fields"]["row_weight"] for one in exported("verl", episode(broken))] == [0.5, 0.5]
    assert [sum(one["extra_fields"]["token_level_scores"]) for one in exported("verl", episode(broken))] == [0, 1]
    (longest,) = exported("trl-grpo", episode(broken))
    assert longest["completion_ids"] == [12]


def test_chat_is_the_last_request_of_a_thread_and_the_reply_to_it() -> None:
    (record,) = exported("chat")
    spoken = [{key: value for key, value in message.items() if key != "weight"} for message in record["messages"]]
    assert spoken == MESSAGES
    assert [message["weight"] for message in record["messages"] if message["role"] == "assistant"] == [1, 1]
    assert record["tools"][0]["function"]["name"] == "bash"
    assert (record["reward"], record["task_id"]) == (1.0, "count")


def test_helper_calls_are_no_conversations_of_the_chat() -> None:
    title = exchange(2, [asked("A title?")], said(Text("Files")), speaker=Speaker(Kind.UTILITY, "t", None, "", "title"))
    assert [record["thread_id"] for record in exported("chat", episode([*WORKED, title]))] == ["main"]


def test_what_a_broken_thread_copied_from_before_has_no_weight() -> None:
    edited = exchange(2, [SYSTEM, ASKED, CALLED, answered("c")], said(Text("Again.")))
    first, second = exported("chat", episode([FIRST, SECOND, edited]))
    assert [one["weight"] for one in first["messages"] if one["role"] == "assistant"] == [1, 1]
    assert [one["weight"] for one in second["messages"] if one["role"] == "assistant"] == [0, 1]


def test_pairs_are_the_best_and_the_worst_of_a_group_behind_what_they_share() -> None:
    worse = [FIRST, exchange(1, [SYSTEM, ASKED, CALLED, TOLD], said(Text("Dunno.")))]
    group = [episode(), episode(worse, rollout="r2", reward=0.0), episode(rollout="r3", reward=None)]
    other = [episode(group="g2", rollout="r4"), episode(worse, group="g2", rollout="r5")]
    (pair,) = exported("trl-pairs", *group, *other)
    assert pair["prompt"] == MESSAGES[:-1]
    assert pair["chosen"] == [MESSAGES[-1]]
    assert pair["rejected"] == [{"role": "assistant", "content": "Dunno."}]
    assert pair["rollout_ids"] == ["r1", "r2"]


FORKED = [replace(WORKED[0], upstream=RECORDED), WORKED[1]]
"""A fork: its first reply is the one that another rollout was given."""


def test_what_a_fork_repeats_of_another_rollout_is_neither_trained_nor_counted() -> None:
    assert exported("rows", episode(FORKED))[0]["loss_mask"] == [0] * 7 + [1]
    (spoken,) = exported("chat", episode(FORKED))
    assert [message["weight"] for message in spoken["messages"] if message["role"] == "assistant"] == [0, 1]
    (rollout, *_) = (row for table, row in exported("parquet", episode(FORKED)) if table == "rollouts")
    assert (rollout["calls"], rollout["input_tokens"], rollout["output_tokens"]) == (2, 7, 3)


def test_no_pair_prefers_what_a_fork_only_repeats() -> None:
    worse = episode([exchange(0, [SYSTEM, ASKED], said(Text("Dunno.")))], rollout="r2", reward=0.0)
    assert len(exported("trl-pairs", episode(), worse)) == 1
    assert exported("trl-pairs", episode(FORKED), worse) == []


SUB = Speaker(Kind.SUB, "sub-1", "main", "a test", "explore")
PROMPT = "Look for all the tests, please."
SPAWNING = said(ToolCall("c9", "task", json.dumps({"prompt": PROMPT})))
WITH_SUB = [
    exchange(0, [SYSTEM, ASKED], SPAWNING),
    exchange(1, [asked(PROMPT)], said(Text("None.")), speaker=SUB),
    exchange(2, [SYSTEM, ASKED, SPAWNING, answered("None.", "c9")], LAST),
]


def test_atif_has_a_step_per_call_with_what_its_tools_answered() -> None:
    ((name, document),) = exported("atif")
    assert name == "r1.json"
    assert document["schema_version"] == "ATIF-v1.8"
    assert [step["source"] for step in document["steps"]] == ["system", "user", "agent", "agent"]
    assert [step["step_id"] for step in document["steps"]] == [1, 2, 3, 4]
    working = document["steps"][2]
    assert working["tool_calls"] == [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}]
    assert working["observation"] == {"results": [{"source_call_id": "c1", "content": "a b"}]}
    assert working["reasoning_content"] == "hm"
    metrics = working["metrics"]
    assert (metrics["prompt_token_ids"], metrics["completion_token_ids"]) == ([1, 2, 3], [10, 11])
    assert metrics["logprobs"] == [-0.1, -0.2]


def test_atif_embeds_sub_agents_and_points_at_them_from_the_result() -> None:
    ((_, document),) = exported("atif", episode(WITH_SUB))
    (sub,) = document["subagent_trajectories"]
    assert sub["trajectory_id"] == "sub-1"
    assert [step["message"] for step in sub["steps"]] == [PROMPT, "None."]
    (result,) = document["steps"][2]["observation"]["results"]
    assert result["subagent_trajectory_ref"] == [{"trajectory_id": "sub-1"}]


def test_atif_embeds_a_sub_agent_wherever_it_was_begun_and_counts_its_calls_once() -> None:
    sub = WITH_SUB[1]
    twin = replace(sub, index=2, speaker=replace(SUB, thread="sub-2"))
    edited = exchange(3, [SYSTEM, ASKED, SPAWNING, answered("Some.", "c9")], LAST)
    anew = exchange(4, [SYSTEM, asked("Else.")], LAST)
    main = exchange(2, [SYSTEM, ASKED, SPAWNING, answered("None.", "c9")], LAST)
    exchanges = [WITH_SUB[0], sub, twin, replace(main, index=3), replace(edited, index=4), replace(anew, index=5)]
    documents = [document for _, document in exported("atif", episode(exchanges))]
    copied = [
        [trajectory["steps"][-1].get("is_copied_context", False) for trajectory in one.get("subagent_trajectories", ())]
        for one in documents
    ]
    assert copied == [[False, False], [True, True], []]


def test_atif_points_from_each_result_at_the_sub_agent_that_gave_it() -> None:
    other = PROMPT.replace("tests", "docs")
    both = said(*(ToolCall(f"c{n}", "task", json.dumps({"prompt": one})) for n, one in enumerate((PROMPT, other))))
    exchanges = [
        exchange(0, [SYSTEM, ASKED], both),
        exchange(1, [asked(PROMPT)], said(Text("None.")), speaker=SUB),
        exchange(2, [asked(other)], said(Text("One.")), speaker=replace(SUB, thread="sub-2")),
        exchange(3, [SYSTEM, ASKED, both, answered("None.", "c0"), answered("One.", "c1")], LAST),
    ]
    ((_, document),) = exported("atif", episode(exchanges))
    results = document["steps"][2]["observation"]["results"]
    assert [result["subagent_trajectory_ref"] for result in results] == [
        [{"trajectory_id": "sub-1"}],
        [{"trajectory_id": "sub-2"}],
    ]


def test_atif_links_a_result_only_to_a_call_of_its_step() -> None:
    ((_, document),) = exported(
        "atif", episode([FIRST, exchange(1, [SYSTEM, ASKED, CALLED, answered("a", "z")], LAST)])
    )
    assert document["steps"][2]["observation"] == {"results": [{"content": "a"}]}


def test_atif_goes_on_in_another_document_after_a_break_and_marks_what_is_copied() -> None:
    edited = exchange(2, [SYSTEM, ASKED, CALLED, answered("c")], said(Text("Again.")))
    (name, first), (next_name, second) = exported("atif", episode([FIRST, SECOND, edited]))
    assert (name, first["continued_trajectory_ref"], next_name) == ("r1.json", "r1.2.json", "r1.2.json")
    copied = [step.get("is_copied_context", False) for step in second["steps"] if step["source"] == "agent"]
    assert copied == [True, False]


def test_spans_are_a_tree_of_agents_calls_and_tools() -> None:
    (request,) = exported("otlp", episode(WITH_SUB))
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    names = {span["spanId"]: span["name"] for span in spans}
    assert len(names) == len(spans)
    tree = [(span["name"], names.get(span.get("parentSpanId", ""))) for span in spans]
    assert tree == [
        ("invoke_agent loop", None),
        ("chat m", "invoke_agent loop"),
        ("execute_tool task", "invoke_agent loop"),
        ("chat m", "invoke_agent loop"),
        ("invoke_agent explore", "invoke_agent loop"),
        ("chat m", "invoke_agent explore"),
    ]
    assert all(len(span["traceId"]) == 32 and len(span["spanId"]) == 16 for span in spans)
    assert all(int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) for span in spans)
    attributes = {one["key"]: one["value"] for one in spans[1]["attributes"]}
    assert attributes["gen_ai.usage.input_tokens"] == {"intValue": "7"}
    assert json.loads(attributes["gen_ai.output.messages"]["stringValue"])[0]["parts"][0]["type"] == "tool_call"


def attributes(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: one["value"] for one in span["attributes"]}


def test_spans_of_a_thread_tell_each_message_once_and_calls_that_failed_are_there() -> None:
    failed = replace(exchange(2, [SYSTEM, ASKED], LAST), status=503, error=CallError.STATUS)
    cut = replace(exchange(3, [SYSTEM, ASKED, CALLED, TOLD, LAST, asked("More.")], LAST), error=CallError.CUT)
    (request,) = exported("otlp", episode([FIRST, SECOND, failed, cut]))
    spans = [span for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"] if span["name"] == "chat m"]
    found = {int(attributes(span)["whet.call"]["intValue"]): span for span in spans}
    assert [call for call, span in sorted(found.items()) if "status" in span] == [2, 3]
    assert found[2]["status"] == {"code": 2, "message": "status"}
    sent = json.loads(attributes(found[1])["gen_ai.input.messages"]["stringValue"])
    assert [message["role"] for message in sent] == ["tool"]


def test_the_span_of_a_sub_agents_sub_agent_lies_below_its_own() -> None:
    inner = Speaker(Kind.SUB, "sub-2", "sub-1", "a test", "inner")
    (request,) = exported("otlp", episode([*WITH_SUB, exchange(3, [asked("Deeper.")], LAST, speaker=inner)]))
    spans = {span["name"]: span for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]}
    assert spans["invoke_agent inner"]["parentSpanId"] == spans["invoke_agent explore"]["spanId"]


def test_a_table_that_is_written_in_batches_has_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "BATCH", 2)
    silent = [replace(one, usage=None) for one in WORKED]
    export([episode(silent, rollout=f"r{n}") for n in range(5)], FORMATS["parquet"], tmp_path / "tables", Training())
    rollouts = pq.read_table(tmp_path / "tables/rollouts.parquet").to_pylist()
    assert [row["rollout"] for row in rollouts] == ["r0", "r1", "r2", "r3", "r4"]
    assert {(row["input_tokens"], row["output_tokens"]) for row in rollouts} == {(None, None)}, "unknown is not 0"


def test_tables_tell_where_a_thread_broke() -> None:
    edited = exchange(2, [SYSTEM, ASKED, CALLED, answered("c")], LAST)
    rows = [row for table, row in exported("parquet", episode([FIRST, SECOND, edited])) if table == "exchanges"]
    assert [row["break"] for row in rows] == [None, None, "edited"]


def test_tables_have_rollouts_exchanges_and_scores(tmp_path: Path) -> None:
    unscored = episode(rollout="r2", reward=None, rewards={}, cause="model")
    export([episode(), unscored], FORMATS["parquet"], tmp_path / "tables", Training())
    rollouts = pq.read_table(tmp_path / "tables/rollouts.parquet").to_pylist()
    assert [(row["rollout"], row["score"], row["cause"], row["trained_tokens"]) for row in rollouts] == [
        ("r1", 1.0, None, 3),
        ("r2", None, "model", 3),
    ]
    exchanges = pq.read_table(tmp_path / "tables/exchanges.parquet").to_pylist()
    assert [(row["call"], row["reply"], row["tools_called"]) for row in exchanges[:2]] == [
        (0, "", ["bash"]),
        (1, "Done.", []),
    ]
    assert [message["role"] for message in json.loads(exchanges[1]["new_messages"])] == ["tool"]
    scores = pq.read_table(tmp_path / "tables/scores.parquet").to_pylist()
    assert [(row["rollout"], row["judge"], row["score"]) for row in scores] == [("r1", "exact", 1.0)]


def test_the_manifest_counts_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    truncated = [WORKED[0], with_tokens(SECOND, [1, 2, 3, 10, 11, 20, 21], [12], [-0.3], finish="length")]
    cold = [with_tokens(FIRST, [1], [2], [-0.1], temperature=0)]
    out = tmp_path / "rows.jsonl"
    export(
        [
            episode(),
            episode(rollout="r2", reward=None),
            episode(truncated, rollout="r3"),
            episode(cold, rollout="r4"),
            episode([FIRST, replace(FIRST, index=1, status=500)], rollout="r5"),
            episode(rollout="r6", group="of one alone"),
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
    found = export([episode()], FORMATS["verl"], tmp_path / "out", Training(max_tokens=7))
    assert (found.truncated, found.records) == ({"too long": 1}, 0)


def test_without_ids_there_are_no_rows_and_it_says_what_there_is(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    with pytest.raises(UserError, match=r"--to verl needs token ids, and none of 2 calls has them.*chat, atif"):
        export([episode([FIRST, SECOND])], FORMATS["verl"], out, Training())
    assert list(tmp_path.iterdir()) == []
    export([episode([FIRST, SECOND])], FORMATS["chat"], out, Training())
    assert len(out.read_text().splitlines()) == 1


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    export([episode()], FORMATS["chat"], tmp_path / "out", Training())
    assert {file.name for file in tmp_path.iterdir()} == {"out", "out.manifest.json"}
    for left in ("out.manifest.json", "out"):
        with pytest.raises(UserError, match=f"{left}: exists already"):
            export([episode()], FORMATS["chat"], tmp_path / "out", Training())
        (tmp_path / left).unlink()


@pytest.mark.parametrize("name", FORMATS)
def test_a_rollout_without_any_call_is_no_trouble(name: str) -> None:
    exported(name, episode([]))


def told_by_version(call: Exchange, version: str) -> Exchange:
    reply = json.loads(call.response) | {"metadata": {"weight_version": version}}
    return replace(call, response=json.dumps(reply).encode())


def test_the_version_of_the_weights_is_what_the_engine_tells_and_else_unknown() -> None:
    versioned = [told_by_version(WORKED[0], "7"), told_by_version(WORKED[1], "8")]
    (row,) = exported("rows", episode(versioned))
    assert [span["weight_version"] for span in row["spans"]] == [None, "7", None, "8"]
    assert exported("slime", episode(versioned))[0]["weight_versions"] == ["7", "8"]
    assert exported("areal", episode(versioned))[0]["versions"] == [[-1, -1, -1, 7, 7, -1, -1, 8]]
    named = [told_by_version(one, "step-7") for one in WORKED]
    assert exported("areal", episode(named))[0]["versions"] == [[-1, -1, -1, 0, 0, -1, -1, 0]]
    (unknown,) = exported("rows")
    assert {span["weight_version"] for span in unknown["spans"]} == {None}
    assert exported("slime")[0]["weight_versions"] == []


def test_each_call_of_its_own_has_the_reward_discounted_from_the_end() -> None:
    first, last = exported("areal-individual", discount=0.5)
    assert (first["input_ids"], last["input_ids"]) == ([TOKENS[:5]], [TOKENS])
    assert (first["loss_mask"], last["loss_mask"]) == ([[0, 0, 0, 1, 1]], [[0] * 7 + [1]])
    assert (first["logprobs"], last["logprobs"]) == ([[0, 0, 0, -0.1, -0.2]], [[0] * 7 + [-0.3]])
    assert first["versions"] == [[-1, -1, -1, 0, 0]]
    assert (first["rewards"], last["rewards"]) == ([0.5], [1.0])
    assert [one["rewards"] for one in exported("areal-individual")] == [[1.0], [1.0]]


def test_a_conversation_that_an_earlier_line_has_can_be_left_out(tmp_path: Path) -> None:
    renamed = [
        replace(one, request=one.request.replace(b"c1", b"c9"), response=one.response.replace(b"c1", b"c9"))
        for one in WORKED
    ]
    both = [episode(), episode(renamed, rollout="r2")]
    every = export(both, FORMATS["chat"], tmp_path / "every", Training())
    once = export(both, FORMATS["chat"], tmp_path / "once", Training(), distinct=True)
    assert (every.records, every.repeated) == (2, 0)
    assert (once.records, once.repeated) == (1, 1)
    with pytest.raises(UserError, match="--distinct: records of rows are never the same; expected --to chat"):
        export(both, FORMATS["rows"], tmp_path / "rows", Training(), distinct=True)


def test_the_best_rollouts_of_each_task_can_be_chosen() -> None:
    rewards: dict[str, list[float | None]] = {"a": [0.5, None, 1.0], "b": [0.0, 0.0]}
    found = [
        (episode(task=task, rollout=f"{task}{n}", reward=reward), n)
        for task, all_of_it in rewards.items()
        for n, reward in enumerate(all_of_it)
    ]
    assert [one.rollout for one, _ in best_of_each_task(found, 1)] == ["a2", "b0"]
    assert [one.rollout for one, _ in best_of_each_task(found, 2)] == ["a0", "a2", "b0", "b1"]


@pytest.mark.parametrize("name", FORMATS)
def test_exporting_twice_gives_the_same_bytes(name: str) -> None:
    assert json.dumps(exported(name)) == json.dumps(exported(name, replace(episode(), exchanges=iter(WORKED))))


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
    assert read_filter(text).holds(episode(tags=("math", "easy"), flags=("canary",))) is holds


def test_a_rollout_without_a_score_meets_no_condition_on_scores() -> None:
    assert not read_filter("score<=1").holds(episode(reward=None))


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
