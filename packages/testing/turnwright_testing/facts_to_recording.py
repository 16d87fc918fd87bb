"""Convert the facts of a turn to its inputs from outside: a `Recording`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import structs
from pydantic import JsonValue, ValidationError

from turnwright.agent import Agent
from turnwright.errors import ConfigError
from turnwright.journal.answers import Answer, approve, reject
from turnwright.message import FilePart, Message, SentinelPart, StepFinishPart, StepStartPart
from turnwright.model.protocol import ModelError, ModelResponse, ResponseToolCall
from turnwright.tools import Ask, OnCrash
from turnwright.tools.batch import UNKNOWN_OUTCOME
from turnwright_states import (
    AttemptFailedInput,
    Call,
    CallState,
    CallStatus,
    Cause,
    CompactedInput,
    Decision,
    EndReason,
    ExpireInput,
    FailInput,
    InterruptKind,
    Limits,
    Outcome,
    OversizedInput,
    RequestPreparedInput,
    ReviewedInput,
    State,
    TrippedInput,
    Turn,
    Usage,
    batch,
)
from turnwright_states import facts as f
from turnwright_states.doom import call_key
from turnwright_states.payload import thaw

from .flaky import Broke, Line, Unfinished
from .recording import At, Decided, Recorded, Recording

#: Seconds that a turn may take at the least, so that its time does not run out because the machine is slow.
_REPLAY_SECONDS: Final = 60.0
#: The states in which a model is called.
_CALLING: Final = frozenset({State.STREAM, State.CONCLUDE, State.TEXT_ONLY})
#: The states in which a failed attempt, or the end of the turn, is a decision here.
_DECIDING: Final = frozenset({State.REVIEW, State.COMPACT})
#: The fields of an agent that say who it is, not what it may use.
_WHO: Final = ("name", "description", "instructions", "conclude_prompt")

#: The texts that a script abbreviates; see `ScriptedModel`.
_ONE_EACH: Final = Usage(input_tokens=1, output_tokens=1)


def read_facts(facts: Iterable[f.Fact], history: Sequence[Message] | None = None) -> tuple[Recording, tuple[str, ...]]:
    """Return the recording of a turn's facts, oldest first, and sentences about the parts that cannot be played.

    `history` is what was said before, where more of it is known than the turn's own journal holds: the earlier turns
    of a session. Raises `ConfigError` for what no recording can hold: messages to a running turn, and sub-agents.
    """
    reader = _Reader()
    for fact in facts:
        reader.read(fact)
    return reader.recording(history)


class _Reader:
    """A fold of the facts that collects the inputs from outside."""

    def __init__(self) -> None:
        self._turn = Turn()
        self._started: f.TurnStarted | None = None
        #: Facts so far, without the notices: at this one, when the last event came, and when the closing began.
        self._count = self._event_at = 0
        self._closing_at: int | None = None
        self._before_closing: dict[str, CallState] = {}
        self._previous: f.Fact | None = None
        self._lines: list[Line] = []
        self._calls = _CallReader()
        self._decisions = _DecisionReader()
        self._synthesis: list[str | ModelError | Broke | None] = []
        self._then: list[dict[str, str | bool | Answer] | At] = []
        self._on_crash: dict[str, OnCrash] = {}
        #: Calls that had started when the process died, and are not accounted for yet.
        self._recovering: set[str] = set()
        self._delayed = False
        self._notes: list[str] = []

    def read(self, fact: f.Fact) -> None:
        if isinstance(fact, f.Notice):
            self._turn.apply(fact)
            return
        if self._begins_an_event(fact):
            self._event_at = self._count
        self._take(fact)
        self._turn.apply(fact)
        self._previous = fact
        self._count += 1

    def recording(self, history: Sequence[Message] | None) -> tuple[Recording, tuple[str, ...]]:
        turn_start, turn = self._started, self._turn
        if turn_start is None:
            raise ConfigError("there is no fact that a turn begins with")
        if turn.state.outcome is None and turn.state is not State.PAUSED:
            self._then.append(At(self._count, "left", _list_ready(_states(turn))))
            self._notes.append("Nobody has driven it to its end: the test leaves it where its journal ends.")
        recorded_messages = (
            history if history is not None else [Message.of_json(message) for message in turn_start.message_history]
        )
        recording = Recording(
            agent=_agent(turn_start.agent),
            prompt=turn_start.prompt,
            files=tuple(map(FilePart.of_json, turn_start.files)),
            limits=self._limits(turn_start.limits),
            message_history=tuple(_bare(message) for message in recorded_messages if message.says_something),
            model=tuple(self._lines),
            tools=self._calls.tools,
            ignore_in_loop_detection=tuple(sorted(self._calls.exempt)),
            on_crash=self._on_crash,
            loop_keys=self._calls.loop_keys,
            asks=self._calls.asks,
            asked_in=self._calls.asked_in,
            results=dict(sorted(self._calls.results.items())),
            synthesis=tuple(self._synthesis) if turn_start.synthesis else None,
            output=self._decisions.output,
            reviewed=tuple(self._decisions.reviewed),
            decisions=self._decisions.decisions,
            then=tuple(self._then),
        )
        return recording, tuple(self._notes)

    def _take(self, fact: f.Fact) -> None:  # noqa: C901, PLR0912 (one case a fact: flat)
        match fact:
            case f.TurnStarted():
                self._started = fact
                self._decisions.begin(fact)
            case f.ModelReplied():
                self._decisions.reply(fact, len(self._lines))
                self._calls.reply(fact, self._turn)
                calls = tuple(ResponseToolCall(call.name, call.arguments, call.raw) for call in fact.calls)
                self._lines.append(
                    _line_of(
                        ModelResponse(fact.text, fact.reasoning, fact.reasoning_details, calls, fact.finish, fact.usage)
                    )
                )
            case f.AttemptFailed() if self._turn.state in _DECIDING:
                self._decisions.read(fact, self._count, self._previous)
            case f.AttemptFailed() if self._turn.state is State.TOOL_EXEC:
                self._synthesis.append(ModelError(fact.message, cause=fact.cause))
            case f.AttemptFailed():
                self._lines.append(_failed_line(fact))
            case f.CallStarted():
                self._start(fact)
            case f.CallSettled():
                self._settle(fact)
            case f.CallWaiting():
                self._wait(fact)
            case f.Synthesized() if not _gave_up(self._previous):
                self._synthesis.append(fact.text)
            case f.Answered():
                self._answer(fact)
            case f.StepFinished():
                self._finish(fact)
            case f.Stopping():
                self._stop(fact)
            case f.Concluded():
                calls = tuple(ResponseToolCall(name, {}) for name in fact.refused)
                if self._turn.limits.asks_for_conclusion:
                    self._lines.append(_line_of(ModelResponse(text=fact.text or "", calls=calls, usage=fact.usage)))
            case f.TurnEnded():
                self._halt(fact)
            case f.MessageAdded():
                raise ConfigError("somebody wrote to the turn while it ran, and a test cannot play that yet")
            case _:
                self._decisions.read(fact, self._count, self._previous)

    def _begins_an_event(self, fact: f.Fact) -> bool:
        """Whether an input was fed here; otherwise the fact followed from an earlier input."""
        match fact:
            case f.CallSettled():
                call = self._turn.batch[fact.call]
                is_closed = call.made.refused or _closes(fact) or self._decisions.closes(call.made)
                return not (is_closed or _turned_down(self._previous))
            case f.Synthesized():
                return not _gave_up(self._previous)
            case f.ModelReplied() | f.AttemptFailed() | f.CallStarted() | f.CallWaiting() | f.Answered():
                return True
            case _:
                return self._decisions.begins(fact, self._previous)

    # Calls.

    def _start(self, fact: f.CallStarted) -> None:
        if fact.child is not None:
            raise _sub_agents()
        if self._turn.batch[fact.call].state is CallState.STARTED:
            self._note_death(fact.call, "rerun")

    def _settle(self, fact: f.CallSettled) -> None:
        call = self._turn.batch[fact.call]
        if fact.spent is not None:
            raise _sub_agents()
        if _closes(fact) and not self._decisions.refused:
            self._close()
        if fact.status is CallStatus.UNKNOWN and call.state is CallState.STARTED:
            no_pause = fact.result == batch.UNKNOWN_OUTCOME
            if no_pause and fact.call not in self._recovering:  # a question in its middle gives the same facts
                self._calls.ask(fact.call, Ask(InterruptKind.QUESTION), call.attempt)
            else:
                self._note_death(
                    fact.call, "ask" if no_pause else "unknown" if fact.result == UNKNOWN_OUTCOME else "rerun"
                )
        self._calls.settle(fact, call)

    def _wait(self, fact: f.CallWaiting) -> None:
        if fact.interrupt.forwarded:
            raise _sub_agents()
        if fact.interrupt.kind is InterruptKind.UNKNOWN_OUTCOME:
            self._note_death(fact.call, "ask")
        else:
            interrupt, call = fact.interrupt, self._turn.batch[fact.call]
            attempt = call.attempt if call.state is CallState.STARTED else 0
            self._calls.ask(
                fact.call, Ask(interrupt.kind, interrupt.question, interrupt.choices, interrupt.grant), attempt
            )

    def _note_death(self, call: str, how: OnCrash) -> None:
        """Account for this call of a dead process by its tool's crash policy."""
        name = self._turn.batch[call].name
        if self._on_crash.setdefault(name, how) != how:
            self._notes.append(f"The tool {name!a} did not do the same after every crash; the test has it do so.")
        if call not in self._recovering:
            states = _states(self._turn)
            self._then.append(At(self._count, "crash", _list_ready(states)))
            self._recovering = {started_call for started_call, state in states.items() if state is CallState.STARTED}
        self._recovering.discard(call)

    # What people said, and what ended the turn.

    def _answer(self, fact: f.Answered) -> None:
        kind = self._turn.interrupts[fact.interrupt].kind
        answer = _read_said(fact, kind)
        last = self._then[-1] if self._then else None
        if isinstance(last, dict) and isinstance(self._previous, f.Answered | f.CallSettled) and self._is_paused:
            last[fact.interrupt] = answer
        else:
            self._then.append({fact.interrupt: answer})

    @property
    def _is_paused(self) -> bool:
        return self._turn.state is State.PAUSED

    def _close(self) -> None:
        if self._closing_at is None:
            self._closing_at = self._count
            self._before_closing = _states(self._turn)

    def _finish(self, fact: f.StepFinished) -> None:
        if fact.state is not State.CHECK:
            self._close()
        elif self._is_late(fact):
            self._delay()

    def _stop(self, fact: f.Stopping) -> None:
        at = self._closed_at()
        if self._turn.state is State.STREAM:
            self._lines.append(Unfinished(fact.partial, "deadline"))
        elif self._turn.state in _DECIDING:
            self._decisions.expire(at)
        elif self._turn.state is State.TOOL_EXEC:
            self._then.append(At(at, "deadline", _list_ready(self._before_closing)))
        elif self._is_late(fact) and not self._delayed:
            # A person answered when the time was up already: it passed while the turn rested.
            self._then.insert(-1, At(self._event_at, "deadline"))

    def _halt(self, fact: f.TurnEnded) -> None:
        at, state = self._closed_at(), self._turn.state
        if fact.guardrail is not None:
            self._decisions.trip(fact.guardrail, at)
            if state is State.TOOL_EXEC:
                self._then.append(At(at, "decision", _list_ready(self._before_closing)))
        elif fact.outcome is Outcome.ABORTED:
            ending: Literal["abort", "superseded"] = "superseded" if fact.reason is EndReason.SUPERSEDED else "abort"
            if state in _CALLING and ending == "abort":
                self._lines.append(Unfinished(fact.partial))
            else:
                self._then.append(At(at, ending, _list_ready(self._before_closing)))
        elif fact.reason is EndReason.DEADLINE and state is State.TEXT_ONLY:
            self._lines.append(Unfinished(fact.partial, "deadline"))
        elif fact.reason is EndReason.ENGINE_ERROR and state in _CALLING:
            self._lines.append(Broke(fact.error, fact.partial))
        elif fact.reason is EndReason.ENGINE_ERROR and state in _DECIDING:
            self._decisions.fail(fact.error, at)
        elif fact.reason is EndReason.ENGINE_ERROR:
            self._break(fact, at)

    def _break(self, fact: f.TurnEnded, at: int) -> None:
        """A bug ended the turn in TOOL_EXEC: while calls ran, before a call could begin, or in the synthesis."""
        states = self._before_closing
        if CallState.STARTED in states.values():
            self._decisions.fail(fact.error, at)
            self._then.append(At(at, "decision", _list_ready(states)))
            return
        ready = [call for call, state in states.items() if state is CallState.READY]
        if ready:
            self._calls.blame(ready[0])
        else:
            self._synthesis.append(Broke(fact.error))

    def _closed_at(self) -> int:
        """The number of facts when the closing began that ends here."""
        at, self._closing_at = self._closing_at, None
        if at is None:
            self._before_closing = _states(self._turn)
        return self._count if at is None else at

    # Time.

    def _is_late(self, fact: f.Fact) -> bool:
        seconds = self._turn.limits.seconds
        return seconds is not None and fact.elapsed >= seconds

    def _delay(self) -> None:
        self._delayed = True
        self._then.append(At(self._event_at, "delay"))

    def _limits(self, limits: Limits) -> Limits:
        """Return the limits with seconds that the test keeps on any machine."""
        if limits.seconds is None:
            return limits
        seconds = max(limits.seconds, _REPLAY_SECONDS)
        if seconds != limits.seconds:
            self._notes.append(
                f"Its limit of {limits.seconds:g} seconds is {seconds:g} here, for machines differ in speed."
            )
        return limits.model_copy(update={"seconds": seconds})


