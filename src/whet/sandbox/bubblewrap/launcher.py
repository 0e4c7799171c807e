"""Runs inside the box: binds the model port, passes the listening socket to the gateway, then becomes the agent.

The gateway accepts on that socket from outside, so the box needs no relay and no route. Started as
`python3 -I -S launcher.py FD PORT ARGV...`, where FD is one end of a Unix socket pair. It uses the bare
`_socket` because importing `socket` would double the time to start.
"""

import _socket
import os
import sys


def hand_over(channel: int, port: int) -> None:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(512)
    gateway = _socket.socket(fileno=channel)
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.fileno().to_bytes(4, sys.byteorder))
    gateway.sendmsg([b"port"], [rights])
    gateway.close()
    listener.close()


def become(argv: list[str]) -> None:
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - the agent's own argv, no shell wanted
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    hand_over(int(sys.argv[1]), int(sys.argv[2]))
    become(sys.argv[3:])
