"""The meaning of rules over a trace, by their definitions. It shares no code with the monitors.

The rules are small: a condition is one field of a call, or of its result, and `same` compares one field
(`rule_walk.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from turnwright_states.rules import ANSWER, UNKNOWN, Condition, Scene, Truth
from turnwright_states.rules.pattern import names_tool

#: The name of the field that decides a condition: of the arguments, of the result, of the judged call, or in a text.
PartKind: TypeAlias = Literal["always", "status", "args", "result", "this", "text"]
Fields: TypeAlias = Mapping[str, object]
#: A value of a compared field that no call has.
_MISSING: Final = None


class SmallPart(NamedTuple):
    """A tool, or a glob, of a rule, and the field that decides its condition. `status` keeps its condition."""

    tool: str
    kind: PartKind = "always"
    field: str = ""
    condition: Condition | None = None


class SmallRule(NamedTuple):
    """A rule as its definition reads it: its parts by the words of its form, one tuple for each call of `not_both`."""

    name: str
    parts: Mapping[str, tuple[tuple[SmallPart, ...], ...]]
    #: The field that calls have in common; empty if the rule compares none.
    key: str = ""
    #: Whether the key of the judged call, and of the other call, is in its result.
    judged_in_result: bool = False
    other_in_result: bool = False
    once: bool = False
    most: int = 0


class Event(NamedTuple):
    """A start, the outcome of a start, a message of the user, or an answer.

    `start` is the place of the start in the trace: of itself, or of the outcome. `allowed` are the rules that people
    allowed the call to break.
    """

    kind: Literal["start", "outcome", "message", "answer"]
    start: int = 0
    tool: str = ""
    fields: tuple[tuple[str, object], ...] = ()
    status: str = ""
    text: str = ""
    allowed: frozenset[str] = frozenset()


Trace: TypeAlias = tuple[Event, ...]


def breaks(rule: SmallRule, trace: Trace) -> bool:
    """Return whether the last event of a trace breaks a rule: a start, or an answer."""
    event = trace[-1]
    if event.kind == "start":
        return any(_breaks_start(rule, trace, *roles) for roles in _roles(rule))
    return event.kind == "answer" and _breaks_answer(rule, trace)


def _roles(rule: SmallRule) -> Iterator[tuple[Sequence[SmallPart], Sequence[SmallPart]]]:
    """Yield the judged parts, and the other parts of each."""
    parts = rule.parts
    if "not_both" in parts:
        pairs = [
            (judged_parts, counted_parts)
            for judged_parts in parts["not_both"]
            for counted_parts in parts["not_both"]
            if judged_parts is not counted_parts
        ]
        yield from pairs
    elif "need" in parts:
        yield parts["before"][0], parts["need"][0]
    elif "never" in parts:
        yield parts["never"][0], parts["after"][0] if "after" in parts else ()
    elif "of" in parts:
        yield parts["of"][0], parts["of"][0]


def _breaks_start(
    rule: SmallRule, trace: Trace, judged_parts: Sequence[SmallPart], counted_parts: Sequence[SmallPart]
) -> bool:
    call, before = trace[-1], trace[:-1]
    if _matches(judged_parts, trace, len(before)) is False:
        return False
    if "never" in rule.parts and not counted_parts:
        return True
    key = dict(call.fields).get(rule.key)
    if rule.key and key is _MISSING:
        return True
    starts = [
        place
        for place, event in enumerate(before)
        if event.kind in ("start", "message") and _matches(counted_parts, before, place, at=len(before)) is not False
    ]
    if "need" in rule.parts:
        return not _is_met(rule, trace, key)
    keys = [_read_key(rule, before, place, in_result=rule.other_in_result) for place in starts]
    if "of" in rule.parts:
        return sum(not rule.key or other_key == key for other_key in keys) >= rule.most
    return any(not rule.key or other_key in (key, _MISSING) for other_key in keys)


def _breaks_answer(rule: SmallRule, trace: Trace) -> bool:
    before = trace[:-1]
    if "then" in rule.parts:
        return any(
            event.kind in ("start", "message")
            and _matches(rule.parts["after"][0], before, place, at=len(before)) is not False
            and not _is_followed(rule, before, place)
            for place, event in enumerate(before)
        )
    parts = rule.parts.get("before", ((),))[0]
    judged_parts = [part for part in parts if part.tool == ANSWER]
    return (
        _matches(judged_parts, trace, len(before)) is not False
        and bool(judged_parts)
        and not _is_met(rule, trace, _MISSING)
    )


def _is_followed(rule: SmallRule, before: Trace, opened_at: int) -> bool:
    """Return whether a needed call that started after `opened_at` ended ok."""
    for start, end in _ok_calls(before):
        if start <= opened_at:
            continue
        key = _read_key(rule, before, start, in_result=rule.other_in_result)
        opened_key = _read_key(rule, before[:end], opened_at, in_result=rule.judged_in_result)
        is_same = not rule.key or (key is not _MISSING and opened_key in (key, _MISSING))
        if is_same and _matches(rule.parts["then"][0], before, start, at=end + 1) is True:
            return True
    return False


def _is_met(rule: SmallRule, trace: Trace, key: object) -> bool:
    """Return whether the latest ok call of a needed tool allows the last event, and was not used up."""
    before = trace[:-1]
    needed_parts = rule.parts["need"][0]
    latest: dict[str, tuple[int, int]] = {}
    for start, end in _ok_calls(before):
        tool = before[start].tool
        own_key = _read_key(rule, before, start, in_result=rule.other_in_result)
        if any(names_tool(part.tool, tool) for part in needed_parts) and (
            not rule.key or (own_key is not _MISSING and own_key == key)
        ):
            latest[tool] = start, end
    last_use = -1
    if rule.once:
        uses = [
            place
            for place, event in enumerate(before)
            if event.kind == "start" and _matches(rule.parts["before"][0], before, place, at=len(before)) is not False
        ]
        uses = [place for place in uses if not rule.key or dict(before[place].fields).get(rule.key) in (key, _MISSING)]
        last_use = max(uses, default=-1)
    return any(
        end > last_use and _matches(needed_parts, trace, start, at=end + 1, judged_place=len(before)) is True
        for start, end in latest.values()
    )


def _ok_calls(trace: Trace) -> Iterator[tuple[int, int]]:
    """Yield the places of the start and of the end of each call that ran and was ok, in the order of their ends."""
    for place, event in enumerate(trace):
        if event.kind == "message":
            yield place, place
        elif event.kind == "outcome" and event.status == "ok":
            yield event.start, place


def _read_key(rule: SmallRule, trace: Trace, place: int, *, in_result: bool) -> object:
    """Return the compared field of a call; missing in a result that has not come, or that the call did not have."""
    if in_result and _status(trace, place, len(trace)) not in ("ok", "error"):
        return _MISSING
    return dict(trace[place].fields).get(rule.key)


def _status(trace: Trace, start: int, at: int) -> str:
    """Return how a call ended before a place of the trace; empty if it had not."""
    if trace[start].kind == "message":
        return "ok"
    outcomes = (event for event in trace[start:at] if event.kind == "outcome" and event.start == start)
    return next((outcome.status for outcome in outcomes), "")


def _matches(
    parts: Sequence[SmallPart], trace: Trace, place: int, *, at: int | None = None, judged_place: int | None = None
) -> Truth:
    """Return whether the event at a place matches a part, as it was known before the place `at`."""
    event = trace[place]
    status = _status(trace, place, place + 1 if at is None else at)
    truth: Truth = False
    for part in parts:
        if not names_tool(part.tool, event.tool):
            continue
        value = _holds(part, event, status, trace[judged_place] if judged_place is not None else None)
        if value is True:
            return True
        truth = UNKNOWN if value is UNKNOWN else truth
    return truth


def _holds(part: SmallPart, event: Event, status: str, judged_event: Event | None) -> Truth:
    match part.kind:
        case "always":
            return True
        case "status":
            return part.condition(Scene(status=status or UNKNOWN)) if part.condition is not None else True
        case "text":
            return part.field in event.text
        case "result" if status not in ("ok", "error"):
            return UNKNOWN
        case "this":
            value = None if judged_event is None else dict(judged_event.fields).get(part.field)
        case _:
            value = dict(event.fields).get(part.field)
    return bool(value) if value is not None else UNKNOWN
