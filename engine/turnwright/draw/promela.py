"""The chart as a Promela model, for SPIN: a second machine, built from the same rows, that anyone can check.

The model has two parts. The chart's rows and guards are printed here, from the chart alone. What can happen to a turn
and what follows from a row stands in `environment.pml`, written by hand from the design (DESIGN 2 to 4) and not from
the code that ships: that the two are independent is the point. The same chart under two readings of the rules cannot
hide a fault of one of them.

Within the bounds, every combination of limits is in one model: SPIN chooses them as it chooses what the model replies.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from itertools import groupby
from typing import Final

from turnwright.errors import ConfigError
from turnwright_states.chart import CHART, Chart, ReasonFrom, Row
from turnwright_states.counters import PASSING
from turnwright_states.reasons import EndReason
from turnwright_states.state import State, Trigger

#: Larger bounds would not fit the model's bytes; the states run out of memory long before.
_LARGEST: Final = 15

#: What each claim of the model says, by its name there.
CLAIMS: Final[Mapping[str, str]] = {
    "ends": "every turn ends, given a person who answers or leaves",
    "stays_ended": "no final state is left",
    "steps_within_allowance": "steps <= allowance",
    "calls_within_budget": "started calls <= budget",
    "model_calls_within_formula": "model calls <= (allowance + 1) x (1 + max_retries)",
    "no_step_on_a_spent_budget": "no step starts on a spent budget",
    "asked_again_once": "a conclusion without text is asked for again once at most",
    "nothing_is_overdrawn": "no retry, pause or nudge is taken that is not left",
    "closed_steps_are_settled": "every call of a closed step has its result",
    "every_event_finds_a_row": "every event that can come finds a row",
    "reasons_fit_their_outcomes": "each ending has a reason that its outcome allows",
}

#: Where a guard can trust a name; elsewhere the model keeps no value for it. All other names hold everywhere.
_KNOWN: Final[Mapping[str, frozenset[State | Trigger]]] = {
    **dict.fromkeys(("doom", "tokens_spent", "cost_spent", "time_spent"), frozenset({State.CHECK})),
    "retries_left": frozenset({State.STREAM, State.TOOL_EXEC, State.CONCLUDE, State.TEXT_ONLY}),
    **{name: frozenset({trigger}) for name, (trigger, _) in PASSING.items()},
}

_HEAD: Final = """\
/* One turn of an agent: the chart, and everything that can happen to it.
 *
 * Made by `turnwright diagram`: the rows from states/turnwright_states/chart.py, the rest from
 * engine/turnwright/draw/environment.pml. Edit those, not this. `turnwright verify --spin` checks it; by hand:
 *
 *   spin -a turn.pml && cc -O2 -o pan pan.c && ./pan -a -f -N ends     (likewise each `ltl` at the end; -f: fairness)
 *   spin -DNOBODY_ELSE -a turn.pml && cc -O2 -DSAFETY -DNOCLAIM -o pan pan.c && ./pan
 *                                               (deadlocks; and what it calls unreached: rows that are never taken)
 */

/* Every combination of limits up to these is checked in one run. */
"""

_CHART: Final = """
/* ---- The chart --------------------------------------------------------------------------------------------------
 *
 * Generated: each row with its number and its name. The rows of a state and an event are tried in order, and the first
 * whose guard holds is taken. It names the next state and, where it ends the turn or begins to, the reason; `given` is
 * the reason that comes with the event, and a row into an end without a reason keeps the one that is carried.
 * An event that no row accepts changes nothing: `row` stays 0.
 */

"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far one model reaches: each limit is chosen from 0 to its bound.

    Raises `ConfigError` for a bound that is no whole number from 0 to 15, and for a `batch` of 0: without a tool call
    there is nothing to check.
    """

    allowance: int = 3
    """Steps that may call tools."""
    budget: int = 3
    """Tool calls of the turn; no budget at all is always among the choices."""
    retries: int = 1
    """Further attempts in each phase."""
    pauses: int = 2
    """Times that the turn may pause."""
    nudges: int = 1
    """Hints before the response to a doom loop."""
    batch: int = 3
    """Calls of the widest reply, 1 to 15."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            least = 1 if field.name == "batch" else 0
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
                raise ConfigError(f"{field.name} must be a whole number from {least} to {_LARGEST}, not {value!r}")


