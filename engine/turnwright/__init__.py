"""Turnwright drives one turn of an LLM agent as an explicit finite-state machine."""

from ._base import startup  # noqa: F401 (must be imported first: see there)

# isort: split
from ._base.lazy_imports import lazy_imports

# Each name is imported at its first use: `turnwright --version` needs none of them, and few commands need all.
TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from turnwright.model.model_settings import ModelSettings
    from turnwright_states import Decision, EndReason, Limits, Outcome, State, ToolCallLimits, Usage
    from turnwright_states.facts import TrippedGuardrail

    from .agent import Agent, Compact
    from .agents.markdown import AgentFileError, find_agent, load_agents, parse_agents
    from .agents.opencode import load_opencode_agents
    from .context import TurnContext, TurnInfo
    from .driver.dependencies import FinishedCall
    from .driver.hooks.decisions import (
        CallView,
        ChangeArguments,
        ChangeRequest,
        Reject,
        RequireApproval,
        ReturnResult,
        ToolDecision,
        Trip,
    )
    from .driver.hooks.guardrails import (
        Guardrail,
        input_guardrail,
        output_guardrail,
        tool_input_guardrail,
        tool_output_guardrail,
    )
    from .driver.hooks.hooks import Hooks, after_model, after_tool, before_model, before_tool, on_end, on_start
    from .driver.subagents import AgentTool, agent_tool, agent_tools
    from .errors import (
        AlreadySettledError,
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
        TurnConflictError,
        TurnExistsError,
        TurnNotFoundError,
        TurnwrightError,
        UnreadableTurnError,
    )
    from .journal.answers import Answer, Answering, approve, reject, settled
    from .journal.links import Links
    from .journal.notices import Notice, webhook
    from .journal.result import TurnResult
    from .journal.standing_approvals import StandingApproval
    from .message import FilePart, Message
    from .model.prices import Price
    from .runtime.engine import Engine
    from .runtime.handle import TurnHandle
    from .runtime.turn_stream import SyncTurnStream, TurnStream
    from .store import QUEUED, SessionInfo, TurnRow
    from .tools import Ask, Tool, ToolContext, ToolError, ToolResult, tool
    from .tools.later import ExternalTool, Later, external_tool, wait_tool
    from .transcript.events import (
        DeltaEvent,
        FactEvent,
        OutputDeltaEvent,
        ReasoningDeltaEvent,
        ResponseRestartedEvent,
        ResponseWithdrawnEvent,
        StreamEvent,
        TextDeltaEvent,
        ToolCallDeltaEvent,
        ToolProgressEvent,
        TurnEndedEvent,
        TurnEvent,
        TurnPausedEvent,
    )
    from .transcript.interrupt import Interrupt
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "turnwright_states": "Decision EndReason Limits Outcome State ToolCallLimits Usage",
            "turnwright_states.facts": "TrippedGuardrail",
            ".agent": "Agent Compact",
            ".agents.markdown": "AgentFileError find_agent load_agents parse_agents",
            ".agents.opencode": "load_opencode_agents",
            ".context": "TurnContext TurnInfo",
            ".driver.dependencies": "FinishedCall",
            ".driver.hooks.decisions": (
                "CallView ChangeArguments ChangeRequest Reject RequireApproval ReturnResult ToolDecision Trip"
            ),
            ".driver.hooks.guardrails": (
                "Guardrail input_guardrail output_guardrail tool_input_guardrail tool_output_guardrail"
            ),
            ".driver.hooks.hooks": "Hooks after_model after_tool before_model before_tool on_end on_start",
            ".driver.subagents": "AgentTool agent_tool agent_tools",
            ".errors": (
                "AlreadySettledError CannotRunError ConfigError EngineClosedError InvalidAnswerError LeaseLostError "
                "NoOutputError Retry RuntimeUnavailableError SessionBusyError SessionNotFoundError StoreError "
                "StoreReplacedError TurnAlreadyEndedError TurnBusyError TurnConflictError TurnExistsError "
                "TurnNotFoundError TurnwrightError UnreadableTurnError"
            ),
            ".journal.answers": "Answer Answering approve reject settled",
            ".journal.links": "Links",
            ".journal.notices": "Notice webhook",
            ".journal.result": "TurnResult",
            ".journal.standing_approvals": "StandingApproval",
            ".message": "FilePart Message",
            ".model.prices": "Price",
            ".runtime.engine": "Engine",
            ".runtime.handle": "TurnHandle",
            ".runtime.turn_stream": "SyncTurnStream TurnStream",
            ".store": "QUEUED SessionInfo TurnRow",
            ".tools": "Ask Tool ToolContext ToolError ToolResult tool",
            ".tools.later": "ExternalTool Later external_tool wait_tool",
            ".transcript.events": (
                "DeltaEvent FactEvent OutputDeltaEvent ReasoningDeltaEvent ResponseRestartedEvent "
                "ResponseWithdrawnEvent StreamEvent TextDeltaEvent ToolCallDeltaEvent ToolProgressEvent "
                "TurnEndedEvent TurnEvent TurnPausedEvent"
            ),
            ".transcript.interrupt": "Interrupt",
            ".model.model_settings": "ModelSettings",
        },
    )

__all__ = [
    "QUEUED",
    "Agent",
    "AgentFileError",
    "AgentTool",
    "AlreadySettledError",
    "Answer",
    "Answering",
    "Ask",
    "CallView",
    "CannotRunError",
    "ChangeArguments",
    "ChangeRequest",
    "Compact",
    "ConfigError",
    "Decision",
    "DeltaEvent",
    "EndReason",
    "Engine",
    "EngineClosedError",
    "ExternalTool",
    "FactEvent",
    "FilePart",
    "FinishedCall",
    "Guardrail",
    "Hooks",
    "Interrupt",
    "InvalidAnswerError",
    "Later",
    "LeaseLostError",
    "Limits",
    "Links",
    "Message",
    "ModelSettings",
    "NoOutputError",
    "Notice",
    "Outcome",
    "OutputDeltaEvent",
    "Price",
    "ReasoningDeltaEvent",
    "Reject",
    "RequireApproval",
    "ResponseRestartedEvent",
    "ResponseWithdrawnEvent",
    "Retry",
    "ReturnResult",
    "RuntimeUnavailableError",
    "SessionBusyError",
    "SessionInfo",
    "SessionNotFoundError",
    "StandingApproval",
    "State",
    "StoreError",
    "StoreReplacedError",
    "StreamEvent",
    "SyncTurnStream",
    "TextDeltaEvent",
    "Tool",
    "ToolCallDeltaEvent",
    "ToolCallLimits",
    "ToolContext",
    "ToolDecision",
    "ToolError",
    "ToolProgressEvent",
    "ToolResult",
    "Trip",
    "TrippedGuardrail",
    "TurnAlreadyEndedError",
    "TurnBusyError",
    "TurnConflictError",
    "TurnContext",
    "TurnEndedEvent",
    "TurnEvent",
    "TurnExistsError",
    "TurnHandle",
    "TurnInfo",
    "TurnNotFoundError",
    "TurnPausedEvent",
    "TurnResult",
    "TurnRow",
    "TurnStream",
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
    "external_tool",
    "find_agent",
    "input_guardrail",
    "load_agents",
    "load_opencode_agents",
    "on_end",
    "on_start",
    "output_guardrail",
    "parse_agents",
    "reject",
    "settled",
    "tool",
    "tool_input_guardrail",
    "tool_output_guardrail",
    "wait_tool",
    "webhook",
]
