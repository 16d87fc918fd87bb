"""Traces of turns, from any runtime: one event a line, checked against the invariants of a turn."""

from .check import TurnCheck, check_events, check_trace, check_turns
from .events import (
    InvalidTraceError,
    TraceCall,
    TraceEvent,
    TraceLimits,
    TraceMessage,
    TraceModelCalled,
    TraceModelFailed,
    TraceModelReplied,
    TracePaused,
    TraceResumed,
    TraceToolResult,
    TraceToolRetried,
    TraceToolStarted,
    TraceTurnEnded,
    TraceTurnStarted,
    read_event,
    write_event,
)
from .history import Fault as TraceFault
from .history import TraceClaim

__all__ = [
    "InvalidTraceError",
    "TraceCall",
    "TraceClaim",
    "TraceEvent",
    "TraceFault",
    "TraceLimits",
    "TraceMessage",
    "TraceModelCalled",
    "TraceModelFailed",
    "TraceModelReplied",
    "TracePaused",
    "TraceResumed",
    "TraceToolResult",
    "TraceToolRetried",
    "TraceToolStarted",
    "TraceTurnEnded",
    "TraceTurnStarted",
    "TurnCheck",
    "check_events",
    "check_trace",
    "check_turns",
    "read_event",
    "write_event",
]
