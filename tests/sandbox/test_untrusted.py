"""`whet-untrusted`: the judge runs the agent's work, exactly and within limits, where the work cannot reach it."""

import os
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.box_helpers import carriers, host_folder, host_workdir, logs_of, new_marker, until_written
from support.waiting import until
from whet.box import Box, Sandbox, SandboxError
from whet.sandbox import sandbox_named
from whet.sandbox.process import TreeProcess
from whet.sandbox.tools import untrusted
from whet.sandbox.tools.untrusted import OUTPUT, CallRefused, parse_call
from whet.tasks.task import TaskLimits


@pytest.fixture
async def judges_box(box: Box) -> Box:
    await box.seal()
    return box


@pytest.fixture
async def apart() -> AsyncIterator[Box]:
    """A sealed box of bubblewrap."""
    async with sandbox_named("bubblewrap").open(TaskLimits()) as box:
        await box.exec(["sh", "-c", 'echo work > file; echo home > "$HOME/file"; echo tmp > /tmp/file'])
        await box.seal()
        yield box


async def shell(box: Box, script: str, timeout: float = 60) -> str:
    """What a script of the judge wrote to its output and errors."""
    return (await box.exec(["bash", "-c", f"exec 2>&1; {script}"], timeout=timeout)).stdout.text


async def test_output_errors_input_and_exit_code_come_through_exactly(judges_box: Box) -> None:
    words = ("", "a b", "new\nline", "$HOME", "--", "-x", "\udcff", "☃")
    code = "import os, sys; os.write(2, b''.join(os.fsencode(word) + b'|' for word in sys.argv[1:]))"
    code += "; os.write(1, os.read(0, 1 << 20)); sys.exit(7)"
    data = bytes(range(256)) * 100
    done = await judges_box.exec(["whet-untrusted", "python3", "-c", code, *words], stdin=data)
    assert (done.exit_code, done.stdout.data) == (7, data)
    assert done.stderr.data == b"".join(os.fsencode(word) + b"|" for word in words)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("sh -c 'kill -9 $$'", 137),
        ("sh -c 'kill -TERM $$'", 143),
        ("no-such-program", 127),
        ("./file", 126),
        ("true", 0),
    ],
)
async def test_the_exit_code_is_that_of_a_shell(box: Box, command: str, code: int) -> None:
    await box.write_file("file", b"x")
    await box.seal()
    assert (await shell(box, f"whet-untrusted {command}; echo $?")).endswith(f"{code}\n")


async def test_it_is_the_first_to_go_when_memory_runs_out(apart: Box) -> None:
    look = "cat /proc/self/oom_score_adj"
    assert await shell(apart, f"{look}; whet-untrusted {look}") == "900\n1000\n"


async def test_a_pipe_is_waited_for(apart: Box) -> None:
    assert await shell(apart, "(sleep 2.3; echo late) | whet-untrusted cat") == "late\n"


async def test_it_sees_only_the_agents_and_placed_files(apart: Box) -> None:
    script = """
    echo given > $WHET_SCRATCH/driver; echo secret > $HOME/secret; echo mine > /tmp/mine; touch /logs/verifier/x
    whet-untrusted sh -c 'cat file ~/file $WHET_SCRATCH/driver; ls /tests /logs /home /tmp; command -v whet-untrusted'
    """
    said = await shell(apart, script)
    assert said.split("\n") == [
        "work", "home", "given", "/home:", "agent", "", "/tmp:",
        "ls: cannot access '/tests': No such file or directory",
        "ls: cannot access '/logs': No such file or directory",
        "",
    ]  # fmt: skip


async def test_variables_reach_it_only_by_name(judges_box: Box) -> None:
    done = await judges_box.exec(
        ["whet-untrusted", "--env", "A=b c", "--env=D=", "env"], env={"SECRET": "x", "PYTHONSAFEPATH": "1"}
    )
    names = {line.partition("=")[0] for line in done.stdout.text.splitlines()}
    assert "A=b c\n" in done.stdout.text
    assert (
        names - {"USER", "WHET_BOX"}
        == {"A", "D", "PATH", "HOME", "LANG", "TERM", "TMPDIR", "WHET_SCRATCH", "PWD"} & names
    )
    assert {"D", "PATH", "HOME"} <= names


