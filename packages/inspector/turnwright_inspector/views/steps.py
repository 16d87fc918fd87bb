"""The steps of a turn: the input, work and cost of each, and the rows of the chart that it took."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from turnwright_states import Cause, State, Usage
from turnwright_states import facts as f
from turnwright_states.chart import CHART, Row
from turnwright_states.replay import FactGroup
from turnwright_states.state import Stall

#: The keys, in addresses, of steps without a number.
CONCLUDE: Final = "conclude"
TEXT_ONLY: Final = "text"

_NUMBERS: Final = {row: number for number, row in enumerate(CHART.rows, start=1)}


@dataclass(slots=True)
class Attempt:
    """An attempt at the model call that failed. `at` is in seconds of driving, `wait` in seconds."""

    number: int
    cause: str
    message: str
    at: float
    retry: bool
    wait: float
    seq: int


@dataclass(slots=True)
class StepCall:
    """A call of a step: its request and its result. Times are in seconds of driving.

    `status` is that of its result, or `running`, `waiting` (for a person) or `open` (it has not started). `attempts`
    has the time and the place in the journal of each start. `child` is the turn that it drove, `interrupt` what a
    person was asked of it. `settled` is the fact with its result, at the place `settled_at` of the journal. `timed`:
    its times are known if there are any.
    """

    made: f.CallMade
    status: str = "open"
    attempts: list[tuple[float, int]] = field(default_factory=list)
    ended: float | None = None
    child: str | None = None
    interrupt: str | None = None
    settled: f.CallSettled | None = None
    settled_at: int = 0
    timed: bool = True

    @property
    def seconds(self) -> float | None:
        return None if self.ended is None or not self.attempts else self.ended - self.attempts[0][0]


@dataclass(slots=True)
class Step:
    """One step, or the concluding or text-only call: all between two checks of the limits.

    `key` is the step in addresses: its number, `conclude` or `text`. `first` and `last` are places in the journal,
    `began` and `ended` seconds of active time. `rows` are the rows of the chart that it took, by number, in order.
    `replied` is the place of the reply, None before there is one. `said` are the messages that people sent meanwhile,
    `notes` the notices and what else is worth a line.
    """

    key: str
    title: str
    first: int
    last: int
    began: float
    ended: float
    state: State
    nudge: bool = False
    stall: Stall | None = None
    text: str = ""
    reasoning: str = ""
    finish: str = ""
    replied: int | None = None
    replied_at: float | None = None
    usage: Usage = field(default_factory=Usage)
    calls: list[StepCall] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    answers: list[f.Answered] = field(default_factory=list)
    notices: list[f.Notice] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def call(self, name: str) -> StepCall | None:
        """The call of that id."""
        return next((call for call in self.calls if call.made.id == name), None)


def steps_of(facts: Iterable[tuple[int, f.Fact]], groups: Sequence[FactGroup]) -> tuple[Step, ...]:
    """Return the steps in these facts, oldest first. `groups` are their events, as far as a replay found them."""
    steps: list[Step] = []
    for seq, fact in facts:
        begun = _begun(seq, fact, steps)
        if begun is not None:
            steps.append(begun)
        if steps:
            _take_in(steps[-1], seq, fact)
    _lay_rows(steps, groups)
    return tuple(steps)


def _begun(seq: int, fact: f.Fact, steps: list[Step]) -> Step | None:
    """The step that begins with this fact, if one does."""
    began = steps[-1].ended if steps else 0.0
    if isinstance(fact, f.StepStarted):
        # What the turn began with belongs to its first step.
        key, title, first = str(fact.number), f"Step {fact.number}", seq if steps else 1
    elif isinstance(fact, f.Stopping):
        key, title, first = CONCLUDE, "Conclusion", seq if steps else 1
    elif isinstance(fact, f.TurnStarted) and fact.state is State.TEXT_ONLY:
        key, title, first = TEXT_ONLY, "Text only", seq
    else:
        return None
    return Step(key, title, first, seq, began, fact.elapsed, fact.state)


def _take_in(step: Step, seq: int, fact: f.Fact) -> None:  # noqa: C901, PLR0912 (one case a fact: flat)
    step.last, step.ended, step.state = seq, fact.elapsed, fact.state
    step.usage += fact.new_usage or Usage()
    call = step.call(getattr(fact, "call", ""))
    match fact:
        case f.StepStarted(nudge=nudge, stall=stall):
            step.nudge, step.stall = nudge, stall
        case f.CallStarted() if call is not None:
            call.attempts.append((fact.elapsed, seq))
            call.status, call.child = "running", fact.child or call.child
        case f.CallWaiting() if call is not None:
            call.status, call.interrupt = "waiting", fact.interrupt.id
        case f.CallSettled() if call is not None:
            call.status, call.ended = str(fact.status), fact.elapsed
            call.settled, call.settled_at = fact, seq
        case f.ModelReplied():
            step.text, step.reasoning, step.finish = fact.text, fact.reasoning, str(fact.finish)
            step.replied, step.replied_at = seq, fact.elapsed
            step.calls = [StepCall(made) for made in fact.calls]
        case f.Concluded(retry=True, refused=refused):
            said = f"The reply had no text, only calls: {', '.join(refused)}." if refused else "The reply had no text."
            number = len(step.attempts) + 1
            step.attempts.append(
                Attempt(number, str(Cause.EMPTY_REPLY), said, fact.elapsed, retry=True, wait=0.0, seq=seq)
            )
        case f.Concluded(text=text):
            step.text, step.replied, step.replied_at = text or "", seq, fact.elapsed
        case f.AttemptFailed():
            failed = Attempt(fact.attempt, str(fact.cause), fact.message, fact.elapsed, fact.retry, fact.wait, seq)
            step.attempts.append(failed)
        case f.MessageAdded(text=text):
            step.said.append(text)
        case f.Answered():
            step.answers.append(fact)
        case f.Notice():
            step.notices.append(fact)
        case f.TurnEnded(partial=text):
            step.text = step.text or text
        case _:
            pass


def _lay_rows(steps: Sequence[Step], groups: Sequence[FactGroup]) -> None:
    """Give each step the rows that it took. A check of the limits belongs to the step that follows it."""
    for group in groups:
        inside = [step for step in steps if group.first <= step.last and step.first <= group.last]
        for row, step in zip(group.rows, _owners(group.rows, inside), strict=False):
            step.rows.append(_NUMBERS[row])


def _owners(rows: Sequence[Row], steps: Sequence[Step]) -> Iterator[Step]:
    place = 0
    for number, row in enumerate(rows):
        if not steps:
            return
        if row.source is State.CHECK and number and place + 1 < len(steps):
            place += 1
        yield steps[place]
