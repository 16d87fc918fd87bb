"""A tool of a server, as a tool of ours."""

from collections.abc import Mapping
from typing import Final, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from mcp_types import CallToolResult
from mcp_types import Tool as Listed
from pydantic import JsonValue

from turnwright.tools.context import ToolContext
from turnwright.tools.errors import ToolError, describe
from turnwright.tools.result import ToolResult
from turnwright.tools.text import shorten
from turnwright.tools.tool import Tool

from .content import read_result
from .hints import McpHints, Policy, approval_for
from .session import McpSession
from .wire import MOST_CHECKED, OUTPUT_SCHEMA, is_quick, measure

#: How much of a message about a mistake is shown, in characters.
_SHOWN: Final = 500


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
            needs_approval=not approved and approval_for(hints, policy),
            timeout=timeout,
            idempotent=trusted and hints.idempotent,
            read_only=listed.annotations.read_only_hint if trusted and listed.annotations else None,
        )
        self.hints = hints
        self._session = session
        schema = (listed.meta or {}).get(OUTPUT_SCHEMA)
        # A client of somebody else's may have listed it, whose messages did not pass `wire`.
        self._schema = schema if isinstance(schema, dict) and is_quick(schema) else None

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> ToolResult:
        """Call it at its server. Raises `NeedsPersonError` where the server asks for one."""
        arguments = cast("Mapping[str, JsonValue]", values)  # of a call's JSON, which `parse` left as it is
        result = await self._session.call(self.hints.tool, arguments, context)
        if self._schema is not None and not result.is_error:
            self._check_data(result, self._schema)
        try:
            return read_result(result)
        except ToolError as error:
            raise ToolError(self._session.hide(str(error))) from None

    def _check_data(self, result: CallToolResult, schema: dict[str, JsonValue]) -> None:
        """Check the data of a result by the schema that the server gave. Raises `ToolError`."""
        if result.structured_content is None:
            said = "there is no data in it, though its schema says so"
        elif measure(result.structured_content, MOST_CHECKED)[0] > MOST_CHECKED:
            return
        else:
            try:
                wrong = best_match(Draft202012Validator(schema).iter_errors(result.structured_content))
            except (SchemaError, TypeError, ValueError) as error:
                said = describe(error)
            else:
                if wrong is None:
                    return
                said = wrong.message
        said = self._session.hide(shorten(said, _SHOWN))
        raise ToolError(f"server {self._session.name}: its answer does not fit the protocol: {said}")
