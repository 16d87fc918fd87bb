"""The texts about limits and endings: for the model, for users, and for developers.

The model receives an instruction to conclude, users the sentinel or the fixed summary, developers the setting to
change. All are computed from the turn's counters, so that no turn ends silently if the model fails while it concludes
(docs/rules.md#concluding).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from pydantic import JsonValue, ValidationError

from turnwright._base.words import count, cut_after
from turnwright.agent import Agent
from turnwright.message import Message, TextPart, ToolResultPart
from turnwright.tools.text import cut_clean
from turnwright_states import MAX_STEPS, REASONS, CallStatus, EndReason, Limits, Turn
from turnwright_states.blank import is_blank
from turnwright_states.facts import ModelReplied, Notice, TurnStarted
from turnwright_states.payload import thawed
from turnwright_states.rounds import Stall

_QUOTED: Final = 400
#: Limits on the names of refused tools: characters of each, and how many.
_SHOWN_NAME: Final = 100
_SHOWN_NAMES: Final = 10
#: Characters of the changed arguments that the model reads.
_SHOWN_ARGUMENTS: Final = 4_000
#: The parts of the result of a call that was cut off.
_CUT_OFF: Final = "not executed: the reply was cut off at "
_OUTPUT_LIMIT: Final = "its output limit"
_WINDOW: Final = "the end of the model's context window"
_INCOMPLETE: Final = " before the arguments were complete: send less in one call"
_RAN: Final = frozenset({CallStatus.OK, CallStatus.ERROR, CallStatus.UNKNOWN})


@cache
def prompt(name: str) -> str:
    """Return a prompt that ships with the package: such as `conclude` or `nudge`."""
    from importlib.resources import files  # noqa: PLC0415 (imports zipfile and tempfile, and few turns need a prompt)

    return (files("turnwright") / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def hint_text(stall: Stall | None) -> str:
    """Return the text for a model that stalls, or else repeats itself."""
    return prompt(stall or "nudge").strip()


#: What happened, for users, where the meaning of the reason is for developers.
_HAPPENED: Final = {EndReason.ENGINE_ERROR: "Something went wrong in the app"}
#: The name of each limit.
_LIMITS: Final = {
    EndReason.STEP_CAP: "step limit",
    EndReason.BUDGET: "tool-call limit",
    EndReason.TOKENS: "token limit",
    EndReason.COST: "cost limit",
    EndReason.DEADLINE: "time limit",
}
_STALLED: Final = {Stall.SAME_ERROR: "got the same error again and again", Stall.NOTHING_NEW: "found out nothing new"}
#: The field of `Limits` behind each budget.
_FIELDS: Final = {
    EndReason.BUDGET: "tool_calls",
    EndReason.TOKENS: "tokens",
    EndReason.COST: "cost",
    EndReason.DEADLINE: "seconds",
}
#: The name of each limit in a notice, and the decimals of its figures.
_KINDS: Final = {
    "tool_calls": ("Tool calls", 0),
    "tokens": ("Tokens", 0),
    "cost": ("Cost", 6),
    "seconds": ("Seconds", 1),
}


def cut_off_problem(limit: int | None = None, *, window_full: bool = False) -> str:
    """Return the result of a call whose arguments were incomplete when its reply was cut off, at `limit` tokens."""
    at = _WINDOW if window_full else f"{_OUTPUT_LIMIT} of {limit:,} tokens" if limit else _OUTPUT_LIMIT
    return f"{_CUT_OFF}{at}{_INCOMPLETE}"


def limit_reached(turn: Turn, reason: EndReason) -> str:
    """Say why the turn stopped, with figures and without settings: "Stopped at the step limit (5 of 5)"."""
    if reason in _LIMITS:
        return f"Stopped at the {_LIMITS[reason]} ({_figures(turn, reason)})"
    if reason is EndReason.DOOM_LOOP:
        stall = turn.rounds.stalls.stall if turn.limits.stall_response == "loop" else None
        what = "repeated the same tool calls" if stall is None else _STALLED[stall]
        tools = f": {_listed(turn.rounds.tools)}" if turn.rounds.tools else ""
        return f"Stopped because the model {what}{tools}"
    if reason is EndReason.NO_CALL_RAN:
        steps = turn.counters.idle
        return f"Stopped because no tool call could run in {steps} step{'s in a row' if steps > 1 else ''}"
    if reason is EndReason.TEXT_ONLY:
        why = _no_tools(turn)
        return f"{why[:1].upper()}{why[1:]}, so no tool could run"
    return REASONS[reason].means.removesuffix(".")


def _listed(names: Sequence[str], counts: Mapping[str, int] | None = None) -> str:
    """List the names of tools that the model wrote, which may be many and long, perhaps with a count of each."""
    shown = [cut_clean(name, _SHOWN_NAME) + (f" ({counts[name]})" if counts else "") for name in names[:_SHOWN_NAMES]]
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(shown) + more


def _figures(turn: Turn, reason: EndReason) -> str:
    c, limits = turn.counters, turn.limits
    match reason:
        case EndReason.STEP_CAP:
            # With `concluding="within"` the concluding call is the last step of the cap, which is the number that
            # people know.
            return f"{limits.cap} of {limits.cap}"
        case EndReason.BUDGET:
            return f"{c.calls} of {limits.tool_calls} calls"
        case EndReason.TOKENS:
            return f"{turn.usage.tokens} of {limits.tokens}"
        case EndReason.COST:
            return f"{turn.cost:.4f} of {limits.cost:.4f}"
        case _:
            return f"{turn.seconds_used:.1f} of {limits.seconds} s"


def _no_tools(turn: Turn) -> str:
    """Return why a text-only turn may run no tool: each limit that forbids it."""
    limits = turn.limits
    steps = f"the step limit is {limits.cap}" + (", and the last step answers in text" if limits.cap else "")
    why = [steps] * (limits.allowance == 0) + ["the tool-call limit is 0"] * (limits.tool_calls == 0)
    return " and ".join(why)


def advice(turn: Turn, started: TurnStarted | None, reason: EndReason, reply: ModelReplied | None = None) -> str:
    """Return what a developer can change so that the next turn is not stopped, naming the limit that binds.

    `started` says whether the agent, the engine or a sub-agent's lease set it. If the last `reply` was cut off in a
    call, its limit comes first.
    """
    return f"{_cut_off_advice(reply)} {_limit_advice(turn, started, reason)}".lstrip()


def _cut_off_advice(reply: ModelReplied | None) -> str:
    problems = () if reply is None else (call.refused for call in reply.calls if call.invalid)
    problem = next((each for each in problems if each.startswith(_CUT_OFF)), "")
    if not problem:
        return ""
    at = problem.removeprefix(_CUT_OFF).removesuffix(_INCOMPLETE)
    setting = "set `compaction`" if at == _WINDOW else "raise `max_tokens` in the model settings"
    return f"The last reply was cut off at {at}, inside a call: {setting}, or ask for less in one call."


def _limit_advice(turn: Turn, started: TurnStarted | None, reason: EndReason) -> str:
    limits, own = turn.limits, _overrides(started)
    if reason is EndReason.STEP_CAP:
        return _step_advice(limits, own)
    if reason is EndReason.TEXT_ONLY:
        steps = "`steps`" if _steps_bind(limits) else "`ceiling` in the engine's limits"
        settings = [steps] * (limits.allowance == 0) + ["`tool_calls`"] * (limits.tool_calls == 0)
        return f"Raise {' and '.join(settings)} to allow tools."
    if reason is EndReason.NO_CALL_RAN:
        repair = "Read the results of the last calls: each says why the call did not run. Repair that"
        return f"{repair}, or raise `idle_steps` in the agent or in the engine's limits (now {limits.idle_steps})."
    if reason not in _FIELDS:
        return REASONS[reason].next
    field = _FIELDS[reason]
    most = getattr(limits, field)
    if started is not None and started.parent_turn is not None and own.get(field) != most:
        # The journal keeps the limit that applied, and not which of the two it came from.
        return f"Raise `{field}` in the engine's limits or in the turn that called this sub-agent (now {most:,})."
    where = "the agent's budget" if field in own else "the agent's budget or in the engine's limits"
    return f"Raise `{field}` in {where} (now {most:,})."


def _step_advice(limits: Limits, own: Mapping[str, object]) -> str:
    if _steps_bind(limits):
        whose = "the agent's `steps`" if "steps" in own else "`steps` in the agent or in the engine's limits"
        return f"Raise {whose} (now {limits.steps})."
    if limits.ceiling < MAX_STEPS:
        return f"Raise `ceiling` in the engine's limits (now {limits.ceiling}): it applies before `steps`."
    return f"{limits.ceiling} steps is the highest ceiling: continue in a new turn."


def _steps_bind(limits: Limits) -> bool:
    """Whether `steps`, and not `ceiling`, gives the step limit."""
    return limits.steps is not None and limits.steps < limits.ceiling


def _overrides(started: TurnStarted | None) -> Mapping[str, object]:
    """Return the limits that the turn's agent sets; none if a foreign journal lacks a valid agent."""
    try:
        return {} if started is None else Agent.from_json(started.agent).overrides
    except ValidationError:
        return {}


