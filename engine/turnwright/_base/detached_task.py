"""Tasks that belong to no other task: they go on when the task that began them has ended."""

import sys
from collections.abc import Callable, Coroutine
from contextvars import copy_context


def spawn(run: Callable[[], Coroutine[object, object, None]]) -> object:
    """Run `run()` in a new task of the running event loop, of asyncio or trio. It must not raise an `Exception`.

    Returns the task. Keep it until it ends: asyncio drops a task that nothing refers to. The task has a copy of the
    caller's context variables. The end of the event loop cancels it.
    """
    # Trio first: as a guest of an asyncio loop, both run here. An app that uses trio has imported it.
    trio = sys.modules.get("trio")
    if trio is not None:
        try:
            return trio.lowlevel.spawn_system_task(run, context=copy_context())
        except RuntimeError:
            pass  # trio does not run here
    import asyncio  # noqa: PLC0415 (an import of turnwright needs no event loop)

    return asyncio.get_running_loop().create_task(run())
