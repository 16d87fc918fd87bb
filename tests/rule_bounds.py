"""The bounds of docs/rules.md, written by hand: a property must not read a bound from the code that it checks."""

from typing import Final

from turnwright_states import Limits, ToolCallLimits

#: docs/rules.md#steps and docs/rules.md#sub-agents.
MOST_STEPS: Final = 200
DEEPEST: Final = 3


def most_steps(limits: Limits) -> int:
    """Return the cap of a turn: the steps that it may take (docs/rules.md#steps)."""
    steps = MOST_STEPS if limits.steps is None else limits.steps
    return min(steps, limits.ceiling, MOST_STEPS)


def steps_with_tools(limits: Limits) -> int:
    """Return the allowance: one step fewer than the cap if the concluding call is a step (docs/rules.md#steps)."""
    return max(most_steps(limits) - 1, 0) if limits.concluding == "within" else most_steps(limits)


def most_model_calls(limits: Limits) -> int:
    """Return the most model calls of a turn (docs/rules.md#model-calls)."""
    attempts = 1 + limits.max_retries
    return steps_with_tools(limits) * attempts + attempts + 2 * limits.max_compactions


def most_tool_calls(limits: Limits) -> int | None:
    """Return the most tool calls of a turn whose tools are of no class, or None (docs/rules.md#budgets)."""
    calls = limits.tool_calls
    return calls.default if isinstance(calls, ToolCallLimits) else calls
