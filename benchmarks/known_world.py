"""A world with known truth: a task's chance of success depends on which sentences a skill holds, and on nothing else.

Nothing in it is drawn at random but the rollouts, so every lift is known exactly; it is what optimizers are tested on.
"""

import hashlib
import math
import random
import re
from collections.abc import Iterable, Mapping

import numpy as np
from scipy.stats import beta

FAMILIES = 6
_RULE = re.compile(r"Follow practice ([HGNBC]\d+)\.")
_LOCAL, _GLOBAL, _HARM, _MIXED = 2.0, 0.6, -0.5, 1.5
_CONFLICT, _SYNERGY = 1.0, 2.5
_LONG, _PER_SENTENCE = 10, -0.03
_EDGE = 0.005

KINDS: Mapping[str, Mapping[str, float]] = {
    "rich": {"helpful": 0.25, "null": 0.45, "harmful": 0.20, "mixed": 0.05, "repeat": 0.05},
    "null": {"null": 1.0},
    "mixed": {"ever mixed": 1.0},
    "harm": {"null": 0.5, "harmful": 0.5},
}
"""How likely a proposal is helpful, does nothing or harm, helps some tasks as much as it harms others, or says again
what is there."""


def sentence(rule: str) -> str:
    """What a skill says that holds this rule."""
    return f"Follow practice {rule}."


def skill_of(rules: Iterable[str]) -> str:
    """A skill with these rules and no others."""
    return "\n".join(map(sentence, rules))


SIZES: Mapping[str, int] = {"train": 30, "validation": 30, "test": 120}


class World:
    """Splits of so many tasks. Rollouts differ by their ids alone; each seed is another world of noise."""

    def __init__(self, seed: int = 0, sizes: Mapping[str, int] = SIZES) -> None:
        self.seed = seed
        self._logits = {f"{split}-{n}": logit for split, size in sizes.items() for n, logit in enumerate(_logits(size))}
        self._families = {task: int(task.rpartition("-")[2]) % FAMILIES for task in self._logits}
        self._shifts: dict[str, list[float]] = {}

    def tasks(self, split: str) -> tuple[str, ...]:
        return tuple(task for task in self._logits if task.startswith(f"{split}-"))

    def chance(self, task: str, skill: str) -> float:
        """How likely a rollout of the task with this skill succeeds."""
        if skill not in self._shifts:
            sentences = _RULE.findall(skill)
            self._shifts[skill] = [_effect(family, sentences) for family in range(FAMILIES)]
        return _expit(self._logits[task] + self._shifts[skill][self._families[task]])

    def lift(self, skill: str, over: str = "", split: str = "validation") -> float:
        """By how much one skill is better than another: the truth.

        >>> world = World()
        >>> round(world.lift(skill_of(["G0"])), 4), round(world.lift(skill_of(["B0"])), 4)
        (0.0914, -0.0764)
        """
        tasks = self.tasks(split)
        return math.fsum(self.chance(task, skill) - self.chance(task, over) for task in tasks) / len(tasks)

    def succeeds(self, task: str, skill: str, rollout: str) -> bool:
        """What comes of one rollout. Another rollout is another throw of the dice."""
        thrown = hashlib.blake2b(f"{self.seed}/{task}/{rollout}".encode(), digest_size=8).digest()
        return int.from_bytes(thrown) / 2**64 < self.chance(task, skill)


class WorldProposer:
    """Adds a sentence to a skill: now a helpful one, now one that does nothing or harm. What it writes is numbered, so
    that no proposal is ever word for word an earlier one."""

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._written = KINDS[kind], 0
        self._random = random.Random(f"{kind}/{seed}")

    def propose(self, skill: str) -> str:
        present = _RULE.findall(skill)
        (wish,) = self._random.choices(list(self._kind), list(self._kind.values()))
        pools = {
            "helpful": [*(f"H{n}" for n in range(FAMILIES)), "G0", "G1"],
            "harmful": [f"B{n}" for n in range(4)],
            "mixed": ["C0"],
            "ever mixed": [_unused("C", present)],
        }
        rules = present if wish == "repeat" else [rule for rule in pools.get(wish, ()) if rule not in present]
        rule = self._random.choice(rules or [_unused("N", present)])
        self._written += 1
        return f"{skill}\n{self._written}. {sentence(rule)}".strip()


def _unused(letter: str, present: list[str]) -> str:
    return f"{letter}{max((int(rule[1:]) for rule in present if rule.startswith(letter)), default=-1) + 1}"


def _logits(size: int) -> list[float]:
    chances = np.clip(beta.ppf((np.arange(size) + 0.5) / size, 0.8, 0.8), _EDGE, 1 - _EDGE)
    logits: list[float] = np.log(chances / (1 - chances)).tolist()
    return logits


def _effect(family: int, sentences: list[str]) -> float:
    rules = set(sentences)
    shift = _PER_SENTENCE * max(0, len(sentences) - _LONG)
    shift += sum(_GLOBAL for rule in rules if rule in {"G0", "G1"})
    shift += sum(_HARM for rule in rules if rule[0] == "B")
    shift += sum(_mixed(family, int(rule[1:])) for rule in rules if rule[0] == "C")
    if f"H{family}" in rules:
        shift += _local(family, rules)
    return shift


def _local(family: int, rules: set[str]) -> float:
    if family in {0, 1} and {"H0", "H1"} <= rules:
        return _CONFLICT
    return _SYNERGY if family in {2, 3} and {"H2", "H3"} <= rules else _LOCAL


def _mixed(family: int, number: int) -> float:
    """C0 helps the first half of the families, others other ones. What a family gains its mirror image loses: chances
    are symmetric, so the mean over all tasks stays what it is, exactly."""
    mirrored = family >= FAMILIES // 2
    helps = not number >> (FAMILIES - 1 - family if mirrored else family) & 1
    return _MIXED if helps is not mirrored else -_MIXED


def _expit(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