async def test_it_runs_where_it_is_called(judges_box: Box) -> None:
    assert await shell(judges_box, "mkdir -p a/b; cd a/b; whet-untrusted pwd") == f"{judges_box.workdir}/a/b\n"
    said = await shell(judges_box, "cd /; whet-untrusted pwd; echo $?")
    assert said == f"whet-untrusted: the work does not see /; call it from {judges_box.workdir} or $WHET_SCRATCH\n125\n"


async def test_files_go_both_ways_and_belong_to_whoever_looks(judges_box: Box) -> None:
    script = """
    umask 077; echo 1 > from-judge; mkdir closed; echo 2 > closed/file; echo 3 > $WHET_SCRATCH/input
    whet-untrusted sh -c 'cat from-judge closed/file $WHET_SCRATCH/input; umask 077; echo 4 > from-work; chmod 0 closed'
    cat from-work; chmod 700 closed; cat closed/file
    git init -q repo; whet-untrusted git -C repo status --porcelain; echo $?
    """
    assert await shell(judges_box, script) == "1\n2\n3\n4\n2\n0\n"


async def test_the_scratch_folder_cannot_be_written_by_the_work(apart: Box) -> None:
    script = """
    echo a > $WHET_SCRATCH/file
    cd $WHET_SCRATCH
    for attempt in 'echo b > file' 'rm file' 'ln -s /etc/hosts new' 'chmod 777 .' 'mv file other'
    do whet-untrusted sh -c "$attempt" 2> /dev/null && echo "$attempt"; done; ls $WHET_SCRATCH; cat $WHET_SCRATCH/file
    """
    assert await shell(apart, script) == "file\na\n"


async def test_a_working_directory_that_the_work_closed_is_opened_again(judges_box: Box) -> None:
    said = await shell(judges_box, "echo a > file; whet-untrusted chmod 0 .; whet-untrusted cat file; cat file")
    assert said == "a\na\n"


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        time.sleep(600)
    os._exit(0)
os.wait()
print("left", flush=True)
"""


async def test_what_it_started_is_dead_when_it_returns(judges_box: Box) -> None:
    marker = new_marker()
    done = await judges_box.exec(["whet-untrusted", "python3", "-c", DAEMON, marker])
    assert done.stdout.data == b"left\n"
    assert carriers(marker) == []


async def test_it_ends_with_its_time(judges_box: Box) -> None:
    marker = new_marker()
    said = await shell(judges_box, f"whet-untrusted --time 0.5 sh -c 'echo begun; sleep 600; : {marker}'; echo $?")
    assert said == "begun\n124\n"
    assert carriers(marker) == []


async def test_it_ends_with_its_caller(judges_box: Box) -> None:
    marker = new_marker()
    script = f"whet-untrusted sh -c 'touch begun; sleep 600; : {marker}' & while ! [ -e begun ]; do :; done; kill -9 $!"
    assert (await judges_box.exec(["bash", "-c", script], timeout=60)).exit_code == 0
    await until(lambda: carriers(marker) == [])


async def test_it_ends_with_the_judges_command_before_a_verdict_is_read(judges_box: Box) -> None:
    marker = new_marker()
    script = f"whet-untrusted sh -c 'touch begun; sleep 600; : {marker}' & while ! [ -e begun ]; do :; done"
    verdict = f"echo 0 > {logs_of(judges_box)}/verifier/reward.txt"
    await judges_box.exec(["bash", "-c", f"{script}; {verdict}"], timeout=60)
    assert await judges_box.read_verdict("reward.txt") == b"0\n"
    assert carriers(marker) == []


async def test_a_flood_of_output_is_refused_and_ends_it(judges_box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("", ">&2"):
        said = await shell(
            judges_box, f"whet-untrusted sh -c 'cat /dev/zero {stream}' | wc -c; echo ${{PIPESTATUS[0]}}"
        )
        assert said == f"whet-untrusted: the command printed more than {OUTPUT} bytes\n0\n125\n"
    assert await shell(judges_box, f"whet-untrusted head -c {OUTPUT} /dev/zero | wc -c") == f"{OUTPUT}\n"


async def test_calls_side_by_side_each_get_their_own(judges_box: Box) -> None:
    script = 'for n in 1 2 3 4 5 6; do whet-untrusted sh -c "echo $n > out$n; echo $n" & done | sort; wait; cat out*'
    assert await shell(judges_box, script) == "1\n2\n3\n4\n5\n6\n" * 2


REACH = """
import ctypes, glob, os, signal
print(len([pid for pid in os.listdir("/proc") if pid.isdigit()]))
print([path for path in glob.glob("/proc/*/fd/*") if "verifier" in os.path.realpath(path)])
for pid in (-1, os.getppid()):
    try: os.kill(pid, signal.SIGKILL)
    except OSError as error: pass
