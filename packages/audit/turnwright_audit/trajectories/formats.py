"""The formats that can be read, one line each, and how a recording's format is found."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from turnwright_audit.trajectories.readers import (
    ag_ui,
    anthropic_messages,
    atif,
    claude_code,
    codex,
    codex_exec,
    inspect_log,
    intercode,
    journals,
    mini_swe_agent,
    openai_chat,
    openai_responses,
    opencode,
    spans,
    swe_agent,
    trace,
    trae_agent,
)
from turnwright_audit.trajectories.readers.span_dump import holds_spans

from .atif import Trajectory
from .source import Recording


class Format(NamedTuple):
    """A format of recorded runs.

    `recognizes` looks at the content alone: `Recording.document` and `Recording.records`. `read` yields the runs one by
    one. It raises `UnreadableRecordingError` if there is none, and never for a run that is cut or partly corrupt.
    `exact`: the recording names its format, so it is no other one.
    """

    name: str
    title: str
    recognizes: Callable[[Recording], bool]
    read: Callable[[Recording], Iterator[Trajectory]]
    exact: bool = False


#: The first one that recognizes a recording reads it, so the more exact ones come first.
FORMATS: Final = (
    Format(trace.NAME, "traces of turns", trace.recognizes, trace.read, exact=True),
    Format("atif", "Agent Trajectory Interchange Format", atif.recognizes, atif.read, exact=True),
    Format(claude_code.NAME, "Claude Code sessions", claude_code.recognizes, claude_code.read),
    Format(codex.NAME, "Codex sessions", codex.recognizes, codex.read),
    Format(codex_exec.NAME, "events of `codex exec`", codex_exec.recognizes, codex_exec.read),
    Format(journals.NAME, "Turnwright's journals and stores", journals.recognizes, journals.read, exact=True),
    Format(ag_ui.NAME, "AG-UI events", ag_ui.recognizes, ag_ui.read),
    Format(
        "openinference",
        "OpenInference spans",
        spans.recognizes_openinference,
        partial(spans.read, format="openinference"),
    ),
    Format("opentelemetry", "OpenTelemetry GenAI spans", holds_spans, partial(spans.read, format="opentelemetry")),
    Format(inspect_log.NAME, "Inspect logs", inspect_log.recognizes, inspect_log.read),
    Format(intercode.NAME, "InterCode results", intercode.recognizes, intercode.read),
    Format(mini_swe_agent.NAME, "mini-swe-agent trajectories", mini_swe_agent.recognizes, mini_swe_agent.read),
    Format(swe_agent.NAME, "SWE-agent trajectories", swe_agent.recognizes, swe_agent.read),
    Format(trae_agent.NAME, "trae-agent trajectories", trae_agent.recognizes, trae_agent.read),
    Format(anthropic_messages.NAME, "Anthropic messages", anthropic_messages.recognizes, anthropic_messages.read),
    Format(opencode.NAME, "opencode sessions", opencode.recognizes, opencode.read),
    Format(openai_responses.NAME, "OpenAI responses", openai_responses.recognizes, openai_responses.read),
    Format(openai_chat.NAME, "OpenAI chat messages", openai_chat.recognizes, openai_chat.read),
)


def format_of(recording: Recording) -> Format | None:
    """Return the format of a recording; None if no reader knows it."""
    return next((known_format for known_format in FORMATS if _recognizes(known_format, recording)), None)


def format_named(name: str) -> Format | None:
    """Return the format with this name."""
    return next((known_format for known_format in FORMATS if known_format.name == name), None)


def _recognizes(known_format: Format, recording: Recording) -> bool:
    try:
        return known_format.recognizes(recording)
    except RecursionError:  # nested deeper than any format
        return False
