"""What is said of the limits while a turn runs: to people when one comes near, to the model before each step."""

from typing import Final

from turnwright_states import Limits, Turn
from turnwright_states.facts import Notice

from .conclude import prompt

#: What each limit is called, and how many decimals its figures have: millionths of the currency, tenths of a second.
_KINDS: Final = {
    "tool_calls": ("Tool calls", 0),
    "tokens": ("Tokens", 0),
    "cost": ("Cost", 6),
    "seconds": ("Seconds", 1),
}


def notice_text(notice: Notice, limits: Limits) -> str:
    """A notice in words for people: "Step 20/25 - 5 steps remaining", "Tool calls 40/50 - 10 remaining".

    Steps are counted up to the cap, which is what people set, also where the concluding call is one of them.
    """
    if notice.limit == "usage_unknown":
        return "The provider does not say what its replies used: token and cost budgets cannot hold"
    if notice.limit == "steps":
        steps = limits.cap - int(notice.used)
        rest = f"{steps} step{'' if steps == 1 else 's'} remaining" if steps > 0 else "the last step"
        return f"Step {notice.used:.0f}/{limits.cap} - {rest}"
    name, decimals = _KINDS[notice.limit]
    left = max(notice.of - notice.used, 0)
    return (
        f"{name} {_figure(notice.used, decimals)}/{_figure(notice.of, decimals)} - {_figure(left, decimals)} remaining"
    )


def budget_told(turn: Turn, template: str | None = None) -> str:
    """What a model is told of what is left, before the step that has just begun.

    `template` is used instead of `prompts/budget.txt`; `{left}` in it stands for the figures. Limits that are off are
    left out. The seconds are those at the turn's last fact.
    """
    steps = turn.counters.steps_left
    left = [f"{steps} of {turn.counters.allowance} steps after this one"]
    for name, used, most in turn.use():
        if name != "steps":
            kind, decimals = _KINDS[name]
            left.append(f"{_figure(max(most - used, 0), decimals)} of {_figure(most, decimals)} {kind.lower()}")
    return (template or prompt("budget")).replace("{left}", ", ".join(left)).strip()


def _figure(value: float, decimals: int) -> str:
    """The number without zeros that say nothing: 0.5, not 0.500000."""
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
