"""What stops a turn: each bound with its value, its formula, and whether it can be overshot.

`turnwright explain`, the closing line of a run and the README's table are made from here.
"""

from collections.abc import Collection
from dataclasses import dataclass

from turnwright_states import EndReason, Limits, Turn

OVERSHOT = "may be overshot by the attempts of one reply and the concluding call"
_SECONDS = "overshot by what it takes to cancel; paused time and the concluding call are not counted"


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound of a turn. `value` is None when it is off. `setting` names the field that sets it."""

    name: str
    value: float | None
    formula: str
    exactness: str
    setting: str
    reason: EndReason | None = None


def bounds_of(limits: Limits) -> tuple[Bound, ...]:
    """Every bound that these limits put on a turn."""
    cap = f"min({'unset' if limits.steps is None else limits.steps}, {limits.ceiling})"
    allowed = "cap" if limits.concluding == "after" else "max(cap - 1, 0)"
    calls = f"({limits.allowance} + 1) x (1 + {limits.max_retries})"
    doom = None if limits.doom_threshold is None else float(limits.doom_threshold)
    repeats = f"{limits.doom_threshold} identical rounds, or a cycle of 2 to 4 repeated as often"
    step_cap, budget = EndReason.STEP_CAP, EndReason.BUDGET
    return (
        Bound("cap", limits.cap, f"min(steps, ceiling) = {cap}", "exact", "steps", step_cap),
        Bound("steps that may call tools", limits.allowance, f"{allowed} = {limits.allowance}", "exact", "concluding"),
        Bound("model calls", limits.model_calls, f"(allowance + 1) x (1 + max_retries) = {calls}", "exact", "steps"),
        Bound("tool calls", limits.tool_calls, "tool_calls", "exact", "tool_calls", budget),
        Bound("tool calls a step", limits.calls_a_step, "calls_a_step", "exact", "calls_a_step"),
        Bound("tokens", limits.tokens, "tokens", OVERSHOT, "tokens", EndReason.TOKENS),
        Bound("cost", limits.cost, "cost", OVERSHOT, "cost", EndReason.COST),
        Bound("seconds", limits.seconds, "seconds", _SECONDS, "seconds", EndReason.DEADLINE),
        Bound("rounds that repeat", doom, repeats if doom else "off", "exact", "doom_threshold", EndReason.DOOM_LOOP),
        Bound("pauses", limits.max_pauses, "max_pauses", "exact", "max_pauses"),
        Bound("attempts a phase", 1 + limits.max_retries, "1 + max_retries", "exact", "max_retries"),
        Bound(
            "seconds of an attempt to conclude",
            limits.conclude_seconds,
            "conclude_seconds",
            "exact",
            "conclude_seconds",
        ),
        Bound(
            "tokens of the conclusion", limits.conclude_tokens, "conclude_tokens", "the provider's", "conclude_tokens"
        ),
    )


_NAMES = {
    "steps": ("the step cap", EndReason.STEP_CAP),
    "tool_calls": ("the tool budget", EndReason.BUDGET),
    "tokens": ("the token budget", EndReason.TOKENS),
    "cost": ("the cost budget", EndReason.COST),
    "seconds": ("the deadline", EndReason.DEADLINE),
}


def nearest(turn: Turn, passed: Collection[EndReason | None] = ()) -> str:
    """What would have stopped the turn next: the limit that is used most, and how far.

    `passed` are the limits that stopped it, which are left out. Empty when no other limit is set.
    """
    left = [
        (used / most if most else 1.0, name, used, most)
        for name, used, most in turn.use()
        if _NAMES[name][1] not in passed
    ]
    if not left:
        return ""
    _, name, used, most = max(left, key=lambda one: one[0])
    figures = f"{used:.1f} of {most:g} s" if name == "seconds" else f"{used:g} of {most:g}"
    return f"{_NAMES[name][0]} ({figures})"
