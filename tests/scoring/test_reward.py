"""Reward files: what the tests wrote is the score when it can be trusted to be one, and else there is no score."""

from pathlib import Path
from typing import cast

import pytest

from support.judging_world import checks_in, judged, judgement
from whet.box import Box
from whet.scoring import Cause, Score
from whet.scoring.judges.reward import TWO_REWARDS
from whet.scoring.reward_files import main_reward, read_rewards
from whet.tasks import Task, TaskLimits


async def score_of(folder: Path, script: str, **files: str | bytes) -> Score:
    """The score when test.sh runs a script and writes files: reward.txt for `txt`, reward.json for `json`."""
    tests = checks_in(folder, f"{script}\ncp /tests/reward.* /logs/verifier/ 2>/dev/null")
    for name, content in files.items():
        (tests / f"reward.{name}").write_bytes(content.encode() if isinstance(content, str) else content)
    return await judgement(Task(id="t", instruction="-", tests=tests))


class Verdicts:
    """What a box gives of reward files that hold this: reward.txt for `txt`, reward.json for `json`."""

    def __init__(self, **files: str | bytes) -> None:
        self._files = {
            f"reward.{name}": text if isinstance(text, bytes) else text.encode() for name, text in files.items()
        }

    async def read_verdict(self, name: str) -> bytes:
        if name not in self._files:
            raise FileNotFoundError(name)
        return self._files[name]


async def rewards_in(**files: str | bytes) -> dict[str, float]:
    (rewards,) = await read_rewards(cast("Box", Verdicts(**files)))
    return rewards


def assert_no_score(score: Score, *words: str) -> None:
    assert score.value is None
    assert score.cause is Cause.JUDGE
    for word in words:
        assert word in score.reason


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("0", 0), (" 0.25\n", 0.25), ("1e-1", 0.1), ("1.0", 1), ("-0", 0)]
)
async def test_reward_txt_holds_one_number(text: str, value: float) -> None:
    assert await rewards_in(txt=text) == {"reward": value}


async def test_the_reason_of_a_lost_reward_names_the_tests_that_failed(tmp_path: Path) -> None:
    lost = await score_of(tmp_path, "echo FAILED test_price.py::test_mug - assert 3 == 4", txt="0")
    assert lost.reason == "the tests gave 0; failed: test_price.py::test_mug"


@pytest.mark.parametrize(
    "text", ["", " \n", "nan", "inf", "-inf", "1e999", "1.5", "-0.1", "one", "1 1", "true", b"\xff\xfe1"]
)
async def test_a_reward_txt_with_anything_else_gives_no_score(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"^reward\.txt"):
        await rewards_in(txt=text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"reward": 0.5}', 0.5),
        ('{"reward": 1, "speed": 17.5, "penalty": -3}', 1),
        ('{"accuracy": 0.75}', 0.75),
        ('{"reward": true}', 1),
        ('{"reward": false, "other": true}', 0),
    ],
)
async def test_of_reward_json_one_number_counts(text: str, value: float) -> None:
    assert main_reward(await rewards_in(json=text)) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "1",
        "[1]",
        "null",
        '{"reward": "1"}',
        '{"reward": null}',
        '{"reward": {"reward": 1}}',
        '{"reward": [1]}',
        '{"reward": NaN}',
        '{"reward": Infinity}',
        '{"reward": 1e999}',
        '{"reward": 1' + "0" * 400 + "}",
        '{"reward": 1.01}',
        '{"reward": -1}',
        '{"reward": 1, "speed": NaN}',
        '{"quality": 1, "speed": 1}',
        b'{"reward": 1, "\xff": 1}',
    ],
)
async def test_a_reward_json_with_anything_else_gives_no_score(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"^reward\.json"):
        await rewards_in(json=text)


@pytest.mark.parametrize(("txt", "json", "value"), [("1", 0, 0), ("0", 1, 0), ("0.5", 0.25, 0.25), ("0.25", 0.5, 0.25)])
async def test_of_two_rewards_the_lower_one_counts(tmp_path: Path, txt: str, json: float, value: float) -> None:
    score = await score_of(tmp_path, "", txt=txt, json=f'{{"reward": {json}}}')
    assert score.value == value
    assert "two reward files" in score.reason
    assert score.details["flags"] == [TWO_REWARDS]


