"""Tells the telemetry of an engine of the calls that run."""

from collections.abc import Awaitable, Callable

from turnwright.telemetry import OTHER_ERROR, CallWork, Watched
from turnwright_states import Call, CallSettledInput, CallStatus, CallWaitingInput

from .tool import Tool


async def traced_call(
    watched: Watched,
    call: Call,
    tool: Tool,
    child: str,
    run: Callable[[CallWork], Awaitable[CallSettledInput | CallWaitingInput]],
) -> CallSettledInput | CallWaitingInput:
    """Run a started call, within a block of the telemetry. `child` is the id of the turn that it drives, or empty.

    `run` may name in the work that it is given what kind of error there was.
    """
    work = CallWork(
        id=call.id,
        tool=call.name,
        description=tool.description,
        arguments=call.arguments,
        attempt=max(call.attempt, 1),
        child=child,
    )
    with watched.call(work):
        came = await run(work)
        if isinstance(came, CallWaitingInput):
            work.status = "waiting"
        else:
            work.status, work.result = str(came.status), came.result
            if came.status is CallStatus.ERROR:
                work.error = work.error or OTHER_ERROR
        return came
