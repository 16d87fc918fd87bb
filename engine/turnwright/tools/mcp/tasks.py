"""Tasks of a server: calls whose results come later (the extension `io.modelcontextprotocol/tasks`)."""

from typing import Any, Final, Literal, NoReturn

import mcp_types as types
from mcp.client import ClientSession
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from pydantic import BaseModel, ConfigDict, FiniteFloat, JsonValue
from pydantic.alias_generators import to_camel

EXTENSION: Final = "io.modelcontextprotocol/tasks"
#: The shortest time between two looks at a task, and the default, in seconds; and the longest one.
SHORTEST_INTERVAL: Final = 1.0
LONGEST_INTERVAL: Final = 60.0

_CAMEL: Final = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class CreatedTask(types.Result):
    """The answer to a call that became a task."""

    model_config = _CAMEL
    result_type: Literal["task"] = "task"
    task_id: str
    ttl_ms: FiniteFloat | None = None


class TaskState(BaseModel):
    """The state of a task: with its requests, its result or its error."""

    model_config = _CAMEL
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str = ""
    poll_interval_ms: float | None = None
    input_requests: types.InputRequests = {}
    result: dict[str, JsonValue] = {}
    error: dict[str, JsonValue] = {}

    def is_ready(self, answered_keys: set[str]) -> bool:
        """Return whether the call can go on: the task has ended, or asks something that was not answered."""
        if self.status == "input_required":
            return not self.input_requests.keys() <= answered_keys
        return self.status != "working"


class _TaskParams(types.RequestParams):
    task_id: str


class _UpdateParams(_TaskParams):
    input_responses: dict[str, types.ElicitResult]


class _GetTask(types.Request[_TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: _TaskParams
    name_param = "taskId"


class _UpdateTask(types.Request[_UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: _UpdateParams
    name_param = "taskId"


class _CancelTask(types.Request[_TaskParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: _TaskParams
    name_param = "taskId"


class TaskExtension(ClientExtension):
    """Says that a server may make a call a task."""

    identifier = EXTENSION

    def claims(self) -> list[ResultClaim[Any]]:
        """See `ClientExtension.claims`."""
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=_resolve)]


async def _resolve(_task: CreatedTask, _context: ClaimContext) -> NoReturn:
    raise TypeError("the session continues its tasks itself")


async def get_task(session: ClientSession, task: str) -> TaskState:
    """Return the state of a task. Raises `MCPError` and `ValidationError`."""
    return await session.send_request(_GetTask(params=_TaskParams(task_id=task)), TaskState)


async def update_task(session: ClientSession, task: str, responses: dict[str, types.ElicitResult]) -> None:
    """Answer requests of a task. Raises `MCPError`."""
    params = _UpdateParams(task_id=task, input_responses=responses)
    await session.send_request(_UpdateTask(params=params), types.EmptyResult)


async def cancel_task(session: ClientSession, task: str) -> None:
    """Ask a server to end a task. Raises `MCPError`."""
    await session.send_request(_CancelTask(params=_TaskParams(task_id=task)), types.EmptyResult)
