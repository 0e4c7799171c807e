"""The proposer's model: its replies are stored without secrets, and a limit that stops it is not its failure."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.proposers_world import context, rollout
from whet.agents import agent_named
from whet.errors import UserError
from whet.gateway import Gateway, Limits, Model
from whet.rollout.resources import RunResources
from whet.runs.store.store import Store
from whet.runs.store.writer import StoreWriter
from whet.runs.stored_run import load
from whet.sandbox import sandbox_named
from whet.skills.measurement import OutOfBudget
from whet.skills.proposers.base import NoProposal, PastProposal
from whet.skills.rollouts.runner import AgentSetup
from whet.skills.sharpen.proposer_runtime import ProposerRuntime
from whet.testing import Scene, Script, ScriptedModel, say
from whet.text.redact import Redactor

SECRET = "sk-live-123456"


def rule(text: str) -> str:
    return json.dumps({"edits": [{"op": "add", "text": text}]})


@asynccontextmanager
async def open_proposer(
    folder: Path,
    *replies: str,
    turns: int | None = None,
    refuse_spent: Callable[[], None] = lambda: None,
    check_prompt: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[tuple[ProposerRuntime, ScriptedModel]]:
    Store.create(folder).close()
    redactor, script = Redactor([SECRET]), Script(scenes=(Scene(replies=tuple(map(say, replies))),))
    async with (
        ScriptedModel(script) as scripted,
        Gateway(redactor, Limits(turns=turns)) as gateway,
        StoreWriter(folder) as recorder,
    ):
        arm = AgentSetup("chat", agent_named("chat", {}), Model("proposer", scripted.url, "tiny", key=None, attempts=1))
        resources = RunResources(sandbox_named("local"), gateway, redactor, {})
        yield ProposerRuntime("llm", arm, resources, recorder, refuse_spent, check_prompt), scripted


async def test_a_secret_that_a_model_says_is_neither_kept_nor_proposed(tmp_path: Path) -> None:
    async with open_proposer(tmp_path, rule(f"- Log in with {SECRET}.")) as (proposer, _):
        proposal = await proposer.propose(context(rollout()))
    assert [edit.text for edit in proposal.edits] == ["- Log in with [redacted]."]
    (kept,) = load(tmp_path).rollouts
    assert kept.result is not None
    for told in (repr(proposal), repr(kept.result), repr(kept.exchanges())):
        assert SECRET not in told
        assert "Log in" in told


async def test_a_model_that_was_stopped_by_a_limit_did_not_fail(tmp_path: Path) -> None:
    async with open_proposer(tmp_path, rule("- Be brief."), turns=1) as (proposer, _):
        assert (await proposer.propose(context(rollout()))).edits
        with pytest.raises(NoProposal):
            await proposer.propose(context(rollout(), past=(PastProposal((), (), accepted=None),)))
    scores = [one.score for one in load(tmp_path).rollouts]
    assert [(score.value, score.cause) for score in scores if score] == [(1.0, None), (None, "interrupted")]


@pytest.mark.parametrize("spent_at", [1, 2])
async def test_without_money_nothing_is_asked(tmp_path: Path, spent_at: int) -> None:
    looks = 0

    def refuse_spent() -> None:
        nonlocal looks
        looks += 1
        if looks == spent_at:
            raise OutOfBudget

    async with open_proposer(tmp_path, rule("- Be brief."), turns=0, refuse_spent=refuse_spent) as (proposer, scripted):
        with pytest.raises(OutOfBudget):
            await proposer.propose(context(rollout()))
    assert not scripted.requests
    assert len(load(tmp_path).rollouts) == spent_at - 1


async def test_a_prompt_that_must_not_be_sent_is_not_sent(tmp_path: Path) -> None:
    def refuse(prompt: str) -> None:
        raise UserError(f"a prompt of {len(prompt)} characters holds a secret")

    async with open_proposer(tmp_path, rule("- Be brief."), check_prompt=refuse) as (proposer, scripted):
        with pytest.raises(UserError, match="holds a secret"):
            await proposer.propose(context(rollout()))
    assert not scripted.requests
