"""Turnwright drives one turn of an LLM agent as an explicit finite-state machine."""

from ._base import startup  # noqa: F401 (must be imported first: see there)

# isort: split
from typing import TYPE_CHECKING

from turnwright_states import EndReason, Limits, Outcome, State, ToolCallLimits, Usage

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
from .runtime.handle import TurnHandle
from .store import QUEUED, SessionInfo, TurnRow
from .tools import Ask, Tool, ToolContext, ToolError, ToolResult, tool

# Running a turn needs none of these: agents made in code need no YAML, and few ask for a certificate.
if TYPE_CHECKING:
    from .agents.certificate import Certificate
    from .agents.markdown import AgentFileError, find_agent, load_agents, parse_agents
    from .agents.opencode import load_opencode_agents
else:
    _HOMES = {
        "AgentFileError": ".agents.markdown",
        "Certificate": ".agents.certificate",
        "find_agent": ".agents.markdown",
        "load_agents": ".agents.markdown",
        "load_opencode_agents": ".agents.opencode",
        "parse_agents": ".agents.markdown",
    }
    __getattr__, __dir__ = lazy_imports(__name__, _HOMES)

__all__ = [
    "QUEUED",
    "Agent",
    "AgentFileError",
    "AgentTool",
    "Answer",
    "Ask",
    "CannotRunError",
    "Certificate",
    "Compact",
    "ConfigError",
    "EndReason",
    "Engine",
    "EngineClosedError",
    "FilePart",
    "FinishedCall",
    "InvalidAnswerError",
    "LeaseLostError",
    "Limits",
    "Message",
    "ModelSettings",
    "NoOutputError",
    "Outcome",
    "Price",
    "Retry",
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
    "ToolError",
    "ToolResult",
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
    "agent_tool",
    "agent_tools",
    "approve",
    "find_agent",
    "load_agents",
    "load_opencode_agents",
    "parse_agents",
    "reject",
    "tool",
]
