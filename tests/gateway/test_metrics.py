"""Metrics: what Prometheus reads is what passed, and only the operator can read it."""

from typing import Any

import pytest
from aiohttp import web
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from support.calls import call
from support.gateway_world import UNARY, answer_unary, world
from whet.exchange import CACHE, CallError, Exchange, Kind, Speaker, Usage
from whet.gateway.metrics import SECONDS, Metrics
from whet.gateway.prices import Price


def exchange(**different: Any) -> Exchange:
    usual: dict[str, Any] = {"request": b"12345", "upstream": "http://127.0.0.1:1", "response": b"1234567"}
    times: dict[str, Any] = {"started": 100.0, "first_byte": 100.2, "ended": 103.0}
    return call(**usual | times | {"usage": Usage(input=1000, output=10, cache_read=800)} | different)


def read(metrics: Metrics, in_flight: int = 0) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(metrics.text(in_flight))}


def values(family: Metric) -> dict[tuple[str, ...], float]:
    """The samples of a family that has no other suffix, by their labels in the order of their names."""
    return {tuple(sample.labels[name] for name in sorted(sample.labels)): sample.value for sample in family.samples}


def test_calls_are_counted_by_dialect_status_error_and_kind() -> None:
    metrics = Metrics(None)
    sub = Speaker(Kind.SUB, "t", None, "")
    for seen in (
        exchange(),
        exchange(),
        exchange(speaker=sub),
        exchange(dialect="gemini", status=None, error=CallError.REFUSED, usage=None, first_byte=None),
    ):
        metrics.count(seen)
    assert values(read(metrics)["whet_calls"]) == {
        ("chat", "", "unknown", "200"): 2,
        ("chat", "", "sub", "200"): 1,
        ("gemini", "refused", "unknown", ""): 1,
    }


def test_tokens_bytes_and_retries_add_up() -> None:
    metrics = Metrics(None)
    metrics.count(exchange(attempts=3, sent=b"1", delivered=b"12"))
    metrics.count(exchange(usage=None))
    families = read(metrics, in_flight=4)
    assert values(families["whet_tokens"]) == {("input",): 1000, ("output",): 10}
    assert values(families["whet_cached_tokens"]) == {("read",): 800, ("write",): 0}
    assert values(families["whet_recorded_bytes"]) == {(): 27}
    assert values(families["whet_retries"]) == {(): 2}
    assert values(families["whet_calls_in_flight"]) == {(): 4}


def test_the_cost_is_told_only_when_the_price_is_known() -> None:
    assert "whet_cost_dollars" not in read(Metrics(None))
    metrics = Metrics(Price(input=1.0, output=10.0))
    metrics.count(exchange())
    metrics.count(exchange(upstream=CACHE, attempts=0))
    assert values(read(metrics)["whet_cost_dollars"]) == {(): pytest.approx(0.0011)}


def test_times_are_in_the_bucket_of_the_first_bound_that_holds_them() -> None:
    metrics = Metrics(None)
    for seconds in (0.05, 0.06, 1000.0):
        metrics.count(exchange(first_byte=100.0, ended=100.0 + seconds))
    metrics.count(exchange(attempts=0, status=404, error=CallError.REJECTED))
    family = read(metrics)["whet_call_seconds"]
    below = {sample.labels["le"]: sample.value for sample in family.samples if sample.name.endswith("_bucket")}
    assert (below["0.05"], below["0.1"], below["300.0"], below["+Inf"]) == (1, 2, 2, 3)
    assert len(below) == len(SECONDS) + 1
    (total,) = [sample.value for sample in family.samples if sample.name.endswith("_sum")]
    assert total == pytest.approx(1000.11)
    times = read(metrics)["whet_first_byte_seconds"].samples
    assert {sample.value for sample in times if "_count" in sample.name} == {3}


async def test_an_agent_finds_no_metrics_at_its_port() -> None:
    async with world(answer_unary) as w:
        async with w.http.get(f"{w.url}/metrics") as reply:
            assert reply.status == 401
        headers = {"Authorization": f"Bearer {w.session.secret}"}
        async with w.http.get(f"{w.url}/metrics", headers=headers) as reply:
            assert reply.status == 404


async def test_calls_under_way_are_told() -> None:
    seen = []

    async def model(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(w.session.calls_in_flight)
        return web.json_response(UNARY)

    async with world(model) as w:
        assert w.session.calls_in_flight == 0
        async with w.post() as reply:
            assert reply.status == 200
        assert (seen, w.session.calls_in_flight) == ([1], 0)
