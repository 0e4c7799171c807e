"""The world of `make check-runs`: its truth and its model."""

import json
from pathlib import Path

import aiohttp
import pytest

from runs_world import BASE, LIFT, SIZES, Kind, StandIn, World, chances


def test_the_helpful_rule_adds_its_lift_on_each_split() -> None:
    without, with_rule = chances(helped=False), chances(helped=True)
    for split, size in SIZES.items():
        tasks = [task for task in without if task.startswith(split)]
        assert len(tasks) == size
        assert sum(without[task] for task in tasks) / size == pytest.approx(BASE)
        assert sum(with_rule[task] for task in tasks) / size == pytest.approx(BASE + LIFT)


def test_one_rule_helps_where_one_does() -> None:
    assert sum(World(Kind.LIFT, 3).is_better(rule, "") for rule in World(Kind.LIFT, 3).rules()) == 1
    assert not any(World(Kind.NOTHING, 3).is_better(rule, "") for rule in World(Kind.NOTHING, 3).rules())


async def test_errors_come_only_with_a_rule_and_replies_can_be_repeated(tmp_path: Path) -> None:
    world = World(Kind.ERRORS, 0)

    async def ask(system: str, question: str | None = None) -> list[int | str]:
        async with StandIn() as model, aiohttp.ClientSession() as http:
            world.write(tmp_path / str(len(list(tmp_path.iterdir()))), model.url)
            first = json.loads((tmp_path / "0" / "tasks.jsonl").read_text().splitlines()[0])["instruction"]
            question = question or first
            messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
            found: list[int | str] = []
            for _ in range(100):
                url = f"{model.url}/{world.name}/v1/chat/completions"
                async with http.post(url, json={"messages": messages}) as reply:
                    body = await reply.json()
                    found.append(body["choices"][0]["message"]["content"] if reply.status == 200 else reply.status)
            return found

    plain, ruled = await ask("Be brief."), await ask(world.rules()[0])
    assert 500 not in plain
    assert ruled.count(500) == pytest.approx(ruled.count("I do not know."), abs=20)
    assert await ask("Be brief.") == plain
    assert set(await ask(world.rules()[0], "Reply with the word OK.")) == {"OK"}
