"""The values of an agent's fields: their types, their checks, and the words for mistakes in them."""

import reprlib
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypedDict, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError, core_schema

from turnwright._base.field_docs import describe_fields
from turnwright._base.words import cut_after
from turnwright.context import GuardrailBase, HooksBase, MaybeAwaitable, TurnContext
from turnwright.model.model_settings import ModelSettings
from turnwright_states import Limits
from turnwright_states.limits import Concluding, DoomCompare, DoomResponse, StallResponse

if TYPE_CHECKING:
    from turnwright.privacy.redaction import Redactor
    from turnwright.rules import Rule, RuleSet

    RuleItems = tuple[Rule | RuleSet, ...]
else:  # pydantic needs no more: `RulesField` checks them
    RuleItems = tuple

#: The tool that a model calls with a typed answer.
OUTPUT_TOOL: Final = "final_result"
#: The limits that an agent sets in its `budget`.
BUDGET_FIELDS: Final = ("tool_calls", "tokens", "cost", "seconds")
Mode = Literal["primary", "subagent", "all"]
OutputMode = Literal["auto", "native", "tool", "prompt"]
#: The dependencies that an agent's functions need.
D = TypeVar("D")
#: Makes the instructions of each step from the turn's context.
InstructionsFunction = Callable[[TurnContext[D]], MaybeAwaitable[str]]
#: Chooses the tools of each step from the turn's context and the names of all tools of the agent.
ToolsFunction = Callable[[TurnContext[D], tuple[str, ...]], MaybeAwaitable[Sequence[str]]]

#: Control characters, line and paragraph separators, and halves of surrogate pairs: they would break a line of text.
_UNPRINTABLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
#: No limit needs more digits, and numbers of thousands of digits cannot be printed.
_MAX_NUMBER: Final = 10**18
_MAX_MESSAGE: Final = 200
#: What an app makes of its functions for these fields.
_DECORATED: Final = {
    "hooks": "must be a hook: a function below @before_tool or another such decorator, or an object of Hooks",
    "guardrails": "must be a guardrail: a function below @input_guardrail or another such decorator",
}
_MAX_BITS: Final = 2000


def _redactor() -> "Redactor":
    from turnwright.privacy.redaction import redactor  # noqa: PLC0415 (only after a mistake)

    return redactor()


class _Repr(reprlib.Repr):
    """Formats values as Python does, shortened and without secrets.

    The text for huge numbers is the same in every version of Python.
    """

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to print an int above a configurable number of digits, 640 at the lowest.
        if x.bit_length() > _MAX_BITS:
            return f"a value too long to show ({type(x).__name__})"
        return super().repr_int(x, level)

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(_redactor().hide(x), level)

    def repr_dict(self, x: dict[str, JsonValue], level: int) -> str:
        has_names = all(isinstance(name, str) for name in x)
        return super().repr_dict(_redactor().hide_fields(x) if has_names else x, level)


_REPR: Final = _Repr()
_REPR.maxstring = _REPR.maxother = 80
shorten: Final = _REPR.repr


def _validate_line(text: str) -> str:
    if not text.strip():
        raise ValueError(f"must not be blank, as {shorten(text)} is")
    if any(unicodedata.category(character) in _UNPRINTABLE for character in text):
        raise ValueError(f"must be one line without control characters, not {shorten(text)}")
    return text


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"must be text that UTF-8 can write, but its character {error.start} is half a surrogate pair"
        ) from None
    return text


Name = Annotated[str, AfterValidator(_validate_line)]
Text = Annotated[str, AfterValidator(_unicode)]


class Compact(BaseModel):
    """Limits the length of a turn's conversation (docs/rules.md#compaction).

    Before a model call whose request would have at least `at_tokens` tokens, and after a provider refused a request as
    too long, the messages before the last `keep_steps` steps are replaced by a summary. The mode `clear_tool_results`
    needs no model call: it removes the contents of their tool results.

    Raises pydantic's `ValidationError` for a value out of range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, json_schema_extra=describe_fields)

    at_tokens: Annotated[int, Field(ge=1)]
    """The size of a request that is too long, in tokens: the provider's last count, and an estimate of what is new."""
    keep_steps: Annotated[int, Field(ge=0)] = 4
    """The latest steps that stay as they are."""
    mode: Literal["summarize", "clear_tool_results"] = "summarize"
    """Whether older messages are summarized, or only lose their tool results."""
    max_compactions: Annotated[int, Field(ge=1)] = 3
    """The most compactions of one turn. Each may cost two model calls more (docs/rules.md#model-calls)."""
    model: Name | None = None
    """The model that writes the summaries; None means the agent's. Any other needs `Engine(models=...)`."""


