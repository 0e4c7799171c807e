"""`whet certify --check` and `--sign`: what is printed, and how it ends."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sharpen_world import HELPFUL, SKILL, write_script, write_tasks
from support.whet_program import Project, new_project, said_to_user


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project with a certified skill in `up`; its tests leave it as it is."""
    folder = tmp_path_factory.mktemp("project")
    write_tasks(folder, {"val": range(100, 110)})
    write_script(folder, range(110))
    with new_project(folder) as project:
        project.write("sums/SKILL.md", SKILL)
        project.write("better/SKILL.md", f"{SKILL}{HELPFUL}\n")
        done = project.whet(*COMMAND, "--out", "up", "--budget", "60")
        assert done.returncode == 0, done.stderr
        yield project


COMMAND = ["certify", "sums", "better", "--tasks", "tasks.jsonl", "--agent", "chat", "--model", "scripted:script.toml"]


def copied(project: Project, name: str) -> Path:
    shutil.copytree(project.path / "up", project.path / name)
    return project.path / name


@pytest.mark.parametrize("path", ["up", "up/certificate.json"])
def test_a_run_folder_holds_in_all_checks(project: Project, path: str) -> None:
    done = project.whet("certify", "--check", path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    first, *checked, last = done.stdout.splitlines()
    assert first.startswith("up/certificate.json: certified: on these 10 tasks the new skill is better, by at least ")
    assert {line.split("  ")[1] for line in checked} == {"ok"}
    assert last == f"up/certificate.json: holds; all {len(checked)} checks passed"


def test_the_run_is_shown_with_its_verdict_and_what_to_run_next(project: Project) -> None:
    shown = project.whet("show", "up").stdout
    assert shown.startswith("certified: on these 10 tasks the new skill is better, by at least ")
    assert "\n  exam 1: " in shown
    # `certify` compares two skills that lie where they belong already, so there is nothing to adopt.
    assert shown.endswith(f"\nnext:\n  whet show {Path('up/exam')}\n  whet certify --check up/certificate.json\n")


def test_a_certificate_alone_is_arithmetic_only(project: Project) -> None:
    (project.path / "alone").mkdir()
    shutil.copy(project.path / "up/certificate.json", project.path / "alone/certificate.json")
    done = project.whet("certify", "--check", "alone/certificate.json")
    assert (done.returncode, done.stderr) == (3, "")
    assert (
        "alone/certificate.json: arithmetic only: the verdicts follow from the scores in the certificate."
        in done.stdout
    )
    assert "scores:" not in done.stdout


def test_what_is_missing_is_named_and_what_is_wrong_refused(project: Project) -> None:
    folder = copied(project, "changed")
    (folder / "exam" / "run.db").unlink()
    done = project.whet("certify", "--check", "changed")
    assert done.returncode == 3
    assert "  not checked  scores: exam/run.db is missing\n" in done.stdout
    assert "no check failed; not checked: settings, tasks, " in done.stdout
    data = json.loads((folder / "certificate.json").read_text())
    data["records"][0]["findings"]["verdict"] = "futile"
    (folder / "certificate.json").write_text(json.dumps(data))
    done = project.whet("certify", "--check", "changed", "--sign", "key")
    assert done.returncode == 1
    assert "  failed       verdicts: exam 1: verdict is futile, recomputed certified\n" in done.stdout
    assert done.stderr.startswith("changed/certificate.json: does not hold: 3 of 19 checks failed: exams, verdicts")
    assert not (folder / "certificate.json.sig").exists(), "what does not hold is not signed"


def test_nothing_in_a_folder_can_look_like_a_check(project: Project) -> None:
    folder = copied(project, "lines")
    made = json.loads((folder / "made_with.json").read_text())
    made["sandbox"] = "x\n  ok           scores: all of them"
    (folder / "made_with.json").write_text(json.dumps(made))
    done = project.whet("certify", "--check", "lines")
    assert done.returncode == 1
    assert len([line for line in done.stdout.splitlines() if line.startswith("  ok           scores:")]) == 1


def test_an_order_that_was_chosen_is_named(project: Project) -> None:
    assert project.whet(*COMMAND, "--out", "chosen", "--budget", "60", "--seed", "54").returncode == 0
    done = project.whet("certify", "--check", "chosen")
    assert done.returncode == 3
    assert "  not checked  seed: the order of tasks was chosen by the maker of the run" in done.stdout


def test_certificates_are_signed_and_their_signers_known(project: Project) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed (Debian: openssh-client)")
    key = project.path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    project.write("signers", f"alice@example.org {key.with_suffix('.pub').read_text()}")
    copied(project, "signed")
    unsigned = project.whet("certify", "--check", "signed", "--allowed-signers", "signers")
    assert (unsigned.returncode, "failed       signature: certificate.json.sig is missing" in unsigned.stdout) == (
        1,
        True,
    )
    assert (
        "signed: signed/certificate.json.sig\n" in project.whet("certify", "--check", "signed", "--sign", "key").stdout
    )
    known = project.whet("certify", "--check", "signed", "--allowed-signers", "signers")
    assert (known.returncode, "  ok           signature: by alice@example.org\n" in known.stdout) == (0, True), (
        known.stdout
    )
    assert project.whet("certify", "--check", "signed").returncode == 3, "whose key it is nobody said"


def test_mistakes_are_one_line(project: Project) -> None:
    assert "cannot be read: No such file" in said_to_user(project.whet("certify", "--check", "nowhere"))
    assert "expected a certificate" in said_to_user(project.whet("certify", "--check", "tasks.jsonl"))
    assert "expected two skills and tasks" in said_to_user(project.whet("certify", "--allowed-signers", "signers"))
