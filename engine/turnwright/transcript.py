"""The transcript of a turn: messages and their parts, computed from the facts as they come.

A tool's result stands where its call stands: results are shown in call order, whatever order they arrived in, and
messages to the running turn come after them. A part's `seq` is made from its fact's place in the journal, so that it
never changes and no two parts share one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pydantic import JsonValue, ValidationError

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
        #: What the tools of a step came to, if the fact that was taken in last says so.
        self.tools: ToolPhase | None = None
        #: Why the turn was stopped, once it was.
        self.sentinel: SentinelPart | None = None
        self._done: list[Message] = []
        self._open: list[AnyPart] = []
        self._results: dict[str, ToolResultPart] = {}
        #: The calls of the open batch that were started.
        self._started: set[str] = set()
        self._steers: list[Message] = []
        self._concluded: f.Concluded | None = None
        self._synthesis: str | None = None

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
    def messages(self) -> tuple[Message, ...]:
        """The messages so far. Of an open batch, the results that are there."""
        if not self._open:
            return (*self._done, *self._steers)
        return (*self._done, *self._step(), *self._steers)

    @property
    def results(self) -> Mapping[str, ToolResultPart]:
        """The results of the open batch, by call id."""
        return self._results

    def add(self, seq: int, fact: f.Fact) -> None:  # noqa: C901 (one case a fact: flat)
        """Take the fact at `seq` in. The turn's own fold must have taken it before."""
        at = seq * _PARTS_A_FACT
        self.tools = self._phase(fact)
        match fact:
            case f.TurnStarted():
                self._done.append(_message("user", TextPart(seq=at, text=fact.prompt), *_files(at + 1, fact.files)))
            case f.StepStarted():
                self._close()
                self._open.append(StepStartPart(seq=at, step_number=fact.number, started_at=fact.elapsed))
            case f.ModelReplied():
                self._reply(at, fact)
            case f.CallStarted():
                self._started.add(fact.call)
            case f.CallSettled():
                self._settle(at, fact)
            case f.MessageAdded():
                # Never between a call and its result; before a reply that is still to come, it is what it replies to.
                said = self._done if fact.state is State.STREAM else self._steers
                said.append(_message("user", TextPart(seq=at, text=fact.text)))
            case f.Synthesised():
                self._synthesis = fact.text
            case f.StepFinished():
                self._finish(at, fact)
            case f.Stopping():
                self._partial(at, fact.partial)
                self._close()
            case f.Concluded():
                self._concluded = fact
            case f.Halted():
                self._halt(at, fact)
            case _:
                pass

    def _reply(self, at: int, fact: f.ModelReplied) -> None:
        if fact.reasoning or fact.reasoning_details:
            self._open.append(ReasoningPart(seq=at, text=fact.reasoning, details=fact.reasoning_details))
        if fact.text:
            self._open.append(TextPart(seq=at + 1, text=fact.text))
            self.text = fact.text
        for index, call in enumerate(fact.calls):
            part = ToolCallPart(seq=at + 2 + index, id=call.id, name=call.name, arguments=call.arguments or {})
            self._open.append(part)

    def _settle(self, at: int, fact: f.CallSettled) -> None:
        name = next((p.name for p in self._open if isinstance(p, ToolCallPart) and p.id == fact.call), "")
        part = ToolResultPart(
            seq=at,
            call=fact.call,
            name=name,
            status=fact.status,
            text=fact.result,
            structured=fact.structured,
            files=_files(at + 1, fact.files),
        )
        self._results[fact.call] = part

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
            self.text = fixed_summary(self.turn, fact.reason, self._done)
            said.append(TextPart(seq=at + 1, text=self.text))
        if fact.outcome in _STOPPED:
            refused = self._concluded.refused if self._concluded else ()
            text = sentinel_text(self.turn, fact.outcome, fact.reason, refused=refused, error=fact.error)
            self.sentinel = SentinelPart(seq=at + 2, kind=fact.outcome, reason=fact.reason, text=text)
            said.append(self.sentinel)
        if said:
            self._done.append(_message("assistant", *said))

    def _phase(self, fact: f.Fact) -> ToolPhase | None:
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
        parts = [part for part in self._open if isinstance(part, ToolCallPart)]
        results = self._results
        calls = (PhaseCall(p.id, p.name, results[p.id].status if p.id in results else None) for p in parts)
        return ToolPhase(result, len(self._started), tuple(calls), following)

    def _conclusion(self, reason: EndReason) -> str:
        text = self._concluded.text if self._concluded else None
        return text or fixed_summary(self.turn, reason, self._done)

    def _partial(self, at: int, text: str) -> None:
        if text:
            self._open.append(TextPart(seq=at, text=text))

    def _step(self) -> Sequence[Message]:
        results = [
            _message("tool", self._results[part.id])
            for part in self._open
            if isinstance(part, ToolCallPart) and part.id in self._results
        ]
        return (_message("assistant", *self._open), *results)

    def _close(self) -> None:
        """The open step is over: its messages will not change any more."""
        if self._open:
            self._done.extend(self._step())
        self._done.extend(self._steers)
        self._open, self._results, self._started, self._steers = [], {}, set(), []


def _files(at: int, files: Iterable[Mapping[str, JsonValue]]) -> tuple[FilePart, ...]:
    try:
        return tuple(FilePart.model_validate({**file, "seq": seq}) for seq, file in enumerate(files, start=at))
    except ValidationError as error:
        raise StoreError(f"a file in the journal cannot be read: {error.errors()[0]['msg']}") from None


def _message(role: Role, *parts: AnyPart) -> Message:
    return Message(role=role, parts=parts)