class _CallReader:
    """A reader of facts about calls, fact by fact."""

    def __init__(self) -> None:
        self.results: dict[str, Recorded] = {}
        self.exempt: set[str] = set()
        self.asks: dict[str, tuple[Ask, ...]] = {}
        self._asked_in: dict[str, tuple[int, ...]] = {}
        self.loop_keys: dict[str, str] = {}
        #: The names that were offered, as the answer to an unknown one lists them; then those that were called.
        self._offered: list[str] = []
        self._called_names: list[str] = []

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools, each once."""
        return tuple(dict.fromkeys([*self._offered, *self._called_names]))

    @property
    def asked_in(self) -> dict[str, tuple[int, ...]]:
        """Return the attempts in which calls asked, without calls that asked only before they ran."""
        return {call: attempts for call, attempts in self._asked_in.items() if any(attempts)}

    def reply(self, fact: f.ModelReplied, turn: Turn) -> None:
        for call in fact.calls:
            if call.lease is not None:
                raise _sub_agents()
            if call.output:
                continue
            tool_names = call.refused.removeprefix(f"there is no tool {call.name!r}; the tools are: ")
            if call.invalid and tool_names != call.refused:
                self._offered = self._offered or ([] if tool_names == "none" else tool_names.split(", "))
            elif turn.state is State.STREAM:
                self._called_names.append(call.name)
                if call.key not in ("", call_key(call.name, call.arguments, call.raw, None)):
                    self.loop_keys[call.id] = call.key
                elif not call.key and call.name not in turn.always_for:
                    self.exempt.add(call.name)

    def ask(self, call: str, ask: Ask, attempt: int = 0) -> None:
        """A call asked a person, in the middle of this attempt, or before it ran."""
        self.asks[call] = (*self.asks.get(call, ()), ask)
        self._asked_in[call] = (*self._asked_in.get(call, ()), attempt)

    def settle(self, fact: f.CallSettled, call: Call) -> None:
        at: Literal["run", "start", "reply", "hook"] = "run"
        came_back = fact.status in (CallStatus.OK, CallStatus.ERROR)
        if call.made.refused and call.made.invalid:
            at = "reply"
        elif call.state is CallState.READY and came_back:
            at = "start"
        elif call.state is CallState.READY and fact.status is CallStatus.REJECTED and fact.decisions:
            at = "hook"
        elif call.state is CallState.READY and fact.result in (batch.NO_PAUSE, batch.UNKNOWN_OUTCOME):
            # It wanted a person, and what exactly it asked is not known.
            self.ask(fact.call, Ask(InterruptKind.APPROVAL))
        self.results[fact.call] = Recorded(
            fact.result,
            fact.status,
            at=at,
            attempt=max(call.attempt, 1) if came_back else 1,
            structured=fact.structured,
            files=tuple(map(FilePart.of_json, fact.files)),
            retry=fact.retry,
            final=fact.final and not call.made.output,
        )

    def blame(self, call: str) -> None:
        was = self.results[call]
        self.results[call] = Recorded(was.text, was.status, at="bug")


def _sub_agents() -> ConfigError:
    """A turn has sub-agents."""
    return ConfigError("the turn lent a part of its budget to sub-agents, and a test cannot play these yet")


class _DecisionReader:
    """A reader of facts, fact by fact. `decisions` are by the number of facts before each."""

    def __init__(self) -> None:
        self.decisions: dict[int, Decided] = {}
        #: The model's lines that were reviewed.
        self.reviewed: list[int] = []
        #: The way in which the typed answer was requested; None for an answer in text.
        self.output: Literal["tool", "prompt"] | None = None
        #: Whether the last reply was refused: then the results of its calls follow from that.
        self.refused = False

    def begin(self, fact: f.TurnStarted) -> None:
        self.output = "prompt" if "output_schema" in fact.agent else None

    def reply(self, fact: f.ModelReplied, line: int) -> None:
        self.refused = False
        if fact.state is State.REVIEW:
            self.reviewed.append(line)
        if any(call.output for call in fact.calls):
            self.output = "tool"

    def read(self, fact: f.Fact, at: int, previous: f.Fact | None) -> None:
        """Read a fact of these kinds that came after `at` others."""
        match fact:
            case f.RequestPrepared():
                self.decisions[at] = RequestPreparedInput(
                    instructions=fact.instructions,
                    tools=fact.tools,
                    settings=thaw(fact.settings),
                    append=fact.append,
                )
            case f.Reviewed():
                self.refused = fact.refused
                self.decisions[at] = ReviewedInput(
                    refused=fact.refused, feedback=fact.feedback, answer=fact.answer, output=thaw(fact.output)
                )
            case f.CompactionStarted() if _is_oversized(fact, previous):
                self.decisions[at] = OversizedInput(tokens=fact.tokens)
            case f.Compacted():
                self.decisions[at] = CompactedInput(
                    text=fact.text, cleared=fact.cleared, kept=fact.kept, usage=fact.usage
                )
            case f.AttemptFailed():
                self.decisions[at] = AttemptFailedInput(cause=fact.cause, message=fact.message, usage=fact.usage)
            case _:
                pass

    def begins(self, fact: f.Fact, previous: f.Fact | None) -> bool:
        """Whether a decision was fed here; otherwise the fact followed from an earlier input."""
        if isinstance(fact, f.CompactionStarted):
            return _is_oversized(fact, previous)
        return isinstance(fact, f.RequestPrepared | f.Reviewed | f.Compacted)

    def closes(self, call: f.CallMade) -> bool:
        """Whether the result of this call follows from the review of its reply."""
        return self.refused or call.output

    def trip(self, guardrail: f.TrippedGuardrail, at: int) -> None:
        self.decisions[at] = TrippedInput(
            guardrail=guardrail.name,
            message=guardrail.message,
            metadata=thaw(guardrail.metadata),
            checks=guardrail.checks,
        )

    def fail(self, error: str, at: int) -> None:
        self.decisions[at] = FailInput(error=error)

    def expire(self, at: int) -> None:
        self.decisions[at] = ExpireInput()


def _is_oversized(fact: f.CompactionStarted, previous: f.Fact | None) -> bool:
    """Whether the engine found the request too long, and not the provider, whose failed attempt comes before."""
    return bool(fact.tokens) or not isinstance(previous, f.AttemptFailed)


def _agent(agent_fields: Mapping[str, JsonValue]) -> Agent:
    """Return the agent of the turn, without limits and tools. Another driver's journal may not have it."""
    try:
        return Agent.model_validate({name: agent_fields[name] for name in _WHO if name in agent_fields})
    except ValidationError:
        return Agent(name="recorded")


