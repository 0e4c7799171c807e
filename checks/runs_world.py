"""The world of the whole runs: question tasks, a skill without rules, a list of rules to try, and a model that answers
right with a chance that depends on the task and on the rules in its system prompt.

The chances are known exactly, so it is known which certificates are false. Replies are drawn from the seed of a run,
the request and how often it was made before, so they do not depend on the order in which rollouts end.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import numpy as np
from aiohttp import web
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import beta

SIZES = {"train": 10, "val": 24, "test": 10}
BASE, LIFT = 0.45, 0.30
"""Mean chance of a right answer without rules, and what the helpful rule adds to it, exactly, on each split."""
RULES = 8
"""Rules that are proposed, one after the other, in an order that is drawn for each run."""
_SHAPE, _EDGE = 0.8, 0.005
_HELPFUL = "Look the number up in the register."
_SKILL = "---\nname: depot\ndescription: How to answer questions about the depot.\n---\n# Rules\n- Be brief.\n"


class Kind(StrEnum):
    """What the rules do."""

    NOTHING = "nothing"
    """None of them changes anything."""
    LIFT = "lift"
    """One of them adds 30 points, the others nothing."""
    ERRORS = "errors"
    """None of them changes a chance, but with any of them half of the wrong answers come as HTTP 500."""


@dataclass(frozen=True, slots=True)
class World:
    """One run."""

    kind: Kind
    seed: int

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.seed}"

    def rules(self) -> list[str]:
        """The rules that are proposed, in their order."""
        rules = [f"Keep to practice {number}." for number in range(1, RULES + 1)]
        if self.kind is Kind.LIFT:
            rules[-1] = _HELPFUL
        random.Random(self.name).shuffle(rules)
        return rules

    def write(self, folder: Path, url: str) -> None:
        """All that `whet sharpen` reads."""
        (folder / "depot").mkdir(parents=True)
        (folder / "depot" / "SKILL.md").write_text(_SKILL)
        rows = [
            {"id": task, "instruction": _question(task), "answer": _answer(task), "split": split}
            for split, size in SIZES.items()
            for task in _tasks(split, size)
        ]
        (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "rules.txt").write_text("\n".join(self.rules()))
        model = f'[models.m]\nurl = "{url}/{self.name}"\n'
        (folder / "whet.toml").write_text(f'[defaults]\nagent = "chat"\nmodel = "m"\n\n{model}')

    def is_better(self, skill: str, other: str) -> bool:
        """Whether one skill is truly better than another."""
        return self.kind is Kind.LIFT and _HELPFUL in skill and _HELPFUL not in other


class StandIn:
    """An OpenAI chat endpoint on loopback that serves the models of all runs, each under its own path."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()
        self._questions = {_question(task): task for split, size in SIZES.items() for task in _tasks(split, size)}
        self._chances = {helped: chances(helped=helped) for helped in (False, True)}
        self._runner = web.ServerRunner(web.Server(self._reply, access_log=None))

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _reply(self, request: web.BaseRequest) -> web.Response:
        name = request.path.split("/")[1]
        kind, _, seed = name.partition("-")
        world = World(Kind(kind), int(seed))
        messages = (await request.json())["messages"]
        system = "".join(message["content"] for message in messages if message["role"] == "system")
        task = self._questions.get(messages[-1]["content"])
        if task is None:  # whet asks whether the endpoint is up
            return web.json_response(_completion("OK"))
        call = f"{name}\n{task}\n{system}"
        self._asked[call] += 1
        answered, failed = _uniforms(f"{self._asked[call]}\n{call}")
        if answered < self._chances[world.is_better(system, "")][task]:
            return web.json_response(_completion(_answer(task)))
        if kind == Kind.ERRORS and any(rule in system for rule in world.rules()) and failed < 0.5:
            return web.json_response({"error": {"message": "internal error"}}, status=500)
        return web.json_response(_completion("I do not know."))


def _tasks(split: str, size: int) -> list[str]:
    return [f"{split}-{number:02}" for number in range(size)]


def _question(task: str) -> str:
    return f"What is the number of crate {task}?"


def _answer(task: str) -> str:
    return str(1000 + int.from_bytes(blake2b(task.encode(), digest_size=4).digest()) % 9000)


def chances(*, helped: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    for split, size in SIZES.items():
        odds = expit(_logits(size, BASE + LIFT if helped else BASE))
        found |= dict(zip(_tasks(split, size), odds.tolist(), strict=True))
    return found


def _logits(size: int, mean: float) -> NDArray[np.float64]:
    """Easy and hard tasks, moved together so that their chances have this mean."""
    logits = logit(np.clip(beta.ppf((np.arange(size) + 0.5) / size, _SHAPE, _SHAPE), _EDGE, 1 - _EDGE))
    moved: NDArray[np.float64] = logits + brentq(lambda shift: float(expit(logits + shift).mean()) - mean, -12, 12)
    return moved


def _uniforms(call: str) -> tuple[float, float]:
    drawn = blake2b(call.encode(), digest_size=16).digest()
    return int.from_bytes(drawn[:8]) / 2**64, int.from_bytes(drawn[8:]) / 2**64


def _completion(text: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 60, "completion_tokens": 5, "total_tokens": 65},
    }
