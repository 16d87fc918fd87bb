"""The transcript of a turn: messages and their parts, computed from the facts as they come.

A tool's result stands where its call stands: results are shown in call order, whatever order they arrived in, and
messages to the running turn come after them. A part's `seq` is made from its fact's place in the journal, so that it
never changes and no two parts share one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final

from pydantic import JsonValue

from turnwright_states import EndReason, Outcome, State, Turn
from turnwright_states import facts as f

from .conclude import fixed_summary, sentinel_text
from .errors import StoreError
from .message import (
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
from .phase import PhaseCall, PhaseResult, ToolPhase

#: Parts that one fact may make; a reply's calls are far fewer.
_PARTS_A_FACT: Final = 4096
#: Endings that the user is told about.
_STOPPED: Final = frozenset({Outcome.CAP_HIT, Outcome.DOOM_LOOP, Outcome.ABORTED, Outcome.FAILED})


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
        #: The names of the calls of the open batch, by id.
        self._calls: dict[str, str] = {}
        self._results: dict[str, ToolResultPart] = {}
        #: The calls of the open batch that were started.
        self._started: set[str] = set()
        self._steers: list[Message] = []
        self._concluded: f.Concluded | None = None
        self._synthesis: str | None = None
        self._last: f.Fact | None = None

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
            case f.Synthesised() if fact.text is not None:
                result, following = PhaseResult.SYNTHESIS_DONE, self.turn.counters.steps + 1
            # A doom loop's pause comes after its round has been finished.
            case f.Paused(interrupt=None):
                result, following = PhaseResult.PAUSED, None
            case _:
                return None
        settled = {call: part.status for call, part in self._results.items()}
        calls = tuple(PhaseCall(call, name, settled.get(call)) for call, name in self._calls.items())
        return ToolPhase(result, len(self._started), calls, following)

    def add(self, seq: int, fact: f.Fact) -> None:
        """Take the fact at `seq` in. The turn's own fold must have taken it before."""
        self._last = fact
        kind = type(fact)
        if kind in self._takers:
            self._takers[kind](self, seq * _PARTS_A_FACT, fact)

    def _begin(self, at: int, fact: f.TurnStarted) -> None:
        self._closed.append(_message("user", TextPart(seq=at, text=fact.prompt), *_files(at + 1, fact.files)))

    def _start(self, at: int, fact: f.StepStarted) -> None:
        self._close()
        self._open.append(StepStartPart(seq=at, step_number=fact.number, started_at=fact.elapsed))

    def _reply(self, at: int, fact: f.ModelReplied) -> None:
        if fact.reasoning or fact.reasoning_details:
            self._open.append(ReasoningPart(seq=at, text=fact.reasoning, details=fact.reasoning_details))
        if fact.text:
            self._open.append(TextPart(seq=at + 1, text=fact.text))
            self.text = fact.text
        for index, call in enumerate(fact.calls):
            part = ToolCallPart(seq=at + 2 + index, id=call.id, name=call.name, arguments=call.arguments or {})
            self._open.append(part)
            self._calls[call.id] = call.name

    def _start_call(self, _: int, fact: f.CallStarted) -> None:
        self._started.add(fact.call)

    def _settle(self, at: int, fact: f.CallSettled) -> None:
        self._results[fact.call] = ToolResultPart(
            seq=at,
            call=fact.call,
            name=self._calls.get(fact.call, ""),
            status=fact.status,
            text=fact.result,
            structured=fact.structured,
            files=_files(at + 1, fact.files) if fact.files else (),
        )

    def _hear(self, at: int, fact: f.MessageAdded) -> None:
        # Never between a call and its result; before a reply that is still to come, it is what it replies to.
        said = self._closed if fact.state is State.STREAM else self._steers
        said.append(_message("user", TextPart(seq=at, text=fact.text)))

    def _synthesise(self, _: int, fact: f.Synthesised) -> None:
        self._synthesis = fact.text

    def _stop(self, at: int, fact: f.Stopping) -> None:
        self._partial(at, fact.partial)
        self._close()

    def _conclude(self, _: int, fact: f.Concluded) -> None:
        self._concluded = fact

    def _finish(self, at: int, fact: f.StepFinished) -> None:
        part = StepFinishPart(
            seq=at,
            step_number=fact.number,
            input_tokens=fact.usage.input_tokens,
            output_tokens=fact.usage.output_tokens,
            seconds=fact.seconds,
        )
        self._open.append(part)

    def _halt(self, at: int, fact: f.Halted) -> None:
        self._partial(at, fact.partial)
        self._close()
        if fact.partial:
            self.text = fact.partial
        said: list[AnyPart] = []
        if fact.outcome in (Outcome.CAP_HIT, Outcome.DOOM_LOOP):
            self.text = self._conclusion(fact.reason)
            said.append(TextPart(seq=at + 1, text=self.text))
        elif fact.outcome is Outcome.SYNTHESIS_DONE:
            self.text = self._synthesis or ""
            said.append(TextPart(seq=at + 1, text=self.text))
        elif fact.reason is EndReason.TEXT_ONLY and not self.text:
            self.text = fixed_summary(self.turn, fact.reason, self._closed)
            said.append(TextPart(seq=at + 1, text=self.text))
        if fact.outcome in _STOPPED:
            refused = self._concluded.refused if self._concluded else ()
            text = sentinel_text(self.turn, fact.outcome, fact.reason, refused=refused, error=fact.error)
            self.sentinel = SentinelPart(seq=at + 2, kind=fact.outcome, reason=fact.reason, text=text)
            said.append(self.sentinel)
        if said:
            self._closed.append(_message("assistant", *said))

    def _conclusion(self, reason: EndReason) -> str:
        text = self._concluded.text if self._concluded else None
        return text or fixed_summary(self.turn, reason, self._closed)

    def _partial(self, at: int, text: str) -> None:
        if text:
            self._open.append(TextPart(seq=at, text=text))

    def _step(self) -> Sequence[Message]:
        calls, results = self._calls, self._results
        answers = [Message(role="tool", parts=(results[call],)) for call in calls if call in results]
        return [Message(role="assistant", parts=tuple(self._open)), *answers]

    def _close(self) -> None:
        """The open step is over: its messages will not change any more."""
        if self._open:
            self._closed += self._step()
        self._closed += self._steers
        self._open, self._calls, self._results, self._started, self._steers = [], {}, {}, set(), []

    #: How each kind of fact is taken in, with the place of its first part; the others leave the transcript as it is.
    #: To look the kind up costs a fraction of trying one after the other.
    _takers: ClassVar[Mapping[type[f.Fact], Callable[..., None]]] = {
        f.TurnStarted: _begin,
        f.StepStarted: _start,
        f.ModelReplied: _reply,
        f.CallStarted: _start_call,
        f.CallSettled: _settle,
        f.MessageAdded: _hear,
        f.Synthesised: _synthesise,
        f.StepFinished: _finish,
        f.Stopping: _stop,
        f.Concluded: _conclude,
        f.Halted: _halt,
    }


def fact_of(part: AnyPart) -> int:
    """The place in the journal of the fact that made a part of a transcript."""
    return part.seq // _PARTS_A_FACT


def _files(at: int, files: Iterable[Mapping[str, JsonValue]]) -> tuple[FilePart, ...]:
    try:
        return tuple(FilePart.of_json({**file, "seq": seq}) for seq, file in enumerate(files, start=at))
    except ValueError as error:
        raise StoreError(f"a file in the journal cannot be read: {error}") from None


def _message(role: Role, *parts: AnyPart) -> Message:
    return Message(role=role, parts=parts)
