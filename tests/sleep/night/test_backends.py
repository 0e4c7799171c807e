"""A night with other models than the scripted one on the machine: a pool of endpoints, and a writer that is not the
target."""

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from pydantic import SecretStr

from whet.runs.config import Config, ModelConfig
from whet.sleep.demo.world import CHECK, RULE, World, make_world
from whet.sleep.night.flow import Setting, agree, run_night
from whet.sleep.options import SleepOptions
from whet.sleep.report import NightRecord, Outcome
from whet.sleep.staging import list_proposals
from whet.sleep.store import SleepStore
from whet.testing import Scene, Script, ScriptedModel, read_script, say

WRITTEN = f"- Run `{CHECK}` as the last step of every task."
EDITS = {"patterns": [], "edits": [{"op": "add", "text": WRITTEN, "reason": "the developer asks for it"}]}
KEY = "not-a-real-key-of-azure"


async def play(world: World, store: SleepStore, preferences: str) -> tuple[NightRecord, list[str], list[str]]:
    """A night whose target is a pool of two endpoints that speak Responses, and whose writer is at Azure. Returns what
    each endpoint of the pool and the writer were sent."""
    target, writer = read_script(world.script), Script(scenes=(Scene(replies=(say(json.dumps(EDITS)),)),))
    async with ScriptedModel(target) as one, ScriptedModel(target) as two, ScriptedModel(writer) as third:
        models = {
            "pool": ModelConfig(urls=(f"{one.url}/v1", f"{two.url}/v1"), dialect="responses"),
            "writer": ModelConfig(url=f"{third.url}/v1", auth="azure", key=SecretStr(KEY)),
        }
        options = SleepOptions(agent="loop", model="pool", proposer_model="writer", preferences=preferences)
        env = {"PATH": os.environ["PATH"], "HOME": str(world.home), "XDG_STATE_HOME": str(world.home / ".state")}
        setting = Setting(options, Config(models=models), world.home, env)
        agree(setting, store)
        night = await run_night(setting, store)
        pool = [received.path for model in (one, two) for received in model.requests]
        assert one.requests
        assert two.requests
        assert {received.headers["api-key"] for received in third.requests} == {KEY}
        return night, pool, [received.body.decode() for received in third.requests]


def test_the_target_is_a_pool_and_another_model_writes_the_rule(tmp_path: Path) -> None:
    world = make_world(tmp_path, datetime.now(UTC))
    with SleepStore(world.store) as store:
        house = tmp_path / "house.md"
        house.write_text("Write short rules.\n")
        night, pool, written = asyncio.run(play(world, store, str(house)))
        (proposal,) = list_proposals(store)
    assert night.outcome is Outcome.PROPOSED
    assert proposal.certified
    assert {path.rpartition("/")[2] for path in pool} == {"responses"}
    assert WRITTEN.removeprefix("- ") in proposal.edit
    assert any(RULE.rstrip(".") in prompt and "Write short rules." in prompt for prompt in written)
    assert KEY not in "".join(written)
