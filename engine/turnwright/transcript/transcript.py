"""The transcript of a turn: messages and their parts, computed from the facts.

Results are in call order, whatever order they arrived in, and messages to the running turn come after them. The `seq`
of the parts rises in message order, is unique, and never changes (`part_seq`).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, ClassVar, Final, cast

import msgspec
from pydantic import JsonValue, ValidationError

from turnwright.agent import Agent
from turnwright.errors import StoreError, UnreadableTurnError
from turnwright.message import (
    AnyPart,
    Message,
    ReasoningPart,
    Role,
    SentinelPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from turnwright.status import advice, sentinel_text
from turnwright_states import (
    CallStatus,
    Cause,
    EndReason,
    Finish,
    InvalidJournalError,
    MachineError,
    Outcome,
    State,
    Turn,
    Usage,
)
from turnwright_states import facts as f
from turnwright_states.inputs import is_blank
from turnwright_states.payload import FrozenDict, thaw
from turnwright_states.verdict import Broken, Effect

from .part_seq import FACT, FIRST_MESSAGE, SLOT, StepFacts, files_at, kept_seq
from .refusal import CONTENT_CAUSES, refusal_text
from .tool_phase import ToolPhase, phase_ended_by
from .wording import (
    UNCHECKED,
    changed_arguments,
    cut_off_advice,
    feedback_text,
    fixed_summary,
    no_answer,
    withheld_parts,
    withheld_text,
)

#: What a turn has between two steps, shared by all turns: each empty dict of its own takes 64 bytes.
_NOTHING: Final[FrozenDict[Any]] = FrozenDict()
_NO_MODELS: Final[Mapping[int, str]] = {}
#: Errors raised by facts that do not follow from each other. The machine makes no such facts, and does not check them.
_MISFITS: Final = (StoreError, LookupError, ValueError, ArithmeticError, TypeError)
#: Endings with a sentinel for the user.
_STOPPED: Final = frozenset({Outcome.CAP_HIT, Outcome.DOOM_LOOP, Outcome.ABORTED, Outcome.FAILED})

#: The states whose failed attempts are model calls with the conversation.
_CALLS_MODEL: Final = frozenset({State.STREAM, State.TEXT_ONLY, State.CONCLUDE})

_STATES: Final = tuple(State)
_NUMBERS: Final = {state: number for number, state in enumerate(_STATES)}
_CHECK: Final = _NUMBERS[State.CHECK]
_CONTINUE: Final = _NUMBERS[State.CONTINUE]


class Transcript(msgspec.Struct, eq=False):
    """Folds facts one by one into `messages`, without the agent's instructions, and into `path`."""

    turn: Turn = msgspec.field(default_factory=Turn)
    #: The turn's final text, once it has ended.
    text: str = ""
    #: The reason of the stop, once the turn was stopped.
    sentinel: SentinelPart | None = None
    #: The messages that are final, for models: one list, which only grows.
    closed: list[Message] = []
    #: The parts of the open step for models. Those for people are made of its facts when somebody asks.
    _open: tuple[AnyPart, ...] = ()
    #: The facts of the open step, and of each closed one.
    _step: StepFacts | None = None
    _steps: list[StepFacts] = []
    #: The tool names of the open batch's calls, by call id, as the model wrote them.
    calls: dict[str, str] = _NOTHING
    _results: dict[str, ToolResultPart] = _NOTHING
    #: The started calls of the open step.
    _started_calls: tuple[str, ...] = ()
    _steers: tuple[Message, ...] = ()
    #: The calls that wait for a person, by interrupt, and the arguments that a person gave them.
    _asking_calls: Mapping[str, str] = _NOTHING
    #: When each question was asked, in seconds since the epoch, as far as the journal knows it; the last answer.
    asked_at: Mapping[str, float] = _NOTHING
    _answered: f.Answered | None = None
    _changed_arguments: Mapping[str, Mapping[str, JsonValue]] = _NOTHING
    #: The next slot of the assistant's message in the open batch, and the slots of results by call id.
    _next: int = 0
    _slots: dict[str, int] = _NOTHING
    #: The slot of the next message before the open step.
    _before: int = 0
    _conclusion: str = ""
    #: The names of the tools that concluding replies asked for.
    _refused: tuple[str, ...] = ()
    _synthesis: str | None = None
    #: Whether the last reply waits for its verdict: nobody may read it before.
    _in_review: bool = False
    #: The last reply, and the dynamic part of the open step's requests, if there is one.
    reply: f.ModelReplied | None = None
    prepared: f.RequestPrepared | None = None
    #: The models that hooks chose for steps, by the place of the step's reply in the messages.
    step_models: Mapping[int, str] = _NO_MODELS
    #: The instructions that were sent last, if they are dynamic.
    instructions: str | None = None
    #: The review that accepted the turn's answer: its `output` is the typed answer, if the agent has a type.
    accepted: f.Reviewed | None = None
    #: Each compaction, with the number of closed messages before it.
    compactions: tuple[tuple[f.Compacted, int], ...] = ()
    #: Whether the open step has begun a compaction, and whether it has not ended.
    compacts: bool = False
    _compacting: bool = False
    #: The number of closed messages in the last request that the model replied to; 0 before its first reply. A
    #: reply in review does not count, because the check of the prompt may not have finished.
    replied_to: int = 0
    #: The provider's reason, if it refused the last request for its content; else empty.
    refusal: str = ""
    #: The usage of the last request and its reply, if the provider counted it.
    counted: Usage | None = None
    #: The result that is the turn's answer (`return_direct`).
    _direct: str | None = None
    #: The last fact.
    last: f.Fact | None = None
    #: The states of `path`, a byte each.
    _path: bytearray = bytearray()
    _start_fact: f.TurnStarted | None = None
    #: Every decision of a rule that went against a call or an answer.
    broken: tuple[Broken, ...] = ()

    @classmethod
    def of(cls, facts: Iterable[tuple[int, f.Fact]]) -> "Transcript":
        """Fold (seq, fact) pairs, oldest first, and their turn."""
        transcript = cls()
        for seq, fact in facts:
            transcript.turn.apply(fact)
            transcript.add(seq, fact)
        return transcript

    @classmethod
    def following(cls, turn: Turn, facts: Iterable[tuple[int, f.Fact]]) -> "Transcript":
        """Fold (seq, fact) pairs of a turn that is folded already."""
        transcript = cls(turn)
        for seq, fact in facts:
            transcript.add(seq, fact)
        return transcript

    @property
    def open(self) -> tuple[Message, ...]:
        """The messages of the open step for models, its results so far, and the messages sent to it."""
        return (*(self._messages_of(self._open) if self._open else ()), *self._steers)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages so far, with the results of an open batch so far, and with the parts of steps for people.

        A reply in review is withheld.
        """
        messages, steps, step = [*self.closed], self._steps, self._step
        if step is not None or self._open:
            parts = self._withhold_text(UNCHECKED) if self._in_review else self._open
            if step is not None:
                step.place = len(messages)
                steps = [*steps, step]
            messages += self._messages_of(parts)
        for step_facts in steps:
            messages[step_facts.place] = step_facts.show_parts(messages[step_facts.place])
        return (*messages, *self._steers)

    @property
    def advice(self) -> str:
        """The setting that a developer can change, if the turn was stopped; else empty. Users read the sentinel."""
        if self.sentinel is None:
            return ""
        return f"{cut_off_advice(self.reply)} {self._advice(self.sentinel.reason)}".lstrip()

    def _advice(self, reason: EndReason) -> str:
        is_child = self._start_fact is not None and self._start_fact.parent_turn is not None
        return advice(self.turn, reason, _overrides(self._start_fact), is_child=is_child)

    @property
    def path(self) -> tuple[State, ...]:
        """The states in order: CHECK before each decision, CONTINUE after each finished step."""
        return tuple([_STATES[number] for number in self._path])

    @property
    def output(self) -> JsonValue:
        """The answer as JSON, once the turn is `FINISHED`: a typed one as it was accepted, else the text."""
        if self.turn.state is not State.FINISHED:
            return None
        if self._start_fact is None or "output_schema" not in self._start_fact.agent:
            return self.text
        return None if self.accepted is None else thaw(self.accepted.output)

    @property
    def results(self) -> Mapping[str, ToolResultPart]:
        """The results of the open batch, by call id."""
        return self._results

    @property
    def tools(self) -> ToolPhase | None:
        """The result of a step's tools, if the last fact ended them."""
        return phase_ended_by(self.last, self.calls, self._results, len(self._started_calls), self.turn.counters.steps)

    @property
    def started_at(self) -> str:
        """The time at which the turn's first step began, as its fact says; empty before.

        Another turn of the same id has another.
        """
        first = self._steps[0] if self._steps else self._step
        return "" if first is None else first.started.started_at or ""

    def add(self, seq: int, *facts: f.Fact) -> None:
        """Fold facts, the first of them at `seq`. The turn must have folded them before."""
        path, at = self._path, seq * FACT
        for fact in facts:
            self.last = fact
            kind, state = type(fact), fact.state
            if kind is f.TurnStarted:
                path.append(_CHECK)
            elif kind is f.StepFinished and state is State.CHECK:
                path.append(_CONTINUE)
            if not path or path[-1] != _NUMBERS[state]:
                path.append(_NUMBERS[state])
            if kind in self._folds:
                self._folds[kind](self, at, fact)
            at += FACT

    def _begin(self, at: int, fact: f.TurnStarted) -> None:
        self._start_fact = fact
        files = files_at(at + SLOT, fact.files, SLOT)
        self.closed.append(_message("user", TextPart(seq=at, text=fact.prompt), *files))

    def _start(self, at: int, fact: f.StepStarted) -> None:
        self._close()
        self._before = at - FACT + FIRST_MESSAGE * SLOT
        self.prepared, self.compacts = None, False
        self._step = StepFacts(at // FACT, fact)

    def _prepare(self, _: int, fact: f.RequestPrepared) -> None:
        self.prepared = fact
        if fact.instructions is not None:
            self.instructions = fact.instructions

    def _start_compaction(self, _: int, __: f.CompactionStarted) -> None:
        self.compacts = self._compacting = True
        self.refusal = ""  # the next request differs

    def _fail_attempt(self, _: int, fact: f.AttemptFailed) -> None:
        if self._compacting:
            self._compacting = fact.retry
        elif not fact.retry and fact.cause in CONTENT_CAUSES and fact.state in _CALLS_MODEL:
            self.refusal = refusal_text(fact.cause, fact.message)

    def _compact(self, _: int, fact: f.Compacted) -> None:
        self._compacting = False
        self.compactions = (*self.compactions, (fact, len(self.closed)))
        self.counted = None  # of another conversation

    def _note_broken(self, verdicts: Iterable[f.RuleVerdict], call: str | None) -> None:
        """Add the broken ones among the verdicts of rules."""
        for verdict in verdicts:
            if verdict.broken:
                effect = cast("Effect", verdict.broken)
                self.broken += (Broken(verdict.rule, effect, call, verdict.by, verdict.words),)

    def _review(self, at: int, fact: f.Reviewed) -> None:
        self._in_review = False
        self._note_broken(fact.rules, None)
        self.replied_to = len(self.closed)
        if self._step is not None:
            self._step.refused = fact.refused
        if not fact.refused:
            self.accepted = fact
            if self.reply is not None and not is_blank(self.reply.text):
                self.text = self.reply.text
            return
        if fact.retry and not self.calls:  # the results of its calls have the feedback
            self._steers += (_message("user", TextPart(seq=at, text=feedback_text(fact.feedback))),)

    def _reply(self, at: int, fact: f.ModelReplied) -> None:
        self.reply, self.accepted = fact, None
        self._answer_request(fact)
        self._in_review = fact.state is State.REVIEW
        self.counted = fact.usage
        parts = [*self._open]
        if fact.reasoning or fact.reasoning_details:
            parts.append(ReasoningPart(seq=at, text=fact.reasoning, details=fact.reasoning_details))
        if fact.text:
            parts.append(TextPart(seq=at + SLOT, text=fact.text))
            if self._in_review:
                self.text = ""  # until it is accepted
            elif not is_blank(fact.text):
                self.text = fact.text
        if fact.state is State.TEXT_ONLY:
            self._refused += tuple([call.name for call in fact.calls])
        if fact.calls:
            slot, calls, slots = at + 2 * SLOT, {**self.calls}, {**self._slots}
            # After the calls, and two parts that may still follow them.
            behind = (len(fact.calls) + 2) * SLOT
            for call in fact.calls:
                parts.append(ToolCallPart(seq=slot, id=call.id, name=call.name, arguments=call.arguments or _NOTHING))
                calls[call.id], slots[call.id] = call.name, slot + behind
                slot += SLOT
            self._next, self.calls, self._slots = slot, calls, slots
        else:
            self._next = 0
        self._open = tuple(parts)

    def _answer_request(self, fact: f.ModelReplied) -> None:
        """Note what the reply says about its request: whether it was accepted, and by which model."""
        if fact.finish is Finish.CONTENT_FILTER:
            self.refusal = refusal_text(Cause.CONTENT_FILTER)
        elif fact.state is not State.REVIEW:
            self.replied_to = len(self.closed)
        if self.prepared is not None and self.prepared.model is not None:
            self.step_models = {**self.step_models, len(self.closed): self.prepared.model}

    def _start_call(self, _: int, fact: f.CallStarted) -> None:
        if fact.rules:
            self._note_broken(fact.rules, fact.call)
        if fact.call not in self._started_calls:
            self._started_calls += (fact.call,)

    def _wait(self, _: int, fact: f.CallWaiting) -> None:
        for interrupt in fact.interrupts:
            if not interrupt.forwarded:  # it is in the sub-agent's turn
                self._note_broken(interrupt.rules, fact.call)
        self._asking_calls = {
            **self._asking_calls,
            **{interrupt.id: fact.call for interrupt in fact.interrupts},
        }
        self._note_time(fact, fact.interrupts)

    def _pause(self, _: int, fact: f.Paused) -> None:
        if fact.interrupt is not None:
            self._note_time(fact, (fact.interrupt,))

    def _note_time(self, fact: f.Fact, interrupts: Iterable[f.InterruptRecord]) -> None:
        """Note when a fact was written that asks: its step has a time, and pauses since end with an answer's."""
        times: list[float] = []
        with suppress(ValueError, OverflowError):  # a changed journal may have no time of a calendar
            if self._step is not None and (start := self._step.started.started_at):
                times.append(datetime.fromisoformat(start).timestamp() + fact.elapsed - self._step.started.elapsed)
        if self._answered is not None and self._answered.at is not None:
            times.append(self._answered.at + fact.elapsed - self._answered.elapsed)
        if times:
            self.asked_at = {**self.asked_at, **dict.fromkeys((record.id for record in interrupts), max(times))}

    def _answer(self, _: int, fact: f.Answered) -> None:
        self._answered = fact
        call = self._asking_calls.get(fact.interrupt)
        # A forwarded answer changes the arguments of a call in the sub-agent's turn.
        if call is not None and fact.arguments is not None and "/" not in fact.interrupt:
            self._changed_arguments = {**self._changed_arguments, call: fact.arguments}

    def _settle(self, at: int, fact: f.CallSettled) -> None:
        if fact.rules:
            self._note_broken(fact.rules, fact.call)
        if fact.final and fact.status is CallStatus.OK and fact.state is not State.REVIEW and self.accepted is None:
            self._direct = fact.result
        seq = kept_seq(self._slots[fact.call], at) if fact.call in self._slots else at
        new_arguments = self._changed_arguments.get(fact.call) if self._changed_arguments else None
        if not self._results:
            self._results = {}
        self._results[fact.call] = ToolResultPart(
            seq=seq,
            call=fact.call,
            name=self.calls.get(fact.call, ""),
            status=fact.status,
            retry=fact.retry or (fact.status is not CallStatus.OK and self._is_mistake(fact)),
            text=fact.result if new_arguments is None else changed_arguments(new_arguments) + fact.result,
            structured=fact.structured,
            files=files_at(seq + 1, fact.files) if fact.files else (),
        )

    def _is_mistake(self, fact: f.CallSettled) -> bool:
        """Whether a call did not run because of a mistake of the model, in the call itself or in its whole reply."""
        if fact.status is CallStatus.ERROR:
            return fact.call not in self._started_calls
        return fact.status is CallStatus.REFUSED and self._step is not None and self._step.refused

    def _add_message(self, at: int, fact: f.MessageAdded) -> None:
        # Never between a call and its result. Before a reply that is still to come, it is part of what the model
        # replies to.
        if fact.state is State.STREAM:
            self.closed.append(_message("user", TextPart(seq=kept_seq(self._before, at), text=fact.text)))
            self._before += SLOT
        else:
            self._steers += (_message("user", TextPart(seq=at, text=fact.text)),)

    def _synthesize(self, _: int, fact: f.Synthesized) -> None:
        self._synthesis = fact.text

    def _stop(self, at: int, fact: f.Stopping) -> None:
        self._partial(at, fact.partial)
        self._close()

    def _conclude(self, _: int, fact: f.Concluded) -> None:
        self._conclusion = fact.text or ""
        self.replied_to = len(self.closed)
        self._refused += fact.refused

    def _finish(self, at: int, fact: f.StepFinished) -> None:
        if self._step is not None:
            self._step.finished_seq, self._step.finished = at // FACT, fact
        if self._next:
            self._next += SLOT  # the place of its part

    def _withhold(self, guardrail: f.TrippedGuardrail) -> list[str]:
        """Replace what a guardrail tripped on. Return the texts that replace a withheld reply."""
        text = withheld_text(guardrail.name)
        checks, has_reply = guardrail.checks, self._in_review
        if checks == "input":
            self.closed[0] = _message("user", TextPart(seq=self.closed[0].parts[0].seq, text=text))
        if checks == "rule":
            by, call = guardrail.metadata.get("by", ()), guardrail.metadata.get("call")
            evidence = tuple(map(str, by)) if isinstance(by, Sequence) else ()
            self.broken += (
                Broken(guardrail.name, "end", None if call is None else str(call), evidence, guardrail.message),
            )
        if has_reply and checks in ("input", "history", "output", "rule"):
            self._open, self._in_review = self._withhold_text(text), False
        if checks != "output":
            return []
        self.text = text
        return [] if has_reply else [text]

    def _withhold_text(self, text: str) -> tuple[AnyPart, ...]:
        """Return the parts of the open step, with `text` in place of the reply in review."""
        assert self.reply is not None  # noqa: S101 (it is in review)
        return withheld_parts(self._open, text, {call.id for call in self.reply.calls if call.output})

    def _halt(self, at: int, fact: f.TurnEnded) -> None:
        withheld_texts = [] if fact.guardrail is None else self._withhold(fact.guardrail)
        self._partial(at, fact.partial)
        self._close()
        if not is_blank(fact.partial):
            self.text = fact.partial
        parts: list[AnyPart] = [TextPart(seq=at + SLOT, text=text) for text in withheld_texts]
        if fact.outcome in (Outcome.CAP_HIT, Outcome.DOOM_LOOP):
            self.text = self._conclusion or fixed_summary(self.turn, fact.reason, self.closed, self.text)
            parts.append(TextPart(seq=at + SLOT, text=self.text))
        elif fact.outcome is Outcome.FINISHED and self.turn.counters.final:
            parts += self._final(at)
        elif fact.outcome is Outcome.SYNTHESIS_DONE:
            self.text = self._synthesis or ""
            parts.append(TextPart(seq=at + SLOT, text=self.text))
        elif fact.reason is EndReason.TEXT_ONLY and not self.text:
            self.text = no_answer(self.turn)
            parts.append(TextPart(seq=at + SLOT, text=self.text))
        # A text-only turn reports what was refused: tools that its model asked for, and a tool-call limit of 0.
        kept_from = bool(self._refused) or self.turn.limits.tool_calls == 0
        if fact.outcome in _STOPPED or (fact.reason is EndReason.TEXT_ONLY and kept_from):
            message = "" if fact.guardrail is None else fact.guardrail.message
            text = sentinel_text(self.turn, fact.reason, refused_tools=self._refused, guardrail=message)
            self.sentinel = SentinelPart(
                seq=at + 2 * SLOT,
                kind=fact.outcome,
                reason=fact.reason,
                text=text,
                refusal=self.refusal,
                refused_from=self._refused_from(),
            )
            parts.append(self.sentinel)
        if parts:
            self.closed.append(_message("assistant", *parts))

    def _refused_from(self) -> int | None:
        """Return the `seq` of the first part that the provider had not accepted when it refused the last request."""
        parts = (part for message in self.closed[self.replied_to :] for part in message.parts)
        return next((part.seq for part in parts), None) if self.refusal else None

    def _final(self, at: int) -> list[AnyPart]:
        """Return the text part of an answer that a call gave, and take its text."""
        if self._direct is None:
            assert self.accepted is not None  # noqa: S101 (else no call gave the answer)
            self.text = json.dumps(thaw(self.accepted.output), ensure_ascii=False)
            return []
        self.text = self._direct
        return [TextPart(seq=at + SLOT, text=self.text)]

    def _partial(self, at: int, text: str) -> None:
        if not is_blank(text):
            # Before the results of the open step, if any.
            seq = kept_seq(self._next, at) if self._next else at
            self._open += (TextPart(seq=seq, text=text),)

    def _messages_of(self, parts: tuple[AnyPart, ...]) -> list[Message]:
        results = self._results
        answers = [Message(role="tool", parts=(results[call],)) for call in self.calls if call in results]
        return [Message(role="assistant", parts=parts), *answers]

    def _close(self) -> None:
        """Close the open step: its messages will not change any more. A reply without a verdict is withheld."""
        if self._in_review:
            self._open, self._in_review = self._withhold_text(UNCHECKED), False
        if self._step is not None:
            self._step.place = len(self.closed)
            self._steps.append(self._step)
        if self._step is not None or self._open:
            self.closed += self._messages_of(self._open)
        self.closed += self._steers
        self._step, self._open, self._started_calls, self._steers = None, (), (), ()
        self.calls, self._results, self._next, self._slots = _NOTHING, _NOTHING, 0, _NOTHING

    #: The function that folds each kind of fact. Other kinds change no message. A lookup costs less than trying them.
    _folds: ClassVar[Mapping[type[f.Fact], Callable[..., None]]] = {
        f.TurnStarted: _begin,
        f.StepStarted: _start,
        f.RequestPrepared: _prepare,
        f.ModelReplied: _reply,
        f.Reviewed: _review,
        f.CompactionStarted: _start_compaction,
        f.AttemptFailed: _fail_attempt,
        f.Compacted: _compact,
        f.CallStarted: _start_call,
        f.CallWaiting: _wait,
        f.Paused: _pause,
        f.Answered: _answer,
        f.CallSettled: _settle,
        f.MessageAdded: _add_message,
        f.Synthesized: _synthesize,
        f.StepFinished: _finish,
        f.Stopping: _stop,
        f.Concluded: _conclude,
        f.TurnEnded: _halt,
    }


def _overrides(turn_start: f.TurnStarted | None) -> Mapping[str, object]:
    """Return the limits that the turn's agent sets; none if a foreign journal lacks a valid agent."""
    try:
        return {} if turn_start is None else Agent.from_json(turn_start.agent).overrides
    except ValidationError:
        return {}


def _message(role: Role, *parts: AnyPart) -> Message:
    return Message(role=role, parts=parts)


@contextmanager
def reading(turn_id: str) -> Iterator[None]:
    """Raise `UnreadableTurnError` if facts from the store do not follow from each other."""
    try:
        with going_on(turn_id):
            yield
    except UnreadableTurnError:
        raise
    except _MISFITS as error:
        problem = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        why = "" if isinstance(error, StoreError) else "its facts do not follow from each other: "
        raise UnreadableTurnError(turn_id, f"{why}{problem}") from error


@contextmanager
def going_on(turn_id: str) -> Iterator[None]:
    """Raise `UnreadableTurnError` if a turn cannot continue after the facts from the store."""
    try:
        yield
    except MachineError as error:
        prefix = "" if isinstance(error, InvalidJournalError) else "its journal ends within an input, or was changed: "
        raise UnreadableTurnError(turn_id, f"{prefix}{error}") from error
