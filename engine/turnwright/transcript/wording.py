"""The texts of a turn's conversation that the engine writes: for the model, and for users in place of its replies.

The model receives an instruction to conclude, users the fixed summary. Both are computed from the turn's counters, so
that no turn ends silently if the model fails while it concludes (docs/rules.md#concluding).
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Final

from msgspec.structs import replace
from pydantic import JsonValue

from turnwright._base.words import count, cut_after, cut_clean
from turnwright.message import AnyPart, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from turnwright.status import LIMITS, limit_reached, list_names
from turnwright_states import REASONS, CallStatus, EndReason, Limits, Turn
from turnwright_states.facts import CallMade, ModelReplied, Notice
from turnwright_states.inputs import is_blank
from turnwright_states.payload import FrozenDict, thaw
from turnwright_states.state import Stall

_NO_ARGUMENTS: Final[FrozenDict[JsonValue]] = FrozenDict()
_QUOTED: Final = 400
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


def cut_off_problem(limit: int | None = None, *, window_full: bool = False) -> str:
    """Return the result of a call whose arguments were incomplete when its reply was cut off, at `limit` tokens."""
    at = _WINDOW if window_full else f"{_OUTPUT_LIMIT} of {limit:,} tokens" if limit else _OUTPUT_LIMIT
    return f"{_CUT_OFF}{at}{_INCOMPLETE}"


def cut_off_advice(reply: ModelReplied | None) -> str:
    """Return what a developer can change if the reply was cut off in a call; else an empty text."""
    problems = () if reply is None else (call.refused for call in reply.calls if call.invalid)
    problem = next((text for text in problems if text.startswith(_CUT_OFF)), "")
    if not problem:
        return ""
    at = problem.removeprefix(_CUT_OFF).removesuffix(_INCOMPLETE)
    setting = "set `compaction`" if at == _WINDOW else "raise `max_tokens` in the model settings"
    return f"The last reply was cut off at {at}, inside a call: {setting}, or ask for less in one call."


def conclude_instruction(turn: Turn, reason: EndReason, template: str | None = None, *, again: bool = False) -> str:
    """Return the instruction to conclude. `template` is the agent's own text; `{limit}` in it is replaced.

    With `again` it adds that the last reply had no text.
    """
    instruction = (template or prompt("conclude")).replace("{limit}", limit_reached(turn, reason)).strip()
    return f"{instruction}\n\n{prompt('conclude_again').strip()}" if again else instruction


def fixed_summary(turn: Turn, reason: EndReason, messages: Sequence[Message], last_text: str) -> str:
    """Return the conclusion for a model that gave none: the limit, the steps, the tools used, the last text."""
    tool_uses = Counter(
        part.name
        for message in messages
        for part in message.parts
        if isinstance(part, ToolResultPart) and part.status in _RAN
    )
    refusal = "gave no" if turn.limits.asks_for_conclusion else "was not asked for a"
    lines = [f"{limit_reached(turn, reason)}. The model {refusal} summary."]
    lines.append(f"Steps taken: {turn.steps_taken}. Tool calls run: {turn.counters.calls}.")
    if tool_uses:
        lines.append(f"Tools used: {list_names([name for name, _ in tool_uses.most_common()], tool_uses)}.")
    if not is_blank(last_text):
        lines.append(f"Last text: {cut_after(last_text.strip(), _QUOTED, '...')}")
    lines.append(REASONS[reason].for_users)
    return "\n".join(lines)


def no_answer(turn: Turn) -> str:
    """Return the text of a text-only turn whose model only asked for tools."""
    return f"{limit_reached(turn, EndReason.TEXT_ONLY)}. The model asked for tools and gave no answer."


def changed_arguments(arguments: Mapping[str, JsonValue]) -> str:
    """Return what the model reads before the result of a call that a person approved with other arguments."""
    text = cut_clean(json.dumps(thaw(arguments), ensure_ascii=False), _SHOWN_ARGUMENTS)
    return f"[a person approved this call with other arguments: {text}]\n\n"


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


def notice_text(notice: Notice, limits: Limits) -> str:
    """Return a notice for people: "Step 20/25 - 5 steps remaining", "Tool calls 40/50 - 10 remaining".

    Steps are counted up to the cap, the number that people set, even if the concluding call is one of them.
    """
    if notice.limit == "usage_unknown":
        return "The provider reports no usage: token and cost limits cannot be enforced"
    if notice.limit == "rules_incomplete":
        return "Earlier turns of the session are missing: its rules do not know their calls"
    if notice.limit == "steps":
        steps = limits.cap - int(notice.used)
        remainder = f"{count(steps, 'step')} remaining" if steps > 0 else "the last step"
        return f"Step {notice.used:.0f}/{limits.cap} - {remainder}"
    _, unit, decimals = LIMITS[notice.limit]
    remaining = max(notice.of - notice.used, 0)
    used_text, most, remainder = (_format_figure(value, decimals) for value in (notice.used, notice.of, remaining))
    return f"{unit.capitalize()} {used_text}/{most} - {remainder} remaining"


def budget_text(turn: Turn, template: str | None = None) -> str:
    """Return what is left of the limits, for the model, before the step that has just begun.

    `template` replaces `prompts/budget.txt`; `{left}` in it is replaced by the figures. Limits that are off are left
    out. The seconds are those at the turn's last fact.
    """
    steps = turn.counters.steps_left
    figures = [f"{steps} of {turn.counters.allowance} steps after this one"]
    for name, amount, most in turn.use():
        if name != "steps":
            _, unit, decimals = LIMITS[name]
            figures.append(
                f"{_format_figure(max(most - amount, 0), decimals)} of {_format_figure(most, decimals)} {unit}"
            )
    return (template or prompt("budget")).replace("{left}", ", ".join(figures)).strip()


def _format_figure(value: float, decimals: int) -> str:
    """Format a number without trailing zeros: 0.5, not 0.500000."""
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def without_answer(call: CallMade) -> CallMade:
    """Return a call without the typed answer that a guardrail withheld."""
    return replace(call, arguments=_NO_ARGUMENTS, raw="") if call.output else call


def withheld_parts(parts: Sequence[AnyPart], text: str, answers: Collection[str]) -> tuple[AnyPart, ...]:
    """Return the parts of a withheld reply, without its reasoning: `text` in place of its text.

    `answers` has the ids of the calls that are typed answers: they lose their arguments.
    """
    return tuple([_withhold_part(part, text, answers) for part in parts if not isinstance(part, ReasoningPart)])


def _withhold_part(part: AnyPart, text: str, answers: Collection[str]) -> AnyPart:
    if isinstance(part, TextPart):
        return TextPart(seq=part.seq, text=text)
    return replace(part, arguments=_NO_ARGUMENTS) if isinstance(part, ToolCallPart) and part.id in answers else part
