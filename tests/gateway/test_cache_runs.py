"""A run that is repeated from its own record, without its model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.run_world import read_results
from whet.errors import UserError
from whet.exchange import Exchange
from whet.rollout.result import Result
from whet.runs.config import Config, ModelConfig
from whet.runs.options import RunOptions
from whet.runs.run import run
from whet.runs.store.reply_cache import CacheUse, open_cache
from whet.runs.store.store import Store
from whet.scoring import Cause
from whet.testing import Reply, Scene, Script, ScriptedModel, call, say

REPLIES = (call("bash", command="echo 42 > answer"), call("bash", command="cat answer"), say("42"))
PRICE = {"price_input": 1.0, "price_output": 1.0}


def tasks(folder: Path) -> Path:
    file = folder / "tasks.jsonl"
    rows = [{"id": f"t{n}", "instruction": f"Write {n} as 42.", "verify": ["grep -qx 42 answer"]} for n in range(2)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


async def perform(folder: Path, name: str, model: ModelConfig, cache: str, **request: Any) -> Path:
    """Run the loop agent; the run's folder."""
    wanted = RunOptions(tasks=tasks(folder), out=folder / name, agents=("loop",), models=("m",), cache=cache, **request)
    await run(wanted, Config(models={"m": model}), lambda _: None, env={"XDG_CACHE_HOME": str(folder / "home")})
    return wanted.out


def results(run_folder: Path) -> dict[str, Result]:
    """The last attempt at every rollout."""
    return {row.id: result for row, result in read_results(run_folder)}


def exchanges(run_folder: Path) -> dict[str, list[Exchange]]:
    """The exchanges of the last attempt at every rollout."""
    with Store.open_read(run_folder) as store:
        return {row.id: store.exchanges(attempts[-1].id) for row, attempts in store.attempts_by_rollout()}


def said(record: Mapping[str, list[Exchange]]) -> dict[str, list[tuple[bytes, bytes]]]:
    return {rollout: [(call.request, call.response) for call in calls] for rollout, calls in record.items()}


async def test_a_run_is_repeated_from_its_record_when_its_model_is_gone(tmp_path: Path) -> None:
    async with ScriptedModel(Script(scenes=(Scene(replies=REPLIES),))) as scripted:
        model = ModelConfig(url=scripted.url, name="tiny", attempts=1, **PRICE)
        first = await perform(tmp_path, "first", model, "write", samples=2)
        asked = len(scripted.requests)
        second = await perform(tmp_path, "second", model, "replay-only", samples=2)
        assert len(scripted.requests) == asked == 4 * len(REPLIES)
    third = await perform(tmp_path, "third", model, "replay-only", samples=2)

    recorded = exchanges(first)
    for repeated in (second, third):
        assert said(exchanges(repeated)) == said(recorded)
        assert all(call.replayed for calls in exchanges(repeated).values() for call in calls)
    for rollout, result in results(third).items():
        before = results(first)[rollout]
        assert (result.score.value, before.score.value) == (1, 1)
        assert result.spending.input_tokens == before.spending.input_tokens > 0
        assert (result.spending.cost, before.spending.cost and before.spending.cost > 0) == (0, True)


async def test_a_scripted_model_is_repeated_too(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text('[[scene]]\n[[scene.reply]]\ntext = "42"\n')
    first = await perform(tmp_path, "first", ModelConfig(script=script), "write")
    script.write_text('[[scene]]\n[[scene.reply]]\ntext = "another"\n')
    second = await perform(tmp_path, "second", ModelConfig(script=script), "replay-only")
    assert said(exchanges(second)) == said(exchanges(first))


async def test_a_miss_is_a_missing_score_that_says_so(tmp_path: Path) -> None:
    async with ScriptedModel(Script(scenes=(Scene(replies=REPLIES),))) as scripted:
        model = ModelConfig(url=scripted.url, name="tiny", attempts=1)
        await perform(tmp_path, "first", model, "write", samples=1)
        asked = len(scripted.requests)
        missed = await perform(tmp_path, "second", model, "replay-only", samples=2)
        assert len(scripted.requests) == asked
    scores = [result.score for result in results(missed).values()]
    assert [score.value for score in scores] == [1, 1, None, None]
    assert {score.cause for score in scores[2:]} == {Cause.CACHE}
    with Store.open_read(missed) as store:
        assert [len(attempts) for _, attempts in store.attempts_by_rollout()] == [1] * 4, "trying again does not help"
    assert all("not in the cache" in score.reason and "replay-only" in score.reason for score in scores[2:])


@pytest.mark.parametrize("login", [{"key_env": "ABSENT_KEY"}, {"auth": "azure"}], ids=["key", "azure"])
async def test_replay_needs_neither_key_nor_login(tmp_path: Path, login: dict[str, Any]) -> None:
    async with ScriptedModel(Script(scenes=(Scene(replies=(Reply(text="42"),)),))) as scripted:
        model = ModelConfig(url=scripted.url, name="tiny")
        await perform(tmp_path, "first", model, "write")
    locked = ModelConfig(url=scripted.url, name="tiny", **login)
    repeated = await perform(tmp_path, "second", locked, "replay-only")
    assert all(call.replayed and call.error is None for calls in exchanges(repeated).values() for call in calls)


async def test_without_the_option_nothing_is_kept(tmp_path: Path) -> None:
    async with ScriptedModel(Script(scenes=(Scene(replies=REPLIES),))) as scripted:
        await perform(tmp_path, "first", ModelConfig(url=scripted.url, name="tiny"), "off")
    assert not (tmp_path / "home").exists()


async def test_a_cache_that_holds_nothing_is_named_before_anything_is_run(tmp_path: Path) -> None:
    async with open_cache(CacheUse.WRITE, {"XDG_CACHE_HOME": str(tmp_path / "home")}):
        pass
    with pytest.raises(UserError, match=r"cache\.db: there are no replies to replay"):
        await perform(tmp_path, "first", ModelConfig(url="http://127.0.0.1:9"), "replay-only")
    assert not (tmp_path / "first").exists()


async def test_an_unknown_use_of_the_cache_is_named_before_anything_is_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`cache` is 'reply'; expected one of: off, read, write, replay-only"):
        await perform(tmp_path, "first", ModelConfig(url="http://127.0.0.1:9"), "reply")
    assert not (tmp_path / "first").exists()
