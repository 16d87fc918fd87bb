"""The process between a test and its server: it runs the server, and ends it when the test is gone.

It is run by its path, not as a module of the package, and imports nothing of it: so it starts in no time, and as few
things as possible can go wrong in it. `local_server.py` is its only caller. Its arguments are the number of the
process that asked for the server, the folder that goes with that process, the signal that ends the server then, the
account that the server runs as (empty: this one), and the command; a line that it reads is the number of the signal
that the server is to get. It ends with the server.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def main() -> None:
    """Run the server until it ends, or its requester has ended: then its folder is removed too."""
    parent, folder, farewell, account, *command = sys.argv[1:]
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        user=account or None,
        group=_group(account) if account else None,
        extra_groups=() if account else None,
    )
    while server.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], 1.0)
        line = sys.stdin.readline() if readable else None
        # A process that the parent forked may hold the pipe still: hence its number is looked at as well.
        if line == "" or os.getppid() != int(parent):
            _end(server, int(farewell))
            shutil.rmtree(folder, ignore_errors=True)
        elif line is not None:
            _end(server, int(line))


def _end(server: "subprocess.Popen[bytes]", number: int) -> None:
    children: list[int] = []
    if number == signal.SIGKILL:
        # Stopped first, so that it starts no more children.
        server.send_signal(signal.SIGSTOP)
        children = list(_children(server.pid))
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
    server.send_signal(number)
    server.wait()
    # The next start may be refused as long as one of them holds what the server shared with them.
    while any(map(_lives, children)):
        time.sleep(0.005)


def _group(account: str) -> int:
    import pwd  # noqa: PLC0415 (POSIX only, and only root needs it)

    return pwd.getpwnam(account).pw_gid


def _children(parent: int) -> Iterator[int]:
    """Return the children of a process. Without /proc none is found: they notice by themselves, a little later."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name is in brackets and may contain anything; the parent is the second field after it.
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == parent:
                yield int(stat.parent.name)


def _lives(process: int) -> bool:
    """Whether a process is alive, and not a zombie that waits for its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    main()
