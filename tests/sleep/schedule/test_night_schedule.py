"""Who starts a night: the crontab, systemd or launchd of a scratch account, with programs of the test's own."""

import os
import plistlib
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.errors import UserError
from whet.sleep.options import SleepOptions, SleepScheduleOptions
from whet.sleep.schedule.cron import BEGIN, END, crontab_line, put_block, remove_block
from whet.sleep.schedule.host import Entry, Host
from whet.sleep.schedule.launchd import plist
from whet.sleep.schedule.schedule import BACKENDS, check, install, night_command, remove
from whet.sleep.schedule.systemd import read_command, service_text, timer_text

CRONTAB = """#!/bin/sh
case "$1" in
  -l) [ -f "$HOME/crontab" ] || { echo "no crontab for dev" >&2; exit 1; }; cat "$HOME/crontab" ;;
  -) cat > "$HOME/crontab" ;;
esac
"""
SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$HOME/systemctl.log"
"""
LAUNCHCTL = """#!/bin/sh
echo "$@" >> "$HOME/launchctl.log"
"""
DEAD = """#!/bin/sh
echo "Failed to connect to bus: No medium found" >&2
exit 1
"""
OTHERS = b"MAILTO=dev@example.org\r\n# caf\xe9\n0 4 * * * /usr/bin/backup --all\t# nightly  \n\n@reboot true"
COMMAND = ("/opt/my tools/100%/python", "-m", "whet", "sleep", "run", "--scheduled")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """An account without any program that schedules."""
    (tmp_path / "bin").mkdir()
    for program in ("cat", "sh"):
        (tmp_path / "bin" / program).symlink_to(f"/bin/{program}")
    return Host(tmp_path, {"HOME": str(tmp_path), "PATH": str(tmp_path / "bin"), "USER": "dev"})


def add(host: Host, name: str, text: str) -> None:
    path = host.home / "bin" / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def schedule(
    host: Host, backend: str | None = None, at: str = "02:30", command: tuple[str, ...] = COMMAND
) -> list[str]:
    options = SleepScheduleOptions.model_validate({"at": at, "backend": backend})
    return install(options, SleepOptions(), host, command)


def installed(host: Host) -> dict[str, tuple[str, ...]]:
    return {one.name: command for one in BACKENDS if (command := one.installed(host)) is not None}


def test_cron_gets_a_block_and_keeps_all_other_lines(host: Host) -> None:
    add(host, "crontab", CRONTAB)
    crontab = host.home / "crontab"
    crontab.write_bytes(OTHERS)
    schedule(host)
    schedule(host, at="03:05")
    line = r"5 3 * * * '/opt/my tools/100\%/python' -m whet sleep run --scheduled"
    assert crontab.read_bytes() == OTHERS + f"\n{BEGIN}\n{line}\n{END}\n".encode()
    assert installed(host) == {"cron": COMMAND}
    assert remove(host) == ["cron"]
    assert crontab.read_bytes() == OTHERS + b"\n"
    assert remove(host) == []


@given(before=st.text(), after=st.text())
def test_a_block_leaves_every_other_byte_of_a_crontab(before: str, after: str) -> None:
    old = put_block(f"{before}\n" if before else "", Entry(("a",), 1, 2)) + after
    new = put_block(old, Entry(("b", "100%"), 3, 4))
    assert remove_block(new) == remove_block(old) == (f"{before}\n" if before else "") + after
    assert new.replace(r"4 3 * * * b 100\%", "2 1 * * * a") == old


@pytest.mark.parametrize("text", [f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n", f"{END}\n"])
def test_a_block_that_somebody_broke_is_not_repaired(text: str) -> None:
    with pytest.raises(UserError, match="mend it with `crontab -e`"):
        put_block(text, Entry(("a",), 1, 2))


def test_systemd_gets_a_timer_and_a_service(host: Host) -> None:
    add(host, "systemctl", SYSTEMCTL)
    add(host, "crontab", CRONTAB)
    said = schedule(host)
    units = host.home / ".config" / "systemd" / "user"
    assert said[0] == "systemd: a night starts every day at 02:30"
    service, timer = ((units / f"whet-sleep.{kind}").read_text() for kind in ("service", "timer"))
    assert 'ExecStart="/opt/my tools/100%%/python" -m whet sleep run --scheduled\n' in service
    assert {"Type=oneshot", "Nice=19", "UMask=0077", "KillMode=control-group"} <= set(service.splitlines())
    assert {"OnCalendar=*-*-* 02:30:00", "Persistent=true"} <= set(timer.splitlines())
    assert installed(host) == {"systemd": COMMAND}
    assert remove(host) == ["systemd"]
    assert list(units.iterdir()) == []
    calls = (host.home / "systemctl.log").read_text().splitlines()
    assert "--user enable --now whet-sleep.timer" in calls
    assert "--user disable --now whet-sleep.timer" in calls


words = st.lists(st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), min_size=1), min_size=1)


@given(command=words)
def test_every_backend_starts_the_very_words_of_a_command(command: list[str]) -> None:
    entry = Entry(tuple(command), 2, 30)
    assert read_command(service_text(entry)) == tuple(command)
    assert tuple(shlex.split(crontab_line(entry).replace(r"\%", "%")))[5:] == tuple(command)
    assert plistlib.loads(plist(entry))["ProgramArguments"] == command


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_itself_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    entry = Entry((sys.executable, "-m", "whet", 'a "word" with \\, $HOME and 100%'), 2, 30)
    units = {"whet-sleep.service": service_text(entry), "whet-sleep.timer": timer_text(entry)}
    for name, text in units.items():
        (tmp_path / name).write_text(text)
    command = ["systemd-analyze", "verify", "--user", *(str(tmp_path / name) for name in units)]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_launchd_gets_a_plist(host: Host) -> None:
    add(host, "launchctl", LAUNCHCTL)
    schedule(host, "launchd", "04:10")
    (path,) = (host.home / "Library" / "LaunchAgents").iterdir()
    found = plistlib.loads(path.read_bytes())
    assert found["ProgramArguments"] == list(COMMAND)
    assert found["StartCalendarInterval"] == {"Hour": 4, "Minute": 10}
    assert f"bootstrap gui/{os.getuid()} {path}" in (host.home / "launchctl.log").read_text().splitlines()
    assert installed(host) == {"launchd": COMMAND}
    assert remove(host) == ["launchd"]
    assert not path.exists()


def test_without_a_user_manager_cron_is_used_and_without_cron_the_lines_are_printed(host: Host) -> None:
    add(host, "systemctl", DEAD)
    lines = schedule(host)
    assert r"30 2 * * * '/opt/my tools/100\%/python' -m whet sleep run --scheduled" in lines
    assert installed(host) == {}
    add(host, "crontab", CRONTAB)
    assert schedule(host)[0].startswith("cron: ")


def test_another_backend_takes_over_so_that_no_night_starts_twice(host: Host) -> None:
    add(host, "crontab", CRONTAB)
    schedule(host)
    add(host, "systemctl", SYSTEMCTL)
    schedule(host)
    assert set(installed(host)) == {"systemd"}


def test_printing_changes_nothing(host: Host) -> None:
    add(host, "crontab", CRONTAB)
    before = sorted(host.home.rglob("*"))
    schedule(host, "print")
    assert sorted(host.home.rglob("*")) == before


@pytest.mark.parametrize(
    ("backend", "at", "message"),
    [
        ("systemd", "02:30", "`backend` is 'systemd', which does not work here; expected one of: cron, print"),
        ("cron", "12:00", "`at` is 12:00; expected a time in the window of the settings, 02:00-06:00"),
        ("cron", "soon", "`at` is 'soon'; expected a time of day, such as 02:30"),
    ],
)
def test_a_schedule_that_cannot_work_is_one_line(host: Host, backend: str, at: str, message: str) -> None:
    add(host, "crontab", CRONTAB)
    with pytest.raises(UserError) as error:
        schedule(host, backend, at)
    assert str(error.value) == message


def test_a_crontab_that_cannot_be_read_is_not_overwritten(host: Host) -> None:
    add(host, "crontab", "#!/bin/sh\necho 'permission denied' >&2; exit 1\n")
    with pytest.raises(UserError, match="`crontab -l` failed: permission denied"):
        schedule(host, "cron")


def test_the_check_runs_the_very_command_without_the_environment(host: Host) -> None:
    add(host, "crontab", CRONTAB)
    script = host.home / "show.py"
    script.write_text("import os, sys\nprint(sys.argv[1:], sorted(os.environ))\nsys.exit('KEY' not in os.environ)\n")
    there = Host(host.home, {**host.env, "KEY": "k", "CODEX_HOME": "/data/codex"})
    schedule(there, "cron", command=(sys.executable, "-I", str(script), "run", "--scheduled"))
    found = check(there)
    assert (found.backend, found.code) == ("cron", 1)
    assert "['run', '--scheduled', '--dry-run']" in found.output
    assert "'HOME'" in found.output
    assert "KEY" not in found.output
    assert found.missing == ("CODEX_HOME",)


def test_a_check_without_a_schedule_or_with_a_lost_program_is_one_line(host: Host) -> None:
    add(host, "crontab", CRONTAB)
    with pytest.raises(UserError, match="nothing is scheduled"):
        check(host)
    schedule(host, "cron")
    with pytest.raises(UserError, match="the scheduled command /opt/my tools/100%/python cannot be started"):
        check(host)


def test_the_command_has_absolute_paths_and_no_settings() -> None:
    assert Path(night_command()[0]).is_absolute()
    assert night_command()[1:] == ("-m", "whet", "sleep", "run", "--scheduled")
