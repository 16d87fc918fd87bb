"""Two turns or recorded runs side by side: figures, steps in pairs, and the difference of a pair."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, zip_longest
from typing import Final, TypeVar

from pydantic import ValidationError

from turnwright.errors import TurnwrightError
from turnwright.privacy.redaction import redactor
from turnwright_inspector.http.render import json_text
from turnwright_states.payload import thaw

from .pagination import Window
from .steps import Step, StepCall, StepSummary, step_summaries
from .text_diff import DiffLine, count_common, text_diff

#: Characters of a text that are compared.
_TEXT: Final = 100_000
#: Pairs a page, and steps from the first difference on that are aligned.
_PAIRS: Final = 300
_ALIGNED: Final = 1_000

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Side:
    """A turn or a run to compare.

    `request_of` returns a step's request, or raises `TurnwrightError` or `ValidationError`. `figures` of both
    have the same names. Of the limits and the settings, those that differ are shown.
    """

    id: str
    figures: Mapping[str, str]
    limits: Mapping[str, str]
    settings: Mapping[str, str]
    prompt: str
    instructions: str
    answer: str
    steps: Sequence[Step]
    request_of: Callable[[Step], str]


@dataclass(frozen=True, slots=True)
class Line:
    """A property of both turns, in words."""

    name: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        return self.left != self.right


@dataclass(frozen=True, slots=True)
class StepPair:
    """A step and its counterpart in the other turn; None without one. `differs` names what is not the same."""

    number: int
    left: StepSummary | None
    right: StepSummary | None
    differs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallPair:
    """A call and its counterpart; the differences of their arguments and of their results."""

    left: StepCall | None
    right: StepCall | None
    arguments: tuple[DiffLine, ...]
    result: tuple[DiffLine, ...]


@dataclass(frozen=True, slots=True)
class PairDetails:
    """The differences of a pair of steps: what was sent, what came back, and each call.

    `unsent` says why the requests cannot be compared.
    """

    request: tuple[DiffLine, ...]
    unsent: str
    reasoning: tuple[DiffLine, ...]
    text: tuple[DiffLine, ...]
    calls: tuple[CallPair, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two turns or runs compared. `details` belong to the chosen pair of steps, if there is one.

    `pairs` are those around the chosen one, `before` and `after` the numbers of the next ones. `runs` has the same
    pairs, those that differ or are chosen apart from those between them.

    `answer` is the difference of their final texts, `instructions` that of their agents' instructions, and `prompt`
    that of their prompts.
    """

    lines: tuple[Line, ...]
    prompt: tuple[DiffLine, ...]
    instructions: tuple[DiffLine, ...]
    answer: tuple[DiffLine, ...]
    pairs: tuple[StepPair, ...]
    before: int | None
    after: int | None
    chosen: StepPair | None
    details: PairDetails | None

    @property
    def runs(self) -> tuple[tuple[StepPair, ...], ...]:
        groups = groupby(self.pairs, lambda pair: bool(pair.differs) or pair == self.chosen)
        return tuple(tuple(run) for _, run in groups)


