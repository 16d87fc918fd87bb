"""Traces of turns, ours and other runtimes': one event a line, checked against the invariants of a turn."""

from .check import check_events, check_trace
from .claims import Claim
from .events import (
    BadTrace,
    Message,
    ModelCalled,
    ModelFailed,
    ModelReplied,
    Paused,
    Resumed,
    ToolResult,
    ToolRetried,
    ToolStarted,
    TraceCall,
    TraceEvent,
    TraceLimits,
    TurnEnded,
    TurnStarted,
    read_event,
    write_event,
)

__all__ = [
    "BadTrace",
    "Claim",
    "Message",
    "ModelCalled",
    "ModelFailed",
    "ModelReplied",
    "Paused",
    "Resumed",
    "ToolResult",
    "ToolRetried",
    "ToolStarted",
    "TraceCall",
    "TraceEvent",
    "TraceLimits",
    "TurnEnded",
    "TurnStarted",
    "check_events",
    "check_trace",
    "read_event",
    "write_event",
]