async def test_two_rewards_that_agree_are_one(tmp_path: Path) -> None:
    score = await score_of(tmp_path, "", txt="0.5", json='{"reward": 0.5, "speed": 3}')
    assert (score.value, score.details["rewards"]) == (0.5, {"reward": 0.5, "speed": 3})
    assert "flags" not in score.details


async def test_a_broken_reward_json_is_not_made_up_for_by_reward_txt(tmp_path: Path) -> None:
    assert_no_score(await score_of(tmp_path, "", txt="1", json=""), "reward.json")


async def test_without_a_reward_file_there_is_no_score_whatever_the_exit_code(tmp_path: Path) -> None:
    assert_no_score(await score_of(tmp_path, "exit 0"), "wrote no reward.txt or reward.json")


async def test_the_exit_code_of_the_tests_does_not_count(tmp_path: Path) -> None:
    script = "echo checking; echo 1 > /logs/verifier/reward.txt; exit 3"
    score = await score_of(tmp_path, script)
    (command,) = score.details["commands"]
    assert (score.value, command["exit_code"], command["output"]) == (1, 3, "checking\n")


@pytest.mark.parametrize(
    "script",
    [
        "ln -s /etc/hostname reward.txt",
        "ln -s ../../../../../../../../proc/self/environ reward.txt",
        "ln -s reward.txt reward.txt",
        "mkfifo reward.txt",
        "mkdir reward.txt",
        "ln -s /dev/zero reward.json",
        "echo 1 > other; ln other reward.txt",
        "truncate -s 2M reward.txt",
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"reward.txt\")'",
        "python3 -c 'print(\"[\" * 500_000)' > reward.json",
    ],
    ids=["host file", "host process", "circle", "pipe", "folder", "device", "two links", "huge", "socket", "deep"],
)
async def test_what_is_no_plain_small_file_gives_no_score(tmp_path: Path, script: str) -> None:
    assert_no_score(await score_of(tmp_path, f"cd /logs/verifier; {script}"), "reward.")


async def test_a_test_script_that_is_not_executable_is_run_by_bash(tmp_path: Path) -> None:
    tests = checks_in(tmp_path, "[[ a == a ]] && echo 1 > /logs/verifier/reward.txt", mode=0o644)
    assert (await judgement(Task(id="t", instruction="-", tests=tests))).value == 1


async def test_what_a_task_omits_of_its_tests_is_not_there(tmp_path: Path) -> None:
    tests = checks_in(tmp_path, "[ -e /tests/key ] || echo 1 > /logs/verifier/reward.txt")
    (tests / "key").touch()
    assert (await judgement(Task(id="t", instruction="-", tests=tests, omitted=("tests/key",)))).value == 1


async def test_an_executable_test_script_is_run_by_its_first_line(tmp_path: Path) -> None:
    tests = checks_in(tmp_path, "")
    (tests / "test.sh").write_text("#!/usr/bin/python3\nopen('/logs/verifier/reward.txt', 'w').write('0.5')\n")
    assert (await judgement(Task(id="t", instruction="-", tests=tests))).value == 0.5


async def test_tests_out_of_time_give_no_score_even_with_a_reward_written(tmp_path: Path) -> None:
    tests = checks_in(tmp_path, "echo 1 > /logs/verifier/reward.txt; sleep 30")
    task = Task(id="t", instruction="-", tests=tests, limits=TaskLimits(verify_sec=0.5))
    assert_no_score(await judgement(task), "did not end within 0.5 seconds")


async def test_the_tests_see_the_work_and_cannot_be_written(tmp_path: Path) -> None:
    script = """
    touch /tests/x 2>/dev/null && exit
    [ "$PWD" = /srv/app ] && [ "$(cat answer.txt)" = 4 ] && echo 1 > /logs/verifier/reward.txt
    """
    task = Task(id="t", instruction="-", tests=checks_in(tmp_path, script), workdir="/srv/app")
    assert (await judged(task, work="echo 4 > answer.txt")).value == 1
