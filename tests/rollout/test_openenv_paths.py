"""The paths that tasks of OpenEnv name: they are there, and an agent cannot use them to get or to lose a reward."""

import pytest

from support.rollout_world import attempted, shell
from whet.box import SandboxError
from whet.rollout.result import Flag
from whet.sandbox import sandbox_named
from whet.tasks import Task, TaskLimits
from whet.tasks.task import OPENENV_WORKDIR

VERIFIER = "/home/user/logs/verifier"


def openenv_task(*verify: str) -> Task:
    limits = TaskLimits(agent_sec=30, verify_sec=30)
    return Task(id="t", instruction="Sort it.", workdir=OPENENV_WORKDIR, verify=verify, limits=limits)


async def test_the_instruction_is_there_for_the_agent_and_for_the_judge_and_stays_as_it_is() -> None:
    read = "grep -qx 'Sort it.' /home/user/task/instruction.md"
    task = openenv_task(read, "grep -qx read /home/user/workdir/notes.txt", f"test -d {VERIFIER}")
    script = f"""
        {read} && test $PWD = /home/user/workdir && test -d {VERIFIER} && echo read > notes.txt
        echo Cheat. > /home/user/task/instruction.md; rm -rf /home/user/task; mv /home/user/task /home/user/gone; true
    """
    assert (await attempted(task, shell(script))).score == 1


async def test_what_set_up_leaves_in_the_home_is_there_for_the_judge_and_the_agent_cannot_change_it() -> None:
    kept = "/home/user/check.sh"
    setup = (
        f"echo 'grep -qx right answer.txt' > {kept}",
        "mkdir -p /home/user/data/deep; echo 1 > /home/user/data/deep/x",
    )
    task = openenv_task(f"sh {kept}", "test -f /home/user/data/deep/x", "echo 1 > /home/user/notes").model_copy(
        update={"setup": setup}
    )
    script = f"""
        cat {kept} > seen.txt
        echo true > {kept}; rm -rf {kept} /home/user/data; mv {kept} {kept}.old; chmod 0 /home/user {kept}; true
    """
    done = await attempted(task, shell(script))
    assert [one["exit_code"] for one in done.result.judgements["verify"].details["commands"]] == [2, 0, 0]
    assert (await attempted(task, shell(f"{script}\necho right > answer.txt"))).score == 1


async def test_work_that_a_verify_command_runs_sees_the_home_and_cannot_change_it() -> None:
    task = openenv_task("whet-untrusted sh ./work", "grep -qx kept /home/user/data").model_copy(
        update={"setup": ("echo kept > /home/user/data",)}
    )
    done = await attempted(task, shell("echo 'cat /home/user/data && ! echo gone > /home/user/data' > work"))
    assert done.score == 1


PLANTED = {
    "a reward": f"mkdir -p {VERIFIER}; echo 1 > {VERIFIER}/reward.txt",
    "a reward as JSON": f"echo '{{\"reward\": 1}}' > {VERIFIER}/reward.json",
    "a reward in /logs": "echo 1 > /logs/verifier/reward.txt",
    "a link in place of the reward": f"echo 1 > one; ln -s $PWD/one {VERIFIER}/reward.txt",
    "a pipe in place of the reward": f"mkfifo {VERIFIER}/reward.txt",
    "a folder in place of the reward": f"mkdir {VERIFIER}/reward.txt",
    "a link in place of the folder": f"rm -rf {VERIFIER}; mkdir own; ln -s $PWD/own {VERIFIER}",
    "a link to the working directory": f"rm -rf {VERIFIER}; ln -s /home/user/workdir {VERIFIER}",
    "a file in place of the folder": f"rm -rf {VERIFIER}; echo 1 > {VERIFIER}",
}
HIDDEN = {
    "no folder": f"rm -rf {VERIFIER}",
    "no logs": "rm -rf /home/user/logs /logs",
    "a link in place of the logs": "rm -rf /home/user/logs; ln -s /tmp /home/user/logs; mkdir -p /tmp/verifier",
    "logs elsewhere": "mv /home/user/logs /home/user/workdir/logs; mkdir -p /home/user/logs/verifier",
    "closed folders": f"chmod 0 {VERIFIER} /home/user/logs",
    "another home": "mv /home/user /home/other; ln -s /tmp /home/user",
}


@pytest.mark.parametrize("script", [*PLANTED.values(), *HIDDEN.values()], ids=[*PLANTED, *HIDDEN])
async def test_the_reward_of_the_verify_commands_counts_whatever_the_agent_did(script: str) -> None:
    task = openenv_task("true", f"echo 0.25 > {VERIFIER}/reward.txt", f"test $(ls {VERIFIER}) = reward.txt")
    done = await attempted(task, shell(f"({script}) 2>&1; exit 0"))
    score = done.result.judgements["verify"]
    assert (done.score, score.details["source"]) == (0.25, "verifier")
    assert [one["exit_code"] for one in score.details["commands"]] == [0, 0, 0]
    assert (Flag.PLANTED_REWARD in done.result.flags) == (script in PLANTED.values())


@pytest.mark.parametrize("script", PLANTED.values(), ids=PLANTED)
async def test_a_planted_reward_is_not_read_when_no_command_writes_one(script: str) -> None:
    done = await attempted(openenv_task("false", "false"), shell(f"({script}) 2>&1; exit 0"))
    assert done.score == 0
    assert done.result.judgements["verify"].details["source"] == "exit_codes"
    assert Flag.PLANTED_REWARD in done.result.flags


async def test_work_that_a_verify_command_runs_cannot_write_the_reward() -> None:
    task = openenv_task("whet-untrusted ./work", "false")
    work = f"#!/bin/sh\nmkdir -p {VERIFIER}; echo 1 > {VERIFIER}/reward.txt; echo 1 > /logs/verifier/reward.txt; exit 0"
    done = await attempted(task, shell(f"printf '{work}' > work; chmod +x work"))
    assert done.score == 0.5
    assert done.result.judgements["verify"].details["source"] == "exit_codes"


@pytest.mark.parametrize("folder", ["/home/user/logs", "/home/user/logs/verifier", "/home/user/task"])
async def test_the_working_directory_cannot_be_one_of_these_paths(folder: str) -> None:
    with pytest.raises(SandboxError, match="a place that the box needs for itself"):
        async with sandbox_named("bubblewrap").open(TaskLimits(), folder):
            pass
