"""What agents do with the tools, by the SDK's own client and a real service: list, run, wait, cancel, read, compare."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from support.mcp_world import RIGHT, SLOW, WRONG, call, enter_project, held, read, refuse, write_project
from support.waiting import until
from support.whet_program import Project
from whet.runs.config import read_config
from whet.serve.access import LOCAL
from whet.serve.mcp.describing import MOST_CHARACTERS
from whet.serve.mcp.opening import open_for_stdio
from whet.serve.mcp.served import Served
from whet.serve.mcp.server import make_server
from whet.serve.options import ServeOptions


@pytest.fixture
async def client(project: Project, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client of a service in this process."""
    write_project(project)
    enter_project(project, monkeypatch)
    async with held(_connect()) as client:
        yield client


@asynccontextmanager
async def _connect() -> AsyncIterator[Client]:
    config = read_config(Path("whet.toml"))
    options = ServeOptions(tasks=Path("tasks"), agents=("loop", "chat"), out=Path("served")).complete(config)
    async with open_for_stdio(options, config) as served:

        async def ready() -> Served:
            return served

        async with Client(make_server(ready, lambda _: LOCAL)) as client:
            yield client


async def test_an_agent_lists_tasks_runs_one_and_reads_its_score(client: Client) -> None:
    tasks = await call(client, "list_tasks")
    assert [task["id"] for task in tasks["tasks"]] == [RIGHT, WRONG, SLOW]
    done = await call(client, "run_task", task=RIGHT)
    assert (done["status"], done["outcome"], done["reward"]) == ("done", "scored", 1.0)
    assert (done["answer"], done["changed"], done["calls"]) == ("It is 42.", ["answer"], 2)
    assert (await call(client, "run_task", task=WRONG))["reward"] == 0.0


async def test_tasks_are_chosen_by_id_pattern_and_split(client: Client) -> None:
    assert [one["id"] for one in (await call(client, "list_tasks", task="write-*"))["tasks"]] == [RIGHT, WRONG]
    assert [one["id"] for one in (await call(client, "list_tasks", split="test"))["tasks"]] == [WRONG]
    assert "verify" not in await read(client, "list_tasks", task=RIGHT), "nothing that judges a task is shown"


async def test_an_agent_describes_its_own_task(client: Client) -> None:
    done = await call(
        client,
        "run_rollout",
        instruction="Write 42 into answer.",
        setup=["echo 41 > before"],
        files={"note.txt": "hello"},
        verify=["grep -qx 42 answer", "grep -qx 41 before", "grep -qx hello note.txt", "echo no >&2; false"],
    )
    assert done["reward"] == 0.75
    assert [check["exit_code"] for check in done["verify"]] == [0, 0, 0, 1]
    assert done["verify"][-1]["output"] == "no"


async def test_without_verify_commands_there_is_no_score(client: Client) -> None:
    done = await call(client, "run_rollout", instruction="Write 42 into answer.")
    assert (done["outcome"], done["reward"]) == ("unscored", None)


async def test_a_group_has_a_mean_and_its_rollouts(client: Client) -> None:
    done = await call(client, "run_task", task=RIGHT, samples=3)
    assert done["reward"] == 1.0
    assert len({one["id"] for one in done["rollouts"]}) == 3
    again = await call(client, "get_rollout", id=done["id"])
    assert again["rollouts"] == done["rollouts"]


async def test_start_wait_get_and_list(client: Client) -> None:
    started = await call(client, "start_rollout", task=RIGHT)
    done = await call(client, "wait_rollout", id=started["id"])
    assert (done["id"], done["status"], done["reward"]) == (started["id"], "done", 1.0)
    assert await call(client, "get_rollout", id=started["id"]) == done
    (listed,) = (await call(client, "list_rollouts"))["rollouts"]
    assert (listed["id"], listed["reward"], listed["task"]) == (started["id"], 1.0, RIGHT)


async def test_a_wait_ends_after_its_time_and_a_cancelled_rollout_leaves_no_box(
    client: Client, project: Project
) -> None:
    started = await call(client, "start_rollout", task=SLOW)
    waiting = await call(client, "wait_rollout", id=started["id"], max_seconds=0.1)
    assert waiting["status"] in {"queued", "running"}
    assert "wait_rollout" in waiting["more"]
    await until(project.boxes)
    assert "not done" in await refuse(client, "read_trace", id=started["id"])
    ended = await call(client, "cancel_rollout", id=started["id"])
    assert (ended["outcome"], ended["reward"]) == ("cancelled", None)
    assert project.boxes() == []
    assert (await call(client, "cancel_rollout", id=started["id"]))["outcome"] == "cancelled"


