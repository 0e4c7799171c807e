"""Runs inside the box: sends one call of an offered program to the host and prints the answer.

Started as `python3 -I -S client.py [--wait] NAME ARGV...`, with the host's socket in the same folder. A call is two
lengths of 4 bytes, the words of the command, each followed by a NUL, and the standard input. The answer is an exit code
of 1 byte, two lengths of 8 bytes, standard output and standard error. It imports little, to start fast.
"""

import _socket
import os
import select
import stat
import sys
import time

SOCKET = "socket"
LIMIT = 16 << 20
"""Maximum bytes of a call: its words and its standard input together."""
GRACE_SEC = 0.25
"""How long a pipe may be silent that only the callers of this program can write to. A caller that has something to say
has said it before this program runs; many agents open such a pipe and never use it."""
PIPE_SEC = 600.0
UNAVAILABLE = 69
WAIT = "--wait"
"""Option in front of the name: wait for a silent pipe on standard input."""


class ToolCallError(Exception):
    """The call could not be made. The message is for the caller."""


def called(name: str, argv: list[str], grace: float) -> tuple[int, bytes, bytes]:
    """Send a call to the host. Returns the exit code, standard output and standard error."""
    words = b"".join(os.fsencode(word) + b"\0" for word in (name, *argv))
    given = standard_input(LIMIT - len(words), grace)
    # The path of a socket is limited to 107 bytes, and the path of the box may be longer.
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    host = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        host.connect(SOCKET)
        host.sendall(len(words).to_bytes(4, "big") + len(given).to_bytes(4, "big") + words + given)
        head = exactly(host, 17)
        stdout, stderr = (exactly(host, int.from_bytes(size, "big")) for size in (head[1:9], head[9:]))
        return head[0], stdout, stderr
    except OSError as error:
        raise ToolCallError(f"not available: {error.strerror or error}") from None


def exactly(host: _socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = host.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ToolCallError("not available: no answer came")
        data += part
    return bytes(data)


def standard_input(room: int, grace: float) -> bytes:
    """Read standard input from a file or a pipe that ends, without hanging on a pipe that does not."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return b""
    if stat.S_ISREG(mode):
        data = file_rest(room)
    elif stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        data = pipe_rest(room, grace)
    else:
        data = b""
    if len(data) > room:
        raise ToolCallError(f"more than {LIMIT} bytes of arguments and standard input")
    return data


def file_rest(room: int) -> bytes:
    # Read without moving the offset: `while read line; do PROGRAM; done < FILE` must still get all lines.
    start = os.lseek(0, 0, os.SEEK_CUR)
    data = bytearray()
    while len(data) <= room and (part := os.pread(0, 1 << 20, start + len(data))):
        data += part
    return bytes(data)


def pipe_rest(room: int, grace: float) -> bytes:
    """Read a pipe to its end. One that stays silent and that nobody but our callers writes to counts as empty."""
    if not select.select([0], [], [], 0)[0] and not has_other_writers() and not select.select([0], [], [], grace)[0]:
        return b""
    data = bytearray()
    deadline = time.monotonic() + PIPE_SEC
    while len(data) <= room:
        if not select.select([0], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise ToolCallError("standard input does not end")
        part = os.read(0, 1 << 20)
        if not part:
            break
        data += part
    return bytes(data)


def has_other_writers() -> bool:
    """Whether a process that did not call us can write to our standard input, as in a pipeline."""
    try:
        pipe, callers = fd_link("self", "0"), callers_of(os.getpid())
        processes = [name for name in os.listdir("/proc") if name.isdigit() and int(name) not in callers]
    except OSError:  # there is no /proc to look at
        return False
    return any(writes_to(process, pipe) for process in processes)


def callers_of(process: int) -> set[int]:
    """A process and those that started it."""
    found = {0}
    while process not in found:
        found.add(process)
        with open(f"/proc/{process}/stat", "rb") as file:
            # The name of the program is in parentheses, and may contain any character.
            process = int(file.read().rpartition(b")")[2].split()[1])
    return found


def writes_to(process: str, pipe: str) -> bool:
    try:
        numbers = [fd for fd in os.listdir(f"/proc/{process}/fd") if fd_link(process, fd) == pipe]
        return any(may_write(process, fd) for fd in numbers)
    except OSError:  # it has ended, or belongs to another user
        return False


def fd_link(process: str, fd: str) -> str:
    return os.readlink(f"/proc/{process}/fd/{fd}")


def may_write(process: str, fd: str) -> bool:
    with open(f"/proc/{process}/fdinfo/{fd}", "rb") as file:
        flags = next(line.split()[1] for line in file if line.startswith(b"flags:"))
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def main(name: str, argv: list[str], grace: float = GRACE_SEC) -> int:
    try:
        code, output, errors = called(name, argv, grace)
    except ToolCallError as error:
        sys.stderr.write(f"{name}: {error}\n")
        return UNAVAILABLE
    return write_all(1, output, name) or write_all(2, errors, name) or code


def write_all(stream: int, data: bytes, name: str) -> int:
    """Write to a stream. Returns 0, or an exit code if the write fails."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(stream, rest) :]
        except BrokenPipeError:
            return 141  # the exit code of a shell for a program whose output is closed
        except OSError as error:
            if stream == 2:
                break  # nowhere to report it
            sys.stderr.write(f"{name}: standard output: {error.strerror}\n")
            return 74
    return 0


if __name__ == "__main__":
    if sys.argv[1] == WAIT:
        sys.exit(main(sys.argv[2], sys.argv[3:], PIPE_SEC))
    sys.exit(main(sys.argv[1], sys.argv[2:]))
