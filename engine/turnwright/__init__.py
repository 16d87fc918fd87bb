"""Turnwright drives one turn of an LLM agent as an explicit finite-state machine."""

from ._base import startup  # noqa: F401 (must be imported first: see there)

# isort: split
from typing import TYPE_CHECKING

from turnwright_states import EndReason, Limits, Outcome, State, ToolCallLimits, Usage
from turnwright_states.facts import TrippedGuardrail

from ._base.lazy_imports import lazy_imports
from .agent import Agent, Compact
from .context import TurnContext, TurnInfo
from .driver.subagents import AgentTool, agent_tool, agent_tools
from .engine import Engine
from .errors import (
    CannotRunError,
    ConfigError,
    EngineClosedError,
    InvalidAnswerError,
    LeaseLostError,
    NoOutputError,
    Retry,
    RuntimeUnavailableError,
    SessionBusyError,
    SessionNotFoundError,
    StoreError,
    StoreReplacedError,
    TurnAlreadyEndedError,
    TurnBusyError,
    TurnNotFoundError,
    TurnwrightError,
    UnreadableTurnError,
)
from .journal.answers import Answer, approve, reject
from .journal.dependencies import FinishedCall
from .message import FilePart, Message
from .model.prices import Price
from .model_settings import ModelSettings
from .result import TurnResult
from .store import QUEUED, SessionInfo, TurnRow
from .tools import Ask, Tool, ToolContext, ToolError, ToolResult, tool

# Running a turn needs none of these: agents made in code need no YAML, and few ask for a certificate.
if TYPE_CHECKING:
    from .agents.certificate import Certificate
    from .agents.markdown import AgentFileError, find_agent, load_agents, parse_agents
    from .agents.opencode import load_opencode_agents
    from .hooks.decisions import (
        CallView,
        ChangeArguments,
        ChangeRequest,
        Reject,
        RequireApproval,
        ReturnResult,
        ToolDecision,
        Trip,
    )
    from .hooks.guardrails import (
        Guardrail,
        input_guardrail,
        output_guardrail,
        tool_input_guardrail,
        tool_output_guardrail,
    )
    from .hooks.hooks import Hooks, after_model, after_tool, before_model, before_tool, on_end, on_start
    from .runtime.handle import TurnHandle
else:
    _HOMES = {
        "AgentFileError": ".agents.markdown",
        "CallView": ".hooks.decisions",
        "Certificate": ".agents.certificate",
        "ChangeArguments": ".hooks.decisions",
        "ChangeRequest": ".hooks.decisions",
        "Guardrail": ".hooks.guardrails",
        "Hooks": ".hooks.hooks",
        "Reject": ".hooks.decisions",
        "RequireApproval": ".hooks.decisions",
        "ReturnResult": ".hooks.decisions",
        "ToolDecision": ".hooks.decisions",
        "Trip": ".hooks.decisions",
        "TurnHandle": ".runtime.handle",
        "after_model": ".hooks.hooks",
        "after_tool": ".hooks.hooks",
        "before_model": ".hooks.hooks",
        "before_tool": ".hooks.hooks",
        "find_agent": ".agents.markdown",
        "input_guardrail": ".hooks.guardrails",
        "load_agents": ".agents.markdown",
        "load_opencode_agents": ".agents.opencode",
        "on_end": ".hooks.hooks",
        "on_start": ".hooks.hooks",
        "output_guardrail": ".hooks.guardrails",
        "parse_agents": ".agents.markdown",
        "tool_input_guardrail": ".hooks.guardrails",
        "tool_output_guardrail": ".hooks.guardrails",
    }
    __getattr__, __dir__ = lazy_imports(__name__, _HOMES)

__all__ = [
    "QUEUED",
    "Agent",
    "AgentFileError",
    "AgentTool",
    "Answer",
    "Ask",
    "CallView",
    "CannotRunError",
    "Certificate",
    "ChangeArguments",
    "ChangeRequest",
    "Compact",
    "ConfigError",
    "EndReason",
    "Engine",
    "EngineClosedError",
    "FilePart",
    "FinishedCall",
    "Guardrail",
    "Hooks",
    "InvalidAnswerError",
    "LeaseLostError",
    "Limits",
    "Message",
    "ModelSettings",
    "NoOutputError",
    "Outcome",
    "Price",
    "Reject",
    "RequireApproval",
    "Retry",
    "ReturnResult",
    "RuntimeUnavailableError",
    "SessionBusyError",
    "SessionInfo",
    "SessionNotFoundError",
    "State",
    "StoreError",
    "StoreReplacedError",
    "Tool",
    "ToolCallLimits",
    "ToolContext",
    "ToolDecision",
    "ToolError",
    "ToolResult",
    "Trip",
    "TrippedGuardrail",
    "TurnAlreadyEndedError",
    "TurnBusyError",
    "TurnContext",
    "TurnHandle",
    "TurnInfo",
    "TurnNotFoundError",
    "TurnResult",
    "TurnRow",
    "TurnwrightError",
    "UnreadableTurnError",
    "Usage",
    "after_model",
    "after_tool",
    "agent_tool",
    "agent_tools",
    "approve",
    "before_model",
    "before_tool",
    "find_agent",
    "input_guardrail",
    "load_agents",
    "load_opencode_agents",
    "on_end",
    "on_start",
    "output_guardrail",
    "parse_agents",
    "reject",
    "tool",
    "tool_input_guardrail",
    "tool_output_guardrail",
]
