"""Plays a night in a made-up world."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from whet.errors import UserError
from whet.runs.config import Config
from whet.sleep.demo.world import World, make_world
from whet.sleep.night.flow import Setting, run_night
from whet.sleep.options import SleepOptions
from whet.sleep.report import render_report
from whet.sleep.staging import list_proposals
from whet.sleep.store import SleepStore


async def play_night(folder: Path, watch: Callable[[str], None]) -> tuple[World, str]:
    """Make a world in a new folder and run a night in it. Returns the world and the morning report."""
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty; expected a new folder")
    world = make_world(folder, datetime.now(UTC))
    watch(f"made {world.home} with a repository of 15 commits and 5 sessions of Claude Code and Codex")
    # The night knows nothing of the user's own settings, and its exam is not in the user's ledger.
    env = {"PATH": os.environ["PATH"], "HOME": str(world.home), "XDG_STATE_HOME": str(folder / "state")}
    options = SleepOptions(agent="loop", model=f"scripted:{world.script}")
    with SleepStore(world.store) as store:
        record = await run_night(Setting(options, Config(), world.home, env, watch), store)
        return world, render_report(record, list_proposals(store))
