"""The certificate of an agent's turns: each bound, its formula, and who set its value.

The JSON Schema is in `docs/certificate.schema.json`. A change of the format needs another number in `SCHEMA`.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from turnwright._base.field_docs import describe_fields
from turnwright.agent import Agent
from turnwright.agents.bounds import EXACTNESS, Bound, Exactness, bounds_of, class_of, reply_bound
from turnwright.model.model_settings import ModelSettings
from turnwright_states import EndReason, Limits, ToolCallLimits
from turnwright_states.chart import ROWS, VERSION
from turnwright_states.limits import MAX_DEPTH

from .certified_code import CertifiedCode, Part
from .tree_bounds import OneTurn, TreeBounds, tree_bounds

Format = Literal["turnwright/certificate/2"]
SCHEMA: Final[Format] = "turnwright/certificate/2"

#: Returns the sub-agents that a turn of an agent may call, by their tool names.
SubagentTools = Callable[[Agent], Mapping[str, Agent]]
#: Returns the tools, hooks and guardrails of an agent's turns.
CodeOf = Callable[[Agent], CertifiedCode]

LEASES: Final = (
    "after a reply and its own calls, each of the k sub-agent calls in the reply gets floor(rest / k) of the remaining"
    " tool calls and tokens, and rest / k of the remaining cost; the lower of this lease and the sub-agent's own bounds"
    " applies; unused parts return to the caller; a lease of 0 is refused; steps are the sub-agent's own, time is the"
    " caller's"
)


class SetBy(StrEnum):
    """The origin of a value."""

    AGENT = "agent"
    CONFIGURATION = "configuration"
    DEFAULT = "default"
    CEILING = "ceiling"


def _add_head(schema: dict[str, JsonValue], model: type[BaseModel]) -> None:
    describe_fields(schema, model)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"


class ChartStamp(Part):
    """The version of the chart that decides the turns."""

    version: int
    """Changes with every change of a row."""
    rows: int
    """The number of rows."""
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of the rows in order, one line each: name and reason, in UTF-8."""


class AgentSetting(Part):
    """One field of `Limits`, with its value and who set it."""

    field: str
    """The name of the field."""
    value: int | float | str | None
    """The value as set; null means unset, or no limit."""
    set_by: Literal[SetBy.AGENT, SetBy.CONFIGURATION, SetBy.DEFAULT]
    """The agent (its file, or code), the configuration (the engine's limits, the command line), or the default."""


class CertifiedBound(Part):
    """One bound of a turn."""

    bound: str
    """The name of the bound."""
    value: int | float | None
    """The maximum; null if the bound is off."""
    formula: str
    """The formula of the value, with the names of the settings."""
    set_by: SetBy
    """The source of `field`, or of the ceiling if `steps` is unset or above it."""
    field: str
    """The setting to change first. The formula uses it."""
    settings: tuple[AgentSetting, ...]
    """Every setting in the formula, `field` first, each with its origin."""
    exactness: Exactness
    """Whether the bound can be overshot, and by what."""
    exactness_means: str
    """The same in words."""
    reason: EndReason | None
    """The reason of a turn that this bound ends; null if it ends none by itself."""

    @property
    def shown(self) -> str:
        """The value as people read it."""
        return "off" if self.value is None else f"{self.value:.15g}"

    def __str__(self) -> str:
        return f"{self.bound}: {self.shown} (set by: {self.set_by}; {self.formula})"


class CertifiedSubAgent(Part):
    """A sub-agent that turns of the agent, or of its sub-agents, may call."""

    tool: str
    """The name of its tool."""
    agent: str
    """The name of the agent."""
    depth: int
    """The smallest depth of a call: 1 if the agent itself calls it. Each sub-agent is listed once."""
    calls: tuple[str, ...]
    """The sub-agents that it may call, by `tool`; none at the greatest depth."""
    bounds: tuple[CertifiedBound, ...]
    """Every bound of its own turns, before a lease lowers any."""
    reply: CertifiedBound
    """The bound of one reply of its model."""
    code: CertifiedCode | None
    """Its tools, hooks and guardrails; null if they are unknown."""


