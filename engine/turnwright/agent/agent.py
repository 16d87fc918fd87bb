"""An agent: its name, instructions, model, tools and limits.

An agent's limits override the engine's. `None` is a value too: it switches a limit off. A limit that the agent does not
set stays the engine's. So "not set" and "set to None" differ, in equality, in JSON and in the journal.

The journal keeps what JSON can hold. A field that JSON cannot hold (functions, types) is declared with `exclude=True`
or `exclude_if=...`: it is the agent's `code`, and the journal keeps only its name. The engine's registry supplies it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Self, TypeVar, Unpack, cast, overload

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FieldSerializationInfo,
    JsonValue,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from typing_extensions import TypeForm

from turnwright._base.field_docs import describe_fields
from turnwright.context import DepsT_contra, GuardrailBase, HooksBase, JsonObject, MaybeAwaitable, OutT_co, TurnContext
from turnwright.errors import ConfigError, find_misfit
from turnwright.model.model_settings import ModelSettings
from turnwright_states import Limits
from turnwright_states.limits import Concluding, DoomCompare, DoomResponse, StallResponse

from .fields import (
    BUDGET_FIELDS,
    NAMES,
    ONE_NAME,
    Compact,
    InstructionsFunction,
    Mode,
    Name,
    OutputMode,
    RuleItems,
    RulesField,
    Text,
    TextOrFunction,
    ToolsFunction,
    budget_of,
    check_limit,
    problem,
    set_in,
    shorten,
    tidy_details,
)

if TYPE_CHECKING:
    from .fields import AgentFields, PlainAgentFields

#: The dependencies that an agent's functions need, and the type of its answer.
D = TypeVar("D")
OutT = TypeVar("OutT")
#: The arguments of an agent's functions.
_TAKES: Final = {
    "instructions": ("context",),
    "prepare_tools": ("context", "tools"),
    "output_validators": ("context", "answer"),
}
#: The key of a journaled agent that names its code, and `deps` if the turn needs dependencies.
_NEEDS: Final = "needs"
DEPS: Final = "deps"
#: The file of agents, and that of the open standard (https://agents.md).
AGENTS_FILE: Final = "AGENTS.md"


class MisfitLimitError(ConfigError):
    """An agent's limit conflicts with the engine's: `field` names the limit, `why` the conflict."""

    def __init__(self, agent: str, field: str, why: str) -> None:
        self.field = field
        self.why = why
        super().__init__(f"agent {shorten(agent)}: {field}: {why}")


class Agent(BaseModel, Generic[DepsT_contra, OutT_co]):
    """An agent: a name, instructions, and limits of its own.

    An `Agent[Deps, Out]` runs on an engine with these dependencies, and its answer has the type `Out`. An `Agent`
    without them fits every engine, and answers with text.

    Every limit except `ceiling`, which is the engine's, can be set here under its name in `Limits`. The four limits of
    a budget are in `budget`. `Limits` documents and checks each.

    Raises pydantic's `ValidationError` (a `ValueError`), whose message names the agent, the field and the value. See
    docs/rules.md#bounds.
    """

    # Built by the first agent that is made, so that the import stays cheap.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, json_schema_extra=describe_fields)

    name: Name
    """Its name: one line, not blank."""
    description: Text = ""
    """Its purpose in one sentence, for people and for models that may call it as a sub-agent."""
    mode: Mode = "primary"
    """Whether people run it (`primary`), other agents call it (`subagent`), or both (`all`)."""
    instructions: Annotated[str | InstructionsFunction[DepsT_contra], TextOrFunction, Field(exclude_if=callable)] = ""
    """The system prompt: in a Markdown file, the text below the front matter. In code it may be a function of the
    context, async or not, which is called once a step and returns the text."""
    template: bool = False
    """Whether names such as `{{ metadata.user }}` in the instructions become values of the turn. In a file, true if
    the text has a `{{`."""
    steps: int | None = None
    """The most steps of a turn, at least 0. The engine's ceiling applies too, and alone if this is None."""
    budget: int | Limits | None = None
    """Limits on the whole turn: `Limits` that set some of `tool_calls`, `tokens`, `cost` and `seconds`, and nothing
    else, or a mapping of these. A number, or None, is short for `Limits(tool_calls=...)`."""
    tools: tuple[Name, ...] | None = None
    """The names of the tools that it may use; of a sub-agent, the name of its tool. None means all tools, without
    sub-agents if this is one; `()` means none.

    Names with a `*` (any text), a `?` (any character) or a leading `!` (not this one) make the list a list of rules, of
    which the last match applies. A list that begins with a `!` starts with all tools, any other with none. A rule may
    match no tool, and a `*` gives no sub-agents to a sub-agent."""
    prepare_tools: Annotated[ToolsFunction[DepsT_contra] | None, Field(exclude=True), ONE_NAME] = None
    """A function of the context and of the names of its tools, async or not, which is called once a step and returns
    the names of those that the step may use (docs/rules.md#tools-of-a-step)."""
    model: Name | None = None
    """The model's id; None means the engine's. Any other model needs `Engine(models=...)`."""
    model_settings: ModelSettings | None = None
    """Settings of its model calls, over the engine's: `ModelSettings(temperature=0)`, in a file a mapping."""
    hooks: Annotated[tuple[HooksBase[DepsT_contra], ...], Field(exclude=True), NAMES] = ()
    """Its hooks, which come after the engine's (docs/rules.md#hooks). In a file, the names `module:name`."""
    guardrails: Annotated[tuple[GuardrailBase[DepsT_contra], ...], Field(exclude=True), NAMES] = ()
    """Its guardrails, which come after the engine's (docs/rules.md#guardrails). In a file, the names `module:name`."""
    rules: Annotated[RuleItems, RulesField] = ()
    """Its rules over the history of calls, besides the engine's (docs/rules.md#rules-over-calls). In a file, a list of
    rules and of names of files with rules."""
    conclude_prompt: Text | None = None
    """The text of the concluding call; None means `prompts/conclude.txt`."""
    compaction: Compact | None = None
    """The size at which the conversation is made shorter, and the way; None means never."""
    repeatable_steps: bool = False
    """Whether a step may be lost in a crash, and be asked for again, if all of its calls are of tools that are
    declared read-only or idempotent: its reply is journaled with the first results, and not before the calls run
    (docs/rules.md#repeatable-steps)."""
    output_type: Annotated[Any, Field(exclude=True), ONE_NAME] = None
    """The type of its answer: a pydantic model, a dataclass, a `TypedDict`, a `Literal`, a union, a list. None means
    text. In a file, a name `module:name`. See docs/rules.md#typed-answers."""
    output_schema: Mapping[str, JsonValue] | None = None
    """The JSON Schema of its answer, where there is no `output_type`: the answer is plain JSON."""
    output_validators: Annotated[tuple[Callable[..., object], ...], Field(exclude=True), NAMES] = ()
    """Functions of a `TurnContext` and a typed answer, sync or async, that return the answer or a changed one. They may
    raise `Retry("why")`, and the model answers again."""
    output_mode: OutputMode = "auto"
    """The way to ask for a typed answer: the provider's own (`native`), a tool, or a `prompt`. `auto` takes the
    provider's own where the model has one, else a tool."""

    # None below means "not set" unless the field is in `model_fields_set`. A limit that cannot be switched off rejects
    # an explicit None.
    concluding: Concluding | None = None
    max_calls_per_step: int | None = None
    tool_timeout: float | None = None
    doom_threshold: int | None = None
    doom_compare: DoomCompare | None = None
    doom_response: DoomResponse | None = None
    nudges: int | None = None
    stall_errors: int | None = None
    stall_rounds: int | None = None
    stall_response: StallResponse | None = None
    idle_steps: int | None = None
    max_retries: int | None = None
    output_retries: int | None = None
    max_pauses: int | None = None
    conclude_seconds: float | None = None
    conclude_tokens: int | None = None

    if TYPE_CHECKING:
        # Overloads without the fields that bind a type variable: checkers infer unknown types from their defaults.
        @overload
        def __init__(self: "Agent[object, str]", *, name: str, **fields: Unpack[PlainAgentFields]) -> None: ...
        @overload
        def __init__(
            self: "Agent[object, OutT]",
            *,
            name: str,
            output_type: TypeForm[OutT],
            **fields: Unpack[PlainAgentFields],
        ) -> None: ...
        @overload
        def __init__(
            self: "Agent[object, JsonValue]",
            *,
            name: str,
            output_schema: JsonObject,
            **fields: Unpack[PlainAgentFields],
        ) -> None: ...
        @overload
        def __init__(
            self: "Agent[D, str]",
            *,
            name: str,
            instructions: str | InstructionsFunction[D] = "",
            hooks: Sequence[HooksBase[D]] = (),
            guardrails: Sequence[GuardrailBase[D]] = (),
            prepare_tools: ToolsFunction[D] | None = None,
            **fields: Unpack[AgentFields],
        ) -> None: ...
        @overload
        def __init__(
            self: "Agent[D, OutT]",
            *,
            name: str,
            output_type: TypeForm[OutT],
            output_validators: Sequence[Callable[[TurnContext[D], OutT], MaybeAwaitable[OutT]]] = (),
            instructions: str | InstructionsFunction[D] = "",
            hooks: Sequence[HooksBase[D]] = (),
            guardrails: Sequence[GuardrailBase[D]] = (),
            prepare_tools: ToolsFunction[D] | None = None,
            **fields: Unpack[AgentFields],
        ) -> None: ...
        def __init__(self, **fields: object) -> None: ...

    else:

        def __new__(cls, *args, **_):  # noqa: ANN002, ANN003, ANN204, D102 (the overloads have the types)
            if args:
                raise ConfigError(f"an agent has named fields only: write {cls.__name__}(name={args[0]!r:.80})")
            return super().__new__(cls)

        def __class_getitem__(cls, _):  # noqa: ANN001, ANN204
            """Return the class: the types are for type checkers, and pydantic would make a class for each."""
            return cls

    def __eq__(self, other: object) -> bool:
        """Compare the fields, and which limits are set: None is not the same as absent."""
        return isinstance(other, Agent) and super().__eq__(other) and self.overrides == other.overrides

    def __hash__(self) -> int:  # Python drops the hash of a class that defines equality
        return hash(tuple(value for name, value in self.__dict__.items() if name not in {"output_schema", "rules"}))

    @field_validator("*", mode="before")
    @classmethod
    def _check_limits(cls, value: object, info: ValidationInfo) -> object:
        if info.field_name in Limits.model_fields:
            check_limit(info.field_name, value)
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _tidy_errors(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            # Raised here, where the agent's name is known. Pydantic merges it into the caller's error.
            raise ValidationError.from_exception_data(
                cls.__name__,
                [tidy_details(details, data, cls.model_fields) for details in error.errors(include_url=False)],
            ) from None

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        """Show only the fields that are set: there are two dozen others."""
        for name, value in super().__repr_args__():
            if name in self.model_fields_set:
                yield name, set_in(value) if isinstance(value, Limits) else value

    @model_serializer(mode="wrap")
    def _serialize_set_fields(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        set_fields = self.model_fields_set
        return {name: value for name, value in handler(self).items() if name in set_fields}

    @field_validator("budget", mode="before")
    @classmethod
    def _budget(cls, value: object) -> object:
        if isinstance(value, Limits):
            value = set_in(value)
        if isinstance(value, Mapping):
            return budget_of(value)
        if value is not None and not isinstance(value, int | float):
            names = ", ".join(BUDGET_FIELDS)
            raise ValueError(f"must be a number of tool calls, or a mapping of {names}; not {shorten(value)}")
        check_limit("tool_calls", value)
        return value

    @field_serializer("budget")
    def _serialize_budget(self, value: object, info: FieldSerializationInfo) -> object:
        return value.model_dump(mode=info.mode, exclude_unset=True) if isinstance(value, Limits) else value

    @field_validator("mode")
    @classmethod
    def _need_description(cls, value: Mode, info: ValidationInfo) -> Mode:
        if value != "primary" and not str(info.data.get("description", value)).strip():
            raise ValueError(f"{value!r} needs a `description`: models choose a sub-agent by it")
        return value

    @field_validator("tools")
    @classmethod
    def _refuse_duplicate_tools(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        twice = sorted({name for name in value or () if (value or ()).count(name) > 1})
        if twice:
            raise ValueError(f"must name each tool once, but {', '.join(map(repr, twice))} is listed twice")
        return value

    @field_validator("instructions", "prepare_tools", "output_validators")
    @classmethod
    def _need_arguments(cls, value: object, info: ValidationInfo) -> object:
        for function in value if isinstance(value, tuple) else (value,):
            if callable(function) and (misfit := find_misfit(function, _TAKES[str(info.field_name)])):
                raise ValueError(misfit)
        return value

    @field_validator("output_validators")
    @classmethod
    def _need_typed_answer(cls, value: tuple[object, ...], info: ValidationInfo) -> tuple[object, ...]:
        if value and info.data.get("output_type") in (None, str) and info.data.get("output_schema") is None:
            why = "give an output_type, or check a text with an after_model hook or an output guardrail"
            raise ValueError(f"check typed answers: {why}")
        return value

    @field_validator("conclude_prompt")
    @classmethod
    def _refuse_blank_prompt(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("must not be blank: leave it out for the standard prompt")
        return value

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """Return a copy with the fields in `update`, which are checked as those of a new agent.

        `deep` also copies the values. Raises `ValidationError`.
        """
        copy = super().model_copy(deep=deep)
        if not update:
            return copy
        return self.model_validate({name: getattr(copy, name) for name in self.model_fields_set} | dict(update))

    @property
    def overrides(self) -> dict[str, object]:
        """The limits that this agent sets, by their names in `Limits`. Absent ones stay the engine's."""
        own_settings: dict[str, object] = {
            name: getattr(self, name) for name in Limits.model_fields if name in self.model_fields_set
        }
        if self.compaction is not None:
            own_settings["max_compactions"] = self.compaction.max_compactions
        if "budget" not in self.model_fields_set:
            return own_settings
        return own_settings | (set_in(self.budget) if isinstance(self.budget, Limits) else {"tool_calls": self.budget})

    def limits_for(self, base: Limits | None = None) -> Limits:
        """This agent's limits merged over `base`, the engine's, or `Limits()`; the ceiling stays the engine's.

        Each value was checked when the agent was made. Raises `MisfitLimitError`, a `ConfigError`, for a value that the
        preset in `base` does not allow.
        """
        base = base or Limits()
        try:
            limits = type(base).model_validate(dict(base) | self.overrides)
        except ValidationError as error:
            problem_text = problem(error.errors()[0], {})
            raise MisfitLimitError(self.name, *problem_text.split(" ", 1)) from None
        return Limits.model_validate(dict(limits))

    @property
    def tool_name(self) -> str:
        """The name of its tool: its name in letters, digits, `_` and `-`."""
        return re.sub(r"[^a-zA-Z0-9_-]+", "_", self.name).strip("_")

    @property
    def tools_needed(self) -> tuple[str, ...]:
        """The tools that must exist: those in `tools`, unless they are rules."""
        names = self.tools or ()
        return () if any(map(_is_rule, names)) else names

    def may_use(self, tool: str, *, delegates: bool = False) -> bool:
        """Whether it may use the tool of this name. `delegates` says that the tool is a sub-agent."""
        rules = ("*",) if self.tools is None else self.tools
        may_delegate = not delegates or self.mode != "subagent"
        is_allowed = may_delegate and rules[:1] != () and rules[0].startswith("!")
        for rule in rules:
            if fnmatchcase(tool, rule.removeprefix("!").replace("[", "[[]")):
                is_allowed = not rule.startswith("!") and (may_delegate or not _is_rule(rule))
        return is_allowed

    @property
    def is_typed(self) -> bool:
        """Whether its answer has a type, or a JSON Schema."""
        return self.output_type not in (None, str) or self.output_schema is not None

    def to_json(self) -> dict[str, JsonValue]:
        """Return the fields that are set, as JSON values, without the `code`. `from_json` reads them."""
        data: dict[str, JsonValue] = self.model_dump(mode="json")
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, JsonValue]) -> Self:
        """Return the agent that `to_json` or `to_journal` wrote, without its code.

        Raises `ValidationError` for other data.
        """
        return cls.model_validate({name: value for name, value in data.items() if name != _NEEDS})

    @property
    def fixed_instructions(self) -> str:
        """The instructions, or an empty text if a function or a template makes them."""
        return self.instructions if isinstance(self.instructions, str) and not self.template else ""

    @property
    def asks_code(self) -> bool:
        """Whether a turn of the agent asks hooks, guardrails, or a function for its instructions or its tools."""
        asks = self.hooks or self.guardrails or self.template or self.prepare_tools
        return bool(asks) or callable(self.instructions)

    @property
    def code(self) -> dict[str, object]:
        """The fields that are set and that JSON cannot hold, such as functions and types."""
        return {name: getattr(self, name) for name in sorted(self.model_fields_set - self.to_json().keys())}

    def to_journal(self, *, deps: bool) -> dict[str, JsonValue]:
        """Return what the journal keeps: the JSON fields, and the names of what a driver needs besides (`needs_of`).

        `deps` says that the turn needs dependencies.
        """
        data = self.to_json()
        data.pop("rules", None)  # the turn has them, with those of the engine
        needs: list[JsonValue] = [*([DEPS] if deps else []), *sorted(self.model_fields_set - {*data, "rules"})]
        if needs:
            data[_NEEDS] = needs
        return data

    def restore(self, record: JsonObject) -> Self:
        """Return the agent of a journal, with the code of this one. Raises `ValidationError` for damaged data."""
        return self.from_json({**record, **cast("JsonObject", self.code)})


def needs_of(record: JsonObject) -> tuple[str, ...]:
    """Return the names of what a turn needs beside the JSON of its agent: fields of the agent's code, and `DEPS`."""
    needs = record.get(_NEEDS, ())
    return tuple(map(str, needs)) if isinstance(needs, Sequence) else ()


def _is_rule(name: str) -> bool:
    return name.startswith("!") or "*" in name or "?" in name
