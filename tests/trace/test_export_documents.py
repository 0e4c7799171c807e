"""Exports for those who look at rollouts: ATIF, spans and tables."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from support import export_world as w
from support.trace_world import SYSTEM, answered, asked, exchange, said
from whet.exchange import CallError, Kind, Speaker
from whet.gateway.dialects.neutral import Text, ToolCall
from whet.trace.export import FORMATS, export, sinks
from whet.trace.training.calls import Training


def test_atif_has_a_step_per_call_with_what_its_tools_answered() -> None:
    ((name, document),) = w.exported("atif")
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
    ((_, document),) = w.exported("atif", w.episode(w.WITH_SUB))
    (sub,) = document["subagent_trajectories"]
    assert sub["trajectory_id"] == "sub-1"
    assert [step["message"] for step in sub["steps"]] == [w.PROMPT, "None."]
    (result,) = document["steps"][2]["observation"]["results"]
    assert result["subagent_trajectory_ref"] == [{"trajectory_id": "sub-1"}]


def test_atif_counts_the_calls_of_a_sub_agent_once() -> None:
    sub = w.WITH_SUB[1]
    twin = replace(sub, index=2, speaker=replace(w.SUB, thread="sub-2"))
    edited = exchange(3, [SYSTEM, w.ASKED, w.SPAWNING, answered("Some.", "c9")], w.LAST)
    anew = exchange(4, [SYSTEM, asked("Else.")], w.LAST)
    main = exchange(2, [SYSTEM, w.ASKED, w.SPAWNING, answered("None.", "c9")], w.LAST)
    exchanges = [w.WITH_SUB[0], sub, twin, replace(main, index=3), replace(edited, index=4), replace(anew, index=5)]
    documents = [document for _, document in w.exported("atif", w.episode(exchanges))]
    copied = [
        [trajectory["steps"][-1].get("is_copied_context", False) for trajectory in one.get("subagent_trajectories", ())]
        for one in documents
    ]
    assert copied == [[False, False], [True, True], []]


def test_atif_points_from_each_result_at_the_sub_agent_that_gave_it() -> None:
    other = w.PROMPT.replace("tests", "docs")
    both = said(*(ToolCall(f"c{n}", "task", json.dumps({"prompt": one})) for n, one in enumerate((w.PROMPT, other))))
    exchanges = [
        exchange(0, [SYSTEM, w.ASKED], both),
        exchange(1, [asked(w.PROMPT)], said(Text("None.")), speaker=w.SUB),
        exchange(2, [asked(other)], said(Text("One.")), speaker=replace(w.SUB, thread="sub-2")),
        exchange(3, [SYSTEM, w.ASKED, both, answered("None.", "c0"), answered("One.", "c1")], w.LAST),
    ]
    ((_, document),) = w.exported("atif", w.episode(exchanges))
    results = document["steps"][2]["observation"]["results"]
    assert [result["subagent_trajectory_ref"] for result in results] == [
        [{"trajectory_id": "sub-1"}],
        [{"trajectory_id": "sub-2"}],
    ]


def test_atif_links_a_result_only_to_a_call_of_its_step() -> None:
    ((_, document),) = w.exported(
        "atif", w.episode([w.FIRST, exchange(1, [SYSTEM, w.ASKED, w.CALLED, answered("a", "z")], w.LAST)])
    )
    assert document["steps"][2]["observation"] == {"results": [{"content": "a"}]}


def test_atif_continues_in_another_document_after_a_break() -> None:
    edited = exchange(2, [SYSTEM, w.ASKED, w.CALLED, answered("c")], said(Text("Again.")))
    (name, first), (next_name, second) = w.exported("atif", w.episode([w.FIRST, w.SECOND, edited]))
    assert (name, first["continued_trajectory_ref"], next_name) == ("r1.json", "r1.2.json", "r1.2.json")
    copied = [step.get("is_copied_context", False) for step in second["steps"] if step["source"] == "agent"]
    assert copied == [True, False]


def test_spans_are_a_tree_of_agents_calls_and_tools() -> None:
    (request,) = w.exported("otlp", w.episode(w.WITH_SUB))
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


def test_spans_tell_each_message_once() -> None:
    failed = replace(exchange(2, [SYSTEM, w.ASKED], w.LAST), status=503, error=CallError.STATUS)
    cut = replace(exchange(3, [SYSTEM, w.ASKED, w.CALLED, w.TOLD, w.LAST, asked("More.")], w.LAST), error=CallError.CUT)
    (request,) = w.exported("otlp", w.episode([w.FIRST, w.SECOND, failed, cut]))
    spans = [span for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"] if span["name"] == "chat m"]
    found = {int(attributes(span)["whet.call"]["intValue"]): span for span in spans}
    assert [call for call, span in sorted(found.items()) if "status" in span] == [2, 3]
    assert found[2]["status"] == {"code": 2, "message": "status"}
    sent = json.loads(attributes(found[1])["gen_ai.input.messages"]["stringValue"])
    assert [message["role"] for message in sent] == ["tool"]


def test_the_span_of_a_sub_agents_sub_agent_lies_below_its_own() -> None:
    inner = Speaker(Kind.SUB, "sub-2", "sub-1", "a test", "inner")
    (request,) = w.exported("otlp", w.episode([*w.WITH_SUB, exchange(3, [asked("Deeper.")], w.LAST, speaker=inner)]))
    spans = {span["name"]: span for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]}
    assert spans["invoke_agent inner"]["parentSpanId"] == spans["invoke_agent explore"]["spanId"]


def test_a_table_that_is_written_in_batches_has_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "BATCH", 2)
    silent = [replace(one, usage=None) for one in w.WORKED]
    export([w.episode(silent, rollout=f"r{n}") for n in range(5)], FORMATS["parquet"], tmp_path / "tables", Training())
    rollouts = pq.read_table(tmp_path / "tables/rollouts.parquet").to_pylist()
    assert [row["rollout"] for row in rollouts] == ["r0", "r1", "r2", "r3", "r4"]
    assert {(row["input_tokens"], row["output_tokens"]) for row in rollouts} == {(None, None)}, "unknown is not 0"


def test_tables_tell_where_a_thread_broke() -> None:
    edited = exchange(2, [SYSTEM, w.ASKED, w.CALLED, answered("c")], w.LAST)
    rows = [row for table, row in w.exported("parquet", w.episode([w.FIRST, w.SECOND, edited])) if table == "exchanges"]
    assert [row["break"] for row in rows] == [None, None, "edited"]


def test_tables_have_rollouts_exchanges_and_scores(tmp_path: Path) -> None:
    unscored = w.episode(rollout="r2", reward=None, rewards={}, cause="model")
    export([w.episode(), unscored], FORMATS["parquet"], tmp_path / "tables", Training())
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