class SubAgents(Part):
    """The sub-agents that a turn may call, and the limits that they share with it."""

    leases: str
    """The rule for their shares, in words."""
    max_depth: int
    """The maximum depth; deeper calls are refused."""
    calls: tuple[str, ...]
    """The sub-agents that the agent itself may call, by `tool`."""
    agents: tuple[CertifiedSubAgent, ...]
    """The reachable sub-agents, by increasing depth."""
    tree: TreeBounds
    """The bounds of a turn of the agent together with all turns below it."""


class Certificate(Part):
    """Every bound of an agent's turns: its value, its formula, who set it, and how exact it is."""

    model_config = ConfigDict(title="Turnwright certificate", json_schema_extra=_add_head)

    # pydantic has a method named `schema`.
    schema_: Annotated[Format, Field(alias="schema")]
    """The name and version of this format."""
    agent: str
    """The agent's name."""
    chart: ChartStamp
    """The version of the chart that decides the turns."""
    bounds: tuple[CertifiedBound, ...]
    """Every bound, also bounds that are off."""
    reply: CertifiedBound
    """The bound of one reply of the model."""
    code: CertifiedCode | None
    """The tools, hooks and guardrails; null if they are unknown."""
    sub_agents: SubAgents | None = None
    """The sub-agents that it may call, which share its budgets; absent if there are none."""

    def __str__(self) -> str:
        """Return a line for each bound."""
        lines = [f"  {bound}" for bound in (*self.bounds, self.reply)]
        below = [] if self.sub_agents is None else [f"  sub-agents: {', '.join(self.sub_agents.calls)}"]
        return "\n".join([f"A turn of agent {self.agent!r} is bounded by:", *lines, *below])

    def to_json(self) -> dict[str, JsonValue]:
        """Return the certificate as JSON values, with the names of its schema. `from_json` reads it back."""
        # Without sub-agents the key is left out, so that readers without support for it can read the certificate.
        without = {"sub_agents"} if self.sub_agents is None else set[str]()
        data: dict[str, JsonValue] = self.model_dump(mode="json", by_alias=True, exclude=without)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, JsonValue]) -> Self:
        """Read a certificate from `to_json`. Raises `ValidationError` for data that the schema does not allow."""
        return cls.model_validate_json(json.dumps(dict(data)), strict=True)


def certificate(
    agent: Agent,
    engine_limits: Limits | None = None,
    *,
    steps: int | None = None,
    tool_timeout: float | None = None,
    subagent_tools: SubagentTools | None = None,
    code_of: CodeOf | None = None,
    model_settings: ModelSettings | None = None,
) -> Certificate:
    """Return the certificate of this agent's turns.

    `engine_limits` are the engine's limits, by default `Limits()`. `steps` and `tool_timeout` are the command line's
    values, which replace the agent's. `subagent_tools` returns the sub-agents of an agent; without it there are none.
    `code_of` returns the tools of an agent, whose class selects the tool-call limit, and its hooks; without it the
    class is `default`. `model_settings` are the engine's. A value has the origin that set it last, even to the same
    value. A value that was never set has the origin `default`. Raises pydantic's `ValidationError` for values out of
    range.
    """
    issuer = _Issuer(Limits() if engine_limits is None else engine_limits, code_of, model_settings)
    flags: dict[str, int | float | None] = {}
    if steps is not None:
        flags["steps"] = Limits(steps=steps).steps
    if tool_timeout is not None:
        flags["tool_timeout"] = Limits(tool_timeout=tool_timeout).tool_timeout
    bounds = issuer.bounds(agent, flags)
    # As a mapping, because type checkers do not accept the alias `schema` as an argument.
    return Certificate.model_validate(
        {
            "schema": SCHEMA,
            "agent": agent.name,
            "chart": _stamp(),
            "bounds": bounds,
            "reply": issuer.reply(agent, bounds),
            "code": issuer.code(agent),
            "sub_agents": None if subagent_tools is None else issuer.sub_agents(agent, bounds, subagent_tools),
        }
    )


