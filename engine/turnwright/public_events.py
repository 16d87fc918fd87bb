"""The part of an event that may leave your server: an allow-list, field by field.

The conversation is public: what people, the model and the tools said, which calls ran, what a person is asked, and how
the turn ended. The rest is not: the agent's instructions, limits, imported history, the caller's context and session,
the model's reasoning, what providers add to their replies, prices, and errors, which may name hosts and files. A field
that is in no list here is private, so a new one is private until somebody decides otherwise.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

#: What is public of a value: all of it, or of an object (of each object in a list) the fields that are named.
Rule = Mapping[str, "Rule"] | None

_ALL: Final = None
_TOKENS: Final[Rule] = {"input_tokens": _ALL, "output_tokens": _ALL}
#: Of a file neither its content nor its address, which may be signed.
_FILES: Final[Rule] = {"media_type": _ALL, "name": _ALL, "size": _ALL}


def _of(*names: str, **rules: Rule) -> dict[str, Rule]:
    return dict.fromkeys(names, _ALL) | rules


_INTERRUPT: Final[Rule] = _of("id", "kind", "call", "tool", "arguments", "question", "choices", "grant", "expires_at")
_INTERRUPTS: Final[Rule] = _of("id", "kind", "tool", "question", "arguments", "choices", "expires_at")
_CALLS: Final[Rule] = _of("id", "name", "arguments", "raw", "refused", "invalid")

#: Fields of every line.
_OF_EVERY_LINE: Final = _of("type", "turn", "seq", "elapsed", "state")

PUBLIC: Final[Mapping[str, Mapping[str, Rule]]] = {
    "turn_started": _of(
        "prompt", "parent_turn", "parent_call", "depth", "continue_from", agent={"name": _ALL}, files=_FILES
    ),
    "step_started": _of("number", "nudge", "started_at", "message"),
    "model_replied": _of("text", "finish", calls=_CALLS, usage=_TOKENS),
    "attempt_failed": _of("attempt", "cause", "retry", "partial", "wait", usage=_TOKENS),
    "call_started": _of("call", "tool", "attempt", "child"),
    "call_settled": _of("call", "tool", "status", "result", "structured", files=_FILES),
    "call_waiting": _of("call", "tool", interrupt=_INTERRUPT),
    "paused": _of("tools", interrupts=_INTERRUPTS, interrupt=_INTERRUPT),
    "synthesized": _of("text", "tools"),
    "answered": _of("interrupt", "decision", "text", "grant"),
    "step_finished": _of("number", "seconds", "tools", usage=_TOKENS),
    "stopping": _of("reason", "also_reached", "partial", usage=_TOKENS),
    "message_added": _of("text"),
    "concluded": _of("text", "refused", "retry", usage=_TOKENS),
    # The text of a sentinel quotes the error of a turn that failed.
    "turn_ended": _of(
        "outcome",
        "reason",
        "also_reached",
        "steps",
        "tool_calls",
        "text",
        "partial",
        "undelivered",
        usage=_TOKENS,
        sentinel=_of("kind", "reason", "text"),
    ),
    "notice": _of("limit", "text"),
    "text_delta": _of("index", "text"),
    "reasoning_delta": _of("index"),
    "response_restarted": {},
    "tool_progress": _of("call", "tool", "progress", "total", "message"),
}


def public_line(line: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The public part of an event's line. Of a type that is unknown here: its type, its turn and its place."""
    kind = line.get("type")
    rules = PUBLIC.get(kind, {}) if isinstance(kind, str) else {}
    public = _fields(line, {**_OF_EVERY_LINE, **rules})
    sentinel = public.get("sentinel")
    if "error" in line and isinstance(sentinel, dict):
        del sentinel["text"]
    return public


def _fields(line: Mapping[str, JsonValue], rules: Mapping[str, Rule]) -> dict[str, JsonValue]:
    return {name: _value(value, rules[name]) for name, value in line.items() if name in rules}


def _value(value: JsonValue, rule: Rule) -> JsonValue:
    if rule is None or value is None:
        return value
    if isinstance(value, list):
        return [_value(one, rule) for one in value]
    return _fields(value, rule) if isinstance(value, dict) else None
