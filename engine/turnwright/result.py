"""The result of a turn, computed from its facts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnwright.transcript.interrupt import Interrupt
from turnwright_states import EndReason, Outcome, State, Usage
from turnwright_states import facts as f

from .agents.bounds import nearest
from .message import Message, SentinelPart
from .store import Queued
from .transcript.transcript import Transcript, reading


class StatePath:
    """The states that a turn goes through, in order: CHECK before each decision, CONTINUE after each whole step."""

    __slots__ = ("states",)

    def __init__(self, facts: Iterable[f.Fact] = ()) -> None:
        self.states: list[State] = []
        self.extend(facts)

    def extend(self, facts: Iterable[f.Fact]) -> None:
        """Go on to where these facts leave the turn."""
        states = self.states
        for fact in facts:
            kind, state = type(fact), fact.state
            if kind is f.TurnStarted:
                states.append(State.CHECK)
            elif kind is f.StepFinished and state is State.CHECK:
                states.append(State.CONTINUE)
            if not states or states[-1] is not state:
                states.append(state)


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A turn that has ended, or rests, or was left by its driver, or is `QUEUED` and waits for its first one.

    `outcome` and `reason` are None until it has ended; `interrupts` is what a paused turn waits for. `steps` counts the
    steps that started, `tool_calls` the calls that did. `text` is what the turn says in the end: the answer, the
    conclusion, or as much of it as there was. `error` is what failed, in words for people. `path` is the way through
    the chart, state by state.
    """

    id: str
    state: State | Queued
    outcome: Outcome | None
    reason: EndReason | None
    also_reached: tuple[EndReason, ...]
    text: str
    steps: int
    tool_calls: int
    usage: Usage
    seconds: float
    interrupts: tuple[Interrupt, ...]
    messages: tuple[Message, ...]
    path: tuple[State, ...]
    #: The limit that would have stopped the turn next, in words: "the tool-call limit (48 of 50)".
    next_limit: str = ""
    #: The share of that limit that is used: 0.96.
    next_limit_used: float = 0.0
    error: str = ""
    #: Messages to the turn that never reached its model, oldest first.
    undelivered: tuple[str, ...] = ()
    #: What the user is told of why the turn was stopped, and that they can continue, if it was.
    sentinel: SentinelPart | None = None
    #: The setting that a developer can change, if the turn was stopped: the limit that binds is named. Not for users.
    advice: str = ""
    #: Those of `interrupts` that somebody has answered, by their ids: whoever drives the turn next takes that in.
    answered: frozenset[str] = frozenset()

    @property
    def paused(self) -> bool:
        """Whether the turn waits for a person."""
        return self.state is State.PAUSED


def result_of(turn_id: str, facts: Sequence[tuple[int, f.Fact]], late: Sequence[str] = ()) -> TurnResult:
    """The result that the facts of a turn, oldest first, amount to. `late` are messages that its inbox still has.

    Raises `UnreadableTurnError` for facts that do not follow from each other.
    """
    last = facts[-1][1] if facts else None
    with reading(turn_id):
        return stands(turn_id, Transcript.of(facts), StatePath(fact for _, fact in facts), last, late)


def stands(
    turn_id: str, transcript: Transcript, path: StatePath, last: f.Fact | None, late: Sequence[str] = ()
) -> TurnResult:
    """The result of a turn that is folded already: its transcript, its path, and its last fact."""
    turn = transcript.turn
    next_limit, next_limit_used = nearest(turn, {turn.reason, *turn.also_reached})
    return TurnResult(
        id=turn_id,
        state=turn.state,
        outcome=turn.state.outcome,
        reason=turn.reason,
        also_reached=turn.also_reached,
        text=transcript.text,
        steps=turn.counters.steps,
        tool_calls=turn.counters.calls,
        usage=turn.usage,
        seconds=turn.elapsed,
        interrupts=tuple(Interrupt.of(turn, interrupt) for interrupt in turn.interrupts.values()),
        messages=transcript.messages,
        path=tuple(path.states),
        next_limit=next_limit,
        next_limit_used=next_limit_used,
        error=last.error if isinstance(last, f.TurnEnded) else "",
        undelivered=(*last.undelivered, *late) if isinstance(last, f.TurnEnded) else (),
        sentinel=transcript.sentinel,
        advice=transcript.advice,
    )
