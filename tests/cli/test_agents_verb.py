"""`whet agents`, `whet agents install` and `whet agents check`."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from support.whet_program import Project, said_to_user
from whet.agents.install.packages import PACKAGES, Package
from whet.agents.install.run import InstallRecord, install

NOWHERE = {"npm_config_registry": "http://127.0.0.1:9", "npm_config_fetch_retries": "0"}


@pytest.fixture(name="whet")
def whet_fixture(project: Project) -> Project:
    """A project with an empty place for installs."""
    # In the project's TMPDIR, which boxes can enter; the project's own folder they cannot.
    return replace(project, env={"WHET_AGENTS": str(project.tmp / "agents")})


def put(whet: Project, package: Package, version: str, pinned: bool) -> Path:
    """An install as far as it is looked at when it is listed."""
    folder = Path(whet.env["WHET_AGENTS"], package.agent, version)
    folder.mkdir(parents=True)
    record = InstallRecord(
        package=package.name, version=version, program=package.programs[0], pinned=pinned, verified="", python=None
    )
    (folder / "installed.json").write_text(record.model_dump_json())
    (folder / "program").write_bytes(b"x" * 3_000_000)
    return folder


def table(whet: Project) -> dict[str, list[str]]:
    done = whet.whet("agents")
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows = [re.split(r"  +", line.rstrip()) for line in done.stdout.splitlines()]
    assert head == ["agent", "version", "dialect", "installed", "size", "works here"]
    return {f"{agent} {version}": rest for agent, version, *rest in rows}


def test_the_table_tells_what_is_installed_and_what_is_on_path(whet: Project) -> None:
    put(whet, PACKAGES["pi"], PACKAGES["pi"].version, pinned=True)
    put(whet, PACKAGES["pi"], "0.70.0", pinned=False)
    put(whet, PACKAGES["gemini"], "0.60.0", pinned=False)
    own = whet.write("bin/claude", "#!/bin/sh\necho '2.0.0 (Claude Code)'\n")
    own.chmod(0o755)
    rows = table(replace(whet, env={**whet.env, "PATH": f"{own.parent}:/usr/bin:/bin", "COLUMNS": "300"}))
    assert rows[f"pi {PACKAGES['pi'].version}"] == ["chat", "managed", "3 MB", "not checked"]
    assert rows["pi 0.70.0"] == ["chat", "managed, not pinned", "3 MB", "not checked"]
    assert rows["gemini 0.60.0"] == ["gemini", "managed, not pinned", "3 MB", "not checked"]
    assert rows[f"gemini {PACKAGES['gemini'].version}"] == ["gemini", "no", "-", "not checked"]
    assert rows["claude-code 2.0.0"] == ["messages", f"on PATH: {own}", "-", "not checked"]
    assert rows[f"codex {PACKAGES['codex'].version}"] == ["responses", "no", "-", "not checked"]
    assert {name.partition(" ")[0] for name in rows} == set(PACKAGES)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["codx"], "whet: unknown agent 'codx'; did you mean 'codex'? (known: claude-code, codex, "),
        ([], "whet: expected names of agents or --all; known: claude-code, "),
        (["codex", "--all"], "whet: expected names of agents or --all; known: claude-code, "),
        (["codex", "pi", "--version", "1.0.0"], "whet: --version is '1.0.0' for 2 agents; expected a single agent"),
    ],
)
def test_a_wrong_argument_is_one_line(whet: Project, arguments: list[str], expected: str) -> None:
    assert said_to_user(whet.whet("agents", "install", *arguments)).startswith(expected)


def test_after_a_failure_the_others_are_installed_and_the_failed_are_named(whet: Project) -> None:
    put(whet, PACKAGES["pi"], PACKAGES["pi"].version, pinned=True)
    done = replace(whet, env={**whet.env, **NOWHERE}).whet("agents", "install", "qwen", "pi")
    assert done.returncode == 1
    assert f"pi {PACKAGES['pi'].version}: already installed, 3 MB\n" in done.stdout
    reason, failed = done.stderr.splitlines()
    assert re.fullmatch(r"whet: qwen \S+ cannot be installed: .*ECONNREFUSED.*", reason)
    assert failed == "not installed: qwen"


def test_an_install_shows_its_time_and_size(whet: Project) -> None:
    version = PACKAGES["qwen"].version
    done = whet.whet("agents", "install", "qwen")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == f"qwen {version}: installing"
    assert re.fullmatch(rf"qwen {re.escape(version)}: installed in \d+ s, \d\d MB", second)
    assert table(whet)[f"qwen {version}"][:2] == ["chat", "managed"]


def test_an_agent_is_proved_by_a_task_and_the_table_remembers_it(project: Project) -> None:
    install(PACKAGES["codex"])
    done = project.whet("agents", "check", "codex")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(rf"codex {PACKAGES['codex'].version}: works in \d+\.\d s\n", done.stdout)
    listed = project.whet("agents").stdout
    assert re.search(r"^codex .*  yes, \d{4}-\d\d-\d\d\s*$", listed, re.MULTILINE)


def test_an_agent_that_does_not_work_is_told_with_what_it_did_not_do(whet: Project) -> None:
    folder = put(whet, PACKAGES["codex"], PACKAGES["codex"].version, pinned=True)
    program = folder / PACKAGES["codex"].programs[0]
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho no such luck >&2\nexit 3\n")
    program.chmod(0o755)
    done = whet.whet("agents", "check", "codex")
    assert done.returncode == 1
    assert "does not work: not proved: starts, calls the model, runs a tool" in done.stdout
    assert "no such luck" in done.stdout
    assert done.stderr == "not working here: codex\n"


def test_an_agent_that_is_not_installed_cannot_be_checked(whet: Project) -> None:
    said = said_to_user(whet.whet("agents", "check", "pi"))
    assert said == "whet: agent 'pi' is not installed; install it: whet agents install pi"
