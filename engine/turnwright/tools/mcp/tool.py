"""The adapter from an MCP tool to `Tool`."""

import logging
from collections.abc import Mapping
from typing import Final, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from mcp_types import CallToolResult
from mcp_types import Tool as Listed
from pydantic import JsonValue

from turnwright._base.schema_faults import dangling_refs, invalid_keyword, without_refs
from turnwright._base.words import cut_clean
from turnwright.context import NotGiven
from turnwright.tools.context import ToolContext
from turnwright.tools.errors import ToolError, describe
from turnwright.tools.result import ToolResult
from turnwright.tools.tool import Tool

from .content import read_result
from .hints import McpHints, Policy, approval_for
from .session import McpSession
from .wire import MOST_CHECKED, OUTPUT_SCHEMA, is_quick, measure, warn_left_out

_LOG: Final = logging.getLogger(__name__)
#: The maximum number of characters of an error message.
_SHOWN: Final = 500


class McpTool(Tool):
    """A tool of a server. The server validates the arguments and reports mistakes to the model.

    The server's hints are trusted unless the policy is `always`. A call that by its hints is read-only or idempotent
    runs again after a crash, with the same `turnwright/key`.
    """

    def __init__(
        self,
        session: McpSession,
        listed: Listed,
        *,
        name: str,
        policy: Policy,
        approved: bool,
        timeout: float | NotGiven | None,
    ) -> None:
        hints = McpHints.of(session.name, listed)
        trusted = policy != "always"
        super().__init__(
            name=name,
            description=listed.description or listed.title or "",
            parameters=_parameters(session.name, listed),
            needs_approval=not approved and approval_for(hints, policy),
            timeout=timeout,
            idempotent=trusted and hints.idempotent,
            read_only=listed.annotations.read_only_hint if trusted and listed.annotations else None,
        )
        self.hints = hints
        self._session = session
        schema = (listed.meta or {}).get(OUTPUT_SCHEMA)
        # The messages of the caller's own client do not pass through `wire`.
        self._schema = schema if isinstance(schema, dict) and is_quick(schema) else None

    @property
    def may_answer(self) -> bool:
        """Never: a server's result goes to the model."""
        return False

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> ToolResult:
        """Call the server. Raises `NeedsPersonError` if the server needs a person."""
        arguments = cast("Mapping[str, JsonValue]", values)  # `Tool.parse` leaves the JSON values unchanged
        result = await self._session.call(self.hints.tool, arguments, context)
        if self._schema is not None and not result.is_error:
            self._check_data(result, self._schema)
        try:
            return read_result(result)
        except ToolError as error:
            raise ToolError(self._session.hide(str(error))) from None

    def _check_data(self, result: CallToolResult, schema: dict[str, JsonValue]) -> None:
        """Validate the data of a result against the server's schema. Raises `ToolError`."""
        if result.structured_content is None:
            said = "the result has no data, although the tool has an output schema"
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
        said = self._session.hide(cut_clean(said, _SHOWN))
        raise ToolError(f"server {self._session.name}: its answer violates the protocol: {said}")


def is_usable(server: str, listed: Listed) -> bool:
    """Whether a tool of a server can be offered. If not, a warning says why: a provider would refuse every request."""
    invalid = invalid_keyword(listed.input_schema)
    fault = "it has no name" if not listed.name else f"inputSchema: {invalid}" if invalid else None
    if fault is not None:
        warn_left_out(server, listed.name, fault)
    return fault is None


def _parameters(server: str, listed: Listed) -> Mapping[str, JsonValue]:
    """Return the JSON Schema of a tool's arguments, without references that lead nowhere: providers refuse them."""
    schema: dict[str, JsonValue] = {"type": "object", "properties": {}, **listed.input_schema}
    dangling = dangling_refs(schema)
    for one in dangling:
        message = "MCP server %r: tool %.80r: inputSchema: %s; until then, the model may give any value there"
        _LOG.warning(message, server, listed.name, one)
    return cast("Mapping[str, JsonValue]", without_refs(schema, dangling)) if dangling else schema
