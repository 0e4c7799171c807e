"""What is kept of a rollout beside its score: files that the agent made, every start, tokens by speaker."""

import json
from pathlib import Path

import whet
from support.rollout_world import attempted, python, shell
from support.run_world import scripted
from whet.rollout.attempt import FILE_ROOM
from whet.runs.config import Config
from whet.tasks import Task
from whet.testing import Reply, say

TWO_VOICES = r"""
import json, os, urllib.request
for role in ("main", "sub", "sub"):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": role}]}).encode()
    key = "Bearer " + os.environ["OPENAI_API_KEY"]
    headers = {"Authorization": key, "Content-Type": "application/json", "X-RLM-Role": role}
    urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers))
"""


async def test_small_files_that_the_agent_made_are_kept_whole() -> None:
    task = Task(id="t", instruction="-", verify=("true",), files={"old.txt": "old"})
    script = f"mkdir out; printf '\\000\\001' > out/a.bin; echo new > old.txt; head -c {FILE_ROOM + 1} /dev/zero > big"
    done = await attempted(task, shell(f"{script}; ln -s /etc/passwd link"))
    assert done.result.files == {"old.txt": b"new\n", "out/a.bin": b"\0\1"}


async def test_a_task_can_ask_for_files_that_the_agent_did_not_change() -> None:
    files = {"a.txt": "a", "sub/b.txt": "b", "sub/sub/deep.txt": "c", "large": "x" * FILE_ROOM, "old.txt": "old"}
    task = Task(id="t", instruction="-", verify=("true",), files=files, keep="files")
    script = "echo new > old.txt; printf '\\377' > sub/c.bin; ln -s /etc/passwd link"
    done = await attempted(task, shell(f"{script}; mkdir -p deep/deep; echo d > deep/deep/d"))
    assert done.result.files == {
        "old.txt": b"new\n",
        "sub/c.bin": b"\xff",
        "deep/deep/d": b"d\n",
        "a.txt": b"a",
        "sub/b.txt": b"b",
    }
    assert done.result.files_left_out == ("link",)
    many = task.model_copy(update={"files": {f"{n:03}": "x" for n in range(50)}})
    assert [*(await attempted(many, shell("true"))).result.files] == [f"{n:03}" for n in range(32)]


def test_kept_files_are_logs_of_the_stored_rollout(tmp_path: Path) -> None:
    config = Config(models=scripted(tmp_path, {"": Reply(text="4")}))
    tasks = [whet.Task(id="t", instruction="-", verify=("true",))]
    agent = whet.CommandAgent(argv=("sh", "-c", "echo made > a.txt"))
    run = whet.run(tasks, agent=agent, model="m", config=config, out=tmp_path / "run")
    assert run.rollouts[0].logs()["file a.txt"] == b"made\n"
    assert run.rollouts[0].result is not None
    assert run.rollouts[0].result.files == {}


async def test_the_output_of_every_start_is_kept() -> None:
    task = Task(id="t", instruction="one", followups=("two",), verify=("true",))
    done = await attempted(task, shell("cat; echo; echo log >&2"))
    assert done.result.report is not None
    assert done.result.report.stdout == "=== start 1 ===\none\n=== start 2 ===\ntwo\n"
    assert done.result.report.stderr.count("log") == 2


async def test_tokens_are_counted_by_speaker() -> None:
    task = Task(id="t", instruction="-", verify=("true",))
    done = await attempted(task, python(TWO_VOICES), say("yes"))
    spent = done.result.spending
    usages = [exchange.usage for exchange in done.exchanges if exchange.usage]
    assert len(usages) == 3
    assert spent.tokens["main"] == (usages[0].input, usages[0].output)
    assert sum(given for given, _ in spent.tokens.values()) == spent.input_tokens
    assert spent.tokens.keys() == spent.speakers.keys()
    assert json.loads(spent.model_dump_json())["tokens"]["main"] == [usages[0].input, usages[0].output]