print("done", flush=True)
"""


async def test_it_cannot_see_or_signal_a_process_of_the_judge(apart: Box) -> None:
    await apart.write_file("reach.py", REACH.encode())
    script = "exec 7> /logs/verifier/open; sleep 60 & whet-untrusted python3 reach.py; echo $?; kill $!; echo alive"
    said = (await shell(apart, script)).split("\n")
    assert int(said[0]) < 5, "bwrap, prlimit's heir and nobody else"
    assert said[1] == "[]"
    assert said[-2] == "alive"


@pytest.mark.parametrize("family", ["AF_INET", "AF_UNIX"])
async def test_it_shares_no_network_with_the_judge(apart: Box, family: str) -> None:
    address = {"AF_INET": "('127.0.0.1', 4711)", "AF_UNIX": "'\\0judge'"}[family]
    head = f"import socket; s = socket.socket(socket.{family});"
    script = f"""
    python3 -c "{head} s.bind({address}); s.listen(); open('up', 'w'); s.accept()" & while ! [ -e up ]; do :; done
    whet-untrusted python3 -c "{head} s.connect({address})" 2> /dev/null; echo $?; kill $!
    """
    assert await shell(apart, script) == "1\n"


async def test_what_it_writes_is_limited_and_does_not_end_the_judge(sandbox: Sandbox) -> None:
    async with sandbox.open(TaskLimits(storage_mb=8)) as box:
        await box.seal()
        fill = "for n in $(seq 100); do head -c 1M /dev/zero > fill$n || exit; done; sleep 600"
        script = f"whet-untrusted --time 50 sh -c '{fill}'; whet-untrusted true; echo $?; echo judged"
        said = await shell(box, script)
        assert said == "whet-untrusted: the work has written more than 8 MB\n125\njudged\n"


async def test_a_call_that_cannot_be_run_lets_the_judge_down(judges_box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> TreeProcess:
        raise SandboxError("no namespaces left")

    process = await judges_box.start(["sh", "-c", "echo up; while [ ! -e go ]; do :; done; exec whet-untrusted true"])
    await until_written(process, b"up")
    with monkeypatch.context() as patched:
        patched.setattr(judges_box, "_spawn", fail)
        await judges_box.write_file("go", b"")
        assert (await process.wait()).exit_code == 69
    with pytest.raises(SandboxError, match="no namespaces left"):
        await judges_box.exec(["true"])


async def test_it_is_not_there_while_the_agent_runs(box: Box) -> None:
    assert (await box.exec(["sh", "-c", "command -v whet-untrusted || echo $WHET_SCRATCH"])).stdout.data == b"\n"


async def test_no_folder_of_the_judge_stays_the_works(apart: Box) -> None:
    await shell(apart, "for n in 1 2 3; do whet-untrusted --time 0.2 sleep 9 & done; wait; touch own")
    owners = {path.lstat().st_uid for path in (host_workdir(apart), *host_workdir(apart).iterdir())}
    assert owners == {(host_folder(apart) / "logs" / "verifier").stat().st_uid}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "names no command"),
        (["--"], "names no command"),
        ([""], "names no command"),
        (["--env"], "--env needs a value"),
        (["--env", "A", "ls"], "expected NAME=VALUE"),
        (["--env", "1A=b", "ls"], "expected NAME=VALUE"),
        (["--time", "0", "ls"], "expected a number of seconds"),
        (["--time", "nan", "ls"], "expected a number of seconds"),
        (["--time", "1e9", "ls"], "expected a number of seconds"),
        (["-x", "ls"], "unknown option '-x'"),
    ],
)
def test_a_call_that_is_none_says_what_was_expected(words: list[str], said: str) -> None:
    with pytest.raises(CallRefused, match=said):
        parse_call(["/workspace", *words])


@given(
    st.lists(st.text(), min_size=1),
    st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True), st.text()),
)
def test_every_command_and_variable_is_taken_as_it_is(argv: list[str], env: dict[str, str]) -> None:
    options = [word for name, value in env.items() for word in ("--env", f"{name}={value}")]
    try:
        call = parse_call(["/workspace", *options, "--", *argv])
    except CallRefused:
        assert not argv[0]
        return
    assert (list(call.argv), dict(call.env), call.seconds) == (argv, env, untrusted.SECONDS)
