"""The certificate of an agent's turns: what bounds them, by which formula, and who set each value.

Its JSON Schema is frozen in `docs/certificate.schema.json`; a change to it needs another number in `SCHEMA`.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from turnwright._base.field_docs import described
from turnwright.agent import Agent
from turnwright.tools.tool import Tool
from turnwright_states import EndReason, Limits, ToolCallLimits
from turnwright_states.chart import ROWS, VERSION
from turnwright_states.limits import MAX_DEPTH

from .bounds import EXACTNESS, Bound, Exactness, bounds_of, class_of

Format = Literal["turnwright/certificate/1"]
SCHEMA: Final[Format] = "turnwright/certificate/1"

#: Tells the sub-agents that a turn of an agent may call, by the names that models call them.
SubagentTools = Callable[[Agent], Mapping[str, Agent]]
#: Tells the tools of an agent.
ToolsOf = Callable[[Agent], Iterable[Tool]]

LEASES: Final = (
    "each of k calls of sub-agents in one reply is lent floor(rest / k) of the tool calls and tokens, and rest / k of"
    " the cost, that the reply and its own calls leave to the caller; a sub-agent is bound by that and by bounds of its"
    " own, whichever is lower; what it does not use returns; a lease of 0 is refused; its steps are its own, its time"
    " is its caller's"
)


class SetBy(StrEnum):
    """Who decided a value."""

    AGENT = "agent"
    CONFIGURATION = "configuration"
    DEFAULT = "default"
    CEILING = "ceiling"


def _headed(schema: dict[str, JsonValue], model: type[BaseModel]) -> None:
    described(schema, model)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=described)


class ChartStamp(_Part):
    """Which chart the turns run under."""

    version: int
    """Changes whenever a row does."""
    rows: int
    """How many rows there are."""
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the rows in their order, a line each: name and reason, in UTF-8."""


class AgentSetting(_Part):
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
    settings: tuple[AgentSetting, ...]
    """Every setting that the formula reads, `field` first, each with whoever wrote it."""
    exactness: Exactness
    """Whether the bound can be overshot, and by what."""
    exactness_means: str
    """The same in words."""
    reason: EndReason | None
    """The reason of a turn that this bound ends; null when it ends none by itself."""


class CertifiedSubAgent(_Part):
    """A sub-agent that turns of the agent, or of its sub-agents, may call."""

    tool: str
    """What models call it."""
    agent: str
    """Its name."""
    depth: int
    """How deep it is called at least: 1 by the agent itself. Each stands here once, also one that calls itself."""
    calls: tuple[str, ...]
    """The sub-agents that it may call in turn, by `tool`; none at the greatest depth."""
    bounds: tuple[CertifiedBound, ...]
    """Every bound of its own turns, before a lease lowers any."""


class SubAgents(_Part):
    """The sub-agents that a turn may call, and what they share with it."""

    leases: str
    """What each of them is lent."""
    max_depth: int
    """How deep they may be nested; deeper calls are refused."""
    agents: tuple[CertifiedSubAgent, ...]
    """Those that can be reached, the shallowest first."""


class Certificate(_Part):
    """What bounds every turn of an agent: each bound with its value, its formula, who set it, and how exact it is."""

    model_config = ConfigDict(title="Turnwright certificate", json_schema_extra=_headed)

    # `schema` is a method's name in pydantic.
    schema_: Annotated[Format, Field(alias="schema")]
    """Names this format and its version."""
    agent: str
    """The agent's name."""
    chart: ChartStamp
    """Which chart the turns run under."""
    bounds: tuple[CertifiedBound, ...]
    """Every bound, also those that are off."""
    sub_agents: SubAgents | None = None
    """Those that it may call, which together with it stay within its budgets; absent where there are none."""

    def to_json(self) -> dict[str, JsonValue]:
        """The certificate as JSON values, under the names of its schema. `from_json` takes it back unchanged."""
        # A reader that knows the format from before there were sub-agents can read that of an agent without.
        without = {"sub_agents"} if self.sub_agents is None else set[str]()
        data: dict[str, JsonValue] = self.model_dump(mode="json", by_alias=True, exclude=without)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, JsonValue]) -> Self:
        """The certificate that `to_json` wrote. Raises `ValidationError` for data that the schema does not allow."""
        return cls.model_validate_json(json.dumps(dict(data)), strict=True)


