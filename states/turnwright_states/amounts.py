"""The amounts that were used: by a model call, and by a sub-agent out of its lease."""

from collections.abc import Mapping
from decimal import Decimal
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.json import schema_components
from msgspec.structs import asdict, force_setattr
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue
from pydantic_core.core_schema import (
    CoreSchema,
    no_info_plain_validator_function,
    plain_serializer_function_ser_schema,
)

from .limits import LARGEST
from .payload import freeze

if TYPE_CHECKING:
    JsonObject = Mapping[str, JsonValue]
else:  # msgspec does not support the recursive type of JSON.
    JsonObject = Mapping[str, Any]

#: The journal omits a cost only if it is this zero.
_ZERO: Final = 0.0
#: From here on, six digits are too few to name a whole number.
_SIX_DIGITS: Final = 1_000_000
LARGEST_FLOAT: Final = 1.7976931348623157e308
#: A sum of floats may be this much too small: 0.1 eight times is less than 0.8.
_ROUNDING: Final = 1e-12


def is_cost_spent(cost: float, limit: float) -> bool:
    """Return whether a cost, a sum of floats, has reached its limit."""
    return cost >= limit * (1 - _ROUNDING)


def format_number(number: float) -> str:
    """Return a number in digits: `1234567`, `0.5`, `0.00005`. Only one above every limit has an exponent."""
    size = abs(number)
    if size > LARGEST:
        return f"{number:g}"
    return f"{number:.0f}" if size >= _SIX_DIGITS else f"{Decimal(f'{number:g}'):f}"


class Amounts(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Counts, and a cost. A struct, because one is made for each reply; pydantic accepts it as a field.

    Raises `ValueError` for an amount that is below zero, no whole number, or no finite cost.
    """

    def _check(self) -> None:
        for name in self.__struct_fields__:
            if name == "rules":
                continue
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < inf:
                raise ValueError(f"{name}: {value!r} is not a finite number from 0 on")
            if name == "cost":
                if value > LARGEST_FLOAT:  # an int
                    raise ValueError("cost: it is larger than every float")
                force_setattr(self, name, float(value) or _ZERO)
            elif isinstance(value, int) or value.is_integer():
                force_setattr(self, name, int(value))
            else:
                raise ValueError(f"{name}: {value!r} is not a whole number")

    def to_json(self) -> dict[str, JsonValue]:
        """Return the amounts by their names."""
        return asdict(self)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, __: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a field: an instance, or a mapping of its fields."""
        return no_info_plain_validator_function(cls._parse, serialization=plain_serializer_function_ser_schema(asdict))

    @classmethod
    def __get_pydantic_json_schema__(cls, _: CoreSchema, __: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON Schema of a field."""
        schema: dict[str, Any] = schema_components([cls])[1][cls.__name__]
        return schema

    @classmethod
    def _parse(cls, value: object) -> Self:
        if isinstance(value, cls):
            return value
        try:
            return convert(value, cls, strict=False)
        except ValidationError as error:  # pydantic reports a `ValueError` with the name of its field
            raise ValueError(str(error)) from None


class Usage(Amounts, frozen=True, kw_only=True, gc=False):
    """The usage of a model call, as the provider counted it."""

    #: All tokens of the prompt, cached ones included.
    input_tokens: Annotated[int, Meta(ge=0)] = 0
    #: All tokens of the reply, reasoning included.
    output_tokens: Annotated[int, Meta(ge=0)] = 0
    #: In the currency of the limits' `cost`; 0 where no price is known.
    cost: Annotated[float, Meta(ge=0, le=LARGEST_FLOAT)] = _ZERO
    #: The input tokens that the provider read from a cache.
    cached_tokens: Annotated[int, Meta(ge=0)] = 0
    #: The output tokens that the model used to reason.
    reasoning_tokens: Annotated[int, Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        i, o, k, r, cost = self.input_tokens, self.output_tokens, self.cached_tokens, self.reasoning_tokens, self.cost
        counts = type(i) is int and type(o) is int and type(k) is int and type(r) is int
        if type(cost) is float and 0.0 < cost < inf:
            cost = _ZERO  # as good as no cost
        # Without a call for the amounts of nearly every reply.
        if not (counts and i >= 0 and o >= 0 and k >= 0 and r >= 0 and cost is _ZERO):
            self._check()

    @property
    def tokens(self) -> int:
        """Input and output tokens together, as the token budget counts them."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=min(self.cost + other.cost, LARGEST_FLOAT) or _ZERO,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    def __sub__(self, part: "Usage") -> "Usage":
        """Return the rest of a sum without `part`. Raises `ValueError` if `part` is larger."""
        return Usage(
            input_tokens=self.input_tokens - part.input_tokens,
            output_tokens=self.output_tokens - part.output_tokens,
            cost=self.cost - part.cost,
            cached_tokens=self.cached_tokens - part.cached_tokens,
            reasoning_tokens=self.reasoning_tokens - part.reasoning_tokens,
        )


class Spent(Amounts, frozen=True, kw_only=True, gc=False):
    """The usage of a sub-agent, out of its lease."""

    calls: Annotated[int, Meta(ge=0)] = 0
    tokens: Annotated[int, Meta(ge=0)] = 0
    cost: Annotated[float, Meta(ge=0, le=LARGEST_FLOAT)] = _ZERO
    #: The state in which it left the rules of its caller: empty if it did not begin, None if that is not known.
    rules: JsonObject | None = None

    def __post_init__(self) -> None:
        self._check()
        if self.rules is not None:
            force_setattr(self, "rules", freeze(self.rules))
