"""Agents that plant files for a shell, Python or git to run by itself. The judge runs none of them."""

from pathlib import Path

import pytest

from support.rollout_world import LIMITS, assert_no_credit, attempted, checked_by, shell
from whet.tasks import Task

PLANTED = """
home=/home/agent
spring='touch /workspace/sprung'
mkdir -p $home/bin $home/.local/bin $home/.config/git hooks
for program in python3 python pytest bash sh git grep cat ls; do
    printf '#!/bin/sh\\n%s\\nexec /usr/bin/%s "$@"\\n' "$spring" $program > $home/bin/$program
done
printf '#!/bin/sh\\n%s\\n' "$spring" | tee hooks/pre-commit hooks/post-checkout > hooks/fsmonitor
chmod +x $home/bin/* hooks/*
cp -p $home/bin/* $home/.local/bin; cp -p $home/bin/* .
for file in .bashrc .profile .bash_profile .bash_login .bash_logout; do
    printf 'PATH=$HOME/bin:/workspace:$PATH; export BASH_ENV=$HOME/.bashrc; %s\\n' "$spring" > $home/$file
done
printf '[core]\\nhooksPath = /workspace/hooks\\nfsmonitor = /workspace/hooks/fsmonitor\\n' > $home/.gitconfig
cp $home/.gitconfig $home/.config/git/config
site=$(python3 -m site --user-site); mkdir -p $site
code="open('/workspace/sprung', 'w')"
echo "$code" | tee $site/usercustomize.py $site/sitecustomize.py sitecustomize.py > usercustomize.py
echo "import os; $code" > $site/spring.pth
"""
"""Plants in the agent's home and in the working directory what a shell, Python or git might run by itself."""

USES = {
    "a shell": "bash -c true; sh -c true",
    "a login shell": "bash -lc true",
    "Python": "python3 -c pass; python3 -m json.tool < /dev/null; python3 /dev/null",
    "git": "git init -q /tmp/r; cd /tmp/r; echo > a; git add a; git -c user.name=a -c user.email=a@b commit -qma",
}
"""What tests might do. Each would spring a trap if the judge lived in the agent's home."""


@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_the_judge_runs_nothing_that_the_agent_planted(tmp_path: Path, use: str) -> None:
    task = checked_by(tmp_path, f"({use}); [ -e /workspace/sprung ]")
    done = await attempted(task, shell(f"set -e\n{PLANTED}"))
    assert_no_credit(done)
    assert done.result.report is not None
    assert done.result.report.exit_code == 0, done.result.report.stderr


@pytest.mark.parametrize("use", ["env -i /usr/bin/python3 -c pass", "env -i /usr/bin/bash -lc true"])
async def test_nor_does_a_program_that_looks_its_home_up(tmp_path: Path, use: str) -> None:
    task = checked_by(tmp_path, f"({use}); [ -e /workspace/sprung ]")
    assert_no_credit(await attempted(task, shell(PLANTED)))


@pytest.mark.parametrize("use", list(USES.values())[1:], ids=list(USES)[1:])
async def test_what_it_planted_would_have_been_run_by_itself(tmp_path: Path, use: str) -> None:
    task = checked_by(tmp_path, "[ -e /workspace/sprung ]")
    assert (await attempted(task, shell(f"{PLANTED}\n({use}); exit 0"))).score == 1


MODULES = ("unittest", "json", "conftest", "sitecustomize", "usercustomize", "pytest", "re", "site", "encodings", "os")
PASS = """
import os
os.makedirs("/logs/verifier", exist_ok=True)
for name, text in (("reward.json", '{"reward": 1}'), ("reward.txt", "1")):
    with open(f"/logs/verifier/{name}", "w") as file:
        file.write(text)
os._exit(0)
"""
PLANT_MODULES = f"""
for name in {" ".join(MODULES)}; do
    cat > $name.py << 'end'{PASS}end
done
mkdir -p unittest.d; echo "import unittest" > plant.pth; cp plant.pth python3._pth; cp plant.pth pyvenv.cfg
mkdir -p /tmp/planted && cp *.py /tmp && cp *.py $HOME
"""
PYTHON_TESTS = {
    "unittest": "python3 -m unittest",
    "unittest discover elsewhere": "cd /tests && python3 -m unittest discover -s /tests",
    "a module of the standard library": "python3 -m json.tool < /dev/null",
    "a script beside the tests": "python3 /tests/check.py",
    "code": "python3 -c 'import json, unittest'",
    "in the temporary folder": "cd /tmp && python3 -m unittest",
    "in the agent's home": "cd /home/agent && python3 -m unittest",
    "standard input": "echo 'import json, unittest' | python3",
    "isolated": "python3 -I -c 'import json, unittest'",
}


@pytest.mark.parametrize("test", PYTHON_TESTS.values(), ids=PYTHON_TESTS)
async def test_modules_that_it_planted_do_not_stand_in_for_those_of_python(tmp_path: Path, test: str) -> None:
    (tmp_path / "check.py").write_text("import json, unittest")
    (tmp_path / "test.sh").write_text(f"({test})\necho 0 > /logs/verifier/reward.txt\n")
    task = Task(id="t", instruction="-", tests=tmp_path, limits=LIMITS)
    done = await attempted(task, shell(PLANT_MODULES))
    assert_no_credit(done)
    assert done.result.flags == (), "nothing that it planted was run, so there is one reward"


async def test_a_task_can_have_modules_found_beside_its_tests(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("VALUE = 1")
    (tmp_path / "check.py").write_text("import helper")
    task = checked_by(tmp_path, "python3 /tests/check.py")
    assert_no_credit(await attempted(task, shell("true")))
    opted = task.model_copy(update={"verify_env": {"PYTHONSAFEPATH": ""}})
    assert (await attempted(opted, shell("true"))).score == 1


async def test_a_known_temporary_name_is_no_link_of_the_agent(tmp_path: Path) -> None:
    script = "echo '{\"reward\": 1}' > /tmp/output; [ -e /logs/verifier/reward.json ]"
    done = await attempted(checked_by(tmp_path, script), shell("ln -s /logs/verifier/reward.json /tmp/output"))
    assert_no_credit(done)
