"""`whet view`, and `--view`: the pages come and go with the command, and change nothing of what it does."""

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from support.view_worlds import write_many_rollouts
from support.waiting import PATIENCE, wait_until
from support.whet_program import Project, said_to_user

BROWSER = """#!/bin/sh
echo "$1" > {file}
"""


@pytest.fixture
def opened(project: Project, tmp_path: Path) -> tuple[Project, Path]:
    """A project whose browser writes down what it is told to open."""
    file = tmp_path / "opened"
    script = project.write("browser.sh", BROWSER.format(file=file))
    script.chmod(0o755)
    return replace(project, env={"BROWSER": f"{script} %s"}), file


def get(url: str) -> httpx2.Response:
    with httpx2.Client(timeout=PATIENCE) as client:
        return client.get(url, follow_redirects=True)


def test_view_answers_until_it_is_interrupted(project: Project) -> None:
    write_many_rollouts(project.path / "runs" / "many", tasks=2, arms=1, samples=1)
    with project.start("view", "--no-open", "--port", "0") as whet:
        assert whet.stdout is not None
        url = whet.stdout.readline().strip()
        page = get(url)
        assert page.status_code == 200
        assert "many" in page.text
        whet.send_signal(signal.SIGINT)
        out, err = whet.communicate(timeout=PATIENCE)
    assert whet.returncode == 130
    assert out == ""
    assert err.splitlines() == ["Ctrl-C stops it. Anyone who has this address can read these runs."]


def test_view_of_a_folder_that_is_not_there_is_one_line(project: Project) -> None:
    done = project.whet("view", "nowhere", "--no-open")
    assert said_to_user(done) == "whet: --runs is nowhere; expected a run folder or a folder of run folders"


def test_other_users_cannot_read_the_token_from_the_list_of_processes(opened: tuple[Project, Path]) -> None:
    project, file = opened
    (project.path / "runs").mkdir()
    with project.start("view", "--port", "0") as whet:
        assert whet.stdout is not None
        url = whet.stdout.readline().strip()
        wait_until(lambda: file.exists() and file.read_text().strip())
        named = file.read_text().strip()
        assert url.partition("token=")[2] not in named
        page = Path(named.removeprefix("file://"))
        assert url in page.read_text()
        assert page.parent.stat().st_mode & 0o077 == 0
        whet.send_signal(signal.SIGINT)
        whet.communicate(timeout=PATIENCE)
    assert not page.exists()


def test_a_run_with_pages_ends_as_without_them(opened: tuple[Project, Path]) -> None:
    """Nobody is at a terminal, so it does not wait for Ctrl-C."""
    project, file = opened
    done = project.run(*project.writes_42(2), "--out", "runs/x", "--view", "--json", "--fail-under", "1")
    assert done.returncode == 0, done.stderr
    assert "watch it at http://127.0.0.1:" in done.stderr
    assert all(line.startswith("{") for line in done.stdout.splitlines()), "nothing but JSON"
    assert file.read_text().startswith("file://")


def test_a_command_that_fails_leaves_no_pages(project: Project) -> None:
    done = project.run("sharpen", "no-skill", "nothing.jsonl", "--out", "runs/x", "--view")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not (project.path / "runs" / "x").exists()
    # The project's fixture checks that no process is left.


@contextmanager
def at_terminal(project: Project, *arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", "Screen"]]:
    """whet on a terminal, which can press Ctrl-C."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", *arguments],
        cwd=project.path,
        env=project.environ() | {"TERM": "xterm"},
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(inner)
    try:
        yield process, Screen(outer)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(outer)


def _take_terminal() -> None:
    """Make the terminal that of this session, so that Ctrl-C reaches it."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Screen:
    """What a terminal shows."""

    def __init__(self, terminal: int) -> None:
        self._terminal, self.text = terminal, ""

    def wait_for(self, words: str) -> None:
        """Read until these words come."""
        while words not in self.text:
            ready, _, _ = select.select([self._terminal], [], [], PATIENCE)
            assert ready, self.text
            try:
                self.text += os.read(self._terminal, 65536).decode(errors="replace")
            except OSError:  # the program has ended
                break
        assert words in self.text, self.text

    def press_ctrl_c(self) -> None:
        os.write(self._terminal, b"\x03")


def test_at_a_terminal_pages_stay_until_ctrl_c(opened: tuple[Project, Path]) -> None:
    project, _ = opened
    with at_terminal(project, *project.writes_42(1), "--out", "runs/x", "--view", "--yes") as (whet, screen):
        screen.wait_for("watch it at")
        screen.wait_for("Ctrl-C stops its pages")
        url = screen.text.partition("watch it at")[2].split()[0]
        assert "1/1" in get(url).text
        screen.press_ctrl_c()
        assert whet.wait(PATIENCE) == 0
    assert "Traceback" not in screen.text


def test_ctrl_c_stops_a_run_with_pages_as_one_without(opened: tuple[Project, Path]) -> None:
    project, _ = opened
    with at_terminal(project, *project.writes_42(2, delay=60), "--out", "runs/x", "--view", "--yes") as (whet, screen):
        screen.wait_for("watch it at")
        screen.wait_for("running for")
        screen.press_ctrl_c()
        screen.wait_for("stopped. Resume with:")
        assert whet.wait(PATIENCE) == 130
    assert "Traceback" not in screen.text
