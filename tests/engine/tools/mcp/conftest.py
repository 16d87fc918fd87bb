"""A server of the SDK whose tools are functions of a test, and which is reached as an older server is, or a new one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self, TypeAlias, TypedDict, Unpack

import anyio
import mcp_types as types
import pytest
from anyio.abc import ObjectSendStream
from mcp.server import Server, ServerRequestContext
from mcp.shared.message import SessionMessage

Context = ServerRequestContext[Any, Any]
Returned = str | types.CallToolResult | types.InputRequiredResult
Sending = ObjectSendStream[SessionMessage | Exception]
#: What `mcp_tools` takes for a stage.
Target: TypeAlias = Server[Any] | Callable[[], AbstractAsyncContextManager[Any]]
Handler = Callable[[Context, types.CallToolRequestParams], Awaitable[Returned]]


class Fields(TypedDict, total=False):
    """The other hints of a server about a tool."""

    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    execution: types.ToolExecution


class Stage:
    """The tools of a server, and the requests that it received."""

    def __init__(self) -> None:
        self.tools: dict[str, types.Tool] = {}
        self.calls: list[types.CallToolRequestParams] = []
        #: Tools a page of the list.
        self.page = 100
        #: How often it was opened over streams.
        self.lives = 0
        #: What the client said of itself.
        self.capabilities: types.ClientCapabilities | None = None
        self._handlers: dict[str, Handler] = {}
        self._mouth: Sending | None = None
        self.server: Server[Any] = Server("stage", on_list_tools=self._list, on_call_tool=self._call)

    def tool(
        self, name: str, annotations: types.ToolAnnotations | None = None, **fields: Unpack[Fields]
    ) -> Callable[[Handler], Handler]:
        """Offer a function as a tool."""

        def offer(handler: Handler) -> Handler:
            described = {"input_schema": {"type": "object"}, **fields}
            self.tools[name] = types.Tool.model_validate({"name": name, "annotations": annotations, **described})
            self._handlers[name] = handler
            return handler

        return offer

    def says(
        self, name: str, text: str = "done", annotations: types.ToolAnnotations | None = None, **fields: Unpack[Fields]
    ) -> None:
        """Offer a tool that says always the same."""

        async def say(_context: Context, _params: types.CallToolRequestParams) -> str:
            return text

        self.tool(name, annotations, **fields)(say)

    @asynccontextmanager
    async def old(self) -> AsyncIterator[Any]:
        """Connect over streams with a protocol before 2026-07-28, in which a request does not name its call."""
        to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](1)
        to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](1)
        self.lives += 1
        self._mouth = to_client
        async with from_server, to_server, from_client, to_client, anyio.create_task_group() as group:
            group.start_soon(self.server.run, from_client, to_client, self.server.create_initialization_options())
            yield from_server, _Older(to_server, to_client)
            group.cancel_scope.cancel()

    async def dies(self) -> None:
        """End the connection, in the middle of whatever it does."""
        assert self._mouth is not None
        await self._mouth.aclose()

    async def _list(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        del context
        begin = int(params.cursor) if params is not None and params.cursor else 0
        end = begin + self.page
        tools = list(self.tools.values())
        return types.ListToolsResult(tools=tools[begin:end], next_cursor=str(end) if end < len(tools) else None)

    async def _call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        self.calls.append(params)
        self.capabilities = context.session.client_params.capabilities if context.session.client_params else None
        result = await self._handlers[params.name](context, params)
        if isinstance(result, str):
            return types.CallToolResult(content=[types.TextContent(text=result)])
        return result


class _Older:
    """The way to a server that does not know how newer clients begin."""

    def __init__(self, to_server: Sending, to_client: Sending) -> None:
        self._to_server = to_server
        self._to_client = to_client

    async def send(self, item: SessionMessage) -> None:
        message = item.message
        if isinstance(message, types.JSONRPCRequest) and message.method == "server/discover":
            error = types.ErrorData(code=types.METHOD_NOT_FOUND, message="Method not found")
            await self._to_client.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)))
        else:
            await self._to_server.send(item)

    async def aclose(self) -> None:
        await self._to_server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture(params=["new", "old"])
def target(request: pytest.FixtureRequest, stage: Stage) -> Target:
    """The stage, in both eras of the protocol."""
    return stage.server if request.param == "new" else stage.old
