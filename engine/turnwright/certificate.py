"""The certificate of an agent's turns: what bounds them, by which formula, and who set each value.

Its JSON Schema is frozen in `docs/certificate.schema.json`; a change to it needs another number in `SCHEMA`.
"""

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from turnwright_states import EndReason, Limits
from turnwright_states.chart import ROWS, VERSION

from .agent import Agent
from .bounds import EXACTNESS, Bound, Exactness, bounds_of

Format = Literal["turnwright/certificate/1"]
SCHEMA: Final[Format] = "turnwright/certificate/1"


class SetBy(StrEnum):
    """Who decided a value."""

    AGENT = "agent"
    CONFIGURATION = "configuration"
    DEFAULT = "default"
    CEILING = "ceiling"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ChartStamp(_Part):
    """Which chart the turns run under."""

    version: int
    """Changes whenever a row does."""
    rows: int
    """How many rows there are."""
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the rows in their order, a line each: name and reason, in UTF-8."""


class Setting(_Part):
    """One field of `Limits`, as it was written, and who wrote it."""

    field: str
    """Its name."""
    value: int | float | str | None
    """What was written; null is unset, or no limit."""
    set_by: Literal[SetBy.AGENT, SetBy.CONFIGURATION, SetBy.DEFAULT]
    """The agent (its file, or code), the configuration (the engine's limits, the command line), or nobody."""


class CertifiedBound(_Part):
    """One bound of a turn."""

    bound: str
    """What is bounded."""
    value: int | float | None
    """The most that there can be; null when the bound is off."""
    formula: str
    """How the value comes about, with the names of the settings."""
    set_by: SetBy
    """Who decided: whoever wrote `field`, or the ceiling, where `steps` is unset or above it."""
    field: str
    """The setting to change first; the formula reads it."""
    settings: tuple[Setting, ...]
    """Every setting that the formula reads, `field` first, each with whoever wrote it."""
    exactness: Exactness
    """Whether the bound can be overshot, and by what."""
    exactness_means: str
    """The same in words."""
    reason: EndReason | None
    """The reason of a turn that this bound ends; null when it ends none by itself."""


class Certificate(_Part):
    """What bounds every turn of an agent: each bound with its value, its formula, who set it, and how exact it is."""

    model_config = ConfigDict(
        title="Turnwright certificate",
        json_schema_extra={"$schema": "https://json-schema.org/draft/2020-12/schema"},
    )

    # `schema` is a method's name in pydantic.
    schema_: Annotated[Format, Field(alias="schema")]
    """Names this format and its version."""
    agent: str
    """The agent's name."""
    chart: ChartStamp
    """Which chart the turns run under."""
    bounds: tuple[CertifiedBound, ...]
    """Every bound, also those that are off."""

    def to_json(self) -> dict[str, JsonValue]:
        """The certificate as JSON values, under the names of its schema. `from_json` takes it back unchanged."""
        data: dict[str, JsonValue] = self.model_dump(mode="json", by_alias=True)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, JsonValue]) -> Self:
        """The certificate that `to_json` wrote. Raises `ValidationError` for data that the schema does not allow."""
        return cls.model_validate_json(json.dumps(dict(data)), strict=True)


def certificate(agent: Agent, engine_limits: Limits | None = None, *, steps: int | None = None) -> Certificate:
    """What bounds the turns of this agent, and who set it.

    `engine_limits` are those of the engine, `Limits()` when it has none. `steps` is what a command line puts in place
    of the agent's. A value belongs to whoever wrote it last, also one who wrote what it would have been anyway; a
    value that nobody wrote is the default's. Raises pydantic's `ValidationError` for `steps` out of range.
    """
    base = Limits() if engine_limits is None else engine_limits
    flags = {} if steps is None else {"steps": Limits(steps=steps).steps}
    limits = agent.limits_for(base).model_copy(update=flags)
    written = (
        dict.fromkeys(Limits.model_fields, SetBy.DEFAULT)
        | dict.fromkeys(base.model_fields_set, SetBy.CONFIGURATION)
        | dict.fromkeys(agent.overrides, SetBy.AGENT)
        | dict.fromkeys(flags, SetBy.CONFIGURATION)
    )
    bounds = tuple(_certified(bound, limits, written) for bound in bounds_of(limits))
    # By mapping: the type checkers know no argument of the name `schema`.
    return Certificate.model_validate({"schema": SCHEMA, "agent": agent.name, "chart": _stamp(), "bounds": bounds})


def _stamp() -> ChartStamp:
    lines = "".join(f"{row.name} {row.reason or ''}\n" for row in ROWS)
    return ChartStamp(version=VERSION, rows=len(ROWS), digest=hashlib.sha256(lines.encode()).hexdigest())


def _certified(bound: Bound, limits: Limits, written: Mapping[str, SetBy]) -> CertifiedBound:
    settings = tuple(
        Setting.model_validate({"field": name, "value": getattr(limits, name), "set_by": written[name]})
        for name in bound.settings
    )
    first = settings[0]
    by_ceiling = first.field == "steps" and (limits.steps is None or limits.steps > limits.ceiling)
    return CertifiedBound(
        bound=bound.name,
        value=bound.value,
        formula=bound.formula,
        set_by=SetBy.CEILING if by_ceiling else SetBy(first.set_by),
        field=first.field,
        settings=settings,
        exactness=bound.exactness,
        exactness_means=EXACTNESS[bound.exactness],
        reason=bound.reason,
    )
