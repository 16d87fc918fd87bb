"""The steps of a turn and its sub-agents: input, work and cost of each, its rows of the chart, its line in a list."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from turnwright._base.words import collapse_whitespace, cut_after
from turnwright.errors import StoreError, TurnNotFoundError
from turnwright.journal.subturns import sub_turns
from turnwright.privacy.redaction import redactor
from turnwright.store import Store, TurnRow
from turnwright.transcript.transcript import reading
from turnwright_states import CallStatus, Cause, State, Usage
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
    person was asked of it. `result_fact` is the fact with its result, at the place `settled_at` of the journal.
    `timed`: its times are known if there are any.
    """

    made: f.CallMade
    status: str = "open"
    attempts: list[tuple[float, int]] = field(default_factory=list)
    ended: float | None = None
    child: str | None = None
    interrupt: str | None = None
    result_fact: f.CallSettled | None = None
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
    `replied` is the place of the reply, None before there is one. `messages` are those that people sent meanwhile,
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
    messages: list[str] = field(default_factory=list)
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
        step = _begin_step(seq, fact, steps)
        if step is not None:
            steps.append(step)
        if steps:
            _take_in(steps[-1], seq, fact)
    _lay_rows(steps, groups)
    return tuple(steps)


def _begin_step(seq: int, fact: f.Fact, steps: list[Step]) -> Step | None:
    """The step that begins with this fact, if one does."""
    start = steps[-1].ended if steps else 0.0
    if isinstance(fact, f.StepStarted):
        # What the turn began with belongs to its first step.
        key, title, first = str(fact.number), f"Step {fact.number}", seq if steps else 1
    elif isinstance(fact, f.Stopping):
        key, title, first = CONCLUDE, "Conclusion", seq if steps else 1
    elif isinstance(fact, f.TurnStarted) and fact.state is State.TEXT_ONLY:
        key, title, first = TEXT_ONLY, "Text only", seq
    else:
        return None
    return Step(key, title, first, seq, start, fact.elapsed, fact.state)


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
            call.result_fact, call.settled_at = fact, seq
        case f.ModelReplied():
            step.text, step.reasoning, step.finish = fact.text, fact.reasoning, str(fact.finish)
            step.replied, step.replied_at = seq, fact.elapsed
            step.calls = [StepCall(call) for call in fact.calls]
        case f.Concluded(retry=True, refused=refused_tools):
            message = (
                f"The reply had no text, only calls: {', '.join(refused_tools)}."
                if refused_tools
                else "The reply had no text."
            )
            number = len(step.attempts) + 1
            step.attempts.append(
                Attempt(number, str(Cause.EMPTY_REPLY), message, fact.elapsed, retry=True, wait=0.0, seq=seq)
            )
        case f.Concluded(text=text):
            step.text, step.replied, step.replied_at = text or "", seq, fact.elapsed
        case f.AttemptFailed():
            attempt = Attempt(fact.attempt, str(fact.cause), fact.message, fact.elapsed, fact.retry, fact.wait, seq)
            step.attempts.append(attempt)
        case f.MessageAdded(text=text):
            step.messages.append(text)
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
        StepSummary(step, *_describe_step(step), tuple(_marks(step)), step.seconds / longest if longest else 0.0)
        for step in steps
    )


def name_tools(tools: Iterable[str]) -> str:
    """Return the tools of several calls in a line, each one once with its count, the most frequent first."""
    counts = Counter(tools)
    words = [name if count == 1 else f"{name} ×{count}" for name, count in counts.most_common(_MOST_TOOLS)]  # noqa: RUF001 (the sign of multiplication is meant)
    more_count = len(counts) - _MOST_TOOLS
    return ", ".join(words) + (f" and {more_count} more" if more_count > 0 else "")


def _describe_step(step: Step) -> tuple[str, bool]:
    """Describe a step in a line. Returns also whether the line names tools."""
    if step.calls:
        return name_tools(call.made.name for call in step.calls), True
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
    counts = Counter(call.status for call in step.calls)
    for status, (icon, tone, singular, plural) in _OF_CALLS.items():
        count = counts[str(status)]
        if count:
            yield Badge(icon, tone, f"{count} {singular if count == 1 else plural}")
    for attempt in step.attempts:
        again = "tried again" if attempt.retry else "not tried again"
        yield Badge("retry", "warn" if attempt.retry else "bad", f"attempt {attempt.number}: {attempt.cause}, {again}")
    if step.nudge:
        yield Badge("nudge", "warn", "the model received a notice that it repeats itself")
    elif step.stall is not None:
        yield Badge("nudge", "warn", _STALLED[step.stall])
    if step.messages:
        yield Badge("steer", "info", "a person sent a message")
    for answer in step.answers:
        # A longer text is on the journal's tab. It is not cut: half a secret is not recognized.
        text = f": {answer.text}" if 0 < len(answer.text) <= _LONGEST_ANSWER else ""
        signature = f" ({answer.signature})" if answer.signature else ""
        yield Badge("person", "paused", f"a person answered {answer.interrupt}: {answer.decision}{signature}{text}")
    if any(call.child for call in step.calls):
        yield Badge("child", "info", "a sub-agent ran")
    for notice in step.notices:
        yield Badge("warn", "warn", f"notice: {notice.limit}")


#: The most turns of sub-agents that a page reads.
MOST_TURNS: Final = 50


@dataclass(frozen=True, slots=True)
class SubAgent:
    """The turn of a sub-agent: its id, its steps so far, and its own sub-agents, by the call that they belong to."""

    id: str
    steps: tuple[Step, ...]
    below: Mapping[str, "SubAgent"]
    live: bool = False


async def sub_agents(store: Store, rows: Mapping[str, TurnRow]) -> Mapping[str, SubAgent]:
    """Read the turns of these rows, which are by call, and those below; the first ones, where there are very many."""
    budget = [MOST_TURNS]

    async def read(rows: Mapping[str, TurnRow]) -> Mapping[str, SubAgent]:
        agents: dict[str, SubAgent] = {}
        for call, row in rows.items():
            if budget[0] <= 0:
                break
            budget[0] -= 1
            with suppress(TurnNotFoundError, StoreError):  # deleted since, or damaged
                facts = await store.facts(row.id)
                with reading(row.id):
                    steps = steps_of(facts, ())
                below = await read(await sub_turns(store, row.id, facts))
                agents[call] = SubAgent(row.id, steps, below, live=row.status.outcome is None)
        return agents

    return await read(rows)