def compare(left: Side, right: Side, number: int | None) -> Comparison:
    """Compare two sides. `number` is that of a pair; by default the first one that differs."""
    pairs = tuple(_pairs(left, right))
    shown_pair = next((pair for pair in pairs if pair.number == number), None) if number is not None else None
    shown_pair = shown_pair or next((pair for pair in pairs if pair.differs), None)
    first = max((1 if shown_pair is None else shown_pair.number) - _PAIRS // 2, 1)
    window = Window.of(len(pairs), _PAIRS, None, (first, len(pairs)))
    return Comparison(
        lines=tuple(_figures(left, right)),
        prompt=_diff(left.prompt, right.prompt),
        instructions=_diff(left.instructions, right.instructions),
        answer=_diff(left.answer, right.answer),
        pairs=pairs[window.part],
        before=window.earlier,
        after=None if window.later is None else window.last + 1,
        chosen=shown_pair,
        details=None if shown_pair is None else _details(shown_pair, left, right),
    )


def _diff(left: str, right: str) -> tuple[DiffLine, ...]:
    return text_diff(left[:_TEXT], right[:_TEXT])


def _figures(left: Side, right: Side) -> Iterator[Line]:
    """Yield the figures of both, and each limit and setting in which they differ."""
    yield from (Line(name, value, right.figures[name]) for name, value in left.figures.items())
    for kind, left_values, right_values in (
        ("Limit", left.limits, right.limits),
        ("Setting", left.settings, right.settings),
    ):
        for name in sorted(left_values.keys() | right_values.keys()):
            line = Line(f"{kind} {name}", left_values.get(name, "not set"), right_values.get(name, "not set"))
            if line.differs:
                yield line


def _pairs(left_side: Side, right_side: Side) -> Iterator[StepPair]:
    left, right = step_summaries(left_side.steps), step_summaries(right_side.steps)
    step_pairs = _align(
        left, right, [_signature(summary.step) for summary in left], [_signature(summary.step) for summary in right]
    )
    for number, (left_step, right_step) in enumerate(step_pairs, start=1):
        if left_step is None or right_step is None:
            yield StepPair(number, left_step, right_step, ("only in one",))
        else:
            yield StepPair(number, left_step, right_step, tuple(_differences(left_step.step, right_step.step)))


def _align(
    left: Sequence[Item], right: Sequence[Item], left_keys: Sequence[object], right_keys: Sequence[object]
) -> Iterator[tuple[Item | None, Item | None]]:
    """Pair items in order: those with equal signatures, and between these the first with the first.

    Where very many differ, the rest is paired as it comes: time grows with the square.
    """
    common = count_common(left_keys, right_keys)
    yield from zip(left[:common], right[:common], strict=True)
    end = common + _ALIGNED
    matcher = SequenceMatcher(None, left_keys[common:end], right_keys[common:end], autojunk=False)
    for _, first, last, to_first, to_last in matcher.get_opcodes():
        yield from zip_longest(left[common + first : common + last], right[common + to_first : common + to_last])
    yield from zip_longest(left[end:], right[end:])


def _signature(step: Step) -> object:
    return (step.key if not step.key.isdecimal() else "", tuple(map(_call_signature, step.calls)))


def _call_signature(call: StepCall) -> tuple[str, str]:
    return call.made.name, _arguments(call)


def _arguments(call: StepCall | None) -> str:
    if call is None:
        return ""
    return call.made.raw or json_text(redactor().hide_fields(thaw(call.made.arguments or {})))


def _differences(left_step: Step, right_step: Step) -> Iterator[str]:
    """Name what two steps differ in."""
    if [*map(_call_signature, left_step.calls)] != [*map(_call_signature, right_step.calls)]:
        yield "calls"
    elif [*map(_result, left_step.calls)] != [*map(_result, right_step.calls)]:
        yield "results"
    if left_step.text != right_step.text:
        yield "text"
    if left_step.reasoning != right_step.reasoning:
        yield "thinking"
    if [attempt.cause for attempt in left_step.attempts] != [attempt.cause for attempt in right_step.attempts]:
        yield "failed attempts"
    if left_step.messages != right_step.messages:
        yield "messages"


def _result(call: StepCall | None) -> str:
    """Return the status and the result of a call."""
    if call is None:
        return ""
    fact = call.result_fact
    return call.status if fact is None else f"{call.status}\n{fact.result}"


def _details(pair: StepPair, left: Side, right: Side) -> PairDetails:
    left_step, right_step = (None if side is None else side.step for side in (pair.left, pair.right))
    unsent, texts = "", ["", ""]
    if left_step is not None and right_step is not None:
        try:
            texts = [left.request_of(left_step), right.request_of(right_step)]
        except (TurnwrightError, ValidationError) as error:
            unsent = f"The requests cannot be built again: {error}"
    left_calls, right_calls = (() if step is None else step.calls for step in (left_step, right_step))
    calls = _align(
        left_calls, right_calls, [call.made.name for call in left_calls], [call.made.name for call in right_calls]
    )
    return PairDetails(
        request=_diff(*texts),
        unsent=unsent,
        reasoning=_diff(
            "" if left_step is None else left_step.reasoning, "" if right_step is None else right_step.reasoning
        ),
        text=_diff("" if left_step is None else left_step.text, "" if right_step is None else right_step.text),
        calls=tuple(
            CallPair(a, b, _diff(_arguments(a), _arguments(b)), _diff(_result(a), _result(b))) for a, b in calls
        ),
    )
