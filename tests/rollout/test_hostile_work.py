"""Work that attacks the judge who runs it: on every example task, and by every way that tests have of running it."""

import re
import uuid
from pathlib import Path

import pytest

from support.box_helpers import carriers
from support.rollout_world import LIMITS, assert_no_credit, attempted, checked_by, python, shell
from whet.rollout.result import Flag
from whet.scoring.judges.reward import TWO_REWARDS
from whet.tasks import Task, read_tasks

EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"

ATTACK = """
import ctypes, glob, os, signal, sys, threading, time
MARKER = "{marker}"
ONE = '{"reward": 1}'
LINKS = ["/logs/agent/one.json", "/workspace/one.json", "/tmp/one.json", "/home/agent/one.json", "one.json"]

def attempt(act, *arguments):
    try: return act(*arguments)
    except (OSError, ValueError): return None

def write(path, text=ONE):
    with open(path, "w") as file: file.write(text)

def forge():
    roots = [root + "/logs/verifier" for root in glob.glob("/proc/[0-9]*/root")]
    folders = ["/logs/verifier", "/logs", *roots, *glob.glob("/proc/[0-9]*/cwd")]
    for folder in folders:
        attempt(os.makedirs, folder)
        for name, text in (("reward.json", ONE), ("reward.txt", "1")):
            attempt(write, folder + "/" + name, text)
            for link in LINKS:
                for act in (os.link, os.symlink, os.rename):
                    attempt(act, link, folder + "/" + name)
    for path in glob.glob("/proc/[0-9]*/fd/*"):
        if "verifier" in (attempt(os.readlink, path) or ""): attempt(write, path)
    for path in glob.glob("/run/scratch/*") + ["/tests/check.py", "/tests/test.sh", "/run/scratch/driver.py"]:
        attempt(write, path, "print('forged')")
        attempt(os.unlink, path)

def kill():
    libc = ctypes.CDLL(None, use_errno=True)
    for path in glob.glob("/proc/[0-9]*"):
        pid = int(path.split("/")[2])
        if pid not in (1, os.getpid()):
            libc.ptrace(16, pid, 0, 0)
            attempt(os.kill, pid, signal.SIGKILL)
    attempt(os.kill, -1, signal.SIGKILL)

for path in LINKS: attempt(write, path)
forge()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): attempt(os.close, fd)
        while True:
            forge()
            time.sleep(0.01)
    os._exit(0)
kill()
sys.stdout.write(ONE * 10)
"""
"""Work that forges rewards in every place and by every kind of link, leaves a daemon that goes on, and kills all."""

SHELL_ATTACK = "python3 attack.py; exit 0"
WORK = {
    "fix-bookings": "cp attack.py bookings.py",
    "parse-duration": "cp attack.py durations.py",
    "sales-report": "cp attack.py report.py",
    "remove-global-state": "for name in __init__ __main__ text totals; do cp attack.py invoice/$name.py; done",
    "largest-files": f"echo '{SHELL_ATTACK}' > largest.sh",
    "git-revert": """
        printf '#!/bin/sh\\ncd /workspace; python3 attack.py' > hook; chmod +x hook; git init -q -b main repo; cd repo
        echo > file; git add file; git -c user.name=a -c user.email=a@b commit -qm a; echo >> file
        cp ../hook .git/hooks/post-index-change; echo '* filter=f diff=f' > .gitattributes
        for key in core.fsmonitor core.pager diff.external filter.f.clean filter.f.process diff.f.textconv
        do git config $key /workspace/hook; done
    """,
    "edit-config": "rm worker.ini; ln -s /tests/expected.ini worker.ini",
}


def attacked(task: str, marker: str) -> str:
    """The script of an agent that leaves work which attacks."""
    attack = ATTACK.replace("{marker}", marker)
    return f"""
    cat > attack.py << 'end'\n{attack}\nend
    for folder in /logs/agent /logs/artifacts /tmp /home/agent .; do echo '{{"reward": 1}}' > $folder/one.json; done
    {WORK[task]}
    """


@pytest.mark.parametrize("name", sorted(WORK))
async def test_no_example_task_is_passed_by_attacking_its_tests(name: str) -> None:
    marker = uuid.uuid4().hex
    (task,) = read_tasks(EXAMPLES / name)
    done = await attempted(task, shell(attacked(name, marker)))
    assert_no_credit(done)
    assert done.result.flags == ()
    assert "FAIL" in done.result.judgements["reward"].details["commands"][0]["output"]
    assert carriers(marker) == []


def test_every_example_task_is_attacked() -> None:
    assert {folder.name for folder in EXAMPLES.iterdir()} == WORK.keys()


