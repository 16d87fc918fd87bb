"""Notices the coroutines that a desk makes and never awaits: what they were to do does not happen."""

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Final, TextIO

#: The warning of Python, whose further lines have the frames that made the coroutine, the innermost one last.
_WARNING: Final = re.compile(r"coroutine '(.+)' was never awaited")
_FRAME: Final = re.compile(r'File "(.+)", line (\d+), in (.+)')
_MOST_FRAMES: Final = 20

#: Called with the name of a coroutine, with the names of the functions of the desk that made it, the innermost one
#: first, and with the place where they did. A plain function in a thread has no name here.
OnCoroutine = Callable[[str, Sequence[str], str], object]


@contextmanager
def unawaited_coroutines(files: frozenset[str], on_coroutine: OnCoroutine) -> Iterator[None]:
    """Call `on_coroutine` for each coroutine that code in these files makes in a block, and that nothing awaits."""
    depth = sys.get_coroutine_origin_tracking_depth()
    sys.set_coroutine_origin_tracking_depth(_MOST_FRAMES)
    with warnings.catch_warnings():
        show_other = warnings.showwarning

        def show(  # noqa: PLR0917 (as `warnings.showwarning` is)
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            match = _WARNING.match(str(message))
            if match is None:
                show_other(message, category, filename, lineno, file, line)
                return
            frames = _FRAME.findall(str(message)) or [(filename, str(lineno), "")]
            if frames[-1][0] in files:
                own_frames = takewhile(lambda frame: frame[0] in files, reversed(frames))
                functions = [function for _, _, function in own_frames if function]
                on_coroutine(match[1], functions, f"{frames[-1][0].rpartition('/')[2]}:{frames[-1][1]}")

        warnings.showwarning = show
        warnings.filterwarnings("always", _WARNING.pattern, RuntimeWarning)
        try:
            yield
        finally:
            sys.set_coroutine_origin_tracking_depth(depth)
