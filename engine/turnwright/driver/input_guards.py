"""The input guardrails of a turn: before its first model call, or beside it (docs/rules.md#guardrails)."""

from collections.abc import Awaitable, Callable, Sequence

import anyio

from turnwright._base.background_task import background_task
from turnwright.hooks.guardrails import Guardrail
from turnwright.model.protocol import ModelError
from turnwright.transcript.wording import UNCHECKED, withheld_text
from turnwright_states import Input, ModelRepliedInput, State
from turnwright_states.inputs import is_blank
from turnwright_states.state import FINAL

from .guards import Guards
from .review import Reviewing, TripError
from .segment import Segment

#: The gate that parallel input guardrails keep closed.
GATE = "input"


class InputGuards:
    """The input guardrails of one turn, and which of them have passed."""

    def __init__(self, segment: Segment, guardrails: Sequence[Guardrail[object]], guards: Guards) -> None:
        self._segment = segment
        self._guards = guards
        self.blocking = tuple(one for one in guardrails if not one.run_in_parallel)
        self.parallel = tuple(one for one in guardrails if one.run_in_parallel)
        #: See `InputChecks.has_unchecked_fork`.
        self.has_unchecked_fork = False
        #: The guardrails that have not passed yet.
        self._left = [] if _have_passed(segment) else list(guardrails)
        if segment.machine.turn.counters.prepared:  # the journal has that they passed
            self._left = [one for one in self._left if one.run_in_parallel]
        if not guardrails:
            return
        known = {UNCHECKED, *(withheld_text(one.name) for one in guardrails)}
        #: The text before the turn that is to be checked, without the lines in place of what was withheld.
        self._history = "\n\n".join(text for text in segment.unchecked if text not in known)
        if "prompt" in segment.journal.started.forked_with:
            self._left = list(guardrails)  # the journal is that of another prompt
            self.has_unchecked_fork = True

    @property
    def are_left(self) -> bool:
        """Whether a guardrail has not passed yet."""
        return bool(self._left)

    async def check_blocking(self) -> None:
        """Ask the blocking guardrails, one after the other. Raises `TripError` and `ModelError`."""
        for one in self.blocking:
            if one in self._left:  # else it passed before another one's model failed
                await self._check(one, self._guards.check_once)

    async def check_added(self, text: str, kind: str) -> None:
        """Ask every guardrail about text that a person adds: a `message` or an `answer`.

        Raises `TripError` of that kind, and `HookFailedError`.
        """
        for one in (*self.blocking, *self.parallel):
            try:
                await self._guards.check(one, self._segment.context(), text)
            except TripError as trip:
                trip.kind = kind
                raise

    async def check_fork(self) -> None:
        """See `InputChecks.check_fork`. Raises `TripError`, and `HookFailedError` if a guardrail's model fails."""
        await self.check_all()
        self.has_unchecked_fork = False

    async def check_all(self) -> None:
        """Ask every guardrail that has not passed. Raises `TripError`, and `HookFailedError` if its model fails."""
        for one in tuple(self._left):
            await self._check(one, self._guards.check)

    async def finish(self, _: Reviewing) -> None:
        """Ask every guardrail that has not passed, as a stage of a review. Raises `TripError` and `ModelError`."""
        for one in tuple(self._left):
            await self._check(one, self._guards.check_once)

    async def beside(self, attempt: Callable[[], Awaitable[Input]], *, reviewed: bool) -> Input | None:
        """Make an attempt at a model call beside the guardrails that have not passed. Return the input to feed.

        A trip cancels the attempt and is raised here. A complete reply is fed at once if it will be `reviewed`, so that
        a crash does not lose it; else it waits for the guardrails here.
        """
        segment, done = self._segment, anyio.Event()
        segment.hold(GATE)

        async def check() -> None:
            try:
                async with anyio.create_task_group() as group:
                    for one in tuple(self._left):
                        group.start_soon(self._check_beside, one, reviewed)
            except BaseExceptionGroup as errors:
                raise _first(errors) from None
            done.set()

        async with background_task(check):
            event: Input | None = await attempt()
            if isinstance(event, ModelRepliedInput) and not _is_blank(event):
                if reviewed and event.review:
                    await segment.feed(event)
                    event = None
                    if segment.machine.state in FINAL:  # the provider has filtered the reply
                        return None
                segment.unfed = None if event is None else event.usage
                await done.wait()
                segment.unfed = None
        return event

    async def _check_beside(self, guardrail: Guardrail[object], reviewed: bool) -> None:
        try:
            await self._check(guardrail, self._guards.check_once if reviewed else self._guards.check)
        except ModelError:
            return  # asked again in the review, where the machine counts the attempts

    async def _check(self, guardrail: Guardrail[object], check: Callable[..., Awaitable[None]]) -> None:
        segment = self._segment
        await check(guardrail, segment.context(), segment.journal.started.prompt)
        if self._history:
            try:
                await check(guardrail, segment.context(), self._history)
            except TripError as trip:
                trip.kind = "history"
                raise
        if guardrail in self._left:
            self._left.remove(guardrail)
        if not self._left:
            segment.open_gate(GATE)
            review = segment.participants.review
            if review is not None:
                review.drop(self.finish)


def _have_passed(segment: Segment) -> bool:
    """Return whether the journal has that all guardrails passed: a verdict on the first reply says so."""
    turn, transcript = segment.machine.turn, segment.journal.transcript
    if turn.counters.steps > 1 or turn.state in (State.TOOL_EXEC, State.PAUSED):
        return True
    reply = transcript.reply
    if turn.state is not State.CONCLUDE or reply is None:
        return False
    refused = turn.counters.output_retries_left < turn.limits.output_retries
    return refused or transcript.accepted is not None or reply.state is not State.REVIEW


def _is_blank(reply: ModelRepliedInput) -> bool:
    """Return whether a reply will be a failed attempt, which waits for no guardrail."""
    return not reply.calls and is_blank(reply.text)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error that is not a group."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
