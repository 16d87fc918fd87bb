"""Kills a server of the subject, and serves the same store on its port again. Its process id is in a file."""

import os
import signal
import subprocess
import sys
from pathlib import Path


def main(pid_file: str, door: str, store: str, port: str) -> None:
    """Return when the new server listens. It runs on."""
    os.kill(int(Path(pid_file).read_text(encoding="utf-8")), signal.SIGKILL)
    command = [sys.executable, "-m", "tests.protocols.subject_server", door, store, port]
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert server.stdout is not None
    server.stdout.readline()
    Path(pid_file).write_text(str(server.pid), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
