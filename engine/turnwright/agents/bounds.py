"""The bounds of a turn: their values, their formulas, and whether they can be overshot.

The certificate (`turnwright explain`) and the closing line of a run use them.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from turnwright_states import EndReason, Limits, ToolCallLimits
from turnwright_states.limits import MAX_STEPS, ToolClass

#: The name and the steps of each agent whose file was read with a warning about them: its turns log no second one.
WARNED_STEPS: Final[set[tuple[str, int]]] = set()


class Exactness(StrEnum):
    """Whether a bound can be overshot, and by what."""

    EXACT = "exact"
    OVERSHOT_BY_ONE_REPLY = "overshot_by_one_reply"
    OVERSHOT_BY_CANCELLING = "overshot_by_cancelling"
    PROVIDER = "provider"


#: Each degree of exactness in words.
EXACTNESS: Final[dict[Exactness, str]] = {
    Exactness.EXACT: "never exceeded",
    Exactness.OVERSHOT_BY_ONE_REPLY: "may be exceeded by the attempts of one reply and the concluding call",
    Exactness.OVERSHOT_BY_CANCELLING: "running work is canceled; may be exceeded by the time that takes",
    Exactness.PROVIDER: "enforced by the provider",
}


class Bound(msgspec.Struct, frozen=True):
    """One bound of a turn.

    `value` is None if the bound is off. `settings` names the fields of `Limits` in its formula; the first is the one to
    change. `reason` is the reason of a turn that the bound ends, if it ends one.
    """

    name: str
    value: float | None
    formula: str
    exactness: Exactness
    settings: tuple[str, ...]
    reason: EndReason | None = None


class SaysWhetherItReads(Protocol):
    """A tool, or its entry in a certificate."""

    @property
    def read_only(self) -> bool | None:
        """True if no call changes anything, False if a call may, None if unknown."""
        ...


def class_of(tools: Iterable[SaysWhetherItReads]) -> ToolClass:
    """Return the class of an agent with these tools, by their `read_only`.

    One tool that writes makes the class `writing`. Otherwise one undeclared tool makes it `default`. An agent without
    tools is `read_only`.
    """
    declarations = {tool.read_only for tool in tools}
    if False in declarations:
        return "writing"
    return "default" if None in declarations else "read_only"


def bounds_of(limits: Limits, tools: ToolClass | None = None) -> tuple[Bound, ...]:
    """Return every bound of a turn with these limits (docs/rules.md#bounds).

    `tools` is the class of the agent's tools, or None if they are unknown.
    """
    calls_from = f"tool_calls.{tools}" if tools and isinstance(limits.tool_calls, ToolCallLimits) else "tool_calls"
    limits = limits.for_tools(tools or "default")
    cap = f"min({'unset' if limits.steps is None else limits.steps}, {limits.ceiling})"
    allowance_formula = "max(cap - 1, 0)" if limits.concluding == "within" else "cap"
    formula = "(allowance + 1) x (1 + max_retries)"
    calls = f"({limits.allowance} + 1) x (1 + {limits.max_retries})"
    if limits.max_compactions:
        formula, calls = f"{formula} + 2 x max_compactions", f"{calls} + 2 x {limits.max_compactions}"
    repeats = (
        f"{limits.doom_threshold} rounds of identical {limits.doom_compare}, or a cycle of 2 to 4 repeated as often"
    )
    response = "a person is asked" if limits.doom_response == "ask" else "the turn stops"
    doom = "" if limits.doom_threshold is None else f"{repeats}; then {response}"
    stalls = EndReason.DOOM_LOOP if limits.stall_response == "loop" else None
    of_steps = ("steps", "ceiling")
    of_allowance = (*of_steps, "concluding")
    of_calls = (*of_allowance, "max_retries", "max_compactions")
    exact, reply, cancelling = Exactness.EXACT, Exactness.OVERSHOT_BY_ONE_REPLY, Exactness.OVERSHOT_BY_CANCELLING
    driving_time = "seconds of driving, without pauses and the concluding call"

    def own(
        name: str, *settings: str, formula: str = "", by: Exactness = exact, reason: EndReason | None = None
    ) -> Bound:
        """Return a bound whose value is that of its first setting."""
        return Bound(name, getattr(limits, settings[0]), formula or settings[0], by, settings, reason)

    return (
        Bound("cap", limits.cap, f"min(steps, ceiling) = {cap}", exact, of_steps, EndReason.STEP_CAP),
        Bound(
            "steps that may call tools",
            limits.allowance,
            f"{allowance_formula} = {limits.allowance}",
            exact,
            of_allowance,
        ),
        Bound("model calls", limits.model_calls, f"{formula} = {calls}", exact, of_calls),
        Bound("tool calls", limits.call_limit, calls_from, exact, ("tool_calls",), EndReason.BUDGET),
        own("tool calls per step", "max_calls_per_step"),
        own("tokens", "tokens", formula="tokens, in and out", by=reply, reason=EndReason.TOKENS),
        own("cost", "cost", by=reply, reason=EndReason.COST),
        own("seconds", "seconds", formula=driving_time, by=cancelling, reason=EndReason.DEADLINE),
        own("seconds of a tool call", "tool_timeout", formula="tool_timeout, or the tool's own timeout", by=cancelling),
        own(
            *("rounds that repeat", "doom_threshold", "doom_compare", "doom_response"),
            formula=doom,
            reason=EndReason.DOOM_LOOP,
        ),
        own("rounds of one error", "stall_errors", "stall_response", reason=stalls),
        own("rounds without news", "stall_rounds", "stall_response", reason=stalls),
        own("steps in a row without a call", "idle_steps", reason=EndReason.NO_CALL_RAN),
        own("nudges", "nudges"),
        own("pauses", "max_pauses"),
        own("output retries", "output_retries"),
        own("compactions", "max_compactions"),
        Bound("attempts a phase", 1 + limits.max_retries, "1 + max_retries", exact, ("max_retries",)),
        own("seconds of an attempt to conclude", "conclude_seconds", by=cancelling),
        own("tokens of the conclusion", "conclude_tokens", by=Exactness.PROVIDER),
    )


def reply_bound(max_tokens: int | None, tokens: int | None) -> Bound:
    """Return the bound of one reply: the setting `max_tokens`, and the budget `tokens` (docs/rules.md#settings)."""
    bounds = [limit for limit in (max_tokens, tokens) if limit is not None]
    limits = ", ".join("off" if limit is None else str(limit) for limit in (max_tokens, tokens))
    formula, settings = f"min(max_tokens, tokens) = min({limits})", ("max_tokens", "tokens")
    return Bound("tokens of a reply", min(bounds, default=None), formula, Exactness.PROVIDER, settings)


def steps_above(steps: int, ceiling: int = MAX_STEPS) -> str:
    """Return the warning about `steps` above the ceiling, with the way to take more."""
    limit = f"{ceiling} steps" if ceiling == MAX_STEPS else f"{ceiling} steps, the engine's `ceiling`"
    return (
        f"is {steps}, and a turn takes at most {limit}: continue it in a new turn, with `continue_from=turn.id` or"
        " `turnwright run --continue TURN`"
    )
