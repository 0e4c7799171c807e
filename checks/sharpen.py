"""`make check-sharpen`: real coding agents with each of the three proposers raise the hidden-test score of the example
tasks, and it is certified. The model is scripted: it does its work only when its skill has the rule."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.sharpen_clis import RULE, sharpen_command, write_world

AGENTS = ("claude-code", "opencode")
PROPOSERS = ("criteria", "llm", "agent")
BUDGET = 206
"""The fewest rollouts with which an exam is held on five tasks."""


def main() -> int:
    certified = [check(agent, proposer) for agent in AGENTS for proposer in PROPOSERS]
    return 0 if all(certified) else 1


def check(agent: str, proposer: str) -> bool:
    """Whether one agent with one proposer ends with a certified skill that has the rule."""
    with tempfile.TemporaryDirectory(prefix="whet-check-") as name:
        folder, started = Path(name), time.monotonic()
        write_world(folder)
        argv = [sys.executable, "-m", "whet", *sharpen_command(agent, proposer, BUDGET)]
        env = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
        good = done.returncode == 0 and _is_certified(folder / "out")
        tried = [line.strip() for line in done.stdout.splitlines() if line.startswith(("  tried", "  exam"))]
    print(f"{agent}, {proposer}: {'certified' if good else 'NOT CERTIFIED'} in {time.monotonic() - started:.0f} s")
    print("\n".join(f"  {line}" for line in tried) if good else f"{done.stdout}{done.stderr}", flush=True)
    return good


def _is_certified(out: Path) -> bool:
    certificate = json.loads((out / "certificate.json").read_text())
    return certificate["certified"] != certificate["start"] and RULE in (out / "best/careful-work/SKILL.md").read_text()


if __name__ == "__main__":
    sys.exit(main())
