"""A tool of a server, as a tool of ours."""

from collections.abc import Mapping
from typing import cast

from mcp_types import Tool as Listed
from pydantic import JsonValue

from turnwright.tools.context import ToolContext
from turnwright.tools.result import ToolResult
from turnwright.tools.tool import Tool, ToolError

from .content import read_result
from .hints import McpHints, Policy, approval_for
from .session import McpSession


class McpTool(Tool):
    """A tool of a server. The server checks the arguments, and tells the model what is wrong with them.

    Its hints are believed where they decide about approval too: not under `always`. Then a call that changes nothing,
    or that may be made twice, runs again after a crash, with the same `turnwright/key`.
    """

    def __init__(
        self, session: McpSession, listed: Listed, *, name: str, policy: Policy, approved: bool, timeout: float
    ) -> None:
        hints = McpHints.of(session.name, listed)
        trusted = policy != "always"
        super().__init__(
            name=name,
            description=listed.description or listed.title or "",
            parameters={"type": "object", "properties": {}, **listed.input_schema},
            approval=not approved and approval_for(hints, policy),
            timeout=timeout,
            idempotent=trusted and (hints.read_only or hints.idempotent),
            read_only=_read_only(listed) if trusted else None,
        )
        self.hints = hints
        self._session = session

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> ToolResult:
        """Call it at its server. Raises `NeedsPerson` where the server asks for one."""
        arguments = cast("Mapping[str, JsonValue]", values)  # of a call's JSON, which `parse` left as it is
        result = await self._session.call(self.hints.tool, arguments, context)
        try:
            return read_result(result)
        except ToolError as error:
            raise ToolError(self._session.hide(str(error))) from None


def _read_only(listed: Listed) -> bool | None:
    return None if listed.annotations is None else listed.annotations.read_only_hint
