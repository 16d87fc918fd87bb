"""Traces of turns, from any runtime: one event a line, checked against the invariants of a turn."""

from .check import check_events, check_trace
from .claims import TraceClaim
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

__all__ = [
    "InvalidTraceError",
    "TraceCall",
    "TraceClaim",
    "TraceEvent",
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
    "check_events",
    "check_trace",
    "read_event",
    "write_event",
]