class _Issuer:
    """Makes the parts of certificates under one engine."""

    def __init__(self, base: Limits, code_of: CodeOf | None, settings: ModelSettings | None) -> None:
        self._base = base
        self._code_of = code_of
        self._settings = ModelSettings() if settings is None else settings

    def code(self, agent: Agent) -> CertifiedCode | None:
        return None if self._code_of is None else self._code_of(agent)

    def bounds(self, agent: Agent, flags: Mapping[str, int | float | None]) -> tuple[CertifiedBound, ...]:
        limits, base = agent.limits_for(self._base).model_copy(update=flags), self._base
        set_by = (
            dict.fromkeys(Limits.model_fields, SetBy.DEFAULT)
            | dict.fromkeys(base.model_fields_set, SetBy.CONFIGURATION)
            | dict.fromkeys(agent.overrides, SetBy.AGENT)
            | dict.fromkeys(flags, SetBy.CONFIGURATION)
        )
        code = self.code(agent)
        tools = None if code is None or code.tools is None else class_of(code.tools)
        calls = limits.tool_calls
        if isinstance(calls, ToolCallLimits) and (tools or "default") not in calls.model_fields_set:
            set_by["tool_calls"] = SetBy.DEFAULT
        values = dict(limits.for_tools(tools or "default"))
        return tuple(_certify_bound(bound, values, set_by) for bound in bounds_of(limits, tools))

    def reply(self, agent: Agent, bounds: tuple[CertifiedBound, ...]) -> CertifiedBound:
        """Return the bound of one reply: the model setting `max_tokens`, and the budget of tokens."""
        own_settings, base = agent.model_settings or ModelSettings(), self._settings
        most, tokens = own_settings.over(base).max_tokens, agent.limits_for(self._base).tokens
        reply_set_by = (
            SetBy.AGENT if own_settings.max_tokens else SetBy.CONFIGURATION if base.max_tokens else SetBy.DEFAULT
        )
        of_tokens = next(bound.set_by for bound in bounds if bound.bound == "tokens")
        return _certify_bound(
            reply_bound(most, tokens),
            {"max_tokens": most, "tokens": tokens},
            {"max_tokens": reply_set_by, "tokens": of_tokens},
        )

    def sub_agents(
        self, agent: Agent, bounds: tuple[CertifiedBound, ...], subagent_tools: SubagentTools
    ) -> SubAgents | None:
        """Return every reachable sub-agent with its smallest depth, or None."""
        agents: dict[str, CertifiedSubAgent] = {}
        first = level = dict(subagent_tools(agent))
        for depth in range(1, MAX_DEPTH + 1):
            below: dict[str, Agent] = {}
            for name, sub_agent in level.items():
                may_call = subagent_tools(sub_agent) if depth < MAX_DEPTH else {}
                own_bounds = self.bounds(sub_agent, {})
                agents[name] = CertifiedSubAgent(
                    tool=name,
                    agent=sub_agent.name,
                    depth=depth,
                    calls=tuple(may_call),
                    bounds=own_bounds,
                    reply=self.reply(sub_agent, own_bounds),
                    code=self.code(sub_agent),
                )
                below |= may_call
            level = {name: sub_agent for name, sub_agent in below.items() if name not in agents}
        if not agents:
            return None
        callers = {name: (_one_turn(sub_agent.bounds), sub_agent.calls) for name, sub_agent in agents.items()}
        return SubAgents(
            leases=LEASES,
            max_depth=MAX_DEPTH,
            calls=tuple(first),
            agents=tuple(agents.values()),
            tree=tree_bounds((_one_turn(bounds), tuple(first)), callers, MAX_DEPTH),
        )


def _one_turn(bounds: tuple[CertifiedBound, ...]) -> OneTurn:
    return OneTurn.of({bound.bound: bound.value for bound in bounds})


def _stamp() -> ChartStamp:
    lines = "".join(f"{row.name} {row.reason or ''}\n" for row in ROWS)
    return ChartStamp(version=VERSION, rows=len(ROWS), digest=hashlib.sha256(lines.encode()).hexdigest())


def _certify_bound(bound: Bound, values: Mapping[str, object], set_by: Mapping[str, SetBy]) -> CertifiedBound:
    settings = tuple(
        AgentSetting.model_validate({"field": name, "value": values[name], "set_by": set_by[name]})
        for name in bound.settings
    )
    first = settings[0]
    steps, ceiling = values.get("steps"), values.get("ceiling")
    within = isinstance(steps, int) and isinstance(ceiling, int) and steps <= ceiling
    by_ceiling = first.field == "steps" and not within
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
