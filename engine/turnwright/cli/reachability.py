"""What `verify --can-reach ... --with ...` asks for: names and numbers, read into a goal and the cases to search."""

import json
from collections.abc import Iterable
from typing import Final

from pydantic import ValidationError

from turnwright.errors import ConfigError
from turnwright_states import REASONS_OF, Input, Limits, Outcome, State, Trigger
from turnwright_states.verify import ENDS, Case, Goal, event_name

#: The events that are fed to a machine, as `--with` spells them; the chart's own names are a shorter way to say some.
EVENTS: Final = frozenset({event_name(kind) for kind in Input.__subclasses__()} - {"started"}) | frozenset(Trigger)
_OF_A_CASE: Final = tuple(name for name in Case._fields if name != "limits")
_FIELDS: Final = (*Limits.model_fields, *_OF_A_CASE)


def read_goal(reach: str, conditions: Iterable[str]) -> tuple[Goal, dict[str, object]]:
    """The goal, and the values that the cases must have, by field.

    `reach` is an outcome (`cap_hit`), one of its reasons (`cap_hit/budget`) or a reason alone (`deadline`). A condition
    is a state (`PAUSED`), an event (`abort`), or `FIELD=VALUE`. Raises `ConfigError` for any other, with what there is.
    """
    states: set[State] = set()
    events: set[str] = set()
    values: dict[str, object] = {}
    for condition in conditions:
        name, is_field, value = (part.strip() for part in condition.partition("="))
        if is_field:
            values[_field(name, condition)] = _value(value)
        elif condition in State.__members__:
            states.add(State[condition])
        elif condition in EVENTS:
            events.add(condition)
        else:
            known = f"states: {', '.join(State)}; events: {', '.join(sorted(EVENTS))}; or FIELD=VALUE of a limit"
            raise ConfigError(f"--with {condition}: no such state or event ({known})")
    return Goal(_ends(reach), frozenset(states), frozenset(events)), values


def _ends(reach: str) -> frozenset[str]:
    wanted = reach.lower()  # the chart writes its ends in capitals
    ends = {end for end in ENDS if wanted in (end, end.split("/")[0])} or {e for e in ENDS if e.split("/")[1] == wanted}
    if not ends and reach.upper() in State.__members__:
        state = reach.upper()
        raise ConfigError(f"--can-reach {reach}: is no end, but a state on the way: --can-reach END --with {state}")
    if not ends:
        known = "; ".join(f"{outcome}: {', '.join(sorted(REASONS_OF[outcome]))}" for outcome in Outcome)
        what = "name an outcome, OUTCOME/REASON or a reason"
        raise ConfigError(f"--can-reach {reach}: no such end: {what} ({known})")
    return frozenset(ends)


def _field(name: str, condition: str) -> str:
    if name not in _FIELDS:
        raise ConfigError(f"--with {condition}: there is no limit {name!r} (there are {', '.join(_FIELDS)})")
    return name


def _value(text: str) -> object:
    if text.lower() == "none":
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def narrowed(cases: Iterable[Case], values: dict[str, object]) -> list[Case]:
    chosen = list(cases)
    for name, value in values.items():
        valued = {case: _with(case, name, value) for case in chosen}
        # Those of the grid come first: where ways are equally short, theirs is shown.
        chosen = list(dict.fromkeys(sorted(valued.values(), key=lambda case: case not in valued)))
    return chosen


def _with(case: Case, name: str, value: object) -> Case:
    if name == "widest":
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= case.limits.max_calls_per_step:
            raise ConfigError(
                f"--with widest={value}: must be a whole number from 1 to {case.limits.max_calls_per_step}"
            )
        return case._replace(widest=value)
    if name in _OF_A_CASE:
        if not isinstance(value, bool):
            raise ConfigError(f"--with {name}={value}: must be true or false")
        return case._replace(synthesis=value) if name == "synthesis" else case._replace(delegates=value)
    try:
        limits = Limits.model_validate(case.limits.model_dump() | {name: value})
    except ValidationError as error:
        raise ConfigError(f"--with {name}={value}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    return case._replace(limits=limits)
