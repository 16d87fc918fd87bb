"""Results that come later: from a job, a browser, a queue, a person, or the time (docs/rules.md#waits)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, Self, cast

from msgspec import convert, to_builtins
from pydantic import JsonValue

from turnwright.errors import ConfigError, UnreadableTurnError, need_kind, need_list
from turnwright.message import FilePart
from turnwright_states import InterruptKind
from turnwright_states.inputs import GivenResult
from turnwright_states.payload import plain as plain_value
from turnwright_states.payload import thaw

from .context import Ask, NeedsPersonError, ToolContext
from .errors import ToolInputError
from .json_schema import ArgumentCheck, schema_validator
from .result import (
    FILES_LIMIT,
    RESULT_LIMIT,
    STRUCTURED_LIMIT,
    NotJsonError,
    ToolResult,
    bound_result,
    json_size,
    plain,
    to_result,
)
from .tool import Approval, Tool

#: Seconds that a call waits for its result, if nothing sets others: 7 days.
WEEK: Final = 604_800.0
#: The most tools that the client of a turn runs, and the bytes of their declarations.
MOST_CLIENT_TOOLS: Final = 128
CLIENT_TOOLS_LIMIT: Final = 262_144


class Later(NeedsPersonError):  # noqa: N818 (it is not an error)
    """Return it from a tool, or raise it: the call's result comes later, from outside (`Engine.settle`).

    The turn pauses when nothing else can run, and no process waits. After `expires_in` seconds, 7 days by default, the
    call gets the result `otherwise`, or else an error. With None it waits for ever. `kept` is JSON data for the next
    run of the call (`ToolContext.kept`), if a person decides to run it again.

    It is not an `Exception`, so that a tool that catches the errors of its own work does not swallow it. Raises
    `TypeError` and `ValueError` for another time, a result that is too large, and data that is not JSON.
    """

    def __init__(
        self,
        *,
        expires_in: float | None = WEEK,
        otherwise: str | ToolResult | None = None,
        kept: JsonValue = None,
        schema: Mapping[str, JsonValue] | None = None,
    ) -> None:
        if isinstance(expires_in, bool) or not isinstance(expires_in, int | float | None):
            raise TypeError(f"expires_in must be a number of seconds, or None, not {expires_in!r:.40}")
        if expires_in is not None and not 0 < expires_in < math.inf:
            raise ValueError(f"expires_in must be a number of seconds above 0, or None, not {expires_in!r}")
        data = plain(kept)
        if json_size(data) > STRUCTURED_LIMIT:
            raise ValueError(f"kept: {json_size(data):,} bytes of JSON; the limit: {STRUCTURED_LIMIT:,}")
        super().__init__(
            Ask(
                kind=InterruptKind.RESULT,
                expires_in=expires_in,
                otherwise=None if otherwise is None else give_result(otherwise),
                kept=data,
                schema=schema,
            )
        )


class ExternalTool(Tool):
    """A tool whose calls run outside: in a browser, on a job queue, by a person. `external_tool` makes one.

    Each call waits until `Engine.settle` brings its result. `parameters` is a JSON Schema of type object: arguments
    that do not fit go back to the model (docs/rules.md#client-tools). `output_schema` is the JSON Schema of its
    results, which are checked before they are stored. After `expires_in` seconds without a result, 7 days by default,
    the call gets the result `otherwise`, or else an error. The other options are those of `tool`.

    A call that may run is started and waits in one append. `later` is that wait.

    Raises `ConfigError` for what `Tool` refuses, for an invalid `output_schema`, and without the package jsonschema if
    the schema says more than `type`. See docs/rules.md#waits.
    """

    takes_context = False

    def __init__(
        self,
        *,
        name: str,
        description: str,
        parameters: Mapping[str, JsonValue],
        output_schema: Mapping[str, JsonValue] | None = None,
        expires_in: float | None = WEEK,
        otherwise: str | ToolResult | None = None,
        needs_approval: Approval = False,
        approvers: int = 1,
        read_only: bool | None = None,
        return_direct: bool = False,
    ) -> None:
        need_kind(f"tool {name}: parameters", parameters, Mapping, "a JSON Schema of type object")
        parameters = _plain_schema(parameters, f"tool {name}: parameters")
        if parameters.get("type", "object") != "object":
            raise ConfigError(f"tool {name}: parameters: must be a JSON Schema of type object")
        super().__init__(
            name=name,
            description=description,
            parameters=parameters,
            needs_approval=needs_approval,
            approvers=approvers,
            read_only=read_only,
            return_direct=return_direct,
            idempotent=True,
        )
        need_kind(f"tool {name}: otherwise", otherwise, str | ToolResult | None, "text or a ToolResult")
        if output_schema is not None:
            need_kind(f"tool {name}: output_schema", output_schema, Mapping, "a JSON Schema")
            output_schema = _plain_schema(output_schema, f"tool {name}: output_schema")
            schema_validator(output_schema, f"tool {name}: output_schema")
        try:
            self._wait = Later(expires_in=expires_in, otherwise=otherwise, schema=output_schema)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"tool {name}: {error}") from None
        self.later = self._wait
        self._check_arguments = ArgumentCheck(parameters, f"tool {name}: parameters")

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Check the arguments against `parameters`: see `ArgumentCheck`. Raises `ToolInputError`."""
        self._check_arguments.check(arguments)
        return super().parse(arguments)

    def plain(self, arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Check the arguments as `parse` does, so that nobody is asked about a call that cannot run."""
        self._check_arguments.check(arguments)
        return super().plain(arguments)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the tool as JSON, for the journal of a turn whose client runs it. `of_json` reads it.

        Raises `ConfigError` for a function `needs_approval`, which no journal keeps.
        """
        if self.asks_by_code:
            raise ConfigError(f"tool {self.name}: needs_approval: the journal keeps no function: give True or False")
        ask = self._wait.ask
        options: dict[str, JsonValue] = {
            "output_schema": None if ask.schema is None else {**thaw(ask.schema)},
            "otherwise": to_builtins(ask.otherwise, enc_hook=plain_value),
            "needs_approval": self.always_asks or None,
            "approvers": None if self.approvers == 1 else self.approvers,
            "read_only": self.read_only,
            "return_direct": self.return_direct or None,
        }
        declaration: dict[str, JsonValue] = {
            "name": self.name,
            "description": self.description,
            "parameters": {**thaw(self.parameters)},
            "expires_in": ask.expires_in,
        }
        return declaration | {option: value for option, value in options.items() if value is not None}

    @classmethod
    def of_json(cls, declaration: Mapping[str, JsonValue]) -> Self:
        """Return the tool that `to_json` wrote. Raises `ConfigError`, `TypeError` and `ValueError` for other data."""
        options: dict[str, Any] = {**thaw(declaration)}
        if "otherwise" in options:
            options["otherwise"] = read_result(convert(options["otherwise"], GivenResult))
        return cls(**options)

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> NoReturn:  # noqa: ARG002 (of a tool)
        """Wait: see `Later`."""
        raise NeedsPersonError(self._wait.ask)


#: Makes a tool whose calls run outside: see `ExternalTool`.
external_tool: Final = ExternalTool


def wait_tool(*, most: float = 86_400.0, name: str = "wait") -> Tool:
    """Make a tool with which the model waits: `wait(seconds)`, up to `most` seconds, a day by default.

    The turn pauses, and no process waits. A worker resumes it when the time has passed, or `Engine.settle` does before.
    Raises `ConfigError` for a time that is not above 0.
    """
    if isinstance(most, bool) or not isinstance(most, int | float) or not 0 < most < math.inf:
        raise ConfigError(f"wait_tool: most must be a number of seconds above 0, not {most!r}")
    return _WaitTool(name, most)


class _WaitTool(Tool):
    """A tool whose calls get their result when a time has passed."""

    def __init__(self, name: str, most: float) -> None:
        seconds: dict[str, JsonValue] = {"type": "number", "exclusiveMinimum": 0, "maximum": most}
        super().__init__(
            name=name,
            description=f"Wait before you go on, at most {most:g} seconds. The turn rests meanwhile.",
            parameters={
                "type": "object",
                "properties": {"seconds": {**seconds, "description": "The seconds to wait."}},
                "required": ["seconds"],
                "additionalProperties": False,
            },
            read_only=True,
            ignore_in_loop_detection=True,
        )
        self._most = most

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Check the one argument, `seconds`. See `Tool.parse`."""
        seconds = arguments.get("seconds")
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if arguments.keys() != {"seconds"} or not is_number or not 0 < float(str(seconds)) <= self._most:
            raise ToolInputError(f"{self.name} takes one argument, seconds: a number above 0, at most {self._most:g}")
        return {"seconds": seconds}

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> NoReturn:  # noqa: ARG002 (of a tool)
        """Wait: see `Later`."""
        seconds = float(str(values["seconds"]))
        raise Later(expires_in=seconds, otherwise=f"{seconds:g} seconds have passed")


def give_result(value: JsonValue | ToolResult, *, error: bool = False) -> GivenResult:
    """Return a result from outside as the journal keeps it. Text and data are of at most 64 KiB and 256 KiB.

    A text stays text. Other JSON is kept as data too. Raises `ValueError` for a result that is too large or not JSON.
    """
    try:
        if isinstance(value, str | ToolResult):
            result = to_result(value)
        else:
            data = plain(value)
            result = ToolResult(to_result(value).text, data)
        text = value if isinstance(value, str) else value.text if isinstance(value, ToolResult) else result.text
        size = len(text.encode())
    except UnicodeEncodeError as surrogate:
        raise ValueError(f"the result has half a surrogate pair at character {surrogate.start}") from None
    except NotJsonError as reason:
        raise ValueError(str(reason)) from None
    if result.structured is not None and json_size(result.structured) > STRUCTURED_LIMIT:
        size_of_data = json_size(result.structured)
        raise ValueError(f"the result has {size_of_data:,} bytes of data; the limit: {STRUCTURED_LIMIT:,}")
    if result.structured is not None and size > RESULT_LIMIT and not isinstance(value, ToolResult):
        result, size = ToolResult(bound_result(result).text, result.structured), 0  # the text only repeats the data
    if size > RESULT_LIMIT:
        raise ValueError(f"the result has {size:,} bytes of text; the limit: {RESULT_LIMIT:,}")
    if bound_result(result).files != result.files:
        raise ValueError(f"the files of the result are too many or too large; the limit: {FILES_LIMIT:,} bytes")
    files = tuple(file.kept() for file in result.files)
    return GivenResult(text=result.text, error=error, structured=result.structured, files=files)


def read_result(given_result: GivenResult) -> ToolResult:
    """Return a result from outside as a tool would have returned it."""
    files = tuple(FilePart.of_json(dict(file)) for file in given_result.files)
    return ToolResult(given_result.text, thaw(given_result.structured), files)


def find_misfit(schema: Mapping[str, JsonValue], given_result: GivenResult) -> str:
    """Return how a result does not fit its JSON Schema: `$.amount is not a number`; empty if it fits.

    An error fits every schema. Raises `ConfigError` without the package jsonschema.
    """
    if given_result.error:
        return ""
    from jsonschema.exceptions import best_match  # noqa: PLC0415 (few results have a schema, and it is slow to import)

    value = given_result.text if given_result.structured is None else thaw(given_result.structured)
    fault = best_match(schema_validator(schema, "output_schema").iter_errors(value))
    if fault is None:
        return ""
    if fault.validator == "type" and isinstance(fault.validator_value, str):
        kind = fault.validator_value
        return f"{fault.json_path} is not {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    return f"{fault.json_path}: {fault.message}"


def client_tools(tools: Sequence[ExternalTool]) -> dict[str, ExternalTool]:
    """Return the tools that the client of one turn runs, by name.

    Raises `ConfigError` for another object, two tools of one name, too many, and declarations that are too large.
    """
    by_name: dict[str, ExternalTool] = {}
    need_list("tools", tools)
    for tool in tools:
        if type(tool) is not ExternalTool:
            raise ConfigError(
                f"tools: {tool!r:.80} is not a tool that the client runs: make it with external_tool(...)"
            )
        if tool.name in by_name:
            raise ConfigError(f"tools: two tools are called {tool.name!r}: rename one of them")
        by_name[tool.name] = tool
    if len(by_name) > MOST_CLIENT_TOOLS:
        raise ConfigError(f"tools: {len(by_name):,} tools; the limit: {MOST_CLIENT_TOOLS}")
    try:
        size = json_size([tool.to_json() for tool in by_name.values()])
    except UnicodeEncodeError:
        raise ConfigError("tools: a description has half a surrogate pair") from None
    if size > CLIENT_TOOLS_LIMIT:
        raise ConfigError(f"tools: {size:,} bytes of JSON; the limit: {CLIENT_TOOLS_LIMIT:,}")
    return by_name


def read_client_tools(turn_id: str, declarations: Sequence[Mapping[str, JsonValue]]) -> dict[str, ExternalTool]:
    """Return the tools of a turn's first fact by name. Raises `UnreadableTurnError`."""
    try:
        return client_tools([*map(ExternalTool.of_json, declarations)])
    except (ConfigError, TypeError, ValueError) as error:
        raise UnreadableTurnError(turn_id, f"the tools of its client cannot be read: {error}") from None


def _plain_schema(schema: Mapping[str, JsonValue], place: str) -> dict[str, JsonValue]:
    """Return a JSON Schema as plain JSON. Raises `ConfigError`."""
    try:
        return cast("dict[str, JsonValue]", plain(dict(schema)))
    except NotJsonError:
        raise ConfigError(f"{place}: is not JSON, or nests too many lists and objects") from None
