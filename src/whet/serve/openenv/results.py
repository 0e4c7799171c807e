"""What a finished rollout looks like to an OpenEnv client."""

import asyncio
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from whet.agents import StopReason
from whet.client.models import CommandView, Outcome, RolloutView
from whet.client.openenv_models import BLACK_BOX, CommandResult, RolloutResult
from whet.exchange import Exchange
from whet.runs.stored_run import StoredRollout
from whet.serve.access import Caller
from whet.serve.openenv.turns import capture_calls
from whet.serve.service import Service
from whet.trace.training.episode import Episode

COMMAND_CHARS = 120
TAIL_CHARS = 2000
MOST_FILES, FILE_CHARS, FILE_DEPTH = 32, 8000, 2
_KILLED = frozenset({StopReason.TIMEOUT, StopReason.STORAGE, StopReason.IDLE, StopReason.LIMIT})
"""Ways in which whet itself ends an agent. The exit code is then not the agent's."""
_NO_ENDING = "the agent had no time left"


@dataclass(frozen=True, slots=True)
class ResultShape:
    """How a caller wants its results."""

    mode: str
    workdir: str
    """Put before the paths of files; empty where it is not known."""
    most_bytes: int
    notes: tuple[str, ...] = ()
    """Findings about the request."""


async def read_result(service: Service, caller: Caller, view: RolloutView, shape: ResultShape) -> RolloutResult:
    """The result of a rollout that is done."""
    stored, files = await service.stored(view.id, caller), await service.files(view.id, caller)
    return await asyncio.to_thread(build_result, view, stored, files, shape)


def build_result(
    view: RolloutView,
    stored: StoredRollout,
    files: Mapping[str, bytes],
    shape: ResultShape,
) -> RolloutResult:
    """The result of a rollout. Blocks: it reads the recorded calls."""
    captured = shape.mode != BLACK_BOX
    calls = capture_calls(stored.exchanges() if captured else (), _episode(view), shape.most_bytes)
    left_out = stored.result.files_left_out if stored.result else ()
    shown, unread = _read_files(files, left_out, shape.workdir)
    logs = stored.logs()
    untrained = [f"{count} calls are not trained: {why}" for why, count in calls.not_trained.items()]
    return RolloutResult(
        task_id=view.task_id or view.task,
        sandbox_id=view.id,
        reward=view.reward,
        agent_exit_code=None if view.stop in _KILLED else view.exit_code,
        wall_s=round((view.ended or view.created) - (view.started or view.created), 3),
        mode=shape.mode,
        setup_results=[_command(one) for one in view.setup],
        verify_results=[_command(one) for one in view.verify],
        proxy_turns=calls.turns,
        files=shown,
        files_extra=unread,
        agent_log_tail=_tail(logs.get("agent stdout", b"") + logs.get("agent stderr", b"")),
        proxy_log_tail="\n".join(calls.failures)[-TAIL_CHARS:],
        error=describe_error(view),
        rollout_id=view.id,
        group_id=view.group,
        agent=view.agent,
        model=view.model,
        skill=view.skill,
        answer=view.answer,
        reward_source=view.reward_source,
        rewards=view.rewards,
        rollout_type="train" if calls.trainable_tokens else "eval",
        capture_level=calls.level,
        findings=[*shape.notes, *view.flags, *([view.limit] if view.limit else []), *untrained],
        phase_timings=view.seconds,
        timed_out=view.stop == StopReason.TIMEOUT,
        exception_type=view.cause,
        n_trainable_tokens=calls.trainable_tokens,
        budget_stop_count=calls.budget_stops,
        weight_version=view.weight_versions[-1] if view.weight_versions else None,
        weight_versions=list(view.weight_versions),
        straddled=view.straddled,
        usage=view.usage.model_dump(),
        training_trace=calls.training_trace,
        truncated=bool(calls.left_out),
        truncated_fields=calls.left_out,
    )


def join_group(group: str, rollouts: Sequence[RolloutResult]) -> RolloutResult:
    """The result of several rollouts of one request."""
    rewards = [one.reward for one in rollouts if one.reward is not None]
    failed = [one for one in rollouts if one.error is not None]
    first = rollouts[0]
    return RolloutResult(
        task_id=first.task_id,
        sandbox_id=group,
        reward=fmean(rewards) if rewards else None,
        wall_s=max(one.wall_s for one in rollouts),
        mode=first.mode,
        error=f"{len(failed)} of {len(rollouts)} rollouts failed: {failed[0].error}" if failed else None,
        group_id=group,
        agent=first.agent,
        model=first.model,
        skill=first.skill,
        reward_source="mean" if rewards else None,
        rollout_type="train" if any(one.rollout_type == "train" for one in rollouts) else "eval",
        n_trainable_tokens=sum(one.n_trainable_tokens for one in rollouts),
        rollouts=list(rollouts),
    )


def describe_error(view: RolloutView) -> str | None:
    """Why a rollout is not as it should be, in the words that OpenEnv's own server has for it."""
    failed = next((one for one in view.setup if one.exit_code != 0), None)
    if failed is not None:
        return f"setup command failed (exit {_exit_code(failed)}): {failed.command[:COMMAND_CHARS]}"
    if view.stop == StopReason.TIMEOUT:
        return f"agent timeout: {view.reason or _NO_ENDING}"
    if view.outcome in {Outcome.SCORED, Outcome.UNSCORED}:
        return None
    return f"{view.cause or view.outcome}: {view.reason}"


def _episode(view: RolloutView) -> Episode:
    exchanges: Sequence[Exchange] = ()
    return Episode(
        rollout=view.id,
        group=view.group,
        task=view.task,
        agent=view.agent,
        model=view.model,
        skill=view.skill or "",
        sample=view.sample,
        attempt=view.attempts,
        reward=view.reward,
        exchanges=exchanges,
        weight_version=view.weight_versions[-1] if len(view.weight_versions) == 1 else None,
    )


def _command(done: CommandView) -> CommandResult:
    return CommandResult(
        cmd=done.command,
        exit_code=_exit_code(done),
        stdout=done.stdout[-TAIL_CHARS:],
        stderr=done.stderr[-TAIL_CHARS:],
        duration_s=done.seconds,
    )


def _exit_code(done: CommandView) -> int:
    return -1 if done.exit_code is None else done.exit_code


def _read_files(files: Mapping[str, bytes], left_out: Sequence[str], workdir: str) -> tuple[dict[str, str], list[str]]:
    """The small text files by their absolute paths, and the paths of those that are not shown."""
    shown: dict[str, str] = {}
    hidden = list(left_out)
    for path, content in files.items():
        if path.count("/") >= FILE_DEPTH or len(shown) >= MOST_FILES:
            hidden.append(path)
            continue
        try:
            shown[posixpath.join(workdir, path)] = content.decode()[:FILE_CHARS]
        except UnicodeDecodeError:
            hidden.append(path)
    return shown, [posixpath.join(workdir, path) for path in sorted(hidden)]


def _tail(output: bytes) -> str:
    return output.decode(errors="replace")[-TAIL_CHARS:]
