"""The numbers and flags that the chart's guards use, each with its meaning.

The guards, the diagrams and the checked model use the same names. A guard reads only whole numbers and flags, so money,
texts and lists are not here.
"""

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Final

from .limits import Limits
from .state import Trigger

#: The atoms of a counter that guards may use: the text after its name, and the words for true and for false.
Atoms = Mapping[str, tuple[str, str]]


def _flag(holds: str, not_: str) -> Atoms:
    return {"": (holds, not_)}


#: Kept from event to event; part of the state.
KEPT: Final[Mapping[str, Atoms]] = {
    "steps": {" >= allowance": ("all allowed steps started", "a step is left")},  # steps started
    "allowance": {" == 0": ("no step is allowed", "a step is allowed")},  # the steps that may call tools
    "calls": {},  # tool calls started, including those of finished sub-agents
    "budgeted": {},  # tool calls are limited; if not, `budget` is 0 without a meaning
    "budget": {},  # the tool calls that may start
    "tokens_spent": _flag("tokens spent", "tokens left"),
    "cost_spent": _flag("cost spent", "money left"),
    "time_spent": _flag("time spent", "time left"),
    "idle_limit": {" > 0": ("idle steps are limited", "idle steps are not limited")},  # 0: no limit
    "idle": {
        " >= idle_limit": ("no call ran in too many steps", "an idle step is left")
    },  # steps in a row without a call
    "doom": _flag("doom loop", "no doom loop"),  # the last round closed a loop
    "doom_asks": _flag("a person is to be asked", "nobody is to be asked"),  # a person is asked about a doom loop
    "nudges_left": {" > 0": ("a nudge is left", "no nudge is left")},
    "pauses_left": {" == 0": ("no pause is left", "a pause is left")},
    "retries_left": {" > 0": ("a retry is left", "no retry is left")},  # further attempts in this state
    "waiting": {" > 0": ("a person is waited for", "nobody is waited for")},  # interrupts without an answer
    # The turn concludes because of a doom loop.
    "carried_doom": _flag("stopping for a doom loop", "not stopping for a doom loop"),
    "second_try": _flag("the second try", "the first try"),  # the model concluded without text, and was asked once more
    "output_retries_left": {" > 0": ("an output retry is left", "no output retry is left")},  # replies to refuse
    "compactions_left": {" > 0": ("a compaction is left", "no compaction is left")},
    "final": _flag("a call gave the answer", "no call gave the answer"),  # a call of the open batch
}
_OF_REPLY: Final = (Trigger.REPLIED, Trigger.REVIEWED)
#: Set by one input and read by the rows of its triggers; not part of the state.
PASSING: Final[Mapping[str, tuple[tuple[Trigger, ...], Atoms]]] = {
    "made": (_OF_REPLY, {" > 0": ("tool calls", "no tool calls")}),  # the calls that a reply asked for
    "filtered": ((Trigger.REPLIED,), _flag("content filter", "no content filter")),
    "truncated": (_OF_REPLY, _flag("cut off by length", "not cut off")),
    "may_pass": ((Trigger.ATTEMPT_FAILED,), _flag("the cause may pass", "the cause will not pass")),
    "no_text": ((Trigger.CONCLUDED,), _flag("no text", "text")),
    "synthesized": ((Trigger.SETTLED,), _flag("the synthesis succeeded", "no synthesis")),
    "doom_asked": ((Trigger.ANSWERED,), _flag("a doom loop was answered", "no doom loop was answered")),
    "go_on": ((Trigger.ANSWERED,), _flag("go on", "do not go on")),
    "review": ((Trigger.REPLIED,), _flag("to be reviewed", "nothing to review")),
    "refused": ((Trigger.REVIEWED,), _flag("refused", "accepted")),
    "overflow": ((Trigger.ATTEMPT_FAILED,), _flag("the context overflowed", "the context did not overflow")),
}
NAMES: Final = (*KEPT, *PASSING)
#: The calls of the open batch, counted by their condition: ready to start, the same with a place in the budget already,
#: running, those of them that run again without a retry, waiting for a person, the same with a place, typed answers in
#: review. `lent`: the calls in all their leases.
#: The fold keeps the calls themselves too, and a walk compares both. No guard reads these counts.
BATCH: Final = ("ready", "ready_counted", "running", "crash_paid", "asking", "asking_counted", "answering", "lent")
_read_kept: Final[Callable[["Counters"], tuple[int | bool, ...]]] = attrgetter(*KEPT)


class Counters:
    """The values of `NAMES` for one turn: whole numbers, and flags as bools."""

    __slots__ = (*NAMES, *BATCH, "place", "prepared")

    #: Whether the dynamic part of the step's requests is journaled. No guard reads it.
    prepared: bool
    #: The index of the row that is being taken. The chart writes it, and no guard reads it.
    place: int | None

    def __init__(self, limits: Limits) -> None:
        self.steps = self.calls = self.waiting = self.made = 0
        self.ready = self.ready_counted = self.running = self.crash_paid = 0
        self.asking = self.asking_counted = self.answering = self.lent = 0
        self.allowance = limits.allowance
        self.budgeted = limits.call_limit is not None
        self.budget = limits.call_limit or 0
        self.tokens_spent = self.cost_spent = self.time_spent = False
        self.idle_limit, self.idle = limits.idle_steps or 0, 0
        self.doom = self.carried_doom = self.second_try = False
        self.doom_asks = limits.doom_response == "ask"
        self.nudges_left = limits.nudges
        self.pauses_left = limits.max_pauses
        self.retries_left = limits.max_retries
        self.output_retries_left = limits.output_retries
        self.compactions_left = limits.max_compactions
        self.prepared = False
        self.place = None
        self.filtered = self.truncated = self.may_pass = self.no_text = False
        self.synthesized = self.doom_asked = self.go_on = False
        self.final = self.review = self.refused = self.overflow = False

    @property
    def steps_left(self) -> int:
        """Steps that may still start."""
        return self.allowance - self.steps

    def kept(self) -> tuple[int | bool, ...]:
        """The values of `KEPT`, in that order."""
        return _read_kept(self)

    def copy(self) -> "Counters":
        """Return a copy that shares nothing with this one."""
        twin = object.__new__(Counters)
        _compile_assignment()(twin, self)
        return twin


@cache
def _compile_assignment() -> Callable[[Counters, Counters], None]:
    """Return a function that gives its first argument all values of its second."""
    namespace: dict[str, Callable[[Counters, Counters], None]] = {}
    lines = "".join(f" to.{name} = it.{name}\n" for name in Counters.__slots__)
    # Flat code, because a walk copies the counters for each event. The names are those above, never input.
    eval(compile(f"def assign(to, it):\n{lines}", "<counters>", "exec"), {}, namespace)  # noqa: S307
    return namespace["assign"]
