"""What is said when a turn stops: the request for a conclusion, the fixed summary, and the sentinel's line.

All three are computed from the turn's counters, so that a model that fails while it concludes cannot make a turn end
silently (DESIGN 4.7).
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Final

from turnwright_states import REASONS, CallStatus, EndReason, Outcome, Turn
from turnwright_states.reasons import NOTHING_SAID

from .message import Message, TextPart, ToolResultPart

_QUOTED: Final = 400
_RAN: Final = frozenset({CallStatus.OK, CallStatus.ERROR, CallStatus.UNKNOWN})


@cache
def prompt(name: str) -> str:
    """A prompt that ships with the package: `conclude` or `nudge`."""
    from importlib.resources import files  # noqa: PLC0415 (it brings zipfile and tempfile, and few turns need a prompt)

    return (files("turnwright") / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def limit_reached(turn: Turn, reason: EndReason) -> str:  # noqa: PLR0911 (one line a limit)
    """The limit in figures: "Step limit reached (5 of 5)". For other reasons, what the reason means."""
    c, limits = turn.counters, turn.limits
    match reason:
        case EndReason.STEP_CAP:
            # Under `within` the concluding call is the cap-th step, so the cap is what people know.
            return f"Step limit reached ({limits.cap} of {limits.cap})"
        case EndReason.BUDGET:
            return f"Tool budget exhausted ({c.calls} of {limits.tool_calls} calls)"
        case EndReason.TOKENS:
            return f"Token budget exhausted ({turn.usage.tokens} of {limits.tokens})"
        case EndReason.COST:
            return f"Cost budget exhausted ({turn.cost:.4f} of {limits.cost:.4f})"
        case EndReason.DEADLINE:
            return f"Time is up ({turn.elapsed:.1f} of {limits.seconds} s)"
        case EndReason.DOOM_LOOP:
            tools = f": {', '.join(turn.loop_tools)}" if turn.loop_tools else ""
            return f"The same round of tool calls came again and again{tools}"
        case _:
            return REASONS[reason].means.removesuffix(".")


def conclude_instruction(turn: Turn, reason: EndReason, template: str | None = None) -> str:
    """What the model is asked to say. `template` is an agent's own text; `{limit}` in it names the limit."""
    return (template or prompt("conclude")).replace("{limit}", limit_reached(turn, reason)).strip()


def fixed_summary(turn: Turn, reason: EndReason, messages: Sequence[Message]) -> str:
    """The conclusion when the model gives none: the limit, the steps, the tools used, the last text."""
    used = Counter(
        part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolResultPart) and part.status in _RAN
    )
    lines = [f"{limit_reached(turn, reason)}. The model gave no summary."]
    lines.append(f"Steps taken: {turn.counters.steps}. Tool calls run: {turn.counters.calls}.")
    if used:
        lines.append("Tools used: " + ", ".join(f"{name} ({count})" for name, count in used.most_common()) + ".")
    texts = [part.text for m in messages if m.role == "assistant" for part in m.parts if isinstance(part, TextPart)]
    if texts and texts[-1].strip():
        last = texts[-1].strip()
        lines.append("Last text: " + (last if len(last) <= _QUOTED else last[:_QUOTED] + "..."))
    lines.append(REASONS[reason].next)
    return "\n".join(lines)


def sentinel_text(
    turn: Turn, outcome: Outcome, reason: EndReason, *, refused: Sequence[str] = (), error: str = ""
) -> str:
    """The line that tells the user why the turn was stopped, and what to do next."""
    noted = f" Calls asked for while concluding were refused: {', '.join(refused)}." if refused else ""
    # The machine's own words for an empty reply are those of the reason, which have been said by then.
    why = f" {error.rstrip('.')}." if error not in ("", NOTHING_SAID) and outcome is Outcome.FAILED else ""
    return f"{limit_reached(turn, reason)}.{why}{noted} {REASONS[reason].next}"
