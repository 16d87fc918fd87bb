"""Turnwright drives one turn of an LLM agent as an explicit finite-state machine."""

from . import startup  # noqa: F401 (the first of all: see there)

# isort: split
from typing import TYPE_CHECKING

from turnwright_states import EndReason, Limits, Outcome, State, Usage

from .agent import Agent, Budget
from .answers import Reply, deny, grant
from .budgets import Budgets
from .engine import Engine
from .errors import (
    BadAnswer,
    CannotDrive,
    ConfigError,
    EngineClosedError,
    Fenced,
    RuntimeUnavailable,
    SessionBusy,
    StoreError,
    StoreReplacedError,
    TurnBusy,
    TurnEnded,
    TurnwrightError,
    UnknownTurn,
    UnreadableTurnError,
)
from .late import late
from .message import FilePart, Message
from .result import TurnResult
from .setup import FinishedCall, Price
from .store import QUEUED, TurnRow
from .subagent import AgentTool, agent_tool
from .team import agent_tools
from .tools import Ask, Tool, ToolContext, ToolError, ToolResult, tool

# A turn is run without them: agents made in code need no YAML, and few ask what bounds one.
if TYPE_CHECKING:
    from .agents_md import AgentFileError, find_agent, load_agents, parse_agents
    from .certificate import Certificate
    from .opencode_md import load_opencode_agents
else:
    _HOMES = {
        "AgentFileError": ".agents_md",
        "Certificate": ".certificate",
        "find_agent": ".agents_md",
        "load_agents": ".agents_md",
        "load_opencode_agents": ".opencode_md",
        "parse_agents": ".agents_md",
    }
    __getattr__, __dir__ = late(__name__, _HOMES)

__all__ = [
    "QUEUED",
    "Agent",
    "AgentFileError",
    "AgentTool",
    "Ask",
    "BadAnswer",
    "Budget",
    "Budgets",
    "CannotDrive",
    "Certificate",
    "ConfigError",
    "EndReason",
    "Engine",
    "EngineClosedError",
    "Fenced",
    "FilePart",
    "FinishedCall",
    "Limits",
    "Message",
    "Outcome",
    "Price",
    "Reply",
    "RuntimeUnavailable",
    "SessionBusy",
    "State",
    "StoreError",
    "StoreReplacedError",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolResult",
    "TurnBusy",
    "TurnEnded",
    "TurnResult",
    "TurnRow",
    "TurnwrightError",
    "UnknownTurn",
    "UnreadableTurnError",
    "Usage",
    "agent_tool",
    "agent_tools",
    "deny",
    "find_agent",
    "grant",
    "load_agents",
    "load_opencode_agents",
    "parse_agents",
    "tool",
]
