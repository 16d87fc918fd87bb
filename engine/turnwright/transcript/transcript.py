"""The transcript of a turn: messages and their parts, computed from the facts as they come.

A tool's result stands where its call stands: results are shown in call order, whatever order they arrived in, and
messages to the running turn come after them. The `seq` of parts rises in the order in which they stand here, never
changes, and no two parts share one.

A `seq` is made of three numbers: a fact's place in the journal, a slot behind that fact, and how many facts later the
fact came that made the part. For most parts that is the fact itself. What stands before a fact that came earlier, or
behind a part that is still to come, takes a slot that was kept for it: a result in the order of the calls, the end of
a step that has results, and a message that came before the reply.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, Final

from pydantic import JsonValue

from turnwright.errors import StoreError, UnreadableTurnError
from turnwright.message import (
    AnyPart,
    FilePart,
    Message,
    ReasoningPart,
    Role,
    SentinelPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from turnwright_states import EndReason, InvalidJournalError, MachineError, Outcome, State, Turn
from turnwright_states import facts as f
from turnwright_states.inputs import is_blank
from turnwright_states.payload import FrozenDict

from .conclude import advice, fixed_summary, no_answer, sentinel_text
from .tool_phase import PhaseCall, PhaseResult, ToolPhase

_NO_ARGUMENTS: Final[FrozenDict[JsonValue]] = FrozenDict()
#: What a fact has in `seq`, and what a slot has: the numbers of a turn are exact where numbers are floats.
_FACT: Final = 1 << 32
_SLOT: Final = 1 << 16
#: The first slot of messages that stand before the step which has begun.
_HEARD: Final = _SLOT >> 1
#: What taking facts in raises that do not follow from each other: the machine makes no such facts, and trusts them.
_MISFITS: Final = (StoreError, LookupError, ValueError, ArithmeticError, TypeError)
#: Endings that the user is told about.
_STOPPED: Final = frozenset({Outcome.CAP_HIT, Outcome.DOOM_LOOP, Outcome.ABORTED, Outcome.FAILED})


@contextmanager
def reading(turn_id: str) -> Iterator[None]:
    """Raise `UnreadableTurnError` where facts of this turn, which its store has, cannot be taken in one by one."""
    try:
        with going_on(turn_id):
            yield
    except UnreadableTurnError:
        raise
    except _MISFITS as error:
        found = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        why = "" if isinstance(error, StoreError) else "its facts do not follow from each other: "
        raise UnreadableTurnError(turn_id, f"{why}{found}") from error


@contextmanager
def going_on(turn_id: str) -> Iterator[None]:
    """Raise `UnreadableTurnError` where facts of this turn, which its store has, can be taken in, and not gone on from.

    A `InvalidJournalError` says itself what is wrong, and which fact is to blame.
    """
    try:
        yield
    except MachineError as error:
        broken = (
            ""
            if isinstance(error, InvalidJournalError)
            else "its journal breaks off inside of an event, or was changed: "
        )
        raise UnreadableTurnError(turn_id, f"{broken}{error}") from error


class Transcript:
    """Takes facts in one by one; `messages` is what they amount to, without the agent's instructions."""

    def __init__(self, turn: Turn | None = None) -> None:
        self.turn = turn or Turn()
        #: What the turn says in the end, once it has ended.
        self.text = ""
        #: Why the turn was stopped, once it was.
        self.sentinel: SentinelPart | None = None
        self._closed: list[Message] = []
        self._open: list[AnyPart] = []
        #: The names of the tools of the open batch's calls, by the calls' ids; as the model wrote them.
        self.calls: dict[str, str] = {}
        self._results: dict[str, ToolResultPart] = {}
        #: The calls of the open batch that were started.
        self._started: set[str] = set()
        self._steers: list[Message] = []
        #: The slots of the open batch: that of the assistant's next part, and those of the results by call id.
        self._next = 0
        self._slots: dict[str, int] = {}
        #: The slot of the next message that stands before the open step.
        self._before = 0
        self._conclusion = ""
        #: The names of the tools that concluding replies asked for.
        self._refused: list[str] = []
        self._synthesis: str | None = None
        self._last: f.Fact | None = None
        self._began: f.TurnStarted | None = None

    @classmethod
    def of(cls, facts: Iterable[tuple[int, f.Fact]]) -> "Transcript":
        """The transcript of (seq, fact) pairs, oldest first."""
        transcript = cls()
        for seq, fact in facts:
            transcript.turn.apply(fact)
            transcript.add(seq, fact)
        return transcript

    @classmethod
    def following(cls, turn: Turn, facts: Iterable[tuple[int, f.Fact]]) -> "Transcript":
        """The transcript beside a turn that somebody else keeps folded."""
        transcript = cls(turn)
        for seq, fact in facts:
            transcript.add(seq, fact)
        return transcript

    @property
    def closed(self) -> Sequence[Message]:
        """The messages that will not change any more. It is one list, which only grows."""
        return self._closed

    @property
    def open(self) -> tuple[Message, ...]:
        """The messages of the open step, with the results that are there, and of those who spoke to it."""
        return (*(self._step() if self._open else ()), *self._steers)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages so far. Of an open batch, the results that are there."""
        return (*self._closed, *self.open)

    @property
    def advice(self) -> str:
        """What a developer can change, if the turn was stopped; empty otherwise. Users read the sentinel instead."""
        return advice(self.turn, self._began, self.sentinel.reason) if self.sentinel is not None else ""

    @property
    def results(self) -> Mapping[str, ToolResultPart]:
        """The results of the open batch, by call id."""
        return self._results

    @property
    def tools(self) -> ToolPhase | None:
        """What the tools of a step came to, if the fact that was taken in last says so."""
        fact = self._last
        result: PhaseResult
        following: int | None
        match fact:
            # Only CONTINUE leads from a finished step back to CHECK; the assistant's next message, whatever is decided
            # there, comes right after those of the steps.
            case f.StepFinished(state=State.CHECK):
                result, following = PhaseResult.CONTINUE, fact.number + 1
            case f.Synthesized() if fact.text is not None:
                result, following = PhaseResult.SYNTHESIS_DONE, self.turn.counters.steps + 1
            # A doom loop's pause comes after its round has been finished.
            case f.Paused(interrupt=None):
                result, following = PhaseResult.PAUSED, None
            case _:
                return None
        settled = {call: part.status for call, part in self._results.items()}
        calls = tuple(PhaseCall(call, name, settled.get(call)) for call, name in self.calls.items())
        return ToolPhase(result, len(self._started), calls, following)

    def add(self, seq: int, fact: f.Fact) -> None:
        """Take the fact at `seq` in. The turn's own fold must have taken it before."""
        self._last = fact
        kind = type(fact)
        if kind in self._takers:
            self._takers[kind](self, seq * _FACT, fact)

    def _begin(self, at: int, fact: f.TurnStarted) -> None:
        self._began = fact
        files = _files(at + _SLOT, fact.files, _SLOT)
        self._closed.append(_message("user", TextPart(seq=at, text=fact.prompt), *files))

    def _start(self, at: int, fact: f.StepStarted) -> None:
        self._close()
        self._before = at - _FACT + _HEARD * _SLOT
        part = StepStartPart(seq=at, step_number=fact.number, started_at=fact.started_at, elapsed=fact.elapsed)
        self._open.append(part)

    def _reply(self, at: int, fact: f.ModelReplied) -> None:
        if fact.reasoning or fact.reasoning_details:
            self._open.append(ReasoningPart(seq=at, text=fact.reasoning, details=fact.reasoning_details))
        if fact.text:
            self._open.append(TextPart(seq=at + _SLOT, text=fact.text))
            if not is_blank(fact.text):
                self.text = fact.text
        if fact.state is State.TEXT_ONLY:
            self._refused += [call.name for call in fact.calls]
        slot, calls = at + 2 * _SLOT, len(fact.calls) * _SLOT
        for call in fact.calls:
            part = ToolCallPart(seq=slot, id=call.id, name=call.name, arguments=call.arguments or _NO_ARGUMENTS)
            self._open.append(part)
            self.calls[call.id] = call.name
            # Behind the calls, and two parts that may still follow them.
            self._slots[call.id] = slot + calls + 2 * _SLOT
            slot += _SLOT
        self._next = slot if calls else 0

    def _start_call(self, _: int, fact: f.CallStarted) -> None:
        self._started.add(fact.call)

    def _settle(self, at: int, fact: f.CallSettled) -> None:
        seq = _kept(self._slots[fact.call], at) if fact.call in self._slots else at
        self._results[fact.call] = ToolResultPart(
            seq=seq,
            call=fact.call,
            name=self.calls.get(fact.call, ""),
            status=fact.status,
            text=fact.result,
            structured=fact.structured,
            files=_files(seq + 1, fact.files) if fact.files else (),
        )

    def _hear(self, at: int, fact: f.MessageAdded) -> None:
        # Never between a call and its result; before a reply that is still to come, it is what it replies to.
        if fact.state is State.STREAM:
            self._closed.append(_message("user", TextPart(seq=_kept(self._before, at), text=fact.text)))
            self._before += _SLOT
        else:
            self._steers.append(_message("user", TextPart(seq=at, text=fact.text)))

    def _synthesize(self, _: int, fact: f.Synthesized) -> None:
        self._synthesis = fact.text

    def _stop(self, at: int, fact: f.Stopping) -> None:
        self._partial(at, fact.partial)
        self._close()

    def _conclude(self, _: int, fact: f.Concluded) -> None:
        self._conclusion = fact.text or ""
        self._refused += fact.refused

    def _finish(self, at: int, fact: f.StepFinished) -> None:
        part = StepFinishPart(
            seq=self._after_calls(at),
            step_number=fact.number,
            input_tokens=fact.usage.input_tokens,
            output_tokens=fact.usage.output_tokens,
            seconds=fact.seconds,
        )
        self._open.append(part)

    def _halt(self, at: int, fact: f.TurnEnded) -> None:
        self._partial(at, fact.partial)
        self._close()
        if not is_blank(fact.partial):
            self.text = fact.partial
        said: list[AnyPart] = []
        if fact.outcome in (Outcome.CAP_HIT, Outcome.DOOM_LOOP):
            self.text = self._conclusion or fixed_summary(self.turn, fact.reason, self._closed)
            said.append(TextPart(seq=at + _SLOT, text=self.text))
        elif fact.outcome is Outcome.SYNTHESIS_DONE:
            self.text = self._synthesis or ""
            said.append(TextPart(seq=at + _SLOT, text=self.text))
        elif fact.reason is EndReason.TEXT_ONLY and not self.text:
            self.text = no_answer(self.turn)
            said.append(TextPart(seq=at + _SLOT, text=self.text))
        # A text-only turn is told of what it was kept from: tools that its model asked for, and a budget of none.
        kept_from = bool(self._refused) or self.turn.limits.tool_calls == 0
        if fact.outcome in _STOPPED or (fact.reason is EndReason.TEXT_ONLY and kept_from):
            text = sentinel_text(self.turn, fact.outcome, fact.reason, refused=self._refused, error=fact.error)
            self.sentinel = SentinelPart(seq=at + 2 * _SLOT, kind=fact.outcome, reason=fact.reason, text=text)
            said.append(self.sentinel)
        if said:
            self._closed.append(_message("assistant", *said))

    def _partial(self, at: int, text: str) -> None:
        if not is_blank(text):
            self._open.append(TextPart(seq=self._after_calls(at), text=text))

    def _after_calls(self, at: int) -> int:
        """The `seq` of a part of the open step that comes of the fact at `at`: before the results, if it has any."""
        if not self._next:
            return at
        self._next += _SLOT
        return _kept(self._next - _SLOT, at)

    def _step(self) -> Sequence[Message]:
        calls, results = self.calls, self._results
        answers = [Message(role="tool", parts=(results[call],)) for call in calls if call in results]
        return [Message(role="assistant", parts=tuple(self._open)), *answers]

    def _close(self) -> None:
        """The open step is over: its messages will not change any more."""
        if self._open:
            self._closed += self._step()
        self._closed += self._steers
        self._open, self.calls, self._results, self._started, self._steers = [], {}, {}, set(), []
        self._next, self._slots = 0, {}

    #: How each kind of fact is taken in, with the place of its first part; the others leave the transcript as it is.
    #: To look the kind up costs a fraction of trying one after the other.
    _takers: ClassVar[Mapping[type[f.Fact], Callable[..., None]]] = {
        f.TurnStarted: _begin,
        f.StepStarted: _start,
        f.ModelReplied: _reply,
        f.CallStarted: _start_call,
        f.CallSettled: _settle,
        f.MessageAdded: _hear,
        f.Synthesized: _synthesize,
        f.StepFinished: _finish,
        f.Stopping: _stop,
        f.Concluded: _conclude,
        f.TurnEnded: _halt,
    }


def fact_of(part: AnyPart) -> int:
    """The place in the journal of the fact that made a part of a transcript's message."""
    return part.seq // _FACT + part.seq % _SLOT


def _kept(slot: int, at: int) -> int:
    """The `seq` of a part that takes the slot kept for it at `slot`, and came of the fact at `at`."""
    later = at // _FACT - slot // _FACT
    return slot + (later if later < _HEARD else _HEARD)  # noqa: FURB136 (`min` is a call)


def _files(at: int, files: Iterable[Mapping[str, JsonValue]], apart: int = 1) -> tuple[FilePart, ...]:
    try:
        return tuple(FilePart.of_json({**file, "seq": at + place * apart}) for place, file in enumerate(files))
    except ValueError as error:
        raise StoreError(f"a file in the journal cannot be read: {error}") from None


def _message(role: Role, *parts: AnyPart) -> Message:
    return Message(role=role, parts=parts)
