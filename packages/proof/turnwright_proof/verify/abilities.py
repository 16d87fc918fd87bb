"""The rows of the chart that the turns of one agent can take, found by walking small turns of its kind.

An agent's limits may be large, so they are made small first (`cases_for`), and every comparison that a guard makes
keeps its result: a limit that leaves something keeps leaving something, a budget shrinks in proportion with the steps
and the width of a batch, and a doom loop that fits into the steps still fits. Tokens, money and time are limited one at
a time, because a reply may exceed one of them alone. What the agent's tools and hooks never do is taken out of the
environment, and all that is left is tried (`rows_within`).

The result may keep a row that only a sum of large numbers excludes. It never leaves out a row that a turn can take:
tests drive turns with the real limits and look for one.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from turnwright_states.actions import Action, AwaitPerson, CallModel, Conclude, ReviewReply, RunTools
from turnwright_states.chart import Row
from turnwright_states.inputs import (
    AbortInput,
    AnsweredInput,
    CallSettledInput,
    CallStartedInput,
    CallWaitingInput,
    Input,
    ModelRepliedInput,
    ReviewedInput,
    ToolCall,
    TrippedInput,
)
from turnwright_states.limits import Limits
from turnwright_states.state import FINAL

from .case import Case
from .configuration import Key, WalkedMachine
from .environment import Environment

#: The most steps of a small turn, without and with doom loops. One loop of two rounds, a hint, and another loop fit in.
_STEPS: Final = 2
_LOOP_STEPS: Final = 6
#: The inputs that matter to a doom loop, by the machine's action. Everything else is tried without loops.
_OF_LOOPS: Final[Mapping[type, tuple[type[Input], ...]]] = {
    CallModel: (ModelRepliedInput,),
    ReviewReply: (ReviewedInput,),
    RunTools: (CallStartedInput, CallSettledInput),
    AwaitPerson: (AnsweredInput, AbortInput),
    Conclude: (Input,),
}


class Abilities(NamedTuple):
    """The things that can happen in the turns of an agent, besides its limits.

    `tools`: whether it has a tool that is not a sub-agent. `delegates`: whether it has a sub-agent. `asks`: whether a
    call may need a person. `direct`: whether a call may give the turn's answer. `typed`: whether a reply may give a
    typed answer by a call. `reviews`: whether replies are reviewed, always or sometimes. `refuses`: whether a review
    may refuse a reply. `trips`: whether there are guardrails. `synthesis`: whether the app has a synthesis.
    """

    tools: bool = True
    delegates: bool = True
    asks: bool = True
    direct: bool = True
    typed: bool = True
    reviews: Literal["always", "sometimes", "never"] = "sometimes"
    refuses: bool = True
    trips: bool = True
    synthesis: bool = True

    @property
    def hooked(self) -> bool:
        """Whether the walk needs the inputs of hooks and guardrails."""
        return self.reviews != "never" or self.trips or self.direct

    @property
    def in_loops(self) -> "Abilities":
        """The abilities of turns that are walked for doom loops. A sub-agent counts as a tool."""
        return Abilities(
            tools=self.tools or self.delegates,
            delegates=False,
            asks=False,
            direct=False,
            typed=False,
            reviews="always" if self.reviews == "always" else "never",
            refuses=False,
            trips=False,
            synthesis=False,
        )

    def as_it_comes(self, event: Input, action: Action) -> Input:
        """Return the input as it comes. Where every reply is reviewed, so is each reply of a step."""
        in_step = isinstance(event, ModelRepliedInput) and isinstance(action, CallModel) and action.tools
        return replace(event, review=True) if in_step and self.reviews == "always" else event

    def allows(self, event: Input) -> bool:
        """Return whether this input can come."""
        match event:
            case ModelRepliedInput(review=True) if self.reviews == "never":
                return False
            case ModelRepliedInput(calls=calls):
                return all(self._may_make(call) for call in calls)
            case CallWaitingInput():
                return self.asks
            case CallSettledInput(final=True):
                return self.direct
            case ReviewedInput(refused=True):
                return self.refuses
        return self.trips or not isinstance(event, TrippedInput)

    def _may_make(self, call: ToolCall) -> bool:
        """Return whether a reply may have this call. A model may name a tool that does not exist."""
        if call.problem:
            return True
        return self.typed if call.output else self.delegates if call.delegates else self.tools


class AgentRows(NamedTuple):
    """The rows that the turns of an agent can take, and their ends as "outcome/reason"."""

    rows: frozenset[Row]
    ends: frozenset[str]
    configurations: int


def rows_of(limits: Limits, abilities: Abilities) -> AgentRows:
    """Return the rows that turns with these limits and abilities can take. It takes about a second."""
    loops = abilities.in_loops
    searches = [
        *(rows_within(case, abilities) for case in cases_for(limits, abilities)),
        *(rows_within(case, loops, loops=True) for case in loops_for(limits, abilities)),
    ]
    return AgentRows(
        frozenset[Row]().union(*(search.rows for search in searches)),
        frozenset[str]().union(*(search.ends for search in searches)),
        sum(search.configurations for search in searches),
    )


@cache
def rows_within(case: Case, abilities: Abilities, *, loops: bool = False) -> AgentRows:
    """Return the rows that the turns of one case can take, by trying everything that can happen.

    With `loops`, only what matters to doom loops is tried.
    """
    around = Environment(case)
    first_machine, _ = WalkedMachine.start(case.started)
    # By their identity, because a row's hash is slow.
    rows = {id(row): row for row in first_machine.rows}
    ends = set[str]()
    keys: set[Key] = {around.key_of(first_machine.turn)}
    waiting = [first_machine]
    while waiting:
        machine = waiting.pop()
        action = machine.action
        input_types = _OF_LOOPS.get(type(action), ()) if loops else (Input,)
        for event in around.moves(machine.turn, action):
            if not isinstance(event, input_types) or not abilities.allows(event):
                continue
            twin = machine.twin()
            twin.feed(abilities.as_it_comes(event, action))
            for row in twin.rows:
                rows[id(row)] = row
            if twin.state in FINAL:
                ends.add(f"{twin.state.outcome}/{twin.turn.reason}")
            elif (key := around.key_of(twin.turn)) not in keys:
                keys.add(key)
                waiting.append(twin)
    return AgentRows(frozenset(rows.values()), frozenset(ends), len(keys))


def cases_for(limits: Limits, abilities: Abilities) -> Iterator[Case]:
    """Yield small cases without doom loops, with batches of two calls."""
    wide = min(limits.max_calls_per_step, 2)
    few: dict[str, object] = {
        "doom_threshold": None,
        "max_retries": min(limits.max_retries, 1),
        "output_retries": min(limits.output_retries, 1),
        "max_compactions": min(limits.max_compactions, 1),
        "max_pauses": min(limits.max_pauses, 1),
    }
    for budget, spent_fields in _spendings(limits, abilities, _STEPS, wide):
        small = _small(limits, _STEPS, few | spent_fields, budget)
        yield Case(small, abilities.synthesis, wide, abilities.delegates, abilities.hooked)
    if limits.idle_steps is not None and limits.idle_steps < limits.allowance:
        yield Case(_small(limits, _STEPS, few | {"idle_steps": 1}, None), widest=1)


def loops_for(limits: Limits, abilities: Abilities) -> Iterator[Case]:
    """Yield small cases with doom loops, one call at a time. The limits on loops are real ones if the steps are few."""
    steps, threshold, nudges, pauses = limits.allowance, limits.shortest_loop, limits.nudges, limits.max_pauses
    never = _LOOP_STEPS + 1
    if threshold is None or threshold >= steps:
        return
    if steps <= _LOOP_STEPS:
        loops = threshold, min(nudges, never), min(pauses, never)
    else:
        hints = min(nudges, 1) if threshold + nudges < steps else never
        loops = 2, hints, min(pauses, 1) if (pauses + 1) * threshold < steps else never
    # Tools may have taken every pause before the loop.
    for nudges_left in {loops[2], 0} if abilities.asks else {loops[2]}:
        fields = {"doom_threshold": loops[0], "nudges": loops[1], "max_pauses": nudges_left, "max_retries": 0}
        for budget, spent_fields in _spendings(limits, abilities, _LOOP_STEPS, 1):
            yield Case(_small(limits, _LOOP_STEPS, fields | spent_fields, budget), widest=1)
        # The loop may be one of calls that cannot run, at the end of as many idle steps as are allowed.
        if limits.idle_steps is not None and threshold <= limits.idle_steps < steps:
            idle = {"idle_steps": limits.idle_steps if steps <= _LOOP_STEPS else loops[0]}
            yield Case(_small(limits, _LOOP_STEPS, fields | idle, None), widest=1)


def _small(limits: Limits, most: int, fields: Mapping[str, object], budget: int | None) -> Limits:
    """Return limits with at most so many steps, and these fields."""
    steps = min(limits.allowance, most)
    limit_fields: dict[str, object] = {
        "steps": steps + 1 if limits.concluding == "within" and limits.cap else steps,
        "concluding": limits.concluding,
        "tool_calls": budget,
        # A loop of the same calls can have the same results.
        "doom_compare": "calls",
        "stall_errors": None,
        "stall_rounds": None,
        "idle_steps": None,
        "doom_response": limits.doom_response,
        "max_calls_per_step": min(limits.max_calls_per_step, 2),
    }
    return Limits.model_validate(limit_fields | dict(fields))


def _spendings(
    limits: Limits, abilities: Abilities, most: int, wide: int
) -> Iterator[tuple[int | None, dict[str, object]]]:
    """Yield small budgets of tool calls, and the other limits that may be spent, one at a time.

    The first budget can be spent before the last step if the real one can. A turn of two calls or more can do
    everything else that a turn without a budget can.
    """
    budget, steps = limits.call_limit, limits.allowance
    if budget is not None and budget > 1 and steps > 0:
        if abilities.delegates:  # one sub-agent may spend all that is left, but its own call takes one
            yield 2 if wide > 1 or not abilities.tools else 1, {}
        else:
            room, small_room = max(steps - 1, 1) * limits.max_calls_per_step, max(min(steps, most) - 1, 1) * wide
            yield -(-budget * small_room // room), {}
        budget = None
    small: dict[str, object] = {"tokens": 1, "cost": 1.0, "seconds": 1.0}
    spendings = [{name: value} for name, value in small.items() if getattr(limits, name) is not None]
    yield from ((budget, spent_fields) for spent_fields in spendings or [{}])
