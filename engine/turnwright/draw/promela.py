"""The chart as a Promela model, for SPIN: a second machine, built from the same rows, that anyone can check.

The model has two parts. This module prints the chart's rows and guards. `environment.pml` has everything that can
happen to a turn, and the effects of each row. It is written by hand from the rules (docs/rules.md) and not from the
shipped code: because the two are independent, a fault in one reading of the rules shows as a difference.

Within the bounds, one model has every combination of limits: SPIN chooses them as it chooses the model's replies.
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
from turnwright_states.state import LIVE, State, Trigger

#: Larger bounds would not fit the model's bytes; the search runs out of memory long before.
_LARGEST: Final = 15
#: The largest allowance, budget and batch of a turn with hooks. Such a turn has one pause at most.
_HOOKED: Final = 2

#: The sentence of each claim, by its name in the model.
CLAIMS: Final[Mapping[str, str]] = {
    "ends": "every turn ends, given a person who answers or leaves",
    "stays_ended": "no final state is left",
    "steps_within_allowance": "steps <= allowance",
    "calls_within_budget": "started calls <= budget",
    "model_calls_within_formula": "model calls <= (allowance + 1) x (1 + max_retries) + 2 x max_compactions",
    "no_step_on_a_spent_budget": "no step starts on a spent budget",
    "asked_again_once": "a conclusion without text is asked for again once at most",
    "nothing_is_overdrawn": "no retry, pause, nudge, output retry or compaction is taken that is not left",
    "nothing_follows_an_answer": "no step starts and no conclusion is asked for after a call gave the answer",
    "closed_steps_are_settled": "every call of a closed step has its result",
    "every_event_finds_a_row": "every event that can come finds a row",
    "reasons_fit_their_outcomes": "each ending has a reason that its outcome allows",
}

#: The states and events in which the model keeps a value for a name. Names that are missing here hold everywhere.
_KNOWN: Final[Mapping[str, frozenset[State | Trigger]]] = {
    **dict.fromkeys(("doom", "time_spent", "idle"), frozenset({State.CHECK})),
    **dict.fromkeys(("tokens_spent", "cost_spent"), frozenset({State.CHECK, Trigger.COMPACTED})),
    "retries_left": LIVE,
    **{name: frozenset(triggers) for name, (triggers, _) in PASSING.items()},
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
    """The bounds of one model: each limit is chosen from 0 to its bound.

    A turn with hooks, reviews and compactions has at most 2 steps, 2 calls, 2 calls in a reply and 1 pause, because the
    model would not fit in memory otherwise.

    Raises `ConfigError` for a bound that is not a whole number from 0 to 15, and for a `batch` of 0, because a model
    without tool calls has nothing to check.
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
    output_retries: int = 1
    """Replies that may be refused."""
    compactions: int = 1
    """Compactions of the conversation."""
    batch: int = 3
    """Calls of the widest reply, 1 to 15."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            least = 1 if field.name == "batch" else 0
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
                raise ConfigError(f"{field.name} must be a whole number from {least} to {_LARGEST}, not {value!r}")


def to_promela(chart: Chart = CHART, bounds: Bounds | None = None) -> str:
    """Return the model of a chart, the same text each time.

    `bounds` are the largest limits; None means the defaults of `Bounds`. Raises `ConfigError` when a guard reads a name
    in a state where the model keeps no value for it.
    """
    bounds = bounds or Bounds()
    _check(chart.rows)
    defines = {
        "MAX_ALLOWANCE": bounds.allowance,
        "MAX_BUDGET": bounds.budget,
        "MAX_RETRIES": bounds.retries,
        "MAX_PAUSES": bounds.pauses,
        "MAX_NUDGES": bounds.nudges,
        "MAX_OUTPUT_RETRIES": bounds.output_retries,
        "MAX_COMPACTIONS": bounds.compactions,
        "WIDEST_BATCH": bounds.batch,
        "HOOKED_ALLOWANCE": min(bounds.allowance, _HOOKED),
        "HOOKED_BUDGET": min(bounds.budget, _HOOKED),
        "HOOKED_PAUSES": min(bounds.pauses, 1),
        "HOOKED_BATCH": min(bounds.batch, _HOOKED),
    }
    return "".join(
        (
            _HEAD,
            *(f"#define {name:<18} {value}\n" for name, value in defines.items()),
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
    """Map the lines of a model to the rows of the chart, both from 1, because SPIN reports lines."""
    lines = enumerate(model.splitlines(), start=1)
    return {number: int(found[1]) for number, line in lines if (found := re.search(r"-> row = (\d+);", line))}


def _names(title: str, names: Iterator[str] | type[State | Trigger]) -> str:
    return f"/* {title}. */\nmtype = {{ {', '.join(names)} }};\n"


def _why(reason: EndReason) -> str:
    # The prefix avoids a clash with the events and the flags, some of which have the same names.
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
    """Return the index of the first row of the same state and trigger: rows tried together are printed together."""
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
        # The printed text has no shorthands, so it shows every name.
        for name in re.findall(r"[a-z_]+", row.guard.promela):
            if not _KNOWN.get(name, {row.source}) & {row.source, row.trigger}:
                where = " and ".join(sorted(_KNOWN[name]))
                raise ConfigError(
                    f"row {number} ({row.name}) reads `{name}`, which the model keeps only in {where}: "
                    "set it earlier in environment.pml, and add the state to `_KNOWN` in promela.py"
                )
