"""What is said when a turn stops: to the model, to users, and to developers.

The model is asked for a conclusion, the user reads the sentinel or the fixed summary, and the developer is told which
setting binds. All are computed from the turn's counters, so that a model that fails while it concludes cannot make a
turn end silently (DESIGN 4.7).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from pydantic import ValidationError

from turnwright.agent import Agent
from turnwright.message import Message, TextPart, ToolResultPart
from turnwright.tools.text import shorten
from turnwright_states import REASONS, CallStatus, EndReason, Limits, Outcome, Turn
from turnwright_states.facts import TurnStarted
from turnwright_states.inputs import is_blank
from turnwright_states.reasons import NOTHING_SAID

_QUOTED: Final = 400
#: How much of the names that a model asked for is shown: characters of one, and how many.
_SHOWN_NAME: Final = 100
_SHOWN_NAMES: Final = 10
_RAN: Final = frozenset({CallStatus.OK, CallStatus.ERROR, CallStatus.UNKNOWN})


@cache
def prompt(name: str) -> str:
    """Return a prompt that ships with the package: `budget`, `conclude`, `conclude_again` or `nudge`."""
    from importlib.resources import files  # noqa: PLC0415 (it brings zipfile and tempfile, and few turns need a prompt)

    return (files("turnwright") / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


#: What each limit is called.
_LIMITS: Final = {
    EndReason.STEP_CAP: "step limit",
    EndReason.BUDGET: "tool-call limit",
    EndReason.TOKENS: "token limit",
    EndReason.COST: "cost limit",
    EndReason.DEADLINE: "time limit",
}
#: The field of `Limits` behind each budget.
_FIELDS: Final = {
    EndReason.BUDGET: "tool_calls",
    EndReason.TOKENS: "tokens",
    EndReason.COST: "cost",
    EndReason.DEADLINE: "seconds",
}


def limit_reached(turn: Turn, reason: EndReason) -> str:
    """Say why the turn stopped, with figures and without settings: "Stopped at the step limit (5 of 5)"."""
    if reason in _LIMITS:
        return f"Stopped at the {_LIMITS[reason]} ({_figures(turn, reason)})"
    if reason is EndReason.DOOM_LOOP:
        tools = f": {', '.join(turn.loop_tools)}" if turn.loop_tools else ""
        return f"Stopped because the same round of tool calls came again and again{tools}"
    if reason is EndReason.TEXT_ONLY:
        why = _no_tools(turn)
        return f"{why[:1].upper()}{why[1:]}, so no tool could run"
    return REASONS[reason].means.removesuffix(".")


def _figures(turn: Turn, reason: EndReason) -> str:
    c, limits = turn.counters, turn.limits
    match reason:
        case EndReason.STEP_CAP:
            # Under `within` the concluding call is the cap-th step, so the cap is what people know.
            return f"{limits.cap} of {limits.cap}"
        case EndReason.BUDGET:
            return f"{c.calls} of {limits.tool_calls} calls"
        case EndReason.TOKENS:
            return f"{turn.usage.tokens} of {limits.tokens}"
        case EndReason.COST:
            return f"{turn.cost:.4f} of {limits.cost:.4f}"
        case _:
            return f"{turn.elapsed:.1f} of {limits.seconds} s"


def _no_tools(turn: Turn) -> str:
    """Why no tool may run in a text-only turn: each limit that says so."""
    limits = turn.limits
    steps = f"the step limit is {limits.cap}" + (", and the last step answers in text" if limits.cap else "")
    why = [steps] * (limits.allowance == 0) + ["the tool budget is 0"] * (limits.tool_calls == 0)
    return " and ".join(why)


def advice(turn: Turn, started: TurnStarted | None, reason: EndReason) -> str:
    """Say to a developer what to change so that the next turn is not stopped, naming the limit that binds.

    `started` tells whether the agent, the engine or the lease of a sub-agent set it.
    """
    limits, own = turn.limits, _overrides(started)
    if reason is EndReason.STEP_CAP:
        return _step_advice(limits, own)
    if reason is EndReason.TEXT_ONLY:
        steps = "`steps`" if _steps_bind(limits) else "`ceiling` in the engine's limits"
        settings = [steps] * (limits.allowance == 0) + ["`tool_calls`"] * (limits.tool_calls == 0)
        return f"Raise {' and '.join(settings)} to allow tools."
    if reason not in _FIELDS:
        return REASONS[reason].next
    field = _FIELDS[reason]
    most = getattr(limits, field)
    if started is not None and started.parent_turn is not None and own.get(field) != most:
        # The journal keeps what the turn ran with, and not which of the two that was.
        return (
            f"Raise `{field}` in the engine's limits or of the turn that called this sub-agent: one binds (now {most})."
        )
    where = "the agent's budget" if field in own else "the agent's budget or in the engine's limits"
    return f"Raise `{field}` in {where} (now {most})."


def _step_advice(limits: Limits, own: Mapping[str, object]) -> str:
    if _steps_bind(limits):
        whose = "the agent's `steps`" if "steps" in own else "`steps` in the agent or in the engine's limits"
        return f"Raise {whose} (now {limits.steps})."
    if limits.ceiling < Limits().ceiling:
        return f"Raise `ceiling` in the engine's limits (now {limits.ceiling}): it binds, whatever `steps` says."
    return f"The ceiling of {limits.ceiling} steps binds, and cannot be raised: continue in a new turn."


def _steps_bind(limits: Limits) -> bool:
    """Whether it is `steps`, and not `ceiling`, that gives the step limit."""
    return limits.steps is not None and limits.steps < limits.ceiling


def _overrides(started: TurnStarted | None) -> Mapping[str, object]:
    """The limits that the turn's agent sets. A journal that another driver wrote may not say."""
    try:
        return {} if started is None else Agent.from_json(started.agent).overrides
    except ValidationError:
        return {}


