"""The numbers and flags that the chart's guards speak of: every name, what it means, and nothing else.

The same names stand in the guards, in the words of the diagrams and in the model that is checked, so this room is
the vocabulary of the chart. Money, texts and lists are not in it: a guard sees only whole numbers and flags.
"""

from typing import Final

from .limits import Limits
from .reasons import EndReason

#: Kept from event to event; part of the state.
KEPT: Final = (
    "steps",  # steps started
    "allowance",  # the steps that may call tools
    "calls",  # tool calls started, those of finished sub-agents included
    "budgeted",  # tool calls are limited; if not, `budget` is 0 and says nothing
    "budget",  # the tool calls that may start
    "tokens_spent",
    "cost_spent",
    "time_spent",
    "doom",  # the round of the step just ended tripped the detector
    "doom_asks",  # the response to a doom loop is to ask
    "nudges_left",
    "pauses_left",
    "retries_left",  # further attempts in this phase
    "waiting",  # interrupts that no person has answered
    "carried_doom",  # the reason that a conclusion carries is a doom loop
    "second_try",  # the model concluded without text, and was asked once more
)
#: Set by one event and read by the rows that it may take; not part of the state.
PASSING: Final = (
    "made",  # the calls that a reply asked for
    "filtered",  # a content filter stopped the reply
    "truncated",  # the reply was cut off at its length
    "may_pass",  # another attempt may succeed
    "no_text",  # the concluding reply has no text
    "synthesized",  # the synthesis gave a text
    "doom_asked",  # the interrupt just answered was a doom loop's
    "go_on",  # and the answer was to go on
)
NAMES: Final = KEPT + PASSING


class Counters:
    """The values of `NAMES` for one turn: whole numbers, and flags as bools."""

    __slots__ = (*NAMES, "row")

    #: The chart's row that was taken last; the chart writes it, nobody's guard reads it.
    row: object

    steps: int
    allowance: int
    calls: int
    budgeted: bool
    budget: int
    tokens_spent: bool
    cost_spent: bool
    time_spent: bool
    doom: bool
    doom_asks: bool
    nudges_left: int
    pauses_left: int
    retries_left: int
    waiting: int
    carried_doom: bool
    second_try: bool
    made: int
    filtered: bool
    truncated: bool
    may_pass: bool
    no_text: bool
    synthesized: bool
    doom_asked: bool
    go_on: bool

    def __init__(self, limits: Limits) -> None:
        self.steps = self.calls = self.waiting = self.made = 0
        self.allowance = limits.allowance
        self.budgeted = limits.call_limit is not None
        self.budget = limits.call_limit or 0
        self.tokens_spent = self.cost_spent = self.time_spent = False
        self.doom = self.carried_doom = self.second_try = False
        self.doom_asks = limits.doom_response == "ask"
        self.nudges_left = limits.nudges
        self.pauses_left = limits.max_pauses
        self.retries_left = limits.max_retries
        self.row = None
        self.filtered = self.truncated = self.may_pass = self.no_text = False
        self.synthesized = self.doom_asked = self.go_on = False

    @property
    def steps_left(self) -> int:
        """Steps that may still start."""
        return self.allowance - self.steps

    def kept(self) -> tuple[int | bool, ...]:
        """The values of `KEPT`, in that order."""
        return (
            self.steps,
            self.allowance,
            self.calls,
            self.budgeted,
            self.budget,
            self.tokens_spent,
            self.cost_spent,
            self.time_spent,
            self.doom,
            self.doom_asks,
            self.nudges_left,
            self.pauses_left,
            self.retries_left,
            self.waiting,
            self.carried_doom,
            self.second_try,
        )

    def reached(self) -> tuple[EndReason, ...]:
        """Every limit that holds now, in the order of the chart's rows."""
        return tuple(
            reason
            for reason, holds in (
                (EndReason.STEP_CAP, self.steps >= self.allowance),
                (EndReason.DOOM_LOOP, self.doom),
                (EndReason.BUDGET, self.budgeted and self.calls >= self.budget),
                (EndReason.TOKENS, self.tokens_spent),
                (EndReason.COST, self.cost_spent),
                (EndReason.DEADLINE, self.time_spent),
            )
            if holds
        )

    def copy(self) -> "Counters":
        """A copy that shares nothing with this one."""
        twin = object.__new__(Counters)
        for name in Counters.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin
