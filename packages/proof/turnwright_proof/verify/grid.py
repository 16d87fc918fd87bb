"""The cases that `turnwright verify` walks: families of limits, each with the combinations that interact."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final

from turnwright_states.inputs import JsonObject
from turnwright_states.limits import Limits

from .case import Case
from .configuration import WalkedMachine
from .walk import MOST, Walk, walk

#: The default bound of `turnwright verify`.
BOUND: Final = 4
#: Steps that leave room for wide batches and for retries.
_FEW: Final = 2


def grid(bound: int = BOUND) -> Iterator[Case]:
    """Yield the cases within `bound`: caps 0 to `bound`, tool-call budgets 0 to `bound + 1` and none.

    Batches have up to `(bound + 2) // 2` calls unless stated otherwise. A family that needs a larger cap has it for any
    bound. The families are:

    - *Plain turns:* each cap with each budget, 0 to 2 pauses, 0 and 1 retries, with and without a synthesis. Each cap
      and budget once more with the concluding call counted as a step.
    - *Doom loops:* both responses, with and without a nudge, 1 and 2 pauses. Threshold 2 at each cap from 1, with
      budgets of 1, 2, 3 and none (spent before the loop, with it, after it, never), and batches of up to 2 calls of
      two tools, or of the full width up to cap 3. Thresholds 2 and 3 at caps 4 and 5 with single calls, because a
      cycle of two rounds or a nudged repetition needs as many.
    - *Doom loops of calls with their results:* threshold 2. Single calls at cap 3, with both responses, with and
      without a nudge. Batches of 2 at cap 2, once: no step is left when the loop is seen, so no response matters.
      Elsewhere a loop needs the same calls alone, for results only make more of them.
    - *Stalls that are doom loops:* two rounds of one error, or with nothing new, at the same caps and widths.
    - *Idle steps:* one and two steps in which no call runs, at caps 2 and 3, alone and with a doom loop, a hint, a
      person, a spent budget, and a refused reply.
    - *Spent budgets:* tokens, cost, time, and all of them, at caps 0 to 3 (0 to 2 within a bound of 2), with a budget
      of 2 tool calls, a possible doom loop, which never comes first, and with and without a synthesis.
    - *Sub-agents:* each cap from 1 with each budget from 1, 1 and 2 pauses, batches of up to 2 calls, or of the full
      width up to cap 2. Then each cap from 1 with tokens, money or both to lease. Then each cap from 2 with a doom
      loop of the turn itself, and both responses.
    - *Waits:* results from outside, several questions of one call, approvals of two people: caps 1 and 2, with budgets
      of 1, 2 and none, 1 and 2 pauses, with and without sub-agents, hooks and a synthesis.
    - *Rules:* each set of `RULE_SETS` at caps 1 and 2, with batches of up to 2 calls, then with single calls, with
      hooks and with a synthesis. No retry beside two batches. No configurations are merged by the order of calls.
    - *Hooks:* hooks and guardrails act, requests are prepared and replies are reviewed, some with typed answers. Caps 0
      to 2 with budgets of 0, 1 and none, 0 to 2 output retries, 0 to 2 compactions, 0 and 1 retries, and batches of up
      to 2 calls. Each of these caps and budgets once more with a synthesis. Then a budget of tokens, money or time at
      caps 1 and 2, with and without a doom loop. The conclusion once as a step. A third output retry or compaction
      would only repeat what the second does, so larger numbers rest on the rank.

    Every input of the environment (`environment.py`) is tried in every case.
    """
    widest = max((bound + 2) // 2, 1)
    yield from _plain(bound, widest)
    yield from _doom(bound, widest)
    yield from _doom_of_results()
    yield from _stalled_cases()
    yield from _idle()
    yield from _spent_cases(bound)
    yield from _delegating(bound, widest)
    yield from _hooked_cases(bound)
    yield from _waiting(bound)
    yield from _ruled_cases(bound)


#: Sets of rules over the tools `a` and `b`: each form, each effect, and forms that interact.
RULE_SETS: Final[tuple[tuple[JsonObject, ...], ...]] = (
    ({"name": "need", "before": "b", "need": "a", "same": ["k"]},),
    ({"name": "need", "before": "b", "need": "a", "once": True, "effect": "ask"},),
    ({"name": "most", "at_most": 1, "of": "a if status != 'error'", "per": "k"},),
    ({"name": "bar", "after": "a", "never": "b", "same": ["k"], "effect": "end"},),
    ({"name": "owe", "after": "a", "then": "b"},),
    ({"name": "both", "not_both": ["a", "b"]}, {"name": "report", "at_most": 0, "of": "b", "effect": "report"}),
    ({"name": "most", "at_most": 1, "of": "a", "effect": "ask"}, {"name": "owe", "after": "a", "then": "b"}),
    ({"name": "answer", "before": "@answer", "need": "b"}, {"name": "need", "before": "b", "need": "a"}),
)


def _ruled_cases(bound: int) -> Iterator[Case]:
    for rules, cap in product(RULE_SETS, range(1, min(bound, _FEW) + 1)):
        fields = {"steps": cap, "tool_calls": None, "output_retries": 1}
        yield Case(_limits(max_retries=2 - cap, **fields), widest=2, rules=rules)
        for synthesis, has_hooks in ((False, True), (True, False)):
            yield Case(_limits(max_retries=1, **fields), synthesis, widest=1, hooked=has_hooks, rules=rules)


def _waiting(bound: int) -> Iterator[Case]:
    for cap, budget, pauses, delegates in product(range(1, min(bound, _FEW) + 1), (1, 2, None), (1, 2), (False, True)):
        limits = _limits(steps=cap, tool_calls=budget, max_pauses=pauses, max_retries=0)
        yield Case(limits, widest=2, delegates=delegates, hooked=cap == 1, waits=True)
        yield Case(limits, synthesis=True, widest=2, delegates=delegates, waits=True)
    yield Case(_limits(steps=1, tool_calls=2, seconds=1.0), widest=2, waits=True)


def _plain(bound: int, widest: int) -> Iterator[Case]:
    for cap, budget in product(range(bound + 1), _budgets(0, bound)):
        for synthesis, pauses, retries in product((False, True), range(3), range(2)):
            limits = _limits(steps=cap, tool_calls=budget, max_pauses=pauses, max_retries=retries)
            yield Case(limits, synthesis, widest)
        yield Case(_limits(steps=cap, tool_calls=budget, concluding="within", max_retries=0), widest=widest)


def _doom(bound: int, widest: int) -> Iterator[Case]:
    for response, nudges, pauses in product(("stop", "ask"), (0, 1), (1, 2)):
        doom = {"doom_response": response, "nudges": nudges, "max_pauses": pauses, "max_retries": 0}
        for cap, budget in product(range(1, bound + 1), (1, 2, 3, None)):
            limits = _limits(steps=cap, tool_calls=budget, doom_threshold=2, **doom)
            yield Case(limits, widest=widest if cap <= _FEW + 1 else 2)
        for cap, threshold in product((4, 5), (2, 3)):
            yield Case(_limits(steps=cap, tool_calls=4, doom_threshold=threshold, **doom), widest=1)


def _doom_of_results() -> Iterator[Case]:
    yield from _seen_late({"doom_threshold": 2, "doom_compare": "results"})


def _stalled_cases() -> Iterator[Case]:
    yield from _seen_late({"stall_errors": 2, "stall_rounds": 2, "stall_response": "loop"})


def _idle() -> Iterator[Case]:
    budgets: tuple[dict[str, object], ...] = (
        {},
        {"doom_threshold": 2, "doom_response": "ask", "nudges": 1},
        {"doom_threshold": 2, "nudges": 1},
        {"tokens": 1},
    )
    for idle, budget_fields in product((1, 2), budgets):
        fields = {"steps": idle + 1, "tool_calls": 2, "idle_steps": idle, "max_retries": 0} | budget_fields
        yield Case(_limits(**fields), widest=2 if idle == 1 else 1)
    refusing = {"steps": _FEW + 1, "tool_calls": 2, "idle_steps": _FEW, "output_retries": 1, "max_retries": 0}
    yield Case(_limits(**refusing), widest=1, hooked=True)


def _seen_late(doom: dict[str, object]) -> Iterator[Case]:
    """Yield the cases of a loop that is seen only when its second step has its results."""
    limits = doom | {"tool_calls": 4, "max_retries": 0}
    yield Case(_limits(steps=_FEW, doom_response="stop", nudges=0, **limits), widest=2)
    for response, nudges in product(("stop", "ask"), (0, 1)):
        yield Case(_limits(steps=_FEW + 1, doom_response=response, nudges=nudges, **limits), widest=1)


def _spent_cases(bound: int) -> Iterator[Case]:
    budgets: tuple[dict[str, object], ...] = ({"tokens": 1}, {"cost": 1.0}, {"seconds": 1.0})
    for budget_fields, cap, synthesis in product(
        (*budgets, budgets[0] | budgets[1] | budgets[2]), range(max(min(bound, _FEW + 1), _FEW) + 1), (False, True)
    ):
        doom = {"doom_threshold": 2, "doom_response": "ask", "nudges": 1, "max_retries": 1 if cap <= _FEW else 0}
        yield Case(_limits(steps=cap, tool_calls=2, **doom, **budget_fields), synthesis)


def _delegating(bound: int, widest: int) -> Iterator[Case]:
    for cap, budget, pauses in product(range(1, bound + 1), _budgets(1, bound), (1, 2)):
        limits = _limits(steps=cap, tool_calls=budget, max_pauses=pauses, max_retries=0)
        yield Case(limits, widest=widest if cap <= _FEW else 2, delegates=True)
    lendings: tuple[dict[str, object], ...] = ({"tokens": 3}, {"cost": 2.0}, {"tokens": 2, "cost": 1.0})
    for cap, lease_fields in product(range(1, bound + 1), lendings):
        yield Case(_limits(steps=cap, tool_calls=3, max_retries=0, **lease_fields), delegates=True)
    for cap, response in product(range(2, bound + 1), ("stop", "ask")):
        yield Case(_limits(steps=cap, tool_calls=4, doom_threshold=2, doom_response=response), widest=1, delegates=True)


def _hooked_cases(bound: int) -> Iterator[Case]:
    few = min(bound, _FEW)
    for cap, budget in product(range(few + 1), (0, 1, None)):
        each_case = [(False, *case) for case in product(range(3), range(3), range(2))]
        for synthesis, refusals, compactions, retries in [*each_case, (True, 1, 1, 1)]:
            limits = _limits(
                steps=cap, tool_calls=budget, output_retries=refusals, max_compactions=compactions, max_retries=retries
            )
            yield Case(limits, synthesis, hooked=True)
    budgets: tuple[dict[str, object], ...] = ({"tokens": 1}, {"tokens": 2}, {"cost": 1.0}, {"seconds": 1.0})
    for budget_fields, cap, doom in product(budgets, range(1, few + 1), (None, 2)):
        fields = {"output_retries": 1, "max_compactions": 1, "doom_threshold": doom, "doom_response": "ask"}
        yield Case(_limits(steps=cap, tool_calls=2, **fields, **budget_fields), hooked=True)
    within = {"steps": few + 1, "concluding": "within", "tool_calls": 2}
    yield Case(_limits(**within, output_retries=1, max_compactions=1), hooked=True)


def _budgets(least: int, bound: int) -> tuple[int | None, ...]:
    return (*range(least, bound + 2), None)


def _limits(**fields: object) -> Limits:
    small = {"doom_threshold": None, "doom_compare": "calls", "max_retries": 1, "max_pauses": 1}
    small |= {"stall_errors": None, "stall_rounds": None, "idle_steps": None}
    return Limits.model_validate(small | fields)


def campaign(cases: Iterable[Case], *, machine: type[WalkedMachine] = WalkedMachine, most: int = MOST) -> Walk:
    """Walk each case, up to `most` configurations, and add the counts up.

    A `machine` may check more on every edge. Raises `ViolationError` at the first fault.
    """
    total = Walk()
    for case in cases:
        total.add(walk(case, machine=machine, most=most))
    return total
