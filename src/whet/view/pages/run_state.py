"""In which state a run is, in words, and how to continue one that has not ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from whet.look.numbers import age, plural
from whet.runs.index import RolloutState
from whet.runs.stats.words import describe_stop
from whet.view import addresses
from whet.view.library import HIDDEN_PARTS, RunEntry
from whet.view.page import Part, View
from whet.view.pages.common import command_line
from whet.view.snapshot import Snapshot

FLAGS = {"cost": "--max-cost", "total tokens": "--max-tokens", "wall": "--max-minutes"}
"""The flags that raise a limit, by how the name of the limit begins."""


class State(StrEnum):
    """How far a run has come."""

    RUNNING = "running"
    ENDED = "ended"
    STOPPED = "stopped"
    """A limit ended it, or whoever ran it."""
    EMPTY = "empty"
    """It has no rollouts."""


@dataclass(frozen=True, slots=True)
class RunState:
    """What to say of a run first."""

    state: State
    since: float | None
    """When it began, if it is running; else when something last happened."""
    problems: tuple[str, ...] = ()
    """Why it ended before all was done."""
    resume: str = ""
    """The command that continues it; empty when there is nothing to continue, or the command is not known."""


def state_part(view: View, entry: RunEntry, snapshot: Snapshot) -> Part:
    """The state of a run, what it ran in, and where a fork comes from."""
    state, facts = describe_state(entry.path, snapshot), snapshot.facts
    about = [f"sandbox {facts.sandbox}"] if facts.sandbox else []
    planned = snapshot.whole.planned
    about += [f"{planned:,} {'rollout' if planned == 1 else 'rollouts'}"]
    about += [f"whet {facts.version}"] if facts.version else []
    data = {
        "state": state,
        "ago": age(view.now() - state.since) if state.since is not None else "",
        "about": about,
        "origin": _find_origin(view, snapshot),
        # Whoever reads an export cannot resume the run.
        "resume": "" if view.exporting else state.resume,
        "was_hidden": entry.parent is not None and entry.path.name in HIDDEN_PARTS,
    }
    return Part("run-state", "run_state.html", data)


def _find_origin(view: View, snapshot: Snapshot) -> dict[str, object] | None:
    """The rollout that a run is a fork of; without an address when its run is not shown here."""
    fork = snapshot.facts.fork
    if fork is None:
        return None
    entry = view.library.find_folder(Path(fork["run"]))
    known = entry is not None and not entry.hidden
    return {
        "run": entry.name if entry else Path(fork["run"]).name,
        "rollout": fork["rollout"],
        "at": fork["at"],
        "address": addresses.trace(entry.name, fork["rollout"]) if entry and known else "",
    }


def describe_state(folder: Path, snapshot: Snapshot) -> RunState:
    """The state of a run that has rollouts of its own."""
    whole, facts = snapshot.whole, snapshot.facts
    if snapshot.running:
        return RunState(State.RUNNING, facts.opened or snapshot.started, tuple(describe_stop(None, facts.stopped_arms)))
    if not whole.planned:
        return RunState(State.EMPTY, None)
    problems = describe_stop(facts.limit, facts.stopped_arms)
    if not whole.not_run:
        return RunState(State.ENDED, snapshot.last_change, tuple(problems))
    if not problems:
        left = plural(whole.not_run, "rollout was", "rollouts were")
        killed = any(row.state is RolloutState.RUNNING for row in snapshot.rows)
        problems = [f"{left} not run: the process {'was killed' if killed else 'was stopped'}"]
    return RunState(State.STOPPED, snapshot.last_change, tuple(problems), resume_command(folder, snapshot))


def resume_command(folder: Path, snapshot: Snapshot) -> str:
    """The command that continues a run, as far as its folder says how it was started. A skill is known by name only,
    so the reader has to fill in its folder."""
    facts = snapshot.facts
    if not facts.by_run:
        return ""
    if facts.fork is not None:
        origin = (facts.fork["run"], facts.fork["rollout"], "--at", facts.fork["at"])
        return command_line("fork", *origin, "--out", folder, "--resume")
    agents, models, skills = (_distinct(snapshot, place) for place in range(3))
    samples = len({row.rollout.sample for row in snapshot.rows})
    words: list[object] = ["run", *facts.tasks, "--agent", ",".join(agents), "--model", ",".join(models)]
    if any(skills):
        words += [
            "--skill",
            ",".join(f"FOLDER-OF-{facts.skills[one].split('@')[0]}" if one else "none" for one in skills),
        ]
    words += ["--samples", samples] if samples > 1 else []
    raised = next((flag for name, flag in FLAGS.items() if (facts.limit or "").startswith(name)), None)
    words += [raised, "MORE"] if raised else []
    return command_line(*words, "--out", folder, "--resume")


def _distinct(snapshot: Snapshot, place: int) -> Sequence[str]:
    return list(dict.fromkeys(arm[place] or "" for arm in snapshot.arms))
