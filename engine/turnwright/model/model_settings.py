"""Settings of model calls: of an engine, an agent or one run."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    StrictBool,
    ValidationError,
    model_serializer,
)

from turnwright._base.field_docs import describe_fields
from turnwright._base.frozen import MOST_NESTED, deeper_than
from turnwright.errors import ConfigError
from turnwright_states.payload import FrozenDict, freeze

Effort = Literal["minimal", "low", "medium", "high"]
CachePolicy = Literal["auto", "5m", "1h", "off"]


def _not_empty(texts: tuple[str, ...]) -> tuple[str, ...]:
    if not all(texts):
        raise ValueError("must not contain an empty text")
    return texts


def _flat(value: object) -> object:
    if isinstance(value, Mapping) and deeper_than(dict(value), MOST_NESTED):
        raise ValueError(f"must not nest more than {MOST_NESTED} lists and objects")
    return value


def _read_switch(value: object) -> object:
    # The words of YAML and of the command line.
    return {"on": True, "off": False}.get(value, value) if isinstance(value, str) else value


def _policy(value: object) -> object:
    # YAML reads `off` as false.
    return {True: "auto", False: "off"}[value] if isinstance(value, bool) else value


def _one_or_several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


_StopSequences = Annotated[
    tuple[Annotated[str, Field(max_length=1_000)], ...], BeforeValidator(_one_or_several), AfterValidator(_not_empty)
]
_Body = Annotated[Mapping[str, JsonValue], BeforeValidator(_flat), AfterValidator(lambda body: freeze(dict(body)))]


class ModelSettings(BaseModel):
    """Settings of model calls. A setting that is not given stays the provider's, or that of the layer below.

    `Engine(model_settings=...)` applies to every turn, `Agent(model_settings=...)` overrides it field by field, and
    `engine.run(..., model_settings=...)` overrides both. The settings of a turn are in its journal. A setting that the
    model does not support is left out, with one warning; `Engine(strict_settings=True)` refuses it.

    Raises pydantic's `ValidationError` for an unknown setting, or a value out of range. See docs/rules.md#settings.
    """

    # Built by the first settings that are made, so that the import stays cheap.
    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False, json_schema_extra=describe_fields
    )

    temperature: Annotated[float, Field(ge=0)] | None = None
    """Randomness of the reply. Most providers accept 0 to 2, Anthropic 0 to 1."""
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    """Probability mass of the considered tokens, from 0 to 1."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """The most tokens of one reply. The rest of a token budget and the conclusion's limit apply too: the smallest
    counts."""
    seed: int | None = None
    """A seed, for replies that are alike."""
    stop_sequences: _StopSequences = ()
    """Texts before which the reply ends."""
    thinking: Annotated[StrictBool | Effort | Annotated[int, Field(ge=1)] | None, BeforeValidator(_read_switch)] = None
    """Whether and how much the model thinks: on or off, a level of effort, or a budget in tokens."""
    parallel_tool_calls: bool | None = None
    """Whether one reply may ask for several calls."""
    service_tier: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """The provider's tier of service, by its own name."""
    cache: Annotated[CachePolicy | None, BeforeValidator(_policy)] = None
    """Prompt caching: `auto` for the provider's default lifetime, `5m` or `1h`, or `off`."""
    extra_body: _Body = Field(default_factory=FrozenDict)
    """Further fields of the request, as the provider's API names them. They override all others; a None removes a
    field. They are written to the journal, so they must not contain secrets."""

    # `extra_body` has no hash. Equal settings have equal hashes all the same.
    def __hash__(self) -> int:
        return hash(tuple([value for name, value in self.__dict__.items() if name != "extra_body"]))

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        settings = self.given
        return {name: value for name, value in handler(self).items() if name in settings}

    @property
    def given(self) -> dict[str, object]:
        """The settings that are given, by name."""
        return {name: value for name, value in self if value is not None and value not in ((), {})}

    def over(self, base: "ModelSettings | None") -> "ModelSettings":
        """Return these settings over `base`, field by field. Fields of both `extra_body` are kept; these win."""
        if base is None:
            return self
        fields = base.given | self.given
        fields["extra_body"] = freeze({**base.extra_body, **self.extra_body})
        return self.model_copy(update=fields)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the settings that are given, as JSON values, for the journal. `from_json` reads them."""
        data: dict[str, JsonValue] = self.model_dump(mode="json")
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, JsonValue]) -> Self:
        """Return the settings that `to_json` wrote. Raises `ValidationError` for other data."""
        return cls.model_validate(data)


def merge_settings(*layers: ModelSettings | None) -> ModelSettings | None:
    """Return the settings of the last layer over those before it; None if no layer has any."""
    merged_settings: ModelSettings | None = None
    for layer in layers:
        if layer is not None:
            merged_settings = layer.over(merged_settings)
    return merged_settings


def checked_settings(settings: object, where: str) -> ModelSettings | None:
    """Return the settings. Raises `ConfigError`, which names `where` they were given, for any other object."""
    if settings is None or isinstance(settings, ModelSettings):
        return settings
    raise ConfigError(f"{where}: model_settings must be ModelSettings(temperature=0, ...), not {settings!r}")


def parsed_settings(data: Mapping[str, object], where: str) -> ModelSettings:
    """Return settings that were read from text. Raises `ConfigError`, which names `where` they were read."""
    try:
        return ModelSettings.model_validate(data)
    except ValidationError as error:
        from turnwright_states.suggestions import explain_unknown  # noqa: PLC0415 (only after a mistake)

        first = error.errors()[0]
        name, problem = (
            str(first["loc"][0]),
            first["msg"].replace("Input should be", "must be").partition(", unable to")[0],
        )
        why = explain_unknown(name, ModelSettings.model_fields) if first["type"] == "extra_forbidden" else problem
        value = "" if first["type"] == "extra_forbidden" else f", not {first['input']!r}"
        raise ConfigError(f"{where}: {name}: {why}{value}"[:_MOST_SAID]) from None


#: Characters of an error, which may quote a long value.
_MOST_SAID: Final = 300