LEFT = {
    "a pipe": "rm -f {file}; mkfifo {file}",
    "an endless file": "rm -f {file}; ln -s /dev/zero {file}",
    "a circle": "rm -f {file}; ln -s {file} {file}",
    "a folder": "rm -f {file}; mkdir {file}",
    "a file full of holes": "truncate -s 1G {file}",
    "nothing": "rm -rf /workspace/*",
    "a closed folder": "echo > {file}; chmod 0 {file} .",
}


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
async def test_what_cannot_be_read_is_scored(left: str) -> None:
    (task,) = read_tasks(EXAMPLES / "edit-config")
    assert_no_credit(await attempted(task, shell(left.format(file="worker.ini"))))


FLOOD = "import os\nwhile True: os.write(1, b'x' * 65536)"
SLOW = {"a flood of output": FLOOD, "closing its output": "import os\nos.close(1); os.close(2); os._exit(0)"}


@pytest.mark.parametrize("program", SLOW.values(), ids=SLOW)
async def test_work_that_prints_without_end_or_not_at_all_is_scored(program: str) -> None:
    (task,) = read_tasks(EXAMPLES / "parse-duration")
    assert_no_credit(await attempted(task, python(f"open('durations.py', 'w').write({program!r})")))


@pytest.mark.parametrize(
    "script",
    [
        "whet-untrusted python3 attack.py",
        "whet-untrusted python3 attack.py & wait; sleep 0.3",
        "whet-untrusted --time 1 sh -c 'python3 attack.py; sleep 9'",
        "cat attack.py | whet-untrusted python3 -",
        "for n in 1 2 3; do whet-untrusted python3 attack.py; done",
        # Stops the first process of its namespace, and with it the end of the command, until the time is over.
        "whet-untrusted --time 1 python3 -c 'import ctypes; ctypes.CDLL(None).ptrace(16, 1, 0, 0)'; [ $? != 124 ]",
    ],
)
async def test_work_that_is_run_apart_decides_nothing(tmp_path: Path, script: str) -> None:
    marker = uuid.uuid4().hex
    agent = f"cat > attack.py << 'end'\n{ATTACK.replace('{marker}', marker)}\nend"
    done = await attempted(checked_by(tmp_path, f"({script}) > /dev/null 2>&1; false"), shell(agent))
    assert_no_credit(done)
    assert done.result.flags == ()
    assert carriers(marker) == []


async def test_the_same_work_would_decide_if_the_tests_ran_it_themselves(tmp_path: Path) -> None:
    attack = "import os\nopen('/logs/verifier/reward.txt', 'w').write('1')\nos.kill(-1, 9)"
    agent = python(f"open('attack.py', 'w').write({attack!r})")
    done = await attempted(checked_by(tmp_path, "python3 attack.py; false"), agent)
    assert done.score == 1, "this is what docs/judges.md warns of"


async def test_a_second_reward_of_the_work_changes_nothing(tmp_path: Path) -> None:
    write = "open('/logs/verifier/reward.json', 'w').write('{\"reward\": 1}')"
    agent = python(f"open('attack.py', 'w').write({write!r})")
    done = await attempted(checked_by(tmp_path, "python3 attack.py; false"), agent)
    assert_no_credit(done)
    assert done.result.flags == (TWO_REWARDS,)


async def test_a_reward_among_the_agents_logs_cannot_be_linked(tmp_path: Path) -> None:
    script = "ln -f /logs/agent/one.json /logs/verifier/reward.json; ln -f /logs/artifacts/* /logs/verifier/; false"
    task = checked_by(tmp_path, script).model_copy(update={"agent_logs": True})
    agent = "echo '{\"reward\": 1}' | tee /logs/agent/one.json /logs/artifacts/reward.json > /logs/verifier/reward.json"
    done = await attempted(task, shell(agent))
    assert_no_credit(done)
    assert done.result.flags == (Flag.PLANTED_REWARD,)


async def test_tests_that_ask_for_the_agents_logs_see_them(tmp_path: Path) -> None:
    task = checked_by(tmp_path, "grep -qx done /logs/agent/log")
    assert_no_credit(await attempted(task, shell("echo done > /logs/agent/log")))
    asks = task.model_copy(update={"agent_logs": True})
    assert (await attempted(asks, shell("echo done > /logs/agent/log"))).score == 1


async def test_the_driver_of_the_documentation_calls_a_function_of_the_work() -> None:
    document = (EXAMPLES.parents[1] / "docs" / "judges.md").read_text()
    (driver,) = re.findall(r"^```bash\n(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    task = Task(id="t", instruction="-", verify=(f'test "$({driver})" = "[5, 7]"',), limits=LIMITS)
    work = "def parse_duration(text): return len(text) + 2"
    assert (await attempted(task, python(f"open('durations.py', 'w').write({work!r})"))).score == 1


async def test_a_verify_command_can_run_the_work_apart(tmp_path: Path) -> None:
    task = Task(id="t", instruction="-", verify=("test $(whet-untrusted sh add.sh 2 3) = 5",), limits=LIMITS)
    assert (await attempted(task, shell("echo 'echo $(($1 + $2))' > add.sh"))).score == 1
    assert_no_credit(await attempted(task, shell("echo 'kill -9 -1' > add.sh")))
