"""The effect that a limit would have had on a recorded turn.

The machine that enforces limits is `turnwright_states.LoopGuard`. Asking it about sixty limits and each step of
thousands of runs takes too long, so `effect` computes the answer. A property test holds it to the machine.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from turnwright_states import MAX_STEPS, Limits
from turnwright_states.amounts import is_cost_spent
from turnwright_states.limits import MAX_CALLS_PER_STEP

from .loops import NOTHING_NEW, SAME_ERRORS, THRESHOLDS
from .measure import TurnMeasure


class Trial(NamedTuple):
    """Limits to try. None is no limit.

    `loops` are the detectors that stop a turn, by the names of `TurnMeasure.acts`; with `nudges` each acts that many
    times before it stops the turn.
    """

    steps: int | None = None
    tool_calls: int | None = None
    max_calls_per_step: int | None = None
    tokens: int | None = None
    cost: float | None = None
    loops: tuple[str, ...] = ()
    nudges: int = 0

    def limits(self) -> Limits:
        """Return these limits as the machine's. Stalls are loops, so the hints that they give by default are not."""
        detectors = {name: int(number) for name, _, number in (loop.partition(":") for loop in self.loops)}
        threshold = detectors.get("calls", detectors.get("results"))
        most = MAX_CALLS_PER_STEP if self.max_calls_per_step is None else self.max_calls_per_step
        return Limits(
            steps=self.steps,
            tool_calls=self.tool_calls,
            tokens=self.tokens,
            cost=self.cost,
            doom_threshold=threshold,
            doom_compare="calls" if "calls" in detectors else "results",
            stall_errors=detectors.get("errors"),
            stall_rounds=detectors.get("nothing"),
            stall_response="loop",
            nudges=self.nudges if detectors else 0,
            max_calls_per_step=most,
        )


class Effect(NamedTuple):
    """The effect of limits on a turn: the steps that are left, and the calls that are refused in them."""

    kept: int
    refused: int


def effect(turn: TurnMeasure, trial: Trial) -> Effect:
    """Return what these limits do to a turn. A limit that is reached at the end of the turn does nothing to it."""
    kept_steps = turn.steps if trial.steps is None else min(turn.steps, trial.steps)
    for name in trial.loops:
        acts = turn.acts.get(name, ())
        if len(acts) > trial.nudges:
            kept_steps = min(kept_steps, acts[trial.nudges] + 1)
    calls = tokens = refused_calls = 0
    cost = 0.0
    budget, most = trial.tool_calls, trial.max_calls_per_step
    for place in range(kept_steps):
        if (
            (budget is not None and calls >= budget)
            or (trial.tokens is not None and tokens >= trial.tokens)
            or (trial.cost is not None and is_cost_spent(cost, trial.cost))
        ):
            return Effect(place, refused_calls)
        call_count, ran = turn.calls[place], turn.ran[place]
        places = call_count if budget is None else min(call_count, budget - calls)
        places = places if most is None else min(places, most)
        refused_calls += call_count - places
        calls += min(ran, places)
        tokens += turn.tokens[place]
        cost += turn.cost[place]
    return Effect(kept_steps, refused_calls)


#: The limits that are tried one by one, by field. Steps have a maximum.
STEPS: Final = (10, 20, 30, 50, 75, 100, 150, MAX_STEPS)
TOOL_CALLS: Final = (10, 20, 30, 50, 75, 100, 150, 200, 300)
CALLS_PER_STEP: Final = (1, 2, 4, 8, 16, 32)
TOKENS: Final = tuple(1000 * thousands for thousands in (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000))
COST: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
#: The detectors together: the same call and result, the same error, and nothing new.
TOGETHER: Final = ("results:3", f"errors:{SAME_ERRORS}", f"nothing:{NOTHING_NEW}")


def _trials() -> Iterator[tuple[str, Trial]]:
    for steps in STEPS:
        yield f"steps {steps}", Trial(steps=steps)
    for calls in TOOL_CALLS:
        yield f"tool_calls {calls}", Trial(tool_calls=calls)
    for most in CALLS_PER_STEP:
        yield f"max_calls_per_step {most}", Trial(max_calls_per_step=most)
    for tokens in TOKENS:
        yield f"tokens {tokens}", Trial(tokens=tokens)
    for cost in COST:
        yield f"cost {cost:g}", Trial(cost=cost)
    for compare in ("calls", "results"):
        for threshold in THRESHOLDS:
            name = f"{compare}:{threshold}"
            yield f"doom_threshold {name}", Trial(loops=(name,))
        yield f"doom_threshold {compare}:3, 1 nudge", Trial(loops=(f"{compare}:3",), nudges=1)
    for name in TOGETHER[1:]:
        yield f"detector {name}", Trial(loops=(name,))
    yield "detector results:3 + errors:4 + nothing:6", Trial(loops=TOGETHER)


#: Each trial by the limit and its value, with a space between them.
TRIALS: Final[dict[str, Trial]] = dict(_trials())


def may_matter(turns: Sequence[TurnMeasure], trial: Trial) -> bool:
    """Return False if it is plain that no turn is changed, so that most trials of most runs cost nothing."""
    if trial.loops:
        return any(name in turn.acts for turn in turns for name in trial.loops)
    if trial.steps is not None:
        return any(turn.steps > trial.steps for turn in turns)
    if trial.max_calls_per_step is not None:
        return any(max(turn.calls) > trial.max_calls_per_step for turn in turns)
    if trial.tool_calls is not None:
        return any(sum(turn.calls) >= trial.tool_calls for turn in turns)
    if trial.tokens is not None:
        return any(sum(turn.tokens) >= trial.tokens for turn in turns)
    return trial.cost is None or any(is_cost_spent(sum(turn.cost), trial.cost) for turn in turns)
