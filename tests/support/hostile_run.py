"""Folders in which every stored text attacks: runs, a run of sharpening, labels, and proposals of `whet sleep`.

Each text ends with a tag of its own, letters and digits alone, by which it is found in a page. `Plants` knows what
stands in front of each tag.
"""

import asyncio
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.attack_corpus import ATTACKS
from support.proposals_world import ProposalsWorld
from support.sharpen_world import HELPFUL, SKILL, Adds, World, question
from support.view_worlds import EPOCH, Conversation, make_exchange
from whet.agents import AgentReport, StopReason
from whet.agents.tools import LoggedUse
from whet.exchange import CallError, Exchange, Kind, Speaker
from whet.rollout.result import CommandResult, ForkReplay, Result, Spending, encode_result
from whet.runs.labels import NewLabel, RunLabels
from whet.runs.progress import OPENED
from whet.runs.results import encode_judge_call
from whet.runs.run import TASKS
from whet.runs.scheduler import STOPPED, STOPPED_ARMS
from whet.runs.store.schema import RolloutRow, SkillRow, TaskRow
from whet.runs.store.store import Store
from whet.scoring import Cause, Score
from whet.text.plain import plain_text
from whet.workspace import Change

TAG = re.compile(r"qx([a-z]+)(\d+)xq")
ARMS = 4
WHOLE = 2
"""Rollouts in which every field holds an attack."""
LISTED = 8
"""Attacks in a list of a whole rollout; its texts hold many more, one after the other."""
SHUFFLED = tuple(random.Random(0).sample([*ATTACKS.values()], len(ATTACKS)))
"""The corpus in an order in which a few neighbours are of several kinds."""


@dataclass
class Plants:
    """Texts that were planted, by their tags."""

    corpus: Sequence[str] = SHUFFLED
    """What is planted, again and again."""
    texts: dict[str, str] = field(default_factory=dict)
    _attacks: Iterator[str] = field(init=False)
    _numbers: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._attacks = itertools.cycle(self.corpus)

    def one(self, place: str, attack: str | None = None) -> str:
        """An attack for a text of this kind: the given one, or the next of the corpus."""
        self._numbers[place] += 1
        tag = f"qx{place}{self._numbers[place]}xq"
        self.texts[tag] = plain_text(next(self._attacks) if attack is None else attack)
        return self.texts[tag] + tag

    def line(self, place: str) -> str:
        """An attack for a line of a file: without ends of lines, and without NUL."""
        return self.one(place, re.sub(r"[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029\x00]+", " ", next(self._attacks)))

    def some(self, place: str, count: int = LISTED) -> list[str]:
        """Several of them."""
        return [self.one(place) for _ in range(count)]

    def all(self, place: str) -> list[str]:
        """The whole corpus."""
        return [self.one(place, attack) for attack in self.corpus]

    def text(self, place: str, count: int = 40) -> str:
        """Several of them in one text, a line or more each."""
        return "\n".join(self.some(place, count))

    @property
    def places(self) -> set[str]:
        """The kinds of texts."""
        return set(self._numbers)


def write_hostile_runs(folder: Path) -> Plants:
    """Runs below a folder: `tasks` with every attack as a task, `again` with the same tasks, `arms` with attacks as
    agents and models."""
    plants = Plants()
    for name in ("tasks", "again"):
        _write_run(folder / name, plants, _tasks_plan(plants, name), labels=name == "again")
    _write_run(folder / "arms", plants, _arms_plan(plants))
    return plants


def write_small_run(folder: Path, plants: Plants) -> Path:
    """A run whose name attacks, with four rollouts and few logs; its folder."""
    attack = "<img src=x onerror=window.__canary=1>\u202e'\"&{{7*7}}"
    run = folder / plants.one("folder", attack)
    _write_run(run, plants, _tasks_plan(plants, "folder", count=4), logs=2)
    return run


