"""The calls of one step, run concurrently. Each call is journaled before it starts and when it has its result."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol, TypeVar

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from turnwright._base.ids import child_id
from turnwright._base.words import text_of
from turnwright_states import (
    Call,
    CallSettledInput,
    CallStartedInput,
    CallState,
    CallStatus,
    CallWaitingInput,
    Decision,
    InterruptKind,
    InvalidCallError,
)
from turnwright_states.construct import construct_unchecked

from .batch_context import BatchContext, BeforeCall, CallJudge, Failed, Values
from .context import Ask, NeedsPersonError
from .errors import ToolError, describe
from .job_tasks import in_tasks
from .later import read_result
from .rate_limiter import RateLimiter, Slot
from .result import ToolResult
from .timing import NOTE_WAIT
from .tool import Tool
from .tool_work import ToolWork, asked_first, is_its_own, make_result, outcome_of, waits
from .work_item import Job, JobOutcome, Outcome


class CallReport(Protocol):
    """Journals in one append what happened to calls: starts, outcomes, or the start and the result of one call."""

    async def __call__(
        self,
        event: JobOutcome,
        /,
        *more_outcomes: JobOutcome,
    ) -> None:
        """Journal the inputs, then return."""
        ...


#: The results of calls that ran.
_RAN: Final = frozenset({CallStatus.OK, CallStatus.ERROR})
UNKNOWN_OUTCOME: Final = "outcome unknown: the process died while this call ran; verify before retrying"


async def run_batch(calls: tuple[Call, ...], batch: BatchContext, report: CallReport, max_parallel_tools: int) -> None:
    """Run every call that is ready, at most `max_parallel_tools` of them at once.

    A call of a sequential tool runs alone, after the calls before it and before the calls after it. An error of
    `report` ends the batch and is raised here. An error of a tool becomes a result. Canceling the batch cancels the
    calls; a call that ignores its cancellation is abandoned after the grace. A sub-agent that was started before is
    resumed from its own journal.
    """
    ready = [call for call in calls if call.state is CallState.READY or _is_resumed(call)]
    lost_call = None if ready else next((call for call in calls if call.state is CallState.STARTED), None)
    if lost_call is not None:  # otherwise the driver would repeat this action for ever
        raise InvalidCallError("RunTools", lost_call.id, "it started and has no outcome: the journal was changed")
    for side_by_side in _split_at_barriers(ready, batch):
        await _SideBySide(side_by_side, batch, report, max_parallel_tools).run()


def can_start_at_once(tools: Sequence[Tool], max_parallel_tools: int) -> bool:
    """Whether calls of these tools, with valid arguments, need not ask, wait or lease anything before they start."""
    if len(tools) > max_parallel_tools:
        return False
    for tool in tools:
        if not tool.never_asks or tool.limiter is not None or tool.delegates or (tool.sequential and len(tools) > 1):
            return False
        if tool.later is not None:
            return False
    return True


def can_be_repeated(tools: Sequence[Tool]) -> bool:
    """Whether calls of these tools may run again without a record that they ran (docs/rules.md#repeatable-steps).

    The calls of another reply have the same idempotency keys, so a tool that changes something must not know its key.
    """
    return all(tool.on_crash == "rerun" and (tool.read_only or not tool.takes_context) for tool in tools)


def make_work(calls: Sequence[Call], batch: BatchContext, values: dict[str, Values]) -> list[Job]:
    """Return the work of calls that were journaled as started, for `in_tasks`. Their values are used once."""
    plain = batch.execute is None and (batch.judge is None or not batch.judge.judges_after)
    return [
        ToolWork(call, batch.tools[call.name], batch, values.pop(call.id))
        if plain and call.made.lease is None
        else partial(_work, call, batch, values.pop(call.id))
        for call in calls
    ]


async def _work(call: Call, batch: BatchContext, values: Values | None = None) -> Outcome:
    """Run a started call, and return its outcome as the hooks leave it."""
    return await _judge_outcome(call, batch, await _run_execution(call, batch.tools[call.name], batch, values))


async def _judge_outcome(call: Call, batch: BatchContext, outcome: Outcome) -> Outcome:
    """Return the outcome of a call that ran as the hooks leave it."""
    if batch.judge is None or not batch.judge.judges_after or not isinstance(outcome, CallSettledInput):
        return outcome
    return await batch.judge.after(call, batch, outcome) if outcome.status in _RAN else outcome


async def _settle_given(call: Call, batch: BatchContext) -> Outcome:
    """Return the outcome of a call whose result came from outside, as the hooks leave it."""
    tool, given_result = batch.tools[call.name], call.answers[-1].given
    assert given_result is not None  # noqa: S101 (the call has its result)
    status = CallStatus.ERROR if given_result.error else CallStatus.OK
    outcome: Outcome = make_result(call, status, read_result(given_result), batch, final=tool.return_direct)

    async def run(_: Failed | None = None) -> Outcome:
        return outcome

    if batch.execute is not None:
        outcome = await batch.execute(call, tool, run)
    return await _judge_outcome(call, batch, outcome)


def _judges_before(batch: BatchContext) -> bool:
    return batch.judge is not None and batch.judge.judges_before


def _split_at_barriers(calls: Sequence[Call], batch: BatchContext) -> list[list[Call]]:
    """Return the calls in order, in groups whose calls may run concurrently."""
    groups: list[list[Call]] = []
    barrier = True
    for call in calls:
        tool = batch.tools.get(call.name)
        alone = tool is not None and tool.sequential
        if alone or barrier:
            groups.append([])
        groups[-1].append(call)
        barrier = alone
    return groups


class _SideBySide:
    """Calls that run side by side. What comes and starts in one round of the event loop is journaled in one append.

    A call gets a place in the batch, is checked, takes a slot of its tool's limiter, starts, and has its outcome; then
    its place and its slot are free. A call that waits for a slot has no place. With its slot it needs a place at once,
    or gives the slot back and queues again: so no deadlock is possible. If there is no place, another call of the batch
    runs, so a call repeats this less often than its batch has calls.

    Calls ask a person in their order, whichever check is the fastest, because interrupts are numbered as they come.
    While checks decide without waiting, nothing is written: their decisions share the append of what came before them.
    """

    def __init__(self, calls: Sequence[Call], batch: BatchContext, report: CallReport, max_parallel_tools: int) -> None:
        self._batch = batch
        self._report = report
        self._calls = {call.id: call for call in calls}
        self._queue = deque(calls)
        self._free_places = max_parallel_tools
        #: The calls that may still ask a person before they start. The questions of later calls wait for them.
        self._may_ask = dict.fromkeys(self._calls)
        self._questions: dict[str, CallWaitingInput] = {}
        self._slots: dict[str, Slot] = {}
        #: The starts of calls that queue again, the values of calls that start, and the results that hooks gave.
        self._prepared: dict[str, CallStartedInput] = {}
        self._values: dict[str, Values] = {}
        self._given_results: dict[str, CallSettledInput] = {}
        #: What is not journaled yet, and the jobs that do not run yet.
        self._outcomes: list[JobOutcome] = []
        self._first_questions: list[CallWaitingInput] = []
        self._starts: list[CallStartedInput] = []
        self._jobs: list[Job] = []
        #: The calls whose checks have not waited for anything so far, and what is set if all others do.
        self._undecided: set[str] = set()
        self._all_wait: anyio.Event | None = None
        self._is_stopped = False

    async def run(self) -> None:
        """Run the calls."""
        try:
            jobs = await self._proceed()
            if jobs:
                await in_tasks(jobs, self._batch.cancel_grace, self._deliver, self._stop)
            self._may_ask.clear()  # calls that were stopped will not ask
            self._take_questions()
        finally:
            if self._outcomes or self._first_questions:  # a result that has come is kept
                with anyio.CancelScope(shield=True):
                    await self._write()
            for slot in self._slots.values():
                slot.release()

    def _stop(self) -> None:
        self._is_stopped = True

    @property
    def _starts_none(self) -> bool:
        """Whether no further call may start."""
        return self._is_stopped or self._batch.stopping()

    async def _deliver(self, first: JobOutcome, /, *more_outcomes: JobOutcome) -> Sequence[Job]:
        """Receive what came in one round: outcomes, and the starts of calls that passed their checks or have a slot."""
        events = (first, *more_outcomes)
        for event in events:
            if not isinstance(event, CallStartedInput):
                self._take_outcome(event)
        for event in events:
            if isinstance(event, CallStartedInput):
                self._take_start(event)
        return await self._proceed()

    def _take_outcome(self, event: Outcome) -> None:
        self._undecided.discard(event.call)
        self._free_places += 1
        if isinstance(event, CallWaitingInput) and event.call not in self._slots:
            self._questions[event.call] = event
        else:
            self._may_ask.pop(event.call, None)
            self._outcomes.append(event)

    def _take_start(self, event: CallStartedInput) -> None:
        """Start a call, or let it wait for a slot or a place."""
        name = event.call
        self._undecided.discard(name)
        self._may_ask.pop(name, None)
        outcome: Outcome | None = self._given_results.pop(name, None)
        tool = self._batch.tools[self._calls[name].name]
        if outcome is None and tool.later is not None:
            outcome = waits(self._calls[name], tool.later.ask, self._batch)
        if outcome is not None:  # nothing runs here
            self._free_places += 1
            self._outcomes += (event, outcome)
            return
        limiter = tool.limiter
        if name in self._slots:
            if not self._free_places:
                self._slots.pop(name).release()
                self._prepared[name] = event
                self._queue.append(self._calls[name])
                return
            self._free_places -= 1
        elif limiter is not None:
            slot = limiter.take_now()
            if slot is None:
                self._free_places += 1
                self._jobs.append(partial(self._wait_for_slot, event, limiter))
                return
            self._slots[name] = slot
        self._starts.append(event)

    def _take_questions(self) -> None:
        """Ask the questions that no call before them holds up."""
        if self._questions:
            for name in self._calls:
                if name in self._questions:
                    self._may_ask.pop(name, None)
                    has_started = self._calls[name].state is CallState.STARTED
                    (self._outcomes if has_started else self._first_questions).append(self._questions.pop(name))
                elif name in self._may_ask:
                    break

    async def _proceed(self) -> Sequence[Job]:
        """Give the free places to calls that queue, and journal what came and starts. Return the jobs that run now."""
        while self._queue and self._free_places and not self._starts_none:
            self._free_places -= 1
            self._begin(self._queue.popleft())
        self._take_questions()
        jobs, self._jobs = self._jobs, []
        if self._undecided and not self._is_stopped:
            if self._all_wait is None:
                self._all_wait = anyio.Event()
                jobs.append(partial(self._write_if_all_wait, self._all_wait))
            return jobs
        if self._all_wait is not None:
            self._all_wait.set()
            self._all_wait = None
        return [*jobs, *await self._write()]

    def _begin(self, call: Call) -> None:
        """Begin a call that has a place: start it, or let its checks decide."""
        batch, event = self._batch, self._prepared.pop(call.id, None)
        if event is not None:
            self._take_start(replace(event, elapsed=batch.elapsed()))
        elif call.has_result:
            self._may_ask.pop(call.id, None)
            self._jobs.append(partial(_settle_given, call, batch))
        elif _is_resumed(call):
            self._may_ask.pop(call.id, None)
            self._jobs.append(partial(_work, call, batch))
        elif call.id in batch.checked_values and batch.tools[call.name].never_asks and not _judges_before(batch):
            self._values[call.id] = batch.checked_values.pop(call.id)
            self._take_start(_make_start(call, batch))
        else:
            self._undecided.add(call.id)
            self._jobs.append(partial(self._prepare, call))

    async def _prepare(self, call: Call) -> JobOutcome | None:
        """Check a call. Return its start if it may start, else its outcome."""
        batch = self._batch
        event: JobOutcome | None = None
        NOTE_WAIT.set(partial(self._note_wait, call.id))
        try:
            values = await _check_before_start(call, batch.tools[call.name], batch)
            if isinstance(values, CallSettledInput | CallWaitingInput):
                event = values
            elif not batch.stopping():  # a check may take long
                self._values[call.id] = values
                given_result = await _give_result(call, batch)
                if given_result is not None:
                    self._given_results[call.id] = given_result
                event = _make_start(call, batch)
        finally:
            if event is None:
                self._note_wait(call.id)
        return event

    def _note_wait(self, name: str) -> None:
        self._undecided.discard(name)
        if not self._undecided and self._all_wait is not None:
            self._all_wait.set()

    async def _write_if_all_wait(self, all_wait: anyio.Event) -> None:
        """Journal what came and starts when the checks that have not decided wait, and run the calls that start."""
        await all_wait.wait()
        if self._all_wait is all_wait:
            self._all_wait = None
            jobs = await self._write()
            if jobs:
                await in_tasks(jobs, self._batch.cancel_grace, self._deliver, self._stop)

    async def _wait_for_slot(self, start: CallStartedInput, limiter: RateLimiter) -> CallStartedInput | None:
        """Wait for a slot, and return the start of the call, unless the turn is being stopped."""
        slot = None
        with self._batch.abort.scope():
            slot = await limiter.wait()
        if slot is None:
            return None
        self._slots[start.call] = slot
        return replace(start, elapsed=self._batch.elapsed())

    async def _write(self) -> Sequence[Job]:
        """Journal what came and starts in one append, then free the slots. Return the work of the started calls."""
        outcomes, starts, questions = self._outcomes, self._starts, self._first_questions
        self._outcomes, self._starts, self._first_questions = [], [], []
        if self._starts_none:
            starts.clear()
        events = (*outcomes, *starts, *questions)
        if events:
            await self._report(*events)
        elif self._batch.write is not None and not self._starts_none:
            await self._batch.write()
        for outcome in outcomes:
            slot = self._slots.pop(outcome.call, None)
            if slot is not None:
                slot.release()
        calls = [self._calls[start.call] for start in starts]
        for call in calls:
            if call.state is not CallState.STARTED:  # a rule refused it, or asks a person first
                self._free_places += 1
                self._values.pop(call.id, None)
                if call.id in self._slots:
                    self._slots.pop(call.id).release()
            elif call.id in self._slots:
                self._slots[call.id].start()
        return make_work([call for call in calls if call.state is CallState.STARTED], self._batch, self._values)


@asynccontextmanager
async def _hold_slot(limiter: RateLimiter, batch: BatchContext) -> AsyncIterator[Slot | None]:
    """Wait for a slot and hold it during the block. The slot is None if the turn is being stopped."""
    slot = None
    with batch.abort.scope():
        slot = await limiter.wait()
    try:
        yield slot
    finally:
        if slot is not None:
            slot.release()


async def settle_after_crash(
    calls: tuple[Call, ...], batch: BatchContext, report: CallReport, early_calls: Collection[str] = ()
) -> None:
    """Apply the crash policy of its tool (`on_crash`) to each call that a crash interrupted.

    A call in `early_calls` waits for its result, which is in the inbox. A call with the policy `rerun` runs here.
    See docs/rules.md#recovery.
    """
    for call in calls:
        if call.state is not CallState.STARTED or _is_resumed(call):
            continue
        tool = batch.tools[call.name]
        if call.id in early_calls:
            await report(waits(call, Ask(kind=InterruptKind.RESULT), batch))
        elif tool.on_crash == "rerun":
            await in_tasks([partial(_rerun, call, tool, batch, report)], deliver=report)
        elif tool.on_crash == "ask":
            question = f"The process died while {call.name} ran. Run it again, or leave its outcome unknown?"
            await report(
                CallWaitingInput(
                    call=call.id,
                    interrupt_kind=InterruptKind.UNKNOWN_OUTCOME,
                    question=question,
                    choices=(Decision.RERUN, Decision.UNKNOWN),
                    restricted=batch.restricted,
                    elapsed=batch.elapsed(),
                )
            )
        else:
            await report(make_result(call, CallStatus.UNKNOWN, ToolResult(UNKNOWN_OUTCOME), batch))


async def _check_before_start(call: Call, tool: Tool, batch: BatchContext) -> Values | Outcome:
    """Return the values for the call, or the outcome of a call that cannot start.

    The decisions of hooks, if there are any, stay in `batch.decisions`.
    """
    values = batch.checked_values.pop(call.id, None)
    try:
        if batch.judge is not None and batch.judge.judges_before:
            return await _decide_values(call, tool, batch, values, batch.judge)
        ask = None if tool.never_asks else await _ask_first(call, tool, batch)
        if ask is None:
            # An approved call is validated again, because the world may have changed since the question.
            return tool.parse(call.arguments) if values is None else values
    except NeedsPersonError as needs:
        ask = needs.ask
        if ask.kind is InterruptKind.RESULT:
            refusal = ToolResult(f"refused and not run: the approval check of {call.name} raised Later")
            return _add_decisions(make_result(call, CallStatus.ERROR, refusal, batch), batch)
    except ToolError as error:
        return _add_decisions(make_result(call, CallStatus.ERROR, ToolResult(text_of(error)), batch), batch)
    except Exception:
        raise
    except BaseException as error:
        if not await is_its_own(error):
            raise
        return _add_decisions(make_result(call, CallStatus.ERROR, ToolResult(describe(error)), batch), batch)
    return _add_decisions(waits(call, ask, batch), batch)


async def _ask_first(call: Call, tool: Tool, batch: BatchContext) -> Ask | None:
    """Do what `asked_first` does. An approval that covers equal calls answers for this one, and its start says so."""
    ask = await asked_first(call, tool, batch)
    is_one_approval = ask is not None and ask.kind is InterruptKind.APPROVAL and ask.approvals == 1
    if not is_one_approval or batch.covering_approval is None:
        return ask
    approval = await batch.covering_approval(call.name, call.arguments)
    if not approval:
        return ask
    decision = batch.decisions.get(call.id) or BeforeCall(call.arguments)
    decision.decisions.append({"approval": approval, "decision": "approved"})
    batch.decisions = {**batch.decisions, call.id: decision}
    return None


async def _decide_values(
    call: Call, tool: Tool, batch: BatchContext, values: Values | None, judge: CallJudge
) -> Values | Outcome:
    """Do what `_check_before_start` does for a call that hooks or guardrails decide about. Raises what they raise."""
    decision = batch.decisions.get(call.id)
    if decision is None:  # else it was asked, and had to wait for a free slot
        decision = await judge.before(call, tool, batch)
        batch.decisions[call.id] = decision
    if decision.rejected is not None:
        outcome = make_result(call, CallStatus.REJECTED, ToolResult(decision.rejected), batch)
        return _add_decisions(outcome, batch)
    if decision.result is not None:
        return {}
    final = replace(call, arguments=decision.arguments) if decision.changed else call
    ask = None if tool.never_asks else await _ask_first(final, tool, batch)
    if decision.ask is not None and (ask is None or not ask.question):
        ask = decision.ask
    if ask is not None:
        return _add_decisions(waits(call, ask, batch), batch)
    if decision.values is not None:
        return decision.values
    return tool.parse(call.arguments) if values is None or decision.changed else values


T = TypeVar("T", CallSettledInput, CallWaitingInput)


def _add_decisions(outcome: T, batch: BatchContext) -> T:
    """Add the decisions about a call that did not start to its outcome, and the arguments that a person sees."""
    decision = batch.decisions.pop(outcome.call, None)
    if decision is None:
        return outcome
    update: dict[str, object] = {"decisions": tuple(decision.decisions)}
    if decision.changed and isinstance(outcome, CallWaitingInput):
        update["changed"] = decision.arguments
    return replace(outcome, **update)


async def _give_result(call: Call, batch: BatchContext) -> CallSettledInput | None:
    """Return the result that a hook gave instead of the call, if one did."""
    decision = batch.decisions.get(call.id)
    if decision is None or decision.result is None:
        return None
    final = batch.tools[call.name].return_direct
    outcome = await _judge_outcome(call, batch, make_result(call, CallStatus.OK, decision.result, batch, final=final))
    assert isinstance(outcome, CallSettledInput)  # noqa: S101 (what it was made from)
    return outcome


def _make_start(call: Call, batch: BatchContext) -> CallStartedInput:
    """Return the input that starts a call, with the decisions about it."""
    child = child_id(batch.turn, call.id) if call.made.lease is not None else None
    event = construct_unchecked(CallStartedInput, call=call.id, child=child, elapsed=batch.elapsed())
    decision = batch.decisions.pop(call.id, None)
    if decision is None or not decision.decisions:
        return event
    arguments = decision.arguments if decision.changed else None
    return replace(event, arguments=arguments, decisions=tuple(decision.decisions))


async def _rerun(call: Call, tool: Tool, batch: BatchContext, report: CallReport) -> Outcome | None:
    if tool.limiter is None:
        return await _execute(call, batch, report)
    async with _hold_slot(tool.limiter, batch) as slot:
        return None if slot is None else await _execute(call, batch, report, slot)


async def _execute(call: Call, batch: BatchContext, report: CallReport, slot: Slot | None = None) -> Outcome | None:
    """Journal the start of a call, and run it. Return its outcome, which is journaled before a slot is released."""
    await report(_make_start(call, batch))
    if call.state is not CallState.STARTED:  # a rerun without a retry left was settled instead
        return None
    if slot is None:
        return await _work(call, batch)
    slot.start()
    await report(await _work(call, batch))
    return None


async def _run_execution(call: Call, tool: Tool, batch: BatchContext, values: Values | None = None) -> Outcome:
    """Run a started call, by its tool or as a sub-agent, and return its outcome."""
    delegates = call.made.lease is not None

    def run(on_error: Failed | None = None) -> Awaitable[Outcome]:
        return batch.delegate(call) if delegates else outcome_of(call, tool, batch, values, on_error)

    return await (run() if batch.execute is None else batch.execute(call, tool, run))


def _is_resumed(call: Call) -> bool:
    return call.state is CallState.STARTED and call.made.lease is not None
