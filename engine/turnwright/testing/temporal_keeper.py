"""The process between a test and its Temporal server: it runs the server, and ends it when the test is gone.

It is run by its path, not as a module of the package, and imports nothing of it: so it starts in no time, and as few
things as possible can go wrong in it. `temporal_server.py` is its only caller. Its arguments are the number of the
process that asked for the server, the folder that goes with that process, and the command; a line that it reads is the
number of the signal that the server is to get. It ends with the server.
"""

import os
import select
import shutil
import signal
import subprocess
import sys


def main() -> None:
    """Run the server until it ends, or who asked for it is gone: then its folder is removed too."""
    parent, folder, *command = sys.argv[1:]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 (what temporal_server.py found)
    while server.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], 1.0)
        told = sys.stdin.readline() if readable else None
        # A process that the parent forked may hold the pipe still: hence its number is looked at as well.
        if told == "" or os.getppid() != int(parent):
            server.kill()
            server.wait()
            shutil.rmtree(folder, ignore_errors=True)
        elif told is not None:
            server.send_signal(signal.Signals(int(told)))
            server.wait()


if __name__ == "__main__":
    main()
