"""Attacks `whet serve` with 10,000 hostile requests and frames, over every door and with several seeds, and prints what
came of them. Fails if the server fails once, is slow for everybody else, or keeps anything of what they took."""

import asyncio
import sys
import tempfile
from pathlib import Path

from support.hostile_world import SPARE_FILES, Besieged, besieged
from support.whet_program import new_project

SEEDS = (11, 12, 13, 14)
COUNT = 2500
MORE_MB = 200
SLOWEST_HEALTH_SEC = 3.0


async def attack(server: Besieged, seed: int) -> list[str]:
    """Attack with one seed; what went wrong."""
    storm = await server.attack(seed, COUNT)
    after = await server.settle(storm.before)
    tally, before = storm.tally, storm.before
    print(f"seed {seed}: {tally.sent.total()} in {storm.seconds:.0f} s: {dict(tally.sent)}")
    print(f"  statuses {dict(sorted(tally.statuses.items()))}, closed {dict(sorted(tally.closes.items()))}")
    print(f"  /health p99 {storm.health_p99 * 1000:.0f} ms, slowest {max(storm.health) * 1000:.0f} ms")
    print(f"  before {before}")
    print(f"  after  {after}", flush=True)
    wrong = list(tally.defects)
    if after.sessions + after.queued + after.running:
        wrong.append(f"slots are not free: {after}")
    if after.files > before.files + SPARE_FILES:
        wrong.append(f"files are left open: {before.files} before, {after.files} after")
    if after.memory_mb > before.memory_mb + MORE_MB:
        wrong.append(f"memory grew: {before.memory_mb:.0f} MB before, {after.memory_mb:.0f} MB after")
    if max(storm.health) > SLOWEST_HEALTH_SEC:
        wrong.append(f"/health took {max(storm.health):.1f} s")
    if (await server.run_one())["outcome"] != "scored":
        wrong.append("an ordinary rollout is not scored")
    return [f"seed {seed}: {one}" for one in wrong]


async def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # boxes have users of their own
        with new_project(Path(folder)) as project, besieged(project) as server:
            wrong = [one for seed in SEEDS for one in await attack(server, seed)]
            wrong += server.complaints()
    for one in wrong:
        print("FAILED", one)
    print(f"{len(SEEDS) * COUNT} hostile requests and frames: {len(wrong)} failures")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
