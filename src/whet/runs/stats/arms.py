"""What arms are called, and an arm as programs read it."""

from collections.abc import Iterable, Mapping
from typing import Any

from whet.runs.stats.summary import Arm, Tally

SkillNames = Mapping[str | None, str]
"""Names of skills by their digests."""


def arm_name(arm: Arm, arms: Mapping[Arm, object], skills: SkillNames) -> str:
    """Agent and model of an arm, and its skill where the arms of the run have any."""
    agent, model, skill = arm
    return " / ".join([agent, model, *([skills[skill]] if any(one[2] for one in arms) else [])])


def short_names(arms: Iterable[Arm], skills: SkillNames) -> dict[Arm, str]:
    """What tells each arm from the others: its agent, model or skill, or several of these."""
    arms = list(arms)
    words = {
        (agent, model, skill): (agent, model, skills[skill] if skill else "no skill") for agent, model, skill in arms
    }
    varying = [place for place in range(3) if len({arm[place] for arm in arms}) > 1] or [0]
    return {arm: " / ".join(words[arm][place] for place in varying) for arm in arms}


def plain_arm(arm: Arm) -> tuple[str, ...]:
    """An arm in JSON: no skill is an empty text."""
    return tuple(part or "" for part in arm)


def arm_fields(key: Arm, arm: Tally) -> dict[str, Any]:
    """An arm as programs read it."""
    mean, bounds = arm.mean(), arm.bounds()
    return {
        **dict(zip(("agent", "model", "skill"), plain_arm(key), strict=True)),
        "scored": arm.measured,
        "missing": dict(arm.missing),
        "not_run": arm.not_run,
        "mean": mean and mean.mean,
        "interval": mean and [mean.low, mean.high],
        # Where more than 2 % are missing.
        "mean_with_missing_at_0": bounds and bounds[0],
        "mean_with_missing_at_1": bounds and bounds[1],
        "retried": arm.retried,
        "flags": dict(arm.flags),
        "skill_reads": {"read": arm.skill_reads[True], "not read": arm.skill_reads[False]} if arm.skill_reads else None,
        "input_tokens": arm.input_tokens if arm.captured else None,
        "output_tokens": arm.output_tokens if arm.captured else None,
        "cost": arm.cost,
        "seconds": round(arm.seconds, 3),
    }
