"""Nothing of an exam or a test reaches a proposer: every recorded word is searched for what only they contain."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.sharpen_world import World
from whet.runs.options import RunOptions
from whet.runs.store.store import Store
from whet.skills.gate.plan import GatePlan
from whet.skills.proposers import driver
from whet.skills.proposers.base import ScoredRollout
from whet.skills.proposers.context import read_scored_rollouts
from whet.skills.results import SharpenResult
from whet.skills.rollouts.budget import read_budget
from whet.skills.sharpen.proposer_runtime import ProposerSpec
from whet.skills.sharpen.run import SharpenRequest, sharpen_skill
from whet.tasks import Task, read_tasks

RULES = ("- Answer with the number alone.", "- Answer at once.")
HIDDEN = ("okapi", "zebra", "quagga", "4417736", "4417737", "0.8125", "81.2")
"""Ids, words, judges' words, answers and scores of validation and test tasks. No training task has any of them."""
LLM = ProposerSpec("llm", model="o")
AGENT = ProposerSpec("agent", model="o", agent="loop")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    rows: list[dict[str, object]] = [
        {"id": f"train-{n}", "instruction": f"What is {n} + 1?", "answer": str(n + 1), "split": "train"}
        for n in range(4)
    ]
    judge = [{"kind": "exact", "weight": 13}, {"kind": "contains", "text": "quagga", "weight": 3}]
    for split, side in (("val", range(5)), ("test", range(5, 7))):
        rows += [
            {
                "id": f"okapi-{n}",
                "instruction": f"In zebra {n}, what is 4417736 + 1?",
                "answer": "4417737",
                "split": split,
                "judge": judge,
            }
            for n in side
        ]
    (world.folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = (rule[2:] for rule in RULES)
    world.play(
        "".join(
            f"[[scene]]\nwhen.user = 'What is {n} '\nwhen.system = '{first if n else second}'\n"
            f"[[scene.reply]]\ntext = '{n + 1}'\n"
            for n in range(4)
        )
        + f"[[scene]]\nwhen.user = 'zebra'\nwhen.system = '{first}'\n[[scene.reply]]\ntext = '4417737'\n"
        "[[scene]]\n[[scene.reply]]\ntext = 'Let me see.'\n"
    )
    return world


def reflecting() -> str:
    """Proposes the rules one after the other."""
    replies = [json.dumps({"edits": [{"op": "add", "text": rule}]}) for rule in RULES]
    none = "text = '{\"edits\": []}'\n"
    return (
        f"[[scene]]\nwhen.user = '{RULES[1]}'\n[[scene.reply]]\n{none}"
        f"[[scene]]\nwhen.user = '{RULES[0]}'\n[[scene.reply]]\ntext = '{replies[1]}'\n"
        f"[[scene]]\n[[scene.reply]]\ntext = '{replies[0]}'\n"
    )


def editing() -> str:
    """Reads all that there is, and adds the rule that is not there yet."""
    first, second = RULES
    command = (
        "cat * */* */*/* 2>/dev/null; cd skill; "
        f"if grep -qF -- '{first}' SKILL.md; then echo '{second}'; else echo '{first}'; fi >> SKILL.md"
    )
    call = f"tools = [{{ name = 'bash', arguments = {{ command = {json.dumps(command)} }} }}]"
    return f"[[scene]]\n[[scene.reply]]\n{call}\n[[scene.reply]]\ntext = 'Done.'\n"


async def sharpened(world: World, proposer: ProposerSpec) -> SharpenResult:
    """A run in which an exam is held and certifies while proposals are still being made."""
    (world.folder / "optimizer.toml").write_text(reflecting() if proposer is LLM else editing())
    sandbox = "local" if proposer is LLM else "bubblewrap"  # the one that opens faster, where no agent looks around
    asked = RunOptions(
        tasks=world.folder / "tasks.jsonl", out=world.out, agents=("chat",), models=("m",), sandbox=sandbox
    )
    plan = GatePlan(220, certify_share=0.65, accepted_before_attempt=1)
    request = SharpenRequest(world.folder / "sums", asked, read_budget("220"), plan, proposer.kind, force=True)
    return await sharpen_skill(request, proposer, world.config, env={})


def told(out: Path) -> Iterator[tuple[str, str]]:
    """All that proposers were given or said: every exchange, every file of their boxes, every proposal."""
    with Store.open_read(out / "proposals") as store:
        for row, attempts in store.attempts_by_rollout():
            for attempt in attempts:
                for call in store.exchanges(attempt.id):
                    yield f"{row.task} request", call.request.decode()
                    yield f"{row.task} response", call.response.decode()
                for name, data in store.logs(attempt.id).items():
                    yield f"{row.task} {name}", data.decode()
    for file in (out / "drafts").iterdir():
        yield file.name, file.read_text()


def leaks(out: Path) -> list[tuple[str, str]]:
    return [(where, word) for where, text in told(out) for word in HIDDEN if word in text]


@pytest.mark.parametrize("proposer", [LLM, AGENT], ids=lambda proposer: proposer.kind)
async def test_a_proposer_learns_only_whether_exams_certified(world: World, proposer: ProposerSpec) -> None:
    found = await sharpened(world, proposer)
    assert [held.test.verdict for held in found.done.exam_results][:1] == ["certified"]
    assert found.certificate.test is not None
    with Store.open_read(world.out / "exam") as store:
        scores = {result.attempt.value for result in store.results()}
    assert scores == {0, 0.8125}, "what is searched for exists"
    words = dict(told(world.out))
    assert any("What is 3 + 1?" in text for text in words.values())
    certified = re.compile(r"exam so far certified the document(\n|\\n){2}yes")
    assert any(certified.search(text) for text in words.values())
    assert RULES[1] in found.leader.text, "proposals were made after the exam"
    assert leaks(world.out) == []


async def test_the_search_finds_a_leak_that_is_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {task.id: task for task in read_tasks(world.folder / "tasks.jsonl")}

    def leaking(search: Path, skill: str, tasks: Mapping[str, Task]) -> Iterator[ScoredRollout]:
        yield from read_scored_rollouts(search, skill, tasks)
        yield from read_scored_rollouts(search.with_name("exam"), skill, everything)

    monkeypatch.setattr(driver, "read_scored_rollouts", leaking)
    await sharpened(world, LLM)
    assert {word for _, word in leaks(world.out)} >= {"okapi", "zebra", "quagga", "4417737", "0.8125"}