def conclude_instruction(turn: Turn, reason: EndReason, template: str | None = None, *, again: bool = False) -> str:
    """Return the instruction to conclude. `template` is the agent's own text; `{limit}` in it is replaced.

    With `again` it adds that the last reply had no text.
    """
    asked = (template or prompt("conclude")).replace("{limit}", limit_reached(turn, reason)).strip()
    return f"{asked}\n\n{prompt('conclude_again').strip()}" if again else asked


def fixed_summary(turn: Turn, reason: EndReason, messages: Sequence[Message]) -> str:
    """Return the conclusion for a model that gave none: the limit, the steps, the tools used, the last text."""
    used = Counter(
        part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolResultPart) and part.status in _RAN
    )
    asked = "was not asked for a" if turn.limits.concluding == "never" else "gave no"
    lines = [f"{limit_reached(turn, reason)}. The model {asked} summary."]
    lines.append(f"Steps taken: {turn.steps_taken}. Tool calls run: {turn.counters.calls}.")
    if used:
        lines.append(f"Tools used: {_listed([name for name, _ in used.most_common()], used)}.")
    parts = (part for m in messages if m.role == "assistant" for part in m.parts if isinstance(part, TextPart))
    texts = [part.text.strip() for part in parts if not is_blank(part.text)]
    if texts:
        lines.append(f"Last text: {cut_after(texts[-1], _QUOTED, '...')}")
    lines.append(REASONS[reason].for_users)
    return "\n".join(lines)


