"""Makes a failing case smaller, as long as it fails in the same way."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright.model.scripted import asks_for
from turnwright_testing.reached import Reached

from .desk import Desk
from .rehearsal import Fault, Rehearsal, Script
from .visit import Reply, Visit, Visits

#: Seconds of real time that a hang costs in an attempt, and those that all attempts may take: less for a fault that
#: costs real time.
_PATIENCE: Final = 1.0
_MOST_SECONDS: Final = 10.0
_FEW_SECONDS: Final = 5.0
_PLAIN: Final = Visit()


def play_case(desk: Desk, case: Visits) -> Rehearsal:
    """Play a case once more."""
    return Rehearsal(desk, Script(case), Reached(), patience=_PATIENCE).play()


def shrink(desk: Desk, case: Visits, fault: Fault, *, progress: Callable[[], None]) -> tuple[Visits, Fault]:
    """Return the smallest case that was found with a fault of the same kind, and that fault."""
    end = time.monotonic() + (_FEW_SECONDS if fault.is_timed else _MOST_SECONDS)
    again = True
    while again:
        again = False
        for smaller in _smaller(desk, case):
            if time.monotonic() > end:
                return case, fault
            progress()
            rehearsal = play_case(desk, smaller)
            same_fault = next((new for new in rehearsal.faults if new.kind == fault.kind), None)
            if same_fault is not None and _size(tuple(rehearsal.visits)) < _size(case):
                case, fault, again = tuple(rehearsal.visits), same_fault, True
                break
    return case, fault


def _size(case: Visits) -> tuple[int, ...]:
    replies = [reply for visit in case for reply in visit.replies]
    calls = [call for reply in replies if isinstance(reply, ModelResponse) for call in reply.calls]
    # Without `endless`, a visit has at least one more reply, and the answer after it.
    count = len(replies) + sum(2 * visit.endless for visit in case)
    events = sum((visit.dies_at or 0) + (visit.interjection or (0, None))[0] for visit in case)
    flags = events + sum(visit.together for visit in case)
    prompts = sum(visit.prompt != _PLAIN.prompt for visit in case)
    answers = sum(len(answers) for visit in case for answers in (*visit.answers, visit.people))
    arguments = sum(_weight(call.arguments) for call in calls)
    return len(case), len(calls), count, flags, prompts, answers, arguments


def _weight(value: object) -> int:
    """Return the size of an argument: its items, its characters, and the digits of its numbers."""
    if isinstance(value, Mapping):
        return 1 + sum(map(_weight, value.values()))
    if isinstance(value, list | tuple):
        return 1 + sum(map(_weight, value))
    return len(str(value))


def _smaller(desk: Desk, case: Visits) -> Iterator[Visits]:
    """Return smaller cases, those first from which most is gone."""
    if len(case) > 1:
        for place in range(len(case)):
            yield (*case[:place], *case[place + 1 :])
    for place, visit in enumerate(case):
        for smaller in _smaller_visits(desk, visit):
            yield (*case[:place], smaller, *case[place + 1 :])
            for earlier in _earlier(smaller):
                yield (*case[:place], earlier, *case[place + 1 :])


def _earlier(visit: Visit) -> Iterator[Visit]:
    """Return the visit with its crash or its interjection at an earlier call: calls before it may be gone."""
    if visit.dies_at is not None:
        yield from (replace(visit, dies_at=call) for call in range(1, visit.dies_at))
    if visit.interjection is not None:
        last, text = visit.interjection
        yield from (replace(visit, interjection=(call, text)) for call in range(1, last))


def _smaller_visits(desk: Desk, visit: Visit) -> Iterator[Visit]:
    replies = visit.replies
    half = len(replies) // 2
    if half:
        yield replace(visit, replies=replies[:half])
        yield replace(visit, replies=replies[half:])
    for place in range(len(replies)):
        yield replace(visit, replies=(*replies[:place], *replies[place + 1 :]))
    plain_prompt = (desk.prompts or (_PLAIN.prompt,))[0]
    for plain in (
        {"dies_at": None},
        {"interjection": None},
        {"endless": False},
        {"together": False},
        {"answers": ()},
        {"people": ()},
        {"prompt": plain_prompt},
    ):
        if any(getattr(visit, name) != value for name, value in plain.items()):
            yield replace(visit, **plain)
    yield from _earlier(visit)
    for place, reply in enumerate(replies):
        for smaller in _smaller_replies(desk, reply):
            yield replace(visit, replies=(*replies[:place], smaller, *replies[place + 1 :]))


def _smaller_replies(desk: Desk, reply: Reply) -> Iterator[Reply]:
    if not isinstance(reply, ModelResponse):
        return
    calls = reply.calls
    if len(calls) > 1:
        for place in range(len(calls)):
            yield asks_for(*calls[:place], *calls[place + 1 :])
    for place, call in enumerate(calls):
        for smaller in _smaller_calls(desk, call):
            yield asks_for(*calls[:place], smaller, *calls[place + 1 :])


def _smaller_calls(desk: Desk, call: ResponseToolCall) -> Iterator[ResponseToolCall]:
    """Return the call without one of its optional arguments, or with a shorter list."""
    tool = next((tool for tool in desk.tools if tool.name == call.name), None)
    required_names = tool.parameters.get("required", []) if tool is not None else []
    needed_names = required_names if isinstance(required_names, list) else []
    for name, value in (call.arguments or {}).items():
        remaining = {key: item for key, item in (call.arguments or {}).items() if key != name}
        if name not in needed_names:
            yield msgspec.structs.replace(call, arguments=remaining)
        if isinstance(value, list | tuple) and value:
            yield msgspec.structs.replace(call, arguments={**remaining, name: [*value[:-1]]})
