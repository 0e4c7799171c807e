"""Another user of this machine, who sends requests to a server that is not theirs."""

import os
import subprocess
import sys

NOBODY = 65534
# Everything is imported before the rights are dropped: the other user may not be able to read Python's own files.
_PROGRAM = f"""
import os, socket, sys
place, request = sys.argv[1], sys.stdin.buffer.read()
os.setgroups([])
os.setresgid(*[{NOBODY}] * 3)
os.setresuid(*[{NOBODY}] * 3)
server = socket.socket(socket.AF_INET if place.isdigit() else socket.AF_UNIX)
try:
    server.connect(("127.0.0.1", int(place)) if place.isdigit() else place)
except OSError as error:
    os.write(1, type(error).__name__.encode())
    sys.exit(0)
server.sendall(request)
while piece := server.recv(65536):
    os.write(1, piece)
"""


def can_be_another_user() -> bool:
    """Whether this process may take the rights of another user."""
    return os.geteuid() == 0


def send_as_another_user(place: int | str, request: bytes) -> bytes:
    """The answers to a request, or to several in a row of which the last closes the connection, at a port or a Unix
    socket. When nothing can be sent there: the name of the error."""
    argv = [sys.executable, "-I", "-c", _PROGRAM, str(place)]
    return subprocess.run(argv, input=request, capture_output=True, check=True, timeout=60).stdout