async def test_a_rollout_continues_when_the_client_gives_up_on_the_call(client: Client) -> None:
    with pytest.raises(MCPError, match=r"(?i)timed out"):
        await client.call_tool("run_task", {"task": SLOW}, read_timeout_seconds=0.5)
    (listed,) = (await call(client, "list_rollouts"))["rollouts"]
    assert listed["status"] in {"queued", "running"}
    ended = await call(client, "cancel_rollout", id=listed["id"])
    assert ended["outcome"] == "cancelled"


async def test_progress_names_the_phase_and_counts_calls(client: Client) -> None:
    seen: list[tuple[float, str]] = []

    async def notice(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message or ""))

    running = asyncio.ensure_future(client.call_tool("run_task", {"task": SLOW}, progress_callback=notice))
    await until(lambda: any("agent" in message for _, message in seen))
    (listed,) = (await call(client, "list_rollouts"))["rollouts"]
    await call(client, "cancel_rollout", id=listed["id"])
    result = await running
    assert result.structured_content["outcome"] == "cancelled"
    assert all(listed["id"] in message for _, message in seen)
    values = [value for value, _ in seen]
    assert values == sorted(set(values)), "progress must grow"


async def test_a_trace_is_read_in_pages(client: Client) -> None:
    done = await call(client, "run_task", task=RIGHT)
    whole = await read(client, "read_trace", id=done["id"])
    assert "Write 42 into answer." in whole
    assert "echo 42 > answer" in whole
    assert "It is 42." in whole
    steps = int(whole.splitlines()[0].rpartition(" ")[2])
    one = await read(client, "read_trace", id=done["id"], **{"from": steps, "to": steps})
    assert "It is 42." in one
    assert "echo 42" not in one
    assert f"has {steps} steps" in await refuse(client, "read_trace", id=done["id"], **{"from": 99})


async def test_a_long_trace_fits_into_pages(client: Client) -> None:
    done = await call(
        client,
        "run_rollout",
        instruction="Write 42.\n" + "x y\n" * 20_000,
        verify=["true"],
        setup=["true"],
    )
    following, seen = 1, []
    while following:
        page = await read(client, "read_trace", id=done["id"], **{"from": following})
        assert len(page) < MOST_CHARACTERS
        seen.append(page)
        last = page.splitlines()[-1]
        following = int(last.rpartition("=")[2]) if last.startswith("next page") else 0
    assert "It is 42." in seen[-1]


async def test_arms_are_compared(client: Client) -> None:
    for task in (RIGHT, WRONG):
        for agent in ("loop", "chat"):
            await call(client, "run_task", task=task, agent=agent)
    found = await call(client, "compare", by="agent")
    assert len(found["arms"]) == 2
    (pair,) = found["comparisons"]
    assert pair["verdict"] == "undecided"
    assert pair["tasks"] == 2


WRONG_CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("run_task", {"task": "nothing"}, "nothing"),
    ("run_task", {"task": RIGHT, "agent": "nobody"}, "nobody"),
    ("run_task", {"task": RIGHT, "model": "other"}, "other"),
    ("run_task", {"task": RIGHT, "skill": "other"}, "other"),
    ("run_task", {"task": RIGHT, "smaples": 2}, "did you mean 'samples'"),
    ("run_rollout", {}, "exactly one of them"),
    ("run_rollout", {"instruction": "x", "samples": 1000}, "at most 32"),
    ("run_rollout", {"instruction": "x", "max_seconds": -1}, "greater than 0"),
    ("get_rollout", {"id": "nothing"}, "nothing"),
    ("wait_rollout", {"id": "nothing"}, "nothing"),
    ("cancel_rollout", {"id": "nothing"}, "nothing"),
    ("read_trace", {"id": "nothing"}, "nothing"),
    ("compare", {"run": "nothing"}, "nothing"),
    ("run_rolout", {}, "did you mean 'run_rollout'"),
]


async def test_errors_say_what_was_expected(client: Client) -> None:
    for tool, arguments, words in WRONG_CALLS:
        message = await refuse(client, tool, **arguments)
        assert words in message, (tool, arguments)
        assert "Traceback" not in message
        assert len(message) < 1000
    assert (await call(client, "list_rollouts"))["rollouts"] == [], "nothing was started"


async def test_a_large_answer_of_the_agent_stays_bounded(client: Client) -> None:
    done = await client.call_tool(
        "run_rollout",
        {"instruction": "Write 42.", "verify": ["seq 100000; seq 100000 >&2; false"] * 8, "samples": 2},
    )
    group = done.structured_content["id"]
    for one in (await call(client, "get_rollout", id=group))["rollouts"]:
        result = await client.call_tool("get_rollout", {"id": one["id"]})
        assert len(result.model_dump_json()) < MOST_CHARACTERS + 500
