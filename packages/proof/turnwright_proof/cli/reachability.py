"""Reads the goal of `verify --can-reach ... --with ...`, and draws the path through the chart that reaches it."""

import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pydantic import JsonValue, ValidationError

from turnwright.errors import ConfigError
from turnwright_proof.texts import describe_guard
from turnwright_proof.verify import ENDS, Case, Counterexample, Edge, Goal, event_name, retrace
from turnwright_proof.verify.case import ABILITIES
from turnwright_states import REASONS, REASONS_OF, Input, Limits, Outcome, State, Trigger
from turnwright_states.chart import CHART, Row

#: The inputs of a machine, as `--with` spells them, and the chart's own shorter names for some.
EVENTS: Final = frozenset({event_name(kind) for kind in Input.__subclasses__()} - {"started"}) | frozenset(Trigger)
_FIELDS: Final = (*Limits.model_fields, "widest", *ABILITIES)
#: The abilities in words.
_WORDS: Final = {
    "synthesis": "a synthesis",
    "delegates": "sub-agents",
    "hooked": "hooks and guardrails",
    "waits": "results from outside",
}
_WIDTH: Final = 96
_LINE: Final = "    │  "


def read_goal(reach: str, conditions: Iterable[str]) -> tuple[Goal, dict[str, object]]:
    """Return the goal, and the values that the cases must have, by field.

    `reach` is an outcome (`cap_hit`), both an outcome and a reason (`cap_hit/budget`), or a reason (`deadline`). A
    condition is a state (`PAUSED`), an event (`abort`), or `FIELD=VALUE`. Raises `ConfigError` for anything else, with
    the possible values.
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
            choices = f"states: {', '.join(State)}; events: {', '.join(sorted(EVENTS))}; or FIELD=VALUE of a limit"
            raise ConfigError(f"--with {condition}: no such state or event ({choices})")
    return Goal(_ends(reach), frozenset(states), frozenset(events)), values


def _ends(reach: str) -> frozenset[str]:
    goal_text = reach.lower()  # the chart writes final states in capitals
    ends = {end for end in ENDS if goal_text in (end, end.split("/")[0])} or {
        e for e in ENDS if e.split("/")[1] == goal_text
    }
    if not ends and reach.upper() in State.__members__:
        state = reach.upper()
        raise ConfigError(f"--can-reach {reach}: is a state, not an ending: use --can-reach END --with {state}")
    if not ends:
        choices = "; ".join(f"{outcome}: {', '.join(sorted(REASONS_OF[outcome]))}" for outcome in Outcome)
        hint = "name an outcome, OUTCOME/REASON or a reason"
        raise ConfigError(f"--can-reach {reach}: no such end: {hint} ({choices})")
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


def narrow_cases(cases: Iterable[Case], values: dict[str, object]) -> list[Case]:
    matching_cases = list(cases)
    for name, value in values.items():
        narrowed_cases = [_with(case, name, value) for case in matching_cases]
        # Cases of the grid come first: of several shortest paths, theirs is shown. By their texts, since the rules of a
        # case are data, which has no hash.
        known_cases = set(map(repr, matching_cases))
        matching_cases = list(
            {
                repr(case): case for case in sorted(narrowed_cases, key=lambda case: repr(case) not in known_cases)
            }.values()
        )
    return matching_cases


def _with(case: Case, name: str, value: object) -> Case:
    if name == "widest":
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= case.limits.max_calls_per_step:
            raise ConfigError(
                f"--with widest={value}: must be a whole number from 1 to {case.limits.max_calls_per_step}"
            )
        return case._replace(widest=value)
    if name in ABILITIES:
        if not isinstance(value, bool):
            raise ConfigError(f"--with {name}={value}: must be true or false")
        ability: dict[str, Any] = {name: value}
        return case._replace(**ability)
    try:
        limits = Limits.model_validate(case.limits.model_dump() | {name: value})
    except ValidationError as error:
        raise ConfigError(f"--with {name}={value}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    return case._replace(limits=limits)


def draw_search(witness: Counterexample) -> Iterator[str]:
    """Return the limits of the case and the path, line by line. A row has its number in the chart, from 1."""
    path, machine = retrace(witness.case, witness.events)
    yield from limits_of(witness.case)
    yield ""
    yield f"  {path[0].source}"
    for edge in path:
        yield from _draw_edge(edge)
    turn = machine.turn
    if turn.reason is not None:  # set at every end
        also = f" (also reached: {', '.join(turn.also_reached)})" if turn.also_reached else ""
        yield from _wrap(f"{turn.reason}: {REASONS[turn.reason].means}{also}", "    ", "    ")


def _draw_edge(edge: Edge) -> Iterator[str]:
    yield from _wrap(edge.happened, _LINE, _LINE)
    for row in edge.rows:
        number = f"{_number(row)}  "
        yield from _wrap(_row_text(row), f"    ├─ {number}", _LINE + " " * len(number))
        yield "    ▼"
        yield f"  {row.dest}"


def _row_text(row: Row) -> str:
    guard = f" [{describe_guard(row.guard)}]" if row.guard.text else ""
    return f"{row.trigger}{guard}" + (f" / {row.reason}" if row.reason else "")


def _number(row: Row) -> int:
    return CHART.rows.index(row) + 1


def limits_of(case: Case) -> Iterator[str]:
    """Return the limits of a case that differ from the defaults, and its environment."""
    limits = ", ".join(
        f"{name}={'none' if value is None else value}"
        for name, value in case.limits.model_dump(exclude_defaults=True).items()
    )
    yield from _wrap(limits or "the defaults", "  limits  ", " " * 10)
    extras = [f"batches of up to {case.widest} call{'s' * (case.widest > 1)}"]
    extras += [_WORDS[name] for name in ABILITIES if getattr(case, name)]
    extras += [f"rules ({', '.join(str(rule['name']) for rule in case.rules)})"] if case.rules else []
    yield from _wrap(", ".join(extras), "  with    ", " " * 10)


def _wrap(text: str, first: str, then: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=then)


def json_of_witness(witness: Counterexample) -> dict[str, JsonValue]:
    path, machine = retrace(witness.case, witness.events)
    turn = machine.turn
    case = witness.case
    return {
        "end": f"{turn.state.outcome}/{turn.reason}",
        "also_reached": [str(reason) for reason in turn.also_reached],
        "limits": case.limits.model_dump(mode="json"),
        "widest": case.widest,
        **{name: getattr(case, name) for name in ABILITIES},
        "rules": [rule["name"] for rule in case.rules],
        "path": [
            {
                "happened": edge.happened,
                "event": edge.event,
                "from": edge.source,
                "to": edge.dest,
                "rows": [{"number": _number(row), "row": row.name} for row in edge.rows],
            }
            for edge in path
        ],
    }
