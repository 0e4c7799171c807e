"""The rollouts of a run as exporters see them, their calls left out."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

from whet.ids import digest
from whet.runs.results import AttemptRecord, ResultReader
from whet.runs.store.schema import RolloutRow
from whet.runs.store.store import Store
from whet.trace.training.episode import Episode

WEIGHT_VERSION = "weight version"
"""Under this key a run stores which weights its model had, as the user says."""
_EPSILON = 1e-8
"""Keeps an advantage finite."""


def episodes(store: Store, only: Collection[str] | None = None) -> list[tuple[Episode, int]]:
    """Every rollout that was tried, or those with these ids, in the order of the plan, with the attempt whose exchanges
    are its own."""
    version: str | None = store.get(WEIGHT_VERSION)
    specs = {task.id: json.loads(task.spec) for task in store.tasks()}
    found = [
        (replace(_episode(rollout.row, attempt, specs.get(rollout.row.task, {})), weight_version=version), attempt.id)
        for rollout in ResultReader(store)
        if (only is None or rollout.row.id in only) and (attempt := rollout.last_ended) is not None
    ]
    rewards: dict[str, list[float]] = defaultdict(list)
    for episode, _ in found:
        if episode.reward is not None:
            rewards[episode.group].append(episode.reward)
    return [(replace(one, advantage=_advantage(one.reward, rewards[one.group])), attempt) for one, attempt in found]


def best_of_each_task(found: Sequence[tuple[Episode, int]], most: int) -> list[tuple[Episode, int]]:
    """The `most` rollouts of each task with the highest scores, in their original order."""
    by_task: dict[str, list[int]] = defaultdict(list)
    for place, (episode, _) in enumerate(found):
        by_task[episode.task].append(place)

    def worth(place: int) -> float:
        reward = found[place][0].reward
        return -1.0 if reward is None else reward

    kept = {place for places in by_task.values() for place in sorted(places, key=worth, reverse=True)[:most]}
    return [one for place, one in enumerate(found) if place in kept]


def _episode(rollout: RolloutRow, attempt: AttemptRecord, task: Mapping[str, Any]) -> Episode:
    result = attempt.result
    report = result.report if result else None
    key = (rollout.task, rollout.agent, rollout.model, rollout.skill or "")
    return Episode(
        rollout=rollout.id,
        group=digest(*(part.encode() for part in key))[:12],
        task=rollout.task,
        agent=rollout.agent,
        model=rollout.model,
        skill=rollout.skill or "",
        sample=rollout.sample,
        attempt=attempt.row.number,
        reward=attempt.value,
        exchanges=(),
        rewards={name: score.value for name, score in result.judgements.items()} if result else {},
        cause=attempt.cause,
        stop=report.stop if report else None,
        version=report.version if report else None,
        tags=tuple(task.get("tags", ())),
        split=task.get("split") or "",
        flags=result.flags if result else (),
        started=attempt.row.started,
        ended=attempt.row.ended,
        cost=result.spending.cost if result else None,
    )


def _advantage(reward: float | None, rewards: Sequence[float]) -> float | None:
    """How many standard deviations a reward is above the mean of its group; None for a group of one."""
    if reward is None or len(rewards) < 2:
        return None
    return (reward - fmean(rewards)) / (pstdev(rewards) + _EPSILON)
