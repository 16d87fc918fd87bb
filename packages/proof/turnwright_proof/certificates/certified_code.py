"""The code of an agent in its certificate: tools, hooks and guardrails, as far as they matter for its bounds."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from turnwright._base.field_docs import describe_fields
from turnwright_states.limits import TOOL_TIMEOUT

Asks = Literal["always", "perhaps", "never"]
Reviews = Literal["always", "sometimes", "never"]


class Part(BaseModel):
    """A part of a certificate."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=describe_fields)


class CertifiedTool(Part):
    """A tool that the agent may use."""

    tool: str
    """The name of the tool."""
    read_only: bool | None
    """True if no call changes anything, false if a call may, null if unknown. It selects the tool-call limit."""
    delegates: bool
    """Whether a call runs a sub-agent."""
    timeout: float | None = TOOL_TIMEOUT
    """The most seconds of one call: the tool's own `timeout`, or else the limit `tool_timeout`. Null means no limit:
    one of the two is None, or the call runs a sub-agent, whose turn has limits of its own."""
    asks: Asks
    """Whether a call asks a person. `perhaps`: code decides, or the tool receives a context, with which it may ask."""
    returns_direct: bool
    """Whether the result of a successful call may be the turn's answer: always, or where the result says so."""
    retries: int
    """The requests for another try, by `Retry`, after which the tool is still called."""
    retry_requests: int
    """The most requests for another try in one turn: `retries` + 1. Further calls are refused."""


class CertifiedHook(Part):
    """Hooks of the engine or the agent."""

    name: str
    """The name in the journal."""
    on: tuple[str, ...]
    """The hooks that it has."""


class CertifiedGuardrail(Part):
    """A guardrail of the engine or the agent."""

    name: str
    """The name in the journal."""
    checks: str
    """The object of its check: `input`, `output`, `tool_input` or `tool_output`."""


class CertifiedCode(Part):
    """The tools, hooks and guardrails of an agent's turns."""

    tools: tuple[CertifiedTool, ...] | None
    """The tools that the agent may use, sub-agents included; null if some of them are unknown."""
    hooks: tuple[CertifiedHook, ...]
    """The hooks, the engine's before the agent's."""
    guardrails: tuple[CertifiedGuardrail, ...]
    """The guardrails, the engine's before the agent's."""
    typed: bool
    """Whether the answer has a type, so that a reply may be refused."""

    def has_hook(self, on: str) -> bool:
        """Return whether a hook of this kind is asked."""
        return any(on in hook.on for hook in self.hooks)

    def checks(self, kind: str) -> bool:
        """Return whether a guardrail checks this kind of object."""
        return any(guardrail.checks == kind for guardrail in self.guardrails)

    @property
    def endless_tools(self) -> tuple[str, ...]:
        """The tools that may take for ever."""
        return tuple(tool.tool for tool in self.tools or () if tool.timeout is None and not tool.delegates)

    @property
    def may_refuse(self) -> bool:
        """Whether a reply may be refused, so that the model answers again."""
        return self.typed or self.has_hook("after_model")

    @property
    def reviews(self) -> Reviews:
        """Whether replies are reviewed. Input guardrails review only the first step, and only if they are not done."""
        if self.may_refuse or self.checks("output"):
            return "always"
        return "sometimes" if self.checks("input") else "never"

    @property
    def may_ask(self) -> bool:
        """Whether a call of a tool of its own may ask a person. A hook before calls may require an approval."""
        unknown = self.tools is None or self.has_hook("before_tool")
        return unknown or any(tool.asks != "never" for tool in self.tools or ())