class TextOrFunction:
    """The schema of a field that is a text in JSON, and in code a text or a function."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object, text: Callable[[object], object]) -> object:
            return value if callable(value) else text(value)

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(Text))


class RulesField:
    """The schema of a field with rules: in code rules and sets of rules, in JSON their words, in files also names."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, __: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object) -> object:
            from turnwright.rules import read_rules  # noqa: PLC0415 (few agents have rules)

            return read_rules(value)

        def write(value: "RuleItems") -> object:
            if not value:
                return []
            from turnwright.rules import write_rules  # noqa: PLC0415 (few agents have rules)

            return write_rules(value)

        return core_schema.no_info_plain_validator_function(
            read, serialization=core_schema.plain_serializer_function_ser_schema(write)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _: CoreSchema, __: GetJsonSchemaHandler) -> dict[str, JsonValue]:
        return {"type": "array", "items": {"anyOf": [{"type": "object"}, {"type": "string"}]}}


class InFiles(NamedTuple):
    """The JSON Schema of a field that JSON cannot hold: how files name its value."""

    schema: dict[str, JsonValue]

    def __get_pydantic_json_schema__(self, _: CoreSchema, __: GetJsonSchemaHandler) -> dict[str, JsonValue]:
        return dict(self.schema)


ONE_NAME: Final = InFiles({"type": "string"})
NAMES: Final = InFiles({"type": "array", "items": {"type": "string"}})


def set_in(limits: Limits) -> dict[str, object]:
    """Return the limits that are set, by name."""
    return {name: value for name, value in limits if name in limits.model_fields_set}


def budget_of(values: Mapping[str, object]) -> Limits:
    """Return the limits of a budget. Raises `ValidationError`, with every mistake in it."""
    mistakes: list[InitErrorDetails] = []
    for name, value in values.items():
        try:
            if name not in BUDGET_FIELDS:
                raise ValueError(unknown_field(name, BUDGET_FIELDS))  # noqa: TRY301 (reported with the others)
            check_limit(name, value)
        except ValueError as error:
            problem_type = PydanticCustomError("agent", "{problem}", {"problem": str(error)})
            mistakes.append(InitErrorDetails(type=problem_type, loc=(name,), input=value))
    if mistakes:
        raise ValidationError.from_exception_data("budget", mistakes)
    return Limits.model_validate(dict(values))


def check_limit(name: str, value: object) -> None:
    """Raise ValueError, without the field's name, unless `Limits` takes this value under this name."""
    if isinstance(value, int) and abs(value) >= _MAX_NUMBER:
        raise ValueError(f"must be a number of at most 18 digits, not {shorten(value)}")
    try:
        Limits.model_validate({name: value})
    except ValidationError as error:
        if value is None:
            raise ValueError("cannot be switched off: leave it out to keep the engine's value") from None
        # A message about the whole object begins with the field's name, which the caller adds.
        details = error.errors()[0]
        path = "".join(f"{part}: " for part in details["loc"][1:])
        # `Limits` quotes the value in its words, where this hides a secret.
        raise ValueError(_redactor().hide(path + problem(details, {}).removeprefix(f"{name} "))) from None


def tidy_details(details: ErrorDetails, data: object, fields: Mapping[str, FieldInfo]) -> InitErrorDetails:
    """Return a mistake in the data of an agent, in our words, with the agent's name."""
    name = data.get("name") if isinstance(data, Mapping) else None
    owner = f"agent {shorten(name)}: " if isinstance(name, str) and name.strip() else ""
    return InitErrorDetails(
        type=PydanticCustomError("agent", "{whose}{problem}", {"whose": owner, "problem": problem(details, fields)}),
        loc=details["loc"],
        input=details["input"],
    )