def certificate(
    agent: Agent,
    engine_limits: Limits | None = None,
    *,
    steps: int | None = None,
    subagent_tools: SubagentTools | None = None,
    tools_of: ToolsOf | None = None,
) -> Certificate:
    """What bounds the turns of this agent, and who set it.

    `engine_limits` are those of the engine, `Limits()` when it has none. `steps` is what a command line puts in place
    of the agent's. `subagent_tools` tells the sub-agents of an agent; without it there are none.
    `tools_of` tells the tools of an agent, which choose among `tool_calls` by class; without it they are not known,
    and the number of the class `default` is told. A value belongs to whoever wrote it last, also one who wrote what it
    would have been anyway; a value that nobody wrote is the default's.
    Raises pydantic's `ValidationError` for `steps` out of range.
    """
    base = Limits() if engine_limits is None else engine_limits
    flags = {} if steps is None else {"steps": Limits(steps=steps).steps}
    # By mapping: the type checkers know no argument of the name `schema`.
    return Certificate.model_validate(
        {
            "schema": SCHEMA,
            "agent": agent.name,
            "chart": _stamp(),
            "bounds": _bounds(agent, base, flags, tools_of),
            "sub_agents": None if subagent_tools is None else _sub_agents(agent, base, subagent_tools, tools_of),
        }
    )


def _bounds(
    agent: Agent, base: Limits, flags: Mapping[str, int | None], tools_of: ToolsOf | None
) -> tuple[CertifiedBound, ...]:
    limits = agent.limits_for(base).model_copy(update=flags)
    written = (
        dict.fromkeys(Limits.model_fields, SetBy.DEFAULT)
        | dict.fromkeys(base.model_fields_set, SetBy.CONFIGURATION)
        | dict.fromkeys(agent.overrides, SetBy.AGENT)
        | dict.fromkeys(flags, SetBy.CONFIGURATION)
    )
    tools = None if tools_of is None else class_of(tools_of(agent))
    if isinstance(limits.tool_calls, ToolCallLimits) and (tools or "default") not in limits.tool_calls.model_fields_set:
        written["tool_calls"] = SetBy.DEFAULT
    resolved = limits.for_tools(tools or "default")
    return tuple(_certified(bound, resolved, written) for bound in bounds_of(limits, tools))


def _sub_agents(
    agent: Agent, base: Limits, subagent_tools: SubagentTools, tools_of: ToolsOf | None
) -> SubAgents | None:
    """Every sub-agent that can be reached, each at the smallest depth at which it can."""
    found: dict[str, CertifiedSubAgent] = {}
    level = dict(subagent_tools(agent))
    for depth in range(1, MAX_DEPTH + 1):
        below: dict[str, Agent] = {}
        for name, one in level.items():
            may_call = subagent_tools(one) if depth < MAX_DEPTH else {}
            found[name] = CertifiedSubAgent(
                tool=name, agent=one.name, depth=depth, calls=tuple(may_call), bounds=_bounds(one, base, {}, tools_of)
            )
            below |= may_call
        level = {name: one for name, one in below.items() if name not in found}
    return SubAgents(leases=LEASES, max_depth=MAX_DEPTH, agents=tuple(found.values())) if found else None


def _stamp() -> ChartStamp:
    lines = "".join(f"{row.name} {row.reason or ''}\n" for row in ROWS)
    return ChartStamp(version=VERSION, rows=len(ROWS), digest=hashlib.sha256(lines.encode()).hexdigest())


def _certified(bound: Bound, limits: Limits, written: Mapping[str, SetBy]) -> CertifiedBound:
    settings = tuple(
        AgentSetting.model_validate({"field": name, "value": getattr(limits, name), "set_by": written[name]})
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