def _read_said(fact: f.Answered, kind: InterruptKind) -> str | Answer:
    match fact.decision:
        case Decision.REPLY:
            return fact.text
        case Decision.APPROVE if not fact.text:
            return approve(arguments=thaw(fact.arguments), always=fact.always)
        case Decision.REJECT:
            return reject(fact.text)
        case _ if not fact.text and kind is not InterruptKind.QUESTION:
            return str(fact.decision)
        case _:
            return Answer(fact.decision, fact.text, thaw(fact.arguments), always=fact.always)


def _bare(message: Message) -> Message:
    """Return the message without the engine's bookkeeping and its place in its turn."""
    kept_parts = [part for part in message.parts if not isinstance(part, StepStartPart | StepFinishPart | SentinelPart)]
    return structs.replace(message, parts=tuple(structs.replace(part, seq=0) for part in kept_parts))


def _states(turn: Turn) -> dict[str, CallState]:
    return {call.id: call.state for call in turn.batch.values() if not call.made.refused}


def _list_ready(states: Mapping[str, CallState]) -> tuple[str, ...]:
    """Return the calls that have not begun."""
    return tuple([call for call, state in states.items() if state is CallState.READY])


def _closes(fact: f.CallSettled) -> bool:
    """Whether a call was closed with its turn or its step, rather than had a result."""
    is_superseded = fact.status is CallStatus.REJECTED and fact.result.endswith(f"({EndReason.SUPERSEDED})")
    return fact.status is CallStatus.ABORTED or is_superseded


def _turned_down(fact: f.Fact | None) -> bool:
    """Whether a person has settled a call: the next fact is its result."""
    return isinstance(fact, f.Answered) and fact.decision in (Decision.REJECT, Decision.UNKNOWN)


def _gave_up(fact: f.Fact | None) -> bool:
    """Whether a synthesis had no attempt left, so that it is null."""
    return isinstance(fact, f.AttemptFailed) and not fact.retry


def _line_of(reply: ModelResponse) -> str | ModelResponse:
    """Return the reply, as a text if nothing is lost."""
    plain = ModelResponse(text=reply.text, usage=_ONE_EACH)
    return reply.text if reply == plain and reply.text else reply


def _failed_line(fact: f.AttemptFailed) -> ModelResponse | ModelError:
    """Return the line of a failed attempt."""
    if fact.cause is Cause.EMPTY_REPLY and not fact.partial:
        return ModelResponse(usage=fact.usage)
    partial_reply = ModelResponse(text=fact.partial, usage=fact.usage) if fact.partial or fact.usage else None
    return ModelError(fact.message, cause=fact.cause, partial=partial_reply)
