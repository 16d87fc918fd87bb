"""Ctrl-C while the command line is being loaded, which takes a moment: it ends the process, without a traceback.

It is the first module that the package imports: nothing of ours runs before it. It imports only what the interpreter
has loaded by then, for while it imports anything else Ctrl-C would not be heard yet.
"""

import os
import sys

TYPE_CHECKING = False  # to have it from `typing`, that would have to be loaded
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from types import FrameType
else:
    import _signal  # what `signal` is made of, without its enumerations

#: The exit code of a process that Ctrl-C ended.
INTERRUPTED = 130
_NAME = "turnwright"


def is_command_line() -> bool:
    """Return whether this process was started as `turnwright` or `python -m turnwright`."""
    if sys.argv[:1] == ["-m"]:  # as it is while Python looks for the module
        return "-m" in sys.orig_argv and sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1] == [_NAME]
    name = os.path.basename(sys.argv[0]) if sys.argv else ""  # noqa: PTH119 (pathlib loads much)
    return name in (_NAME, f"{_NAME}.exe", f"{_NAME}.py")


def leave_on_interrupt() -> None:
    """Have Ctrl-C end the process at once, until `interrupt_as_usual`."""
    _on_interrupt(lambda *_: os._exit(INTERRUPTED))


def interrupt_as_usual() -> None:
    """Have Ctrl-C raise `KeyboardInterrupt`, as it does in any program of Python."""
    _on_interrupt(_signal.default_int_handler)


def _on_interrupt(handler: "Callable[[int, FrameType | None], object]") -> None:
    """Set what Ctrl-C does, if it does anything: whoever started the process may have had it ignored."""
    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_IGN:
        return
    try:
        _signal.signal(_signal.SIGINT, handler)
    except ValueError:
        return  # only the main thread hears of signals


if is_command_line():
    leave_on_interrupt()