def _tasks_plan(plants: Plants, run: str, count: int | None = None) -> list[RolloutRow]:
    tasks = list(dict.fromkeys(map(plain_text, plants.corpus)))[:count]
    # Both runs have the same tasks, so that they can be compared.
    tags = [f"qxsharedtask{number}xq" for number in range(len(tasks))]
    plants.texts |= dict(zip(tags, tasks, strict=True))
    names = [text + tag for text, tag in zip(tasks, tags, strict=True)]
    arms = [(plants.one("agent"), plants.one("model"), plants.one("skill")) for _ in range(ARMS)]
    return [
        RolloutRow(_id(run, number), number, name, *arms[number % ARMS], number // ARMS % 2)
        for number, name in enumerate(names)
    ]


def _arms_plan(plants: Plants) -> list[RolloutRow]:
    arms = zip(plants.all("agent")[::4], plants.all("model")[::4], strict=True)
    task = plants.one("task")
    return [
        RolloutRow(_id("arms", number), number, task, agent, model, None, 0)
        for number, (agent, model) in enumerate(arms)
    ]


def _id(run: str, number: int) -> str:
    """Ids are digests; that of the last whole rollout attacks as well."""
    return (
        f"{run}{number:04x}" if number != WHOLE - 1 else f"{run}<img src=x onerror=window.__canary=1>\"'&#?%2e%2e/~1a"
    )


def _write_run(
    folder: Path, plants: Plants, plan: Sequence[RolloutRow], *, logs: int | None = None, labels: bool = False
) -> None:
    with Store.create(folder) as store, store.atomic():
        _write_facts(store, plants)
        tasks = dict.fromkeys(row.task for row in plan)
        rows = [TaskRow(task, f"{number:016x}", plants.one("origin"), "{}") for number, task in enumerate(tasks)]
        store.add_tasks(rows)
        skills = dict.fromkeys(row.skill for row in plan if row.skill)
        store.add_skills(SkillRow(one, plants.one("skillname"), plants.text("skilltext").encode()) for one in skills)
        store.add_rollouts(plan)
        attempts = [_write_rollout(store, plants, row, logs) for row in plan]
    if labels:
        _write_labels(folder, plants, plan, attempts)


def _write_facts(store: Store, plants: Plants) -> None:
    store.set("version", plants.one("version"))
    store.set("sandbox", plants.one("sandbox"))
    store.set(TASKS, plants.some("taskspath", 2))
    store.set(STOPPED, plants.one("stopped"))
    store.set(STOPPED_ARMS, [{"agent": "a", "model": "m", "reason": one} for one in plants.some("stoppedarm", 2)])
    store.set(OPENED, EPOCH)


def _write_labels(folder: Path, plants: Plants, plan: Sequence[RolloutRow], attempts: Sequence[int]) -> None:
    places = list(zip(plan, attempts, strict=True))
    said = [
        NewLabel(plants.one("author"), row.id, attempt, plants.one("label"), plants.one("choice"), plants.one("note"))
        for row, attempt in [*places[:WHOLE], *places[-9:]]
    ]
    notes = [NewLabel("ana", row.id, attempt, "note", "", plants.text("note", 8)) for row, attempt in places[:WHOLE]]
    RunLabels(folder).add([*said, *notes], EPOCH + 9)


def _write_rollout(store: Store, plants: Plants, row: RolloutRow, logs: int | None) -> int:
    whole = row.ordinal < WHOLE
    if whole:  # an attempt that failed before
        before = store.start_attempt(row.id, EPOCH + row.ordinal)
        lost = Score.missing(Cause.MODEL, plants.one("reason"))
        body = encode_result(Result(score=lost))
        store.finish_attempt(before, body, value=None, cause=Cause.MODEL, final=False, ended=EPOCH + 1)
    attempt = store.start_attempt(row.id, EPOCH + row.ordinal)
    missing = row.ordinal % 9 == 8
    result = _whole_result(plants) if whole else _small_result(plants, missing=missing)
    if whole:
        for exchange in _exchanges(plants):
            store.add_exchange(attempt, exchange)
        _write_logs(store, attempt, plants, logs)
    value, cause = result.score.value, result.score.cause
    store.finish_attempt(
        attempt, encode_result(result), value=value, cause=cause, final=True, ended=EPOCH + 60 + row.ordinal
    )
    if row.ordinal == 0:
        again = encode_result(_whole_result(plants))
        store.replace_result(attempt, again, value=0.5, cause=None)
    return attempt


def _small_result(plants: Plants, *, missing: bool) -> Result:
    reason = plants.one("reason")
    score = Score.missing(Cause.JUDGE, reason) if missing else Score.of(0.5, reason)
    return Result(score=score, judgements={plants.one("judge"): score}, flags=(plants.one("flag"),))


def _whole_result(plants: Plants) -> Result:
    return Result(
        score=Score.of(0.5, plants.one("reason")),
        judgements={plants.one("judge"): _judgement(plants) for _ in range(4)},
        failure=Score.missing(Cause.MODEL, plants.one("failure")),
        report=AgentReport(
            stop=StopReason.FINISHED,
            exit_code=0,
            text=plants.text("answer"),
            seconds=1.5,
            argv=tuple(plants.some("argv")),
            version=plants.one("agentversion"),
            config=dict(zip(plants.some("configpath"), plants.some("config"), strict=True)),
            error=plants.one("error"),
            answer={plants.one("answerkey"): plants.one("answervalue")},
        ),
        limit=plants.one("limit"),
        changes=tuple(_change(plants, number) for number in range(4 * LISTED)),
        unseen=plants.one("unseen"),
        tools={plants.one("tool"): 2 for _ in range(LISTED)},
        tool_uses=tuple(
            LoggedUse(name=plants.one("tool"), argv=("a",), stdin=plants.one("stdin"), started=EPOCH, answer="x")
            for _ in range(4)
        ),
        setup=(_command(plants, "setup"),),
        replay=ForkReplay(at=2, given=1, live_from=2, diverged=plants.one("diverged"), unknown=0),
        spending=Spending(calls=3, speakers={plants.one("speaker"): 3}, input_tokens=9, output_tokens=9, cost=0.01),
        flags=tuple(plants.some("flag", 4)),
        seconds={plants.one("phase"): 1.0},
    )


def _judgement(plants: Plants) -> Score:
    check = {"op": plants.one("check"), "arg": plants.one("checkarg"), "passed": False, "why": plants.one("checkmore")}
    votes = [{"score": 0.5, "reason": plants.one("votereason"), "reply": plants.text("votereply", 6)}]
    details = {plants.one("detailkey"): plants.one("detail"), "nested": {"a": [plants.text("detail", 6)]}}
    commands = [_command(plants, "judgecommand").model_dump()]
    return Score.of(0.5, plants.one("reason"), commands=commands, checks=[check], votes=votes, **details)


def _command(plants: Plants, place: str) -> CommandResult:
    return CommandResult(command=plants.one(place), exit_code=1, output=plants.text(f"{place}output"), seconds=0.5)


def _change(plants: Plants, number: int) -> Change:
    lines = [plants.line("diff") for _ in range(4)]
    body = "".join(f"{sign}{line}\n" for sign, line in zip(itertools.cycle("+- "), lines, strict=False))
    head = f"--- a\n+++ b\n@@ -1,{len(lines)} +1,{len(lines)} @@\n"
    return Change(path=plants.one("path"), kind="changed", diff=None if number % 9 == 8 else head + body)


def _exchanges(plants: Plants) -> Iterator[Exchange]:
    """A conversation, a sub-agent, a stream, calls that failed, and bodies that are not what they should be."""
    speaker = Speaker(Kind.MAIN, "main", None, plants.one("evidence"))
    main = Conversation(speaker, plants.text("system"), plants.text("user"))
    headers = tuple((plants.one("header"), plants.one("headervalue")) for _ in range(4 * LISTED))
    index = 0
    for number in range(LISTED):
        name = plants.one("toolname")
        arguments = json.dumps({"command": plants.text("argument", 8), plants.one("argumentname"): 1})
        call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        said, thought = plants.text("reply", 12), plants.text("thinking", 8)
        reply = {"role": "assistant", "content": said, "reasoning_content": thought}
        more = {"request_headers": headers, "response_headers": headers}
        yield main.call(index, {**reply, "tool_calls": [call]}, **(more if number == 1 else {}))
        main.add({"role": "tool", "tool_call_id": f"c{number}", "content": plants.text("result", 30) + "\nexit code 1"})
        index += 1
    speaker = Speaker(Kind.SUB, plants.one("thread"), "main", plants.one("evidence"), plants.one("subagent"))
    sub = Conversation(speaker, plants.text("system", 4), plants.text("user", 4))
    yield sub.call(index, {"role": "assistant", "content": plants.text("reply", 4)})
    for number, (request, response, facts) in enumerate(_broken_calls(plants), index + 1):
        yield make_exchange(number, request, response, speaker=main.speaker, **facts)


def _broken_calls(plants: Plants) -> Iterator[tuple[bytes, bytes, dict[str, Any]]]:
    messages = [{"role": "user", "content": plants.one("user")}]
    asked = json.dumps({"model": plants.one("modelname"), "messages": messages})
    delta = {"content": plants.text("streamed", 8)}
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": plants.one("finish")}]}
    stream = f"data: {json.dumps(chunk)}\n\nevent: {plants.line('event')}\ndata: [DONE]\n\n".encode()
    as_stream = {"response_headers": (("Content-Type", "text/event-stream"),)}
    yield asked.encode(), stream, as_stream
    yield asked.encode(), b"", {"status": None, "error": CallError.REFUSED, "upstream": plants.one("upstream")}
    html = b"<html><script>window.__canary=1</script></html>"
    yield asked.encode(), html, {"status": 502, "error": CallError.STATUS, "path": plants.one("path")}
    yield b"\xff\xfe\x00<script>window.__canary=1</script>", b"\x00" * 64 + b"\xff", {"tokens": plants.one("tokens")}
    text = plants.one("parttext")
    odd = {"model": "m", "messages": [{"role": "user", "content": [{"type": plants.one("parttype"), "text": text}]}]}
    yield (
        json.dumps(odd).encode(),
        asked.encode(),
        {
            "sent": asked.encode(),
            "delivered": asked.encode(),
            "warnings": tuple(plants.some("warning")),
        },
    )
    image = {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9MT4="}}
    seen = {"model": "m", "messages": [{"role": "user", "content": [image, {"type": "text", "text": "look"}]}]}
    refused = {"role": "assistant", "content": None, "refusal": plants.text("refusal", 4)}
    said = {"choices": [{"index": 0, "message": refused}]}
    yield json.dumps(seen).encode(), json.dumps(said).encode(), {}


def _write_logs(store: Store, attempt: int, plants: Plants, count: int | None) -> None:
    """Logs of an attempt; with the whole corpus as their names, or with so many of it."""
    for name in plants.all("logname") if count is None else plants.some("logname", count):
        store.add_log(attempt, name, plants.one("log").encode())
    store.add_log(attempt, "agent stdout", plants.text("log", len(plants.corpus)).encode())
    store.add_log(attempt, "bytes", bytes(range(256)) * 8)
    request = {"model": "m", "messages": [{"role": "user", "content": plants.text("judgeprompt", 8)}]}
    reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": plants.text("judgereply", 8)}}]}
    call = make_exchange(0, json.dumps(request).encode(), json.dumps(reply).encode())
    name, log = encode_judge_call(call)
    store.add_log(attempt, f"{name} {plants.one('judgecall')}", log)


SMALL = {"train": range(4), "val": range(100, 106), "test": range(200, 202)}


def write_hostile_sharpening(folder: Path, plants: Plants) -> Path:
    """A real run of sharpening whose skill, rules, reasons and tasks attack; its folder."""
    folder.mkdir()
    world = World(folder, SMALL)
    document = SKILL + "".join(f"- {plants.line('rule')}\n" for _ in range(60))
    (folder / "sums" / "SKILL.md").write_text(document)
    rows = [
        {"id": plants.line("task"), "instruction": question(n), "answer": str(n + 1), "split": split}
        for split, side in SMALL.items()
        for n in side
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rules = [f"- {plants.line('rule')}" for _ in range(24)]
    asyncio.run(world.sharpen(Adds("\n".join([*rules[:8], HELPFUL]), "\n".join(rules[8:])), budget=150))
    return world.out


def write_hostile_proposals(folder: Path, plants: Plants) -> Path:
    """Proposals of `whet sleep` whose rules attack; the folder of its store."""
    folder.mkdir()
    world = ProposalsWorld(folder)
    with world.store:
        for number in range(3):
            rules = "".join(f"- {plants.line('proposal')}\n" for _ in range(LISTED))
            world.stage(world.draft(rules, rule=f"r{number}", proof=plants.line("proof")))
    return folder / "sleep"
