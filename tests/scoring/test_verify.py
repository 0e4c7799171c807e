"""Verification commands: the score is the share that exits 0, and each leaves what a person needs to understand it."""

from support.judging_world import judged, judgement
from whet.scoring import Cause
from whet.tasks import Task, TaskLimits


async def test_the_score_is_the_share_of_commands_that_exit_0() -> None:
    task = Task(id="t", instruction="-", verify=("test -f a", "test -f b", "test -f c", "test -d a"))
    score = await judged(task, work="touch a b")
    assert score.value == 0.5
    assert score.reason == "2 of 4 commands passed; `test -f c`: exit code 1; `test -d a`: exit code 1"


async def test_each_command_is_kept_with_its_exit_code_output_and_time() -> None:
    task = Task(id="t", instruction="-", verify=("echo out; echo err >&2; sleep 0.1; exit 7", "true"))
    failed, passed = (await judgement(task)).details["commands"]
    assert (failed["command"], failed["exit_code"], failed["output"]) == (task.verify[0], 7, "out\nerr\n")
    assert (failed["stdout"], failed["stderr"]) == ("out\n", "err\n")
    assert 0.1 <= failed["seconds"] < 10
    assert not failed["timed_out"]
    assert (passed["exit_code"], passed["output"]) == (0, "")


async def test_of_long_output_the_end_is_kept() -> None:
    task = Task(id="t", instruction="-", verify=("seq 100000; echo the verdict",))
    (command,) = (await judgement(task)).details["commands"]
    assert len(command["output"]) == 4000
    assert command["output"].endswith("100000\nthe verdict\n")
    assert len(command["stdout"]) == 2000
    assert command["output"].endswith(command["stdout"])


async def test_a_command_out_of_time_has_failed() -> None:
    limits = TaskLimits(verify_sec=0.5)
    task = Task(id="t", instruction="-", verify=("true", "sleep 30", "sleep 0.2"), limits=limits)
    score = await judgement(task)
    assert [command["timed_out"] for command in score.details["commands"]] == [False, True, True]
    assert score.value == 1 / 3


async def test_a_command_out_of_its_own_time_has_failed_and_the_others_still_run() -> None:
    limits = TaskLimits(command_sec=0.5)
    task = Task(id="t", instruction="-", verify=("sleep 30", "true"), limits=limits)
    score = await judgement(task)
    assert [command["timed_out"] for command in score.details["commands"]] == [True, False]
    assert score.value == 1 / 2


async def test_commands_see_the_verification_variables() -> None:
    task = Task(id="t", instruction="-", verify=('test "$EXPECTED" = 4',))
    assert (await judged(task, env={"EXPECTED": "4"})).value == 1
    assert (await judged(task)).value == 0


async def test_a_command_may_write_the_reward_itself() -> None:
    task = Task(id="t", instruction="-", verify=("true", "echo 0.25 > /logs/verifier/reward.txt"))
    score = await judged(task)
    assert (score.value, score.reason) == (0.25, "the commands wrote the reward 0.25; 2 of 2 commands passed")
    elsewhere = Task(id="t", instruction="-", verify=("echo 0.5 > /home/user/logs/verifier/reward.txt",))
    assert (await judged(elsewhere)).value == 0.5
    wrong = Task(id="t", instruction="-", verify=("echo much > /logs/verifier/reward.txt",))
    assert (await judged(wrong)).cause == Cause.JUDGE


async def test_a_reward_that_the_agent_planted_is_not_read() -> None:
    task = Task(id="t", instruction="-", verify=("false",))
    score = await judged(task, work="mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt")
    assert score.value == 0
