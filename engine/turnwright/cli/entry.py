"""The start of the `turnwright` program. It answers `--version` before it loads anything."""

import os
import sys

from turnwright._base import startup
from turnwright._base.version import VERSION

# The variable that a shell sets while it completes a line.
_COMPLETING = "_TURNWRIGHT_COMPLETE"
#: The modules of the extra `cli`.
_EXTRA = frozenset({"markdown_it", "rich", "typer"})


def main() -> None:
    """Run the command line. A mistake of the user is one line on stderr; a traceback is never shown."""
    completing = _COMPLETING in os.environ
    if sys.argv[1:] == ["--version"] and not completing and _printed_version():
        return
    # Loaded here, because it takes ten times as long as the rest.
    try:
        from . import process  # noqa: PLC0415
        from .app import exit_code  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(f"turnwright: the command line needs {missing.name}: pip install 'turnwright[cli]'\n")
        sys.exit(2)

    code = exit_code(completing=completing)
    startup.leave_on_interrupt()
    process.leave(code)


def _printed_version() -> bool:
    """Print the version. Return False if it cannot be written: `app` then reports the error."""
    if sys.stdout is None:  # closed by the parent process
        return False
    try:
        sys.stdout.write(f"turnwright {VERSION}\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True
