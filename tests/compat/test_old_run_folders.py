"""Run folders and certificates of earlier versions still open, show, compare, export and check.

`whet-0.1.0.tar.xz` holds a run of four questions with two agents, with and without a skill, and a sharpen run of
`examples/sharpen`, both written by whet 0.1.0, and the state folder of that machine with its ledger.
"""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

import whet
from support.whet_program import Project

ARCHIVE = Path(__file__).with_name("whet-0.1.0.tar.xz")


@pytest.fixture
def old(project: Project) -> Project:
    """A project that holds the folders of an earlier version."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(project.path, filter="data")
    return Project(project.path, project.tmp, {**project.env, "XDG_STATE_HOME": str(project.path / "state")})


def test_an_old_run_is_shown_compared_and_exported(old: Project) -> None:
    shown = old.whet("show", "old/run")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.count("8/8") == 4
    rollout = whet.load(old.path / "old/run").rollouts[0].id
    assert old.whet("show", "old/run", rollout).returncode == 0
    compared = old.whet("compare", "old/run", "--by", "skill")
    assert compared.returncode == 0, compared.stderr
    for kind in ("chat", "atif", "parquet"):
        exported = old.whet("export", "old/run", "--format", kind, "--out", f"rows-{kind}")
        assert exported.returncode == 0, exported.stderr


def test_an_old_certificate_holds(old: Project) -> None:
    checked = old.whet("certify", "--check", "old/sharpen/certificate.json")
    lines = [line for line in checked.stdout.splitlines() if line.startswith("  ")]
    states = {line.split(": ")[0].split("  ")[-1]: line.split()[0] for line in lines}
    assert "failed" not in states.values(), checked.stdout
    # An earlier version may have worded the page differently; everything that it rests on is checked.
    assert {name for name, state in states.items() if state != "ok"} <= {"certificate.md"}, checked.stdout
    assert len(states) == 19


def test_a_false_old_certificate_is_refused(old: Project) -> None:
    file = old.path / "old/sharpen/certificate.json"
    certificate = json.loads(file.read_text())
    certificate["records"][0]["positions"][1]["incumbent"] = 0.0
    file.write_text(json.dumps(certificate))
    checked = old.whet("certify", "--check", "old/sharpen/certificate.json")
    assert checked.returncode == 1
    assert "failed       scores" in checked.stdout


def test_the_versions_of_an_old_sharpen_run_are_listed(old: Project) -> None:
    log = old.whet("skill", "log", "old/sharpen")
    assert (log.returncode, log.stderr) == (0, "")
    assert "best" in log.stdout
    shutil.rmtree(old.path / "old/sharpen/best")
    assert old.whet("skill", "show", "old/sharpen", "leader").returncode == 0