def problem(details: ErrorDetails, fields: Mapping[str, FieldInfo]) -> str:
    """Return what is wrong with a value, to follow the name of its field. `fields` are the existing fields."""
    context, field = details.get("ctx", {}), "".join(map(str, details["loc"][:1]))
    match details["type"]:
        case "agent":
            return str(context["problem"])
        case "value_error":
            return cut_after(str(context["error"]), _MAX_MESSAGE, "...")
        case "missing":
            return "is missing"
        case "extra_forbidden":
            *path, name = map(str, details["loc"])
            return unknown_field(name, fields) if not path else _unknown_in(fields[path[0]], name)
        case "literal_error":
            requirement = f"must be {context['expected']}"
        case "string_type":
            requirement = "must be the name of a tool" if field == "tools" else "must be text"
        case "is_instance_of" if field in _DECORATED:
            requirement = _DECORATED[field]
        case "tuple_type":
            requirement = "must be a list of names"
        case _:
            requirement = details["msg"].replace("Input should be", "must be")
    return f"{requirement}, not {shorten(details['input'])}{_hint_for(field, details['input'])}"


def _hint_for(field: str, value: object) -> str:
    if field == "model" and hasattr(value, "stream"):
        return ": give the model to the engine, as in `Engine(model=...)`"
    return _where_functions_go(value) if field == "tools" else ""


def _unknown_in(field: FieldInfo, name: str) -> str:
    """Return what is wrong with a name in the mapping of a field, such as `model_settings`."""
    from turnwright_states.suggestions import explain_unknown  # noqa: PLC0415 (only after a mistake)

    kinds = get_args(field.annotation)
    return explain_unknown(name, next(kind.model_fields for kind in kinds if hasattr(kind, "model_fields")))


def unknown_field(name: str, names: Collection[str]) -> str:
    """Return what is wrong with a field that does not exist. `names` are the existing ones."""
    from turnwright_states.suggestions import explain_unknown, find_similar_name  # noqa: PLC0415 (only after a mistake)

    if name == "ceiling":
        return "is the engine's, not an agent's: set `steps`"
    probably = name if name in BUDGET_FIELDS else find_similar_name(name, (*names, *BUDGET_FIELDS))
    if probably in BUDGET_FIELDS and probably not in names:
        return f"is not a field of its own: write it under `budget`, as in `budget: {{{probably}: ...}}`"
    return explain_unknown(name, names)


def _where_functions_go(value: object) -> str:
    """Return where a function or a tool belongs that was given as a name; empty for anything else."""
    name = getattr(value, "name", None)
    if not callable(value) and not isinstance(name, str):
        return ""
    if isinstance(name, str):
        advice = f"give tools to the engine, as in `Engine(tools=[{name}])`"
    else:
        advice = (
            "write `@tool` above a function of yours, and give it to the engine, as in `Engine(tools=[my_function])`"
        )
    return f": {advice}. An agent without `tools` may use all of the engine's"


# The arguments of `Agent`, for type checkers.


class BudgetFields(TypedDict, total=False):
    """A budget as a mapping. See `Agent.budget`."""

    tool_calls: int | None
    tokens: int | None
    cost: float | None
    seconds: float | None


class AgentFields(TypedDict, total=False):
    """The arguments of `Agent` besides its name that say nothing about its dependencies or its answer. See there."""

    description: str
    mode: Mode
    template: bool
    steps: int | None
    budget: int | Limits | BudgetFields | None
    tools: Sequence[str] | None
    model: str | None
    model_settings: ModelSettings | None
    rules: "Sequence[Rule | RuleSet]"
    conclude_prompt: str | None
    compaction: Compact | None
    repeatable_steps: bool
    concluding: Concluding
    max_calls_per_step: int
    tool_timeout: float | None
    doom_threshold: int | None
    doom_compare: DoomCompare
    doom_response: DoomResponse
    nudges: int
    stall_errors: int | None
    stall_rounds: int | None
    stall_response: StallResponse
    idle_steps: int | None
    max_retries: int
    output_retries: int
    output_mode: OutputMode
    max_pauses: int
    conclude_seconds: float
    conclude_tokens: int


class PlainAgentFields(AgentFields, total=False):
    """The arguments of an agent that needs no dependencies."""

    instructions: str
    hooks: Sequence[HooksBase]
    guardrails: Sequence[GuardrailBase]
    prepare_tools: ToolsFunction[object] | None
