"""A segment being driven: a claimed turn with its clock, its inbox, and what its driver needs besides."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
from msgspec import structs

from turnwright._base.words import text_of
from turnwright.agent import Agent
from turnwright.context import NOT_GIVEN, JsonObject, TurnContext, TurnInfo
from turnwright.errors import CannotRunError, ConfigError, HookFailedError
from turnwright.journal.answers import Signature, answer_item, make_default_answer, make_expiry_answer
from turnwright.journal.inbox import (
    ANSWER_PREFIX,
    PROGRESS_PREFIX,
    RESULT_PREFIX,
    early_results,
    in_order,
    steers,
    to_answered_input,
)
from turnwright.journal.links import Links
from turnwright.journal.result import TurnResult
from turnwright.journal.termination import end_children
from turnwright.journal.turn_journal import TurnJournal
from turnwright.model.model_settings import ModelSettings
from turnwright.model.prices import price_usage
from turnwright.model.protocol import (
    DELTAS,
    Delta,
    Model,
    ModelError,
    ModelResponse,
    TextDelta,
    ToolCallDelta,
    no_delta,
    no_text,
)
from turnwright.store import InboxItem, InboxKind
from turnwright.tools.batch_context import NOTHING_DECIDED, BatchContext, Values
from turnwright.tools.tool import Tool
from turnwright.transcript.events import OutputDeltaEvent, ResponseRestartedEvent, ToolProgressEvent
from turnwright.transcript.history import History
from turnwright.transcript.request_builder import Conversation, RequestedOutput, settings_in
from turnwright.transcript.wording import UNCHECKED, withheld_text
from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AnswerMismatchError,
    AttemptFailedInput,
    AwaitPerson,
    Call,
    CallState,
    FailInput,
    IllegalInputError,
    Input,
    InterruptKind,
    ModelRepliedInput,
    State,
    Usage,
)
from turnwright_states.inputs import StopInput, is_blank
from turnwright_states.payload import thaw
from turnwright_states.turn import approval_key

from .dependencies import Dependencies
from .interruption import Interruption
from .participants import Participants
from .repetition import RepetitionGuard, repeats_itself
from .reply_events import delta_event
from .review import TripError

if TYPE_CHECKING:
    from .typed_output import TypedOutput


_LOG = logging.getLogger(__name__)


class Segment:
    """A turn being driven by this process: its journal, and what driving needs besides."""

    #: Who acts in the turn besides its model and its tools. See `join`.
    participants: Participants
    # Few turns have these, so they are the class's until they are set.
    #: The usage of a complete reply that is not fed before its guardrails have passed.
    unfed: Usage | None = None
    #: Notices a reply that repeats itself, from its first piece on.
    repetition: RepetitionGuard | None = None
    #: The approvals of earlier turns of the session that cover equal calls, once one is needed.
    _earlier_approvals: Mapping[str, str] | None = None
    #: The tools of the engine and those of the client of this turn, if it has some.
    _all_tools: Mapping[str, Tool] | None = None

    def __init__(
        self,
        setup: Dependencies,
        journal: TurnJournal,
        *,
        agent: Agent,
        model: Model,
        history: History,
    ) -> None:
        self.setup = setup
        self.journal = journal
        self.machine = journal.machine
        #: Bounds the current attempt, if its action has a time limit.
        self.action_scope: anyio.CancelScope | None = None
        observer = journal.observer
        self._price, self._unobserved = setup.price_for(model), model
        self.model = model if observer is None else observer.observed(model, self._price, self._timed_out)
        #: The models that hooks chose for steps, by name: as they are, and as they are called.
        self._step_models: dict[str, tuple[Model, Model]] = {}
        #: The tools that the model may call: those of the agent and of the turn alone.
        self.tools: Mapping[str, Tool] = setup.tools_for(agent)
        specs, client_tools = setup.specs_for(agent), [str(tool["name"]) for tool in journal.started.client_tools]
        if client_tools:
            self._all_tools = all_tools = setup.tools_in_turn(journal.turn_id, journal.started)
            self.tools = {**self.tools, **{name: all_tools[name] for name in client_tools}}
            specs = tuple(tool.spec for tool in self.tools.values())
        #: Whether a tool has an async `loop_key`.
        self.has_async_keys = any(tool.has_async_key for tool in self.tools.values())
        #: Asks for a typed answer and judges it, if the agent has a type.
        self.output = self._typed_output(agent, model)
        self.conversation = Conversation(
            agent,
            history=history,
            transcript=journal.transcript,
            all_tools=specs,
            output=RequestedOutput() if self.output is None else self.output.requested,
            mode=setup.unpaired,
            show_budget_to_model=setup.show_budget_to_model,
            settings=self._settings(model),
            turn_id=journal.turn_id,
        )
        self.agent = agent
        #: The texts before the turn that input guardrails have to check.
        self.unchecked = history.unchecked
        #: The turn's dependencies. The driver sets them before it performs an action.
        self.deps: object = NOT_GIVEN
        #: The reason why they are missing, if the turn was stopped while they were made.
        self.lacks_deps = ""
        #: The beginning of the turn that a person started: of this one, unless it is a sub-agent's.
        self.origin = journal.started
        #: Seconds to wait before the next attempt.
        self.wait = 0.0
        #: The parsed arguments of the last reply's calls, in its order, until the calls run.
        self.checked_values: Sequence[Values | None] = ()
        #: Whether the last reply's calls were started with it, and have not run yet.
        self.started = False
        #: Whether the last reply, whose calls start with it, may be journaled with their first results
        #: (docs/rules.md#repeatable-steps).
        self.defers = False
        #: A reply that is streaming in: its text so far, and the number of its pieces.
        self._texts: list[str] | None = None
        self._pieces = 0
        self._base = self.machine.turn.elapsed
        self._began_at = setup.clock()
        self.interruption = Interruption(journal, setup, self)

    def join(self, participants: Participants) -> None:
        """Let these act in the turn, from its first action on."""
        self.participants = participants
        if participants.inputs is not None:
            self.journal.admitted = set()
        if participants.review is not None:
            from turnwright.journal.held_events import HeldEvents  # noqa: PLC0415 (many turns review no replies)

            self.journal.held_events = HeldEvents()

    def _typed_output(self, agent: Agent, model: Model) -> "TypedOutput | None":
        type_ = self.setup.output_of(agent)
        if type_ is None:
            return None
        from .typed_output import TypedOutput, mode_for  # noqa: PLC0415 (few agents have one)

        return TypedOutput(
            type_,
            mode_for(agent.output_mode, model),
            agent.output_validators,
            self.context,
            agent=agent.name,
            grace=self.setup.cancel_grace,
        )

    def elapsed(self) -> float:
        """Seconds of driving since the turn began, over all its segments."""
        return self._base + self.setup.clock() - self._began_at

    def info(self, *, resumed: bool) -> TurnInfo:
        """Return the turn as the function that makes its dependencies receives it."""
        turn_start = self.journal.started
        return TurnInfo(
            turn_id=self.journal.turn_id,
            agent=self.agent.name,
            session=turn_start.session,
            metadata=turn_start.metadata,
            resumed=resumed,
        )

    def context(self) -> TurnContext:
        """Return the context of the turn as it is now, for a function of the app.

        Raises `HookFailedError` if the turn was stopped before its dependencies were made.
        """
        if self.lacks_deps:
            raise HookFailedError(self.lacks_deps)
        turn = self.machine.turn
        return TurnContext(
            turn_id=self.journal.turn_id,
            deps=None if self.deps is NOT_GIVEN else self.deps,
            session=self.origin.session,
            metadata=self.origin.metadata,
            agent=self.agent.name,
            step=turn.counters.steps,
            usage=turn.usage,
            messages=self.conversation.messages,
        )

    def batch_context(self) -> BatchContext:
        """Return the context of the batch that is about to run. A turn that waits for its model has none."""
        setup, turn, observer, interruption = self.setup, self.machine.turn, self.journal.observer, self.interruption
        judge = self.participants.judge
        # The batch has the calls of the last reply, in its order. A batch from a resumed journal was not checked.
        pairs = zip(turn.batch, self.checked_values, strict=False)
        batch = BatchContext(
            turn=self.journal.claim.turn,
            tools=setup.tools if self._all_tools is None else self._all_tools,
            grants=turn.grants,
            elapsed=self.elapsed,
            now=setup.now,
            stopping=lambda: interruption.aborting,
            abort=interruption.signal,
            progress=self._publish_progress,
            delegate=self.participants.settle,
            execute=None if observer is None else observer.execute,
            checked_values={call: values for call, values in pairs if values is not None},
            cancel_grace=setup.cancel_grace,
            tool_timeout=turn.limits.tool_timeout,
            judge=judge,
            decisions=NOTHING_DECIDED if judge is None else {},
            context=self.context,
            restricted=setup.authorize is not None,
            callback=None if setup.links is None else partial(self._callback, setup.links),
            covering_approval=self._find_approval,
            write=self.journal.write,
        )
        self.checked_values = ()
        return batch

    def _callback(self, links: Links, key: str, expires_in: float | None) -> str:
        started_at, now = self.journal.transcript.started_at, self.setup.now()
        return links.callback(key, started_at, expires_in=expires_in, now=now)

    async def _find_approval(self, tool: str, arguments: JsonObject) -> str:
        """Return the approval that covers equal calls to this one, `TURN/INTERRUPT`; empty without one."""
        key, turn_id, session = approval_key(tool, arguments), self.journal.turn_id, self.journal.started.session
        approval = self.machine.turn.approved_calls.get(key)
        if approval is not None:
            return f"{turn_id}/{approval}"
        if session is None:
            return ""
        if self._earlier_approvals is None:
            from turnwright.journal.standing_approvals import read_approvals  # noqa: PLC0415 (few turns ask)

            self._earlier_approvals = await read_approvals(self.journal.store, session)
        return self._earlier_approvals.get(key, "")

    async def back_off(self) -> None:
        """Wait as long as the last failed attempt asked for."""
        wait, self.wait = self.wait, 0.0
        if wait:
            await anyio.sleep(wait)

    def fail_attempt(self, error: ModelError, usage: Usage | None = None) -> AttemptFailedInput:
        """Return the input of a failed attempt. The next one waits."""
        turn = self.machine.turn
        attempt = turn.limits.max_retries - turn.counters.retries_left + 1
        self.wait = self.setup.backoff.wait(attempt, error.retry_after)
        return AttemptFailedInput(
            cause=error.cause,
            message=text_of(error),
            partial=self.partial,
            usage=usage,
            wait=self.wait,
            elapsed=self.elapsed(),
        )

    def _settings(self, model: Model) -> ModelSettings | None:
        """Return the turn's model settings. Another process may have checked them with another model."""
        settings = settings_in(self.journal.started)
        if settings is not None:
            self.setup.check_settings(model, settings, strict=False)
        return settings

    def price_reply(self, reply: ModelResponse | None, model: Model | None = None) -> Usage | None:
        """Return the usage of a reply, with its cost if the model has a price. By default, it is the turn's model."""
        billed_model = self._find_billed_model(model)
        return price_usage(
            self._price if billed_model is self._unobserved else self.setup.price_for(billed_model), reply
        )

    def account_for(self, reply: ModelResponse, model: Model | None = None) -> Usage | None:
        """Return the usage of a complete reply as `price_reply` does.

        Raises `ConfigError` if the turn has a cost limit, and nothing says what the reply costs.
        """
        usage = self.price_reply(reply, model)
        if self.machine.turn.limits.cost is not None:
            self.unfed = usage
            self.setup.check_cost(self._find_billed_model(model), usage)
            self.unfed = None
        return usage

    def _find_billed_model(self, model: Model | None) -> Model:
        """Return the model without its observer, which knows neither its server nor its capabilities."""
        if model is None:
            preparation = self.journal.transcript.prepared
            model_name = None if preparation is None else preparation.model
            return self._unobserved if model_name is None else self.find_model(model_name)
        return self._unobserved if model is self.model else model

    @property
    def called_model(self) -> Model:
        """The model of the next call: the turn's, or the one that a hook chose for the step.

        Raises `CannotRunError` if this process lacks it.
        """
        preparation = self.journal.transcript.prepared
        if preparation is None or preparation.model is None:
            return self.model
        try:
            self.find_model(preparation.model)
        except ConfigError as error:
            raise CannotRunError(str(error)) from error.__cause__
        return self._step_models[preparation.model][1]

    def find_model(self, name: str) -> Model:
        """Return a model by its name, as the engine finds that of an agent. Raises `ConfigError`."""
        if name not in self._step_models:
            model = self.setup.model_for(self.agent, name)
            observer, price = self.journal.observer, self.setup.price_for(model)
            observed_model = model if observer is None else observer.observed(model, price, self._timed_out)
            self._step_models[name] = model, observed_model
        return self._step_models[name][0]

    def _timed_out(self) -> bool:
        return self.action_scope is not None and self.action_scope.cancel_called

    def result(self) -> TurnResult | None:
        """Return the turn's result, with the messages that its inbox still had when it ended.

        Returns None if another model began the turn: then the transcript lacks the signatures that the journal has.
        """
        if self.model.name != self.journal.started.model:
            return None
        result = self.journal.result()
        late = () if result.outcome is None else tuple(steers(self.journal.waiting or ()).values())
        return replace(result, undelivered=(*result.undelivered, *late)) if late else result

    async def feed(self, event: Input) -> None:
        """Feed the journal. An abort consumes its inbox item."""
        is_deferred = self.started = False
        if type(event) is ModelRepliedInput:
            self.started = event.starts
            # A reply without starts waits for the first of them, unless an abort comes before them.
            is_deferred = self.defers if event.starts else not self.interruption.aborting
        consumed_items = self.interruption.consumed if type(event) is AbortInput else ()
        counters = self.machine.turn.counters
        retries_left = counters.output_retries_left
        await self.journal.feed(event, consumed_items=consumed_items, deferred=is_deferred)
        is_refused = type(event) is ModelRepliedInput and counters.output_retries_left < retries_left
        if is_refused and self.journal.is_followed:  # by a rule, in the append of the reply
            self.journal.publish(ResponseRestartedEvent(self.journal.turn_id, self.journal.claim.seq))

    @property
    def partial(self) -> str:
        """The received text of a reply that is not journaled yet; empty while a guardrail holds it back."""
        return "" if self.holds_reply else "".join(self._texts or ())

    @property
    def holds_reply(self) -> bool:
        """Whether a guardrail holds the reply back."""
        held_events = self.journal.held_events
        return held_events is not None and bool(held_events.gates)

    def hold(self, gate: str) -> None:
        """Hold the pieces of replies back until the gate is opened."""
        if self.journal.held_events is not None:
            self.journal.held_events.gates.add(gate)

    def open_gate(self, gate: str) -> None:
        """Pass on what this gate held back, unless another one is closed."""
        if self.journal.held_events is not None:
            self.journal.pass_on(self.journal.held_events.open(gate))

    def receive(self, delta: Delta) -> None:
        """Receive a piece of the reply, and publish it. Raises `ModelError` for a reply that repeats itself."""
        journal = self.journal
        if delta.__class__ not in DELTAS and not isinstance(delta, TextDelta):
            raise no_delta(self.model.name, delta)
        text = delta.arguments_delta if isinstance(delta, ToolCallDelta) else delta.text
        if text.__class__ is not str and not isinstance(text, str):
            raise no_text(self.model.name, delta, text)
        if isinstance(delta, TextDelta):
            if self._texts is None:
                self._texts = []
            self._texts.append(text)
        if journal.is_followed:
            if self.output is not None:
                self._publish_partial_output(self.output, delta)
            journal.publish(delta_event(journal.turn_id, journal.claim.seq, self._pieces, delta))
        self._pieces += 1
        if self.setup.stop_repetition:
            if self.repetition is None:
                self.repetition = RepetitionGuard()
            if self.repetition.add(delta):
                raise repeats_itself(self.model.name)

    def _publish_partial_output(self, output: "TypedOutput", delta: Delta) -> None:
        """Publish the part of a typed answer that has streamed in, if it has grown."""
        partial = output.partial(delta)
        if partial is not None:
            turn, seq = self.journal.turn_id, self.journal.claim.seq
            self.journal.publish(OutputDeltaEvent(turn=turn, seq=seq, partial=partial))

    def reply_complete(self) -> None:
        """Keep the received text no longer: the reply is complete."""
        self._texts, self._pieces, self.repetition = None, 0, None

    def restart(self) -> None:
        """Begin a reply. Followers who received pieces of a failed attempt are sent `ResponseRestartedEvent`."""
        if self.output is not None:
            self.output.restart()
        if self._pieces:
            self.journal.publish(ResponseRestartedEvent(turn=self.journal.turn_id, seq=self.journal.claim.seq))
            self._texts, self._pieces, self.repetition = None, 0, None

    def _publish_progress(self, call: Call, progress: float, total: float | None, message: str) -> None:
        journal = self.journal
        if journal.is_followed and not journal.unwritten:  # nobody has received the start of the call
            journal.publish(
                ToolProgressEvent(
                    turn=journal.turn_id,
                    seq=journal.claim.seq,
                    call=call.id,
                    tool=call.name,
                    progress=progress,
                    total=total,
                    message=message,
                )
            )

    async def take_in(self) -> Input | None:
        """Feed the items in the inbox of a paused turn, or between two actions.

        Answers are fed here, and messages before a step's model call. An abort is returned. Raises `TripError` and
        `HookFailedError` of an input guardrail that checks a message.
        """
        items = self.journal.waiting
        if items is None or items:  # an append usually returns that nothing waits
            items = await self.interruption.look()
        if self.interruption.aborting:
            return self.interruption.event()
        if items and await self._drop_late_results(items):
            items = await self.interruption.look()
        if self.machine.state is State.PAUSED:
            await self._take_in_answers(items)
            items = await self.interruption.look()
        if items and self.machine.state is State.STREAM:
            await self._admit(items)
            if not self.wait:
                await self.journal.take_in(items, self.elapsed())
        return None

    async def _take_in_answers(self, items: Sequence[InboxItem]) -> None:
        """Feed the answers among the items, and close the questions that have expired.

        An expiry is an answer in the inbox too, so that the first one counts: a result that was stored is used.
        """
        await self._feed_answers(items)
        while expiries := self._expiries():
            for expiry in expiries:
                await self.journal.store.post(expiry)
            self.journal.waiting = None
            await self._feed_answers(await self.interruption.look(), expiries)

    async def _feed_answers(self, items: Sequence[InboxItem], expiries: Sequence[InboxItem] = ()) -> None:
        """Feed the answers among the items. Early results come first: they beat what a person decides in doubt."""
        interrupts = self.machine.turn.interrupts
        early_items = [
            item for call, item in early_results(items).items() if f"{RESULT_PREFIX}{call}" not in interrupts
        ]
        for item in (*early_items, *(item for item in in_order(items) if item not in early_items)):
            if item.kind is InboxKind.ANSWER and isinstance(self.machine.action, AwaitPerson):
                await self._answer(item, is_expiry=item in expiries)

    async def _drop_late_results(self, items: Sequence[InboxItem]) -> bool:
        """Drop the results from outside for calls that have ended with another one. Return whether there are any."""
        batch, has_dropped = self.machine.turn.batch, False
        for call, item in early_results(items).items():
            if call not in batch or batch[call].state is CallState.SETTLED:
                about = {"turn": self.journal.turn_id, "call": call}
                words = "turn %s: call %s ended with another result, and the one from outside is dropped"
                _LOG.warning(words, self.journal.turn_id, call, extra=about)
                await self.journal.drop(item.id)
                has_dropped = True
        return has_dropped

    async def take_in_messages(self) -> None:
        """Feed the messages that came while this attempt waited: after a failed one, or for hooks and guardrails."""
        items = await self.journal.inbox()
        await self._admit(items)
        await self.journal.take_in(items, self.elapsed())

    async def _admit(self, items: Sequence[InboxItem]) -> None:
        """Let input guardrails check the messages among the items, before they are fed."""
        inputs, first_input = self.participants.inputs, self.journal.admitted
        if inputs is None or first_input is None:
            return
        for item, text in steers(items).items():
            if item not in first_input:
                await inputs.check_added(text, "message")
                first_input.add(item)

    async def _answer(self, item: InboxItem, *, is_expiry: bool) -> None:
        event = self._read_answer(item)
        try:
            if event is not None:
                inputs = (event,) if is_expiry else await self._checked_answer(event)
                # A forwarded answer uses up the one that it comes before: else a call that runs again would get it.
                also_used = (f"{ANSWER_PREFIX}{event.interrupt}", f"{PROGRESS_PREFIX}{event.interrupt}")
                return await self.journal.feed(*inputs, consumed_items=(item.id, *also_used))
        except AnswerMismatchError:
            # It was valid when it was posted. Since then another answer came, or the interrupt expired.
            if event is not None and event.given is not None:
                about = {"turn": self.journal.turn_id, "interrupt": event.interrupt}
                words = "turn %s: nothing waits for %s, and the result from outside is dropped"
                _LOG.warning(words, self.journal.turn_id, event.interrupt, extra=about)
        await self.journal.drop(item.id)
        return None

    def _read_answer(self, item: InboxItem) -> AnsweredInput | None:
        """Return the answer of an item. An early result settles its call also if the call's outcome is in doubt now."""
        event, interrupts = to_answered_input(item, self.elapsed()), self.machine.turn.interrupts
        if event is None or event.interrupt in interrupts:
            return event
        in_doubt = {
            interrupt.call: interrupt.id
            for interrupt in interrupts.values()
            if interrupt.kind is InterruptKind.UNKNOWN_OUTCOME
        }
        call = next(iter(early_results((item,))), None)
        return structs.replace(event, interrupt=in_doubt[call]) if call in in_doubt else event

    async def _checked_answer(self, event: AnsweredInput) -> tuple[Input, ...]:
        """Let input guardrails check the text of an answer. Return the inputs to feed.

        If one trips, its text is withheld, the other questions are closed, and the turn ends.
        """
        text = event.text
        if event.arguments is not None:
            text = "\n\n".join(filter(None, (text, json.dumps(thaw(event.arguments), ensure_ascii=False))))
        checks = self.participants.inputs
        if checks is None or is_blank(text) or event.interrupt not in self.machine.turn.interrupts:
            return (event,)
        try:
            await checks.check_added(text, "answer")
        except TripError as trip:
            return await self._withheld_answer(event, withheld_text(trip.guardrail), trip.event(self.elapsed()))
        except HookFailedError as error:
            stop = FailInput(error=str(error), elapsed=self.elapsed())
            return await self._withheld_answer(event, UNCHECKED, stop)
        return (event,)

    async def _withheld_answer(self, event: AnsweredInput, text: str, stop: StopInput) -> tuple[Input, ...]:
        """Return the inputs that withhold an answer and end the turn, which share one append."""
        stop = structs.replace(stop, spent=await end_children(self.journal))
        trial = self.machine.copy()
        interrupts = trial.turn.interrupts
        call = interrupts[event.interrupt].call
        inputs: list[Input] = []
        # The other questions of its call come after it, because the rejection of a call closes all that it asks.
        for interrupt in sorted(
            interrupts.values(), key=lambda question: (question.call == call) * (1 + (question.id != event.interrupt))
        ):
            if interrupt.id == event.interrupt:
                answer = structs.replace(event, text=text, arguments=None)
            else:
                decision = make_default_answer(interrupt, text).decision
                answer = AnsweredInput(interrupt=interrupt.id, decision=decision, text=text)
            if interrupt.id in trial.turn.interrupts:
                trial.feed(answer)
                inputs.append(answer)
        try:
            trial.feed(stop)
        except IllegalInputError:  # the turn ends or pauses with this answer, and nobody reads it
            return tuple(inputs)
        return (*inputs, stop)

    def _expiries(self) -> list[InboxItem]:
        """Return an answer for each question that has expired."""
        if not isinstance(self.machine.action, AwaitPerson):
            return []
        now, open_interrupts = self.setup.now(), self.machine.turn.interrupts.values()
        return [
            answer_item(
                self.journal.turn_id, interrupt.id, make_expiry_answer(interrupt), Signature(via="expiry", at=now)
            )
            for interrupt in open_interrupts
            if interrupt.expires_at is not None and interrupt.expires_at <= now
        ]