def to_promela(chart: Chart = CHART, bounds: Bounds | None = None) -> str:
    """The model of a chart, the same text each time.

    `bounds` says how far it reaches; None means the defaults of `Bounds`. Raises `ConfigError` when a guard asks for
    something where the model has no value for it.
    """
    bounds = bounds or Bounds()
    _check(chart.rows)
    defines = {
        "MAX_ALLOWANCE": bounds.allowance,
        "MAX_BUDGET": bounds.budget,
        "MAX_RETRIES": bounds.retries,
        "MAX_PAUSES": bounds.pauses,
        "MAX_NUDGES": bounds.nudges,
        "WIDEST_BATCH": bounds.batch,
    }
    return "".join(
        (
            _HEAD,
            *(f"#define {name:<13} {value}\n" for name, value in defines.items()),
            "\n",
            _names("The states", State),
            _names("The events", Trigger),
            _names("The reasons", (_why(reason) for reason in EndReason)),
            _CHART,
            "\n".join(_machine(chart.rows)),
            "\n\n",
            (files("turnwright.draw") / "environment.pml").read_text(encoding="utf-8"),
        )
    )


def rows_by_line(model: str) -> dict[int, int]:
    """Which row of the chart stands on which line of a model, both from 1: for reading what SPIN says of a line."""
    lines = enumerate(model.splitlines(), start=1)
    return {number: int(found[1]) for number, line in lines if (found := re.search(r"-> row = (\d+);", line))}


def _names(title: str, names: Iterator[str] | type[State | Trigger]) -> str:
    return f"/* {title}. */\nmtype = {{ {', '.join(names)} }};\n"


def _why(reason: EndReason) -> str:
    # Set apart from the events and the flags, some of which have the same names.
    return f"why_{reason}"


def _machine(rows: tuple[Row, ...]) -> Iterator[str]:
    numbered = sorted(enumerate(rows, start=1), key=lambda one: _place(one[1], rows))
    yield "inline take_the_first_row_that_holds() {"
    yield "  if"
    for _, group in groupby(numbered, key=lambda one: (one[1].source, one[1].trigger)):
        yield from _group(tuple(group))
    yield "  :: else"
    yield "  fi"
    yield "}"


def _place(row: Row, rows: tuple[Row, ...]) -> int:
    """Where the first row of the same state and trigger stands: what is tried together is printed together."""
    return next(at for at, one in enumerate(rows) if (one.source, one.trigger) == (row.source, row.trigger))


def _group(group: tuple[tuple[int, Row], ...]) -> Iterator[str]:
    first = group[0][1]
    yield f"  :: state == {first.source} && event == {first.trigger} ->"
    before = ""
    for number, row in group:
        yield f"     /* {number}. {row.name} */"
        yield f"     {before}if :: {row.guard.promela} -> row = {number}; state = {row.dest}{_reason(row)}"
        before = ":: else -> "
    yield "     :: else"
    yield f"     {' '.join(['fi'] * len(group))}"


def _reason(row: Row) -> str:
    match row.reason:
        case EndReason() as reason:
            return f"; reason = {_why(reason)}"
        case ReasonFrom.CAUSE | ReasonFrom.EVENT:
            return "; reason = given"
        case _:
            return ""


def _check(rows: tuple[Row, ...]) -> None:
    for number, row in enumerate(rows, start=1):
        # Read from what is printed, so that shorthands are seen through.
        for name in re.findall(r"[a-z_]+", row.guard.promela):
            if not _KNOWN.get(name, {row.source}) & {row.source, row.trigger}:
                where = " and ".join(sorted(_KNOWN[name]))
                raise ConfigError(
                    f"row {number} ({row.name}) asks for `{name}`, which the model knows only in {where}: "
                    "let environment.pml settle it earlier, and say so in promela.py"
                )
