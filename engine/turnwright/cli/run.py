"""`turnwright run` and `resume`: their options.

The help loads this module, so a command loads what drives a turn when it runs.
"""

from typing import Annotated

import typer

from .options import TurnArgument
from .turn_flags import ResumeFlags, RunFlags


def run(
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT", help="What to do. Read from standard input if left out; optional with --continue."
        ),
    ] = None,
    *,
    flags: RunFlags,
) -> None:
    """Run one turn, and print how it ended.

    When the turn pauses, a terminal asks for the answer. Without a terminal, the command exits with 3 and prints how to
    answer. With --continue, options that are not given come from the earlier turn.

    Ctrl-C aborts the turn; a second Ctrl-C leaves at once. After SIGTERM, `resume` continues it.

    With --temporal-address the workers of a Temporal server drive the turn, with their own tools, and with their own
    model unless --model or the agent names one.
    """
    from .run_turn import run_turn  # noqa: PLC0415 (see the docstring of this module)

    run_turn(prompt, flags)


def resume(turn: TurnArgument, *, flags: ResumeFlags) -> None:
    """Continue a turn: answer it, or resume it after a crash.

    Without answers a terminal asks for them. If another process drives the turn, it gets the answers. Agent, limits,
    model and root are those of the turn; flags replace its tools, its hooks, the code of its agents and the model's
    server.
    """
    from .run_turn import resume_turn  # noqa: PLC0415 (see the docstring of this module)

    resume_turn(turn, flags)
