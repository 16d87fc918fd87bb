"""The settings: the key, the type, the default and the meaning of each. `files.py` reads them.

The keys of `[limits]` are the fields of `Limits`, which validates itself.
"""

import dataclasses
import difflib
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Final, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from turnwright._base.field_docs import attribute_docs
from turnwright._base.words import cut_after
from turnwright.model.model_settings import ModelSettings
from turnwright.model.prices import Price
from turnwright.transcript.pairing import Unpaired
from turnwright_states import Limits, ToolCallLimits
from turnwright_states.limits import PresetName

#: The words for "no limit" in a file and in the environment, which have no None.
NO_LIMIT: Final = ("unlimited", "off")
#: Settings whose values may contain a password, so that no message repeats them.
ADDRESSES: Final = frozenset({"base_url", "store"})

_SHOWN: Final = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 60
#: Longer keys are not typing mistakes, and comparing them is slow.
_LONGEST_SLIP: Final = 60
_KEY_ADVICE: Final = "API keys are not settings: keep it in the environment, in OPENAI_API_KEY"


def _says_something(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank: leave it out")
    return text


def _as_limit(name: str, value: object) -> object:
    try:
        return getattr(Limits.model_validate({name: value}), name)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None


Text = Annotated[str, AfterValidator(_says_something)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Behavior(_Section):
    """The spelling of GLM-CLI."""

    max_steps: int | None = None
    """Another name for `limits.steps`. One source may set only one of the two."""

    @field_validator("max_steps", mode="before")
    @classmethod
    def _as_steps(cls, value: object) -> object:
        return _as_limit("steps", value)


class PriceRow(_Section):
    """The price of a model for a million tokens, in the currency of `limits.cost`."""

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def price(self) -> Price:
        """Return the price for the engine."""
        return Price(**self.model_dump())

    @field_validator("input", "output", "cached", "cache_write", mode="before")
    @classmethod
    def _amount(cls, value: object, info: ValidationInfo) -> object:
        if value is None and info.field_name in ("cached", "cache_write"):
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise ValueError(f"must be a number of at least 0, not {_SHOWN.repr(value)}")
        return value


class Settings(_Section):
    """Every setting. Settings that a source leaves out are not in `model_fields_set`."""

    preset: PresetName = "default"
    """The set of default limits. Every other source precedes it."""
    limits: Limits = Limits()
    behavior: Behavior = Behavior()
    model: Text | None = None
    """The model of agents without a `model`; `local` is the embedded model."""
    base_url: Text | None = None
    """The endpoint of the model, such as `https://host/v1`. `OPENAI_BASE_URL` is the fallback."""
    timeout: float | None = None
    """Seconds that an endpoint may be silent, above 0."""
    store: Text = "sqlite:///turns.db"
    """The address of the store. A relative file starts at the configuration file's folder."""
    agents: tuple[Text, ...] = ()
    """Agent files, folders, and code (`desk.py`, `desk:DESK`). By default `AGENTS.md` here, or else `agents/*.md` and
    `*.agent.md`."""
    tools: Text | None = None
    """A module or `.py` file with `@tool` functions."""
    hooks: tuple[Text, ...] = ()
    """Modules or `.py` files with hooks and guardrails, or one of them: `policy.py:cap`. They apply to every turn."""
    mcp: tuple[Text, ...] = ()
    """Files with MCP servers, in the format of other clients."""
    root: Text = "."
    """The folder that the built-in tools may read."""
    unpaired: Unpaired = "repair"
    """Repair or reject message histories with unpaired tool calls."""
    prices: dict[str, PriceRow] = {}
    """For each model, `input` and `output`, and perhaps `cached` and `cache_write`: prices per million tokens. They
    precede the cost that a model reports, and the prices of the package `genai-prices`."""
    conclude_prompt_file: Text | None = None
    """A file with the prompt of the concluding call. An agent's `conclude_prompt` precedes it."""
    show_budget_to_model: bool = False
    """Show the model its remaining limits."""
    model_settings: ModelSettings = ModelSettings()
    """Settings of every model call, such as `temperature`. An agent's `model_settings` precede them."""
    strict_settings: bool = False
    """Refuse model settings that the model does not support, instead of a warning."""
    stop_repetition: bool = True
    """Stop a reply that repeats its own end again and again, and ask the model once more."""

    @field_validator("limits", "behavior", mode="before")
    @classmethod
    def _without_limit(cls, value: object, info: ValidationInfo) -> object:
        return _switched_off(str(info.field_name), value)

    @field_validator("timeout", mode="before")
    @classmethod
    def _as_seconds(cls, value: object) -> object:
        return _as_limit("seconds", value)

    @field_validator("agents", "hooks", "mcp", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("prices", mode="before")
    @classmethod
    def _also_prices(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {name: dataclasses.asdict(row) if isinstance(row, Price) else row for name, row in value.items()}

    @field_validator("show_budget_to_model", "strict_settings", "stop_repetition", mode="before")
    @classmethod
    def _yes_or_no(cls, value: object) -> object:
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, not {_SHOWN.repr(value)}")  # noqa: TRY004 (pydantic's own)
        return value


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `kind` describes its values in words; `section` is the model that has it as a field."""

    key: str
    kind: str
    default: object
    section: type[BaseModel]
    in_json: tuple[type, ...]
    """The types of those of its values that the environment writes as JSON. Any other is the text itself."""
    may_be_off: bool
    """Whether a word of `NO_LIMIT` is a valid value."""

    @property
    def means(self) -> str:
        """The meaning in one line."""
        return attribute_docs(self.section).get(self.key.rpartition(".")[2], "").replace("\n", " ")


def _all_settings() -> Iterator[Setting]:
    for name, field in Settings.model_fields.items():
        if name != "model_settings" and isinstance(section := field.default, BaseModel):
            for inner, inner_field in type(section).model_fields.items():
                yield _make_setting(f"{name}.{inner}", type(section), inner_field, limit=True)
        else:
            yield _make_setting(name, Settings, field, limit=False)


def _make_setting(key: str, section: type[BaseModel], field: FieldInfo, *, limit: bool) -> Setting:
    variants = get_args(field.annotation) if get_origin(field.annotation) in (Union, UnionType) else (field.annotation,)
    types = [
        get_args(type_)[0] if get_origin(type_) is Annotated else type_ for type_ in variants if type_ is not NoneType
    ]
    off = limit and NoneType in variants
    words = get_args(types[0]) if get_origin(types[0]) is Literal else ()
    kinds = [f'"{word}"' for word in words] or [_KINDS[get_origin(type_) or type_] for type_ in types]
    return Setting(
        key=key,
        kind=" or ".join([*kinds, f'"{NO_LIMIT[0]}"'] if off else kinds),
        default={} if field.annotation is ModelSettings else field.get_default(call_default_factory=True),
        section=section,
        in_json=tuple(kind for type_ in types for kind in _IN_JSON.get(get_origin(type_) or type_, ())),
        may_be_off=off,
    )


_KINDS: Final[Mapping[object, str]] = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    tuple: "list of texts, or one text",
    dict: "table",
    ToolCallLimits: "table",
    ModelSettings: "table",
}

_NUMBERS: Final = (int, float, bool)  # a number of another kind is a mistake, and no text
_IN_JSON: Final[Mapping[object, tuple[type, ...]]] = {
    **dict.fromkeys(_NUMBERS, _NUMBERS),
    tuple: (list, str),
    **dict.fromkeys((dict, ToolCallLimits, ModelSettings), (dict,)),
}

#: Every setting by its key, in the order of the documentation.
SETTINGS: Final[Mapping[str, Setting]] = {setting.key: setting for setting in _all_settings()}


def _may_be_off(key: str) -> bool:
    return (key in SETTINGS and SETTINGS[key].may_be_off) or key.startswith(_BY_CLASS)


def _switched_off(key: str, value: object) -> object:
    """Replace each word of `NO_LIMIT` that is the value of a limit by None."""
    if isinstance(value, Mapping):
        return {name: _switched_off(f"{key}.{name}", entry) for name, entry in value.items()}
    return None if value in NO_LIMIT and _may_be_off(key) else value


def check(
    values: Mapping[str, object], place: Callable[[str], str], *, is_text: bool
) -> tuple[dict[str, object], list[str]]:
    """Return the settings of one source by key, and its mistakes, one line each.

    `place` returns the place of a key in this source. If `is_text`, the source has no None, and the messages name
    the word for "no limit".
    """
    try:
        settings = Settings.model_validate(dict(values))
    except ValidationError as error:
        return {}, [_describe_mistake(details, place, is_text=is_text) for details in error.errors(include_url=False)]
    leaves = dict(_list_leaves(settings))
    steps = {"behavior.max_steps", "limits.steps"}
    if steps <= leaves.keys():
        first, second = map(place, sorted(steps))
        return {}, [f"{first}: is another name for {second}, which is set too: leave one of the two out"]
    return leaves, []


def _list_leaves(settings: Settings) -> Iterator[tuple[str, object]]:
    for name in Settings.model_fields:
        if name not in settings.model_fields_set:
            continue
        value: object = getattr(settings, name)
        if name == "prices":
            yield from ((f"prices.{model}", row.price()) for model, row in settings.prices.items())
        elif isinstance(value, BaseModel):
            yield from ((f"{name}.{field}", getattr(value, field)) for field in value.model_fields_set)
        else:
            yield name, value


def _describe_mistake(details: ErrorDetails, place: Callable[[str], str], *, is_text: bool) -> str:
    key = ".".join(map(str, details["loc"]))
    problem = _describe_problem(key, details)
    # A message of `Limits` about several fields starts with the name of the first one.
    word, _, remainder = problem.partition(" ")
    if key == "limits" and word in Limits.model_fields:
        key, problem = f"{key}.{word}", remainder
    if is_text and details["type"] == "value_error" and _may_be_off(key):
        problem += f'; "{NO_LIMIT[0]}" means no limit'
    return f"{place(key)}: {problem}"


def _describe_problem(key: str, details: ErrorDetails) -> str:
    value, context = details["input"], details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            return unknown(key)
        case "value_error":
            return cut_after(str(context["error"]), _MAX_MESSAGE, "...")
        case "missing":
            return "is missing"
        case "literal_error":
            requirement = f"must be {context['expected']}"
        case "string_type":
            requirement = "must be text"
        case "tuple_type":
            requirement = f"must be a {_KINDS[tuple]}"
        case "model_type" | "dict_type" | "model_attributes_type":
            requirement = "must be a table"
        case _:
            requirement = details["msg"].replace("Input should be", "must be")
    # An address may contain a password.
    value_text = f"a value of type {type(value).__name__}" if key in ADDRESSES else _SHOWN.repr(value)
    return f"{requirement}, not {value_text}"


_MAX_MESSAGE: Final = 200
_BY_CLASS: Final = "limits.tool_calls."


def unknown(key: str, spell: Callable[[str], str] | None = None) -> str:
    """Return the message for an unknown key. `spell` formats a key for a source without sections."""
    tail = key.rpartition(".")[2]
    if tail.lower().replace("_", "").replace("-", "").endswith("apikey"):
        return _KEY_ADVICE
    if key.startswith(_BY_CLASS):
        return f"is unknown: the classes of tools are {', '.join(ToolCallLimits.model_fields)}"
    if key.startswith("prices."):
        return f"is unknown: a price has {', '.join(f'`{name}`' for name in PriceRow.model_fields)}"
    if key.startswith("model_settings."):
        return f"is unknown: the model settings are {', '.join(ModelSettings.model_fields)}"
    by_tail = {full_key.rpartition(".")[2]: full_key for full_key in reversed(tuple(SETTINGS))}
    if spell is None:
        by_tail |= {name: name for name in Settings.model_fields}
    slip = key[:_LONGEST_SLIP].lower()
    near = difflib.get_close_matches(slip, Settings.model_fields, n=1, cutoff=0.9) if spell is None else []
    near = near or difflib.get_close_matches(slip, SETTINGS, n=1, cutoff=0.7)
    if tail in by_tail or not near:
        near = difflib.get_close_matches(slip.rpartition(".")[2], by_tail, n=1)
    if not near:
        return "is unknown: `turnwright config` prints every setting"
    suggestion = by_tail.get(near[0], near[0])
    return f"is unknown: did you mean `{suggestion if spell is None else spell(suggestion)}`?"