def no_answer(turn: Turn) -> str:
    """Return the text of a text-only turn whose model only asked for tools."""
    return f"{limit_reached(turn, EndReason.TEXT_ONLY)}. The model asked for tools and gave no answer."


def changed_arguments(arguments: Mapping[str, JsonValue]) -> str:
    """Return what the model reads before the result of a call that a person approved with other arguments."""
    shown = cut_clean(json.dumps(thawed(arguments), ensure_ascii=False), _SHOWN_ARGUMENTS)
    return f"[a person approved this call with other arguments: {shown}]\n\n"


def feedback_text(feedback: str) -> str:
    """Return the message to the model after its reply was refused."""
    return f"Your reply was not accepted: {feedback}\n\nCorrect it, and reply again."


#: The text that people and later turns read instead of a reply whose review did not finish.
UNCHECKED: Final = "withheld: its check did not finish"
_WITHHELD_BY: Final = "withheld by "


def withheld_text(guardrail: str) -> str:
    """Return the text that later turns read instead of the one on which a guardrail tripped."""
    return f"{_WITHHELD_BY}{guardrail}"


def is_withheld(text: str) -> bool:
    """Whether a text replaces one that a guardrail withheld."""
    return text == UNCHECKED or text.startswith(_WITHHELD_BY)


def sentinel_text(
    turn: Turn,
    reason: EndReason,
    *,
    refused: Sequence[str] = (),
    guardrail: str = "",
) -> str:
    """Return the line for the user: why the turn was stopped, and that they can continue. It names no setting.

    `guardrail` is the message of the guardrail that ended the turn, which is written for people. An error is not: it
    may name hosts, files and variables (docs/security.md#what-a-browser-is-sent).
    """
    when = "all the same" if reason is EndReason.TEXT_ONLY else "while concluding"
    noted = f" Calls asked for {when} were refused: {_listed(refused)}." if refused else ""
    why = f" {guardrail.rstrip('.')}." if guardrail else ""
    happened = _HAPPENED.get(reason) or limit_reached(turn, reason)
    return f"{happened}.{why}{noted} {REASONS[reason].for_users}".rstrip()


def notice_text(notice: Notice, limits: Limits) -> str:
    """Return a notice for people: "Step 20/25 - 5 steps remaining", "Tool calls 40/50 - 10 remaining".

    Steps are counted up to the cap, the number that people set, even if the concluding call is one of them.
    """
    if notice.limit == "usage_unknown":
        return "The provider reports no usage: token and cost limits cannot be enforced"
    if notice.limit == "steps":
        steps = limits.cap - int(notice.used)
        rest = f"{count(steps, 'step')} remaining" if steps > 0 else "the last step"
        return f"Step {notice.used:.0f}/{limits.cap} - {rest}"
    name, decimals = _KINDS[notice.limit]
    left = max(notice.of - notice.used, 0)
    return (
        f"{name} {_figure(notice.used, decimals)}/{_figure(notice.of, decimals)} - {_figure(left, decimals)} remaining"
    )


def budget_text(turn: Turn, template: str | None = None) -> str:
    """Return what is left of the limits, for the model, before the step that has just begun.

    `template` replaces `prompts/budget.txt`; `{left}` in it is replaced by the figures. Limits that are off are left
    out. The seconds are those at the turn's last fact.
    """
    steps = turn.counters.steps_left
    left = [f"{steps} of {turn.counters.allowance} steps after this one"]
    for name, used, most in turn.use():
        if name != "steps":
            kind, decimals = _KINDS[name]
            left.append(f"{_figure(max(most - used, 0), decimals)} of {_figure(most, decimals)} {kind.lower()}")
    return (template or prompt("budget")).replace("{left}", ", ".join(left)).strip()


def _figure(value: float, decimals: int) -> str:
    """Format a number without trailing zeros: 0.5, not 0.500000."""
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