def conclude_instruction(turn: Turn, reason: EndReason, template: str | None = None, *, again: bool = False) -> str:
    """What the model is asked to say. `template` is an agent's own text; `{limit}` in it names the limit.

    `again`: the model replied without text before, and is told so, whatever the template says.
    """
    asked = (template or prompt("conclude")).replace("{limit}", limit_reached(turn, reason)).strip()
    return f"{asked}\n\n{prompt('conclude_again').strip()}" if again else asked


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
    parts = (part for m in messages if m.role == "assistant" for part in m.parts if isinstance(part, TextPart))
    texts = [part.text.strip() for part in parts if not is_blank(part.text)]
    if texts:
        last = texts[-1]
        lines.append("Last text: " + (last if len(last) <= _QUOTED else last[:_QUOTED] + "..."))
    lines.append(REASONS[reason].for_users)
    return "\n".join(lines)


def no_answer(turn: Turn) -> str:
    """The text of a text-only turn whose model asked for tools and said nothing."""
    return f"{limit_reached(turn, EndReason.TEXT_ONLY)}. The model asked for tools and gave no answer."


def sentinel_text(
    turn: Turn,
    outcome: Outcome,
    reason: EndReason,
    *,
    refused: Sequence[str] = (),
    error: str = "",
) -> str:
    """The line that tells the user why the turn was stopped, and that they can continue. It names no setting."""
    asked = ", ".join(shorten(name, _SHOWN_NAME) for name in refused[:_SHOWN_NAMES])
    more = f" and {len(refused) - _SHOWN_NAMES} more" if len(refused) > _SHOWN_NAMES else ""
    when = "all the same" if reason is EndReason.TEXT_ONLY else "while concluding"
    noted = f" Calls asked for {when} were refused: {asked}{more}." if refused else ""
    # The machine's own words for an empty reply are those of the reason, which have been said by then.
    why = f" {error.rstrip('.')}." if error not in ("", NOTHING_SAID) and outcome is Outcome.FAILED else ""
    return f"{limit_reached(turn, reason)}.{why}{noted} {REASONS[reason].for_users}".rstrip()
