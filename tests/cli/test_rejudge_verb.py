"""`whet rejudge`: what is printed, for people and for machines."""

import json

from support.whet_program import Project


def test_a_run_is_judged_again_from_its_store(project: Project) -> None:
    rows = project.rows("t.jsonl", {"id": "a", "instruction": "a", "answer": "the answer is 4", "verify": ["true"]})
    project.write("s.toml", '[[scene]]\n[[scene.reply]]\ntext = "It is 4."\n')
    assert project.whet("run", rows, "--agent", "chat", "--model", "scripted:s.toml", "--out", "r").returncode == 0
    project.write("judges.toml", '[[judge]]\nkind = "contains"\ntext = "4"\n')
    done = project.whet("rejudge", "r", "--judge", "judges.toml")
    assert done.returncode == 0, done.stderr
    assert "0.50 -> 1.00" in done.stdout
    assert (
        "1 judged again, 1 scores changed, 0 not judged; not judged again, because they need the sandbox: verify"
        in done.stdout
    )
    again = project.whet("rejudge", "r", "--judge", "judges.toml", "--json")
    told = json.loads(again.stdout)
    assert (told["before"], told["after"], told["kept"]) == (1, 1, ["verify"])
    shown = project.whet("show", "r")
    assert "1.00" in shown.stdout
    wrong = project.whet("rejudge", "r", "--judge", "gone.toml")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "whet: gone.toml: No such file or directory; expected a file with judges\n",
    )
