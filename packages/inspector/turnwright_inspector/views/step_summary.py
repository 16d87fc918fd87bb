"""A step in a list: its work in a line, and its badges."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from turnwright._base.words import collapse_whitespace, cut_after
from turnwright.privacy.redaction import redactor
from turnwright_states import CallStatus
from turnwright_states.state import Stall

from .steps import Step

#: Characters of a text, and how many different tools are named.
_LONGEST: Final = 120
_MOST_TOOLS: Final = 4

#: What becomes of a call and stands out: the icon, the tone, and the words for one and for several.
_OF_CALLS: Final = {
    CallStatus.ERROR: ("error", "bad", "call failed", "calls failed"),
    CallStatus.UNKNOWN: ("unknown", "bad", "outcome unknown", "outcomes unknown"),
    CallStatus.REJECTED: ("rejected", "warn", "call rejected", "calls rejected"),
    CallStatus.REFUSED: ("refused", "warn", "call refused", "calls refused"),
    CallStatus.ABORTED: ("aborted", "quiet", "call aborted", "calls aborted"),
    "waiting": ("paused", "paused", "call waits for a person", "calls wait for a person"),
}
_STALLED: Final = {
    Stall.SAME_ERROR: "the model received a notice that the same error comes again and again",
    Stall.NOTHING_NEW: "the model received a notice that its calls bring nothing new",
}


@dataclass(frozen=True, slots=True)
class Badge:
    """A badge: an icon with its tone and meaning."""

    icon: str
    tone: str
    words: str


@dataclass(frozen=True, slots=True)
class StepSummary:
    """A step in a list. `share` is its part of the longest step's time, `tools` says that `what` names tools."""

    step: Step
    what: str
    tools: bool
    marks: tuple[Badge, ...]
    share: float


#: The most characters of an answer in the line of a step.
_LONGEST_ANSWER: Final = 120


def step_summaries(steps: Sequence[Step]) -> tuple[StepSummary, ...]:
    longest = max((step.seconds for step in steps), default=0.0)
    return tuple(
        StepSummary(step, *_what(step), tuple(_marks(step)), step.seconds / longest if longest else 0.0)
        for step in steps
    )


def named(tools: Iterable[str]) -> str:
    """Return the tools of several calls in a line, each one once with its count, the most frequent first."""
    counts = Counter(tools)
    words = [name if count == 1 else f"{name} ×{count}" for name, count in counts.most_common(_MOST_TOOLS)]  # noqa: RUF001 (the sign of multiplication is meant)
    more = len(counts) - _MOST_TOOLS
    return ", ".join(words) + (f" and {more} more" if more > 0 else "")


def _what(step: Step) -> tuple[str, bool]:
    """Describe a step in a line. Returns also whether the line names tools."""
    if step.calls:
        return named(call.made.name for call in step.calls), True
    # Half a secret is not known as one: it is hidden before the text is cut.
    text = redactor().hide(collapse_whitespace(step.text))
    if text:
        return cut_after(text, _LONGEST), False
    if step.replied is not None:
        return "no text", False
    if step.attempts and not step.attempts[-1].retry:
        return f"no reply: {step.attempts[-1].cause}", False
    return "waits for the model", False


def _marks(step: Step) -> Iterator[Badge]:
    found = Counter(call.status for call in step.calls)
    for status, (icon, tone, one, several) in _OF_CALLS.items():
        count = found[str(status)]
        if count:
            yield Badge(icon, tone, f"{count} {one if count == 1 else several}")
    for attempt in step.attempts:
        again = "tried again" if attempt.retry else "not tried again"
        yield Badge("retry", "warn" if attempt.retry else "bad", f"attempt {attempt.number}: {attempt.cause}, {again}")
    if step.nudge:
        yield Badge("nudge", "warn", "the model received a notice that it repeats itself")
    elif step.stall is not None:
        yield Badge("nudge", "warn", _STALLED[step.stall])
    if step.said:
        yield Badge("steer", "info", "a person sent a message")
    for answer in step.answers:
        # A longer text is on the journal's tab. It is not cut: half a secret is not recognized.
        text = f": {answer.text}" if 0 < len(answer.text) <= _LONGEST_ANSWER else ""
        yield Badge("person", "paused", f"a person answered {answer.interrupt}: {answer.decision}{text}")
    if any(call.child for call in step.calls):
        yield Badge("child", "info", "a sub-agent ran")
    for notice in step.notices:
        yield Badge("warn", "warn", f"notice: {notice.limit}")
