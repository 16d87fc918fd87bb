"""Ctrl-C while the command line is loading: it ends the process without a traceback.

The package imports this module first. It imports only modules that the interpreter has already loaded, because during
any other import Ctrl-C would still cause a traceback.
"""

import os
import sys

TYPE_CHECKING = False  # `typing` is not loaded yet
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from types import FrameType
else:
    import _signal  # the core of `signal`, without its enumerations

#: The exit code of a process that Ctrl-C ended.
INTERRUPTED = 130
_NAME = "turnwright"


def is_command_line() -> bool:
    """Return whether this process was started as `turnwright` or `python -m turnwright`."""
    if sys.argv[:1] == ["-m"]:  # the value while Python looks for the module
        return "-m" in sys.orig_argv and sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1] == [_NAME]
    name = os.path.basename(sys.argv[0]) if sys.argv else ""  # noqa: PTH119 (pathlib loads much)
    return name in (_NAME, f"{_NAME}.exe", f"{_NAME}.py")


def leave_on_interrupt() -> None:
    """Let Ctrl-C end the process at once, until `interrupt_as_usual`."""
    _on_interrupt(lambda *_: os._exit(INTERRUPTED))


def interrupt_as_usual() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt`, as in any Python program."""
    _on_interrupt(_signal.default_int_handler)


def _on_interrupt(handler: "Callable[[int, FrameType | None], object]") -> None:
    """Set the handler of Ctrl-C, unless the parent process had it ignored."""
    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_IGN:
        return
    try:
        _signal.signal(_signal.SIGINT, handler)
    except ValueError:
        return  # only the main thread can set a handler


if is_command_line():
    leave_on_interrupt()
