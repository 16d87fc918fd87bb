"""Ctrl-C while the command line is being loaded, which takes a moment: it ends the process, without a traceback.

It is the first module that the package imports: nothing of ours runs before it.
"""

import os
import signal
import sys
import threading
from pathlib import Path

#: The exit code of a process that Ctrl-C ended.
INTERRUPTED = 130


def is_command_line() -> bool:
    """Return whether this process was started as `turnwright` or `python -m turnwright`."""
    if sys.argv[:1] == ["-m"]:  # as it is while Python looks for the module
        return "-m" in sys.orig_argv and sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1] == [__package__]
    return bool(sys.argv) and Path(sys.argv[0]).stem == __package__


def leave_on_interrupt() -> None:
    """Have Ctrl-C end the process at once, until `interrupt_as_usual`."""
    if _is_heard():
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


def interrupt_as_usual() -> None:
    """Have Ctrl-C raise `KeyboardInterrupt`, as it does in any program of Python."""
    if _is_heard():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_heard() -> bool:
    """Return whether Ctrl-C does anything: whoever started the process may have had it ignored."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


if is_command_line():
    leave_on_interrupt()
