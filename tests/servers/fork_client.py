"""Asks the nursery for a process. As a script it is used in place of `python` where a shell starts programs.

Its arguments are then the socket of the nursery and those of `python`. It ends as the program does, and the
nursery kills the program if it is killed. It imports little, because it is a new interpreter each time.
"""

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence


def ask(
    nursery: str,
    words: Sequence[str],
    streams: Sequence[int],
    env: Mapping[str, str],
    folder: str,
    *,
    terminal: bool = False,
) -> socket.socket:
    """Return a connection on which the nursery sends the process id of a new program, and later its exit code."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(nursery)
    message = json.dumps({"words": words, "env": dict(env), "folder": folder, "terminal": terminal})
    socket.send_fds(connection, [message.encode()], list(streams))
    return connection


if __name__ == "__main__":
    with ask(sys.argv[1], sys.argv[2:], (0, 1, 2), os.environ, os.getcwd()) as connection:  # noqa: PTH109 (pathlib loads much)
        pid, code = map(int, connection.makefile("r"))
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)
