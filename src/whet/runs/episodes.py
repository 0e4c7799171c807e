"""The rollouts of a run as exporters see them, their calls left out."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

from whet.ids import digest
from whet.runs.results import AttemptRecord, ResultReader
from whet.runs.store.schema import RolloutRow
from whet.runs.store.served import PolicyRow
from whet.runs.store.store import Store
from whet.trace.training.episode import Episode

WEIGHT_VERSION = "weight version"
"""Under this key a run stores which weights its model had, as the user says."""
_EPSILON = 1e-8
"""Keeps an advantage finite."""


def episodes(
    store: Store,
    only: Collection[str] | None = None,
    *,
    baseline: Collection[str] | None = None,
    substituted: Collection[str] = (),
) -> list[tuple[Episode, int]]:
    """Every rollout that was tried, or those with these ids, in the order of the plan, with the attempt whose exchanges
    are its own. Advantages are relative to the rewards of `baseline`, by default of the same rollouts. The reward of
    `substituted` ones is 0 if it is missing."""
    found = [
        (replace(episode, reward=0.0, substituted=True), attempt)
        if episode.reward is None and episode.rollout in substituted
        else (episode, attempt)
        for episode, attempt in _read(store, only if only is None else {*only, *(baseline or ())})
    ]
    rewards: dict[str, list[float]] = defaultdict(list)
    for episode, _ in found:
        if episode.reward is not None and (baseline is None or episode.rollout in baseline):
            rewards[episode.group].append(episode.reward)
    return [
        (replace(one, advantage=_advantage(one.reward, rewards[one.group])), attempt)
        for one, attempt in found
        if only is None or one.rollout in only
    ]


def _read(store: Store, only: Collection[str] | None) -> Iterator[tuple[Episode, int]]:
    version: str | None = store.get(WEIGHT_VERSION)
    groups = store.served_groups(only)
    updates: dict[str, list[PolicyRow]] = defaultdict(list)
    for update in store.policy_updates():
        updates[update.model].append(update)
    reader = ResultReader(store)
    # A server's run has rollouts of many requests: those of one are read alone.
    chosen = reader if only is None else sorted(map(reader.rollout, only), key=lambda one: one.row.ordinal)
    tasks: dict[str, Any] = {}
    for rollout in chosen:
        row, attempt = rollout.row, rollout.last_ended
        if attempt is None:
            continue
        if row.task not in tasks:
            tasks[row.task] = json.loads(store.task(row.task).spec)
        episode = _episode(row, attempt, tasks[row.task])
        group = groups.get(row.id, episode.group)
        yield replace(episode, group=group, weight_version=version, updates=updates[row.model]), attempt.id


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
