"""Makes the machine's input of a model's reply, and the events of its pieces.

A model may be foreign code, so pydantic checks the reply: 19 us for a reply with two calls. Most replies hold only
strings and numbers, which a quick test finds in 5 us. A test holds both ways equal.
"""

import math
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from turnwright._base.frozen import MOST_NESTED, deeper_than
from turnwright.model.protocol import Delta, ModelResponse, ReasoningDelta, ResponseToolCall, TextDelta
from turnwright.transcript.events import ReasoningDeltaEvent, StreamEvent, TextDeltaEvent, ToolCallDeltaEvent
from turnwright_states import Finish, ModelRepliedInput, ToolCall, Usage
from turnwright_states.construct import construct_checked, construct_unchecked
from turnwright_states.payload import FrozenDict

#: The problem of a call whose arguments are nested too deep.
TOO_DEEP: Final = f"the arguments nest more than {MOST_NESTED} lists and objects: send flatter ones"

_SIMPLE: Final = frozenset({str, int, bool, type(None)})
#: Names of arguments. A parser makes each name anew for each call, and turns in flight keep all of their calls.
_NAMES: Final[dict[str, str]] = {}
_MOST_NAMES: Final = 1_000
_LONGEST_NAME: Final = 64


def settled_input(
    call: ResponseToolCall,
    *,
    problem: str = "",
    loop_key: str | None = None,
    ignore_in_loop_detection: bool = False,
    delegates: bool = False,
    output: bool = False,
    reaches: tuple[str, ...] = (),
) -> ToolCall:
    """Return a call of a reply as the machine takes it. Arguments that are nested too deep are dropped.

    Raises `InvalidInputError` for a malformed call.
    """
    fine = type(call.name) is str and call.name.isascii() and type(call.raw) is str and type(call.id) is str
    arguments = call.arguments
    # Frozen once for everybody who receives the call. The slow way copies too: a model may use its own arguments again.
    flat = _flat(arguments) if fine and arguments is not None and type(arguments) in (dict, FrozenDict) else None
    if flat is not None:
        make, arguments = construct_unchecked, FrozenDict(flat)
    else:
        make = construct_checked
        if isinstance(arguments, Mapping) and deeper_than(dict(arguments), MOST_NESTED):
            arguments, loop_key, problem = None, None, TOO_DEEP
    return make(
        ToolCall,
        name=call.name,
        arguments=arguments,
        raw=call.raw,
        provider_id=call.id,
        problem=problem,
        loop_key=loop_key,
        ignore_in_loop_detection=ignore_in_loop_detection,
        delegates=delegates,
        output=output,
        reaches=reaches,
    )


def replied_input(
    reply: ModelResponse, calls: tuple[ToolCall, ...], usage: Usage | None, elapsed: float, *, starts: bool = False
) -> ModelRepliedInput:
    """Return a complete reply with its calls and its priced usage, as the machine takes it. `starts`: its calls start.

    Raises `InvalidInputError` for a malformed reply.
    """
    fine = type(reply.text) is str and type(reply.reasoning) is str and type(reply.finish) is Finish
    simple = fine and not reply.reasoning_details and (usage is None or type(usage) is Usage)
    make = construct_unchecked if simple else construct_checked
    return make(
        ModelRepliedInput,
        text=reply.text,
        reasoning=reply.reasoning,
        reasoning_details=reply.reasoning_details or (),
        calls=calls,
        finish=reply.finish,
        usage=usage,
        starts=starts,
        elapsed=elapsed,
    )


def delta_event(turn: str, seq: int, index: int, delta: Delta) -> StreamEvent:
    """Return the event of a piece of a reply."""
    if isinstance(delta, TextDelta):
        return TextDeltaEvent(turn, seq, index, delta.text)
    if isinstance(delta, ReasoningDelta):
        return ReasoningDeltaEvent(turn, seq, index, delta.text)
    return ToolCallDeltaEvent(turn, seq, index, delta.call_index, delta.tool, delta.arguments_delta)


def _flat(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    """Return a copy of a flat JSON object, or None for another value."""
    copy: dict[str, JsonValue] = {}
    for name, value in arguments.items():
        if type(name) is not str:
            return None
        kind = type(value)
        if kind not in _SIMPLE and not (kind is float and math.isfinite(value)):  # type: ignore[arg-type]  # it is a float
            return None
        if name not in _NAMES and len(_NAMES) < _MOST_NAMES and len(name) <= _LONGEST_NAME:
            _NAMES[name] = name
        copy[_NAMES[name] if name in _NAMES else name] = value  # noqa: SIM401 (`get` is a call)
    return copy
