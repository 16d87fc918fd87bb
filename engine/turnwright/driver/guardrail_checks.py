"""The guardrails of a turn, as its driver asks them (docs/rules.md#guardrails)."""

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import anyio
from pydantic import JsonValue

from turnwright._base.background_task import background_task, first_error
from turnwright._base.words import show_value, text_of
from turnwright.errors import HookFailedError
from turnwright.message import FilePart, ToolResultPart
from turnwright.model.protocol import ModelError
from turnwright.model.retry import Backoff
from turnwright.tools.result import STRUCTURED_LIMIT, NotJsonError, cap, plain
from turnwright.tools.timing import noting_wait
from turnwright.transcript.events import ResponseWithdrawnEvent
from turnwright.transcript.wording import UNCHECKED, withheld_text
from turnwright_states import Input, ModelRepliedInput, State
from turnwright_states.inputs import is_blank
from turnwright_states.payload import thaw
from turnwright_states.state import FINAL

from .hooks.asking import MODEL_ERROR, ask
from .hooks.decisions import Trip
from .hooks.guardrails import Guardrail
from .review import Reviewing, TripError
from .segment import Segment

#: The gate that parallel input guardrails keep closed, and the one of output guardrails.
_INPUT_GATE: Final = "input"
_OUTPUT_GATE: Final = "output"
#: What `TurnStarted.forked_with` has before the id of a call with another result.
_RESULTS: Final = "results."


class GuardrailCaller:
    """Asks single guardrails of a turn.

    `max_retries` returns how often a check may be repeated whose own model failed, where no row of the chart counts
    its attempts. `grace` is in seconds.
    """

    def __init__(self, backoff: Backoff, max_retries: Callable[[], int], grace: float) -> None:
        self._backoff = backoff
        self._max_retries = max_retries
        self._grace = grace

    async def check(self, guardrail: Guardrail[object], *args: object) -> None:
        """Ask a guardrail, and repeat a check whose model failed. Raises `TripError` and `HookFailedError`.

        A check whose model fails each time fails closed: with `HookFailedError`.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self.check_once(guardrail, *args)
            except ModelError as error:
                if attempt > self._max_retries() or not error.cause.may_pass:
                    raise HookFailedError(f"{label_of(guardrail)} could not decide: {text_of(error)}") from error
                await noting_wait(anyio.sleep(self._backoff.wait(attempt, error.retry_after)))

    async def check_once(self, guardrail: Guardrail[object], *args: object) -> None:
        """Ask a guardrail. Raises `TripError`, `HookFailedError`, and the `ModelError` of its own model."""
        verdict = await ask(
            label_of(guardrail),
            guardrail.check,
            *args,
            seconds=guardrail.timeout,
            grace=self._grace,
            allowed_errors=MODEL_ERROR,
        )
        if verdict is None:
            return
        if not isinstance(verdict, Trip):
            raise HookFailedError(f"{label_of(guardrail)} returned {show_value(verdict)}: return Trip or None")
        metadata: JsonValue
        try:
            metadata = plain(thaw(dict(verdict.metadata)))
        except (NotJsonError, TypeError, ValueError) as error:
            raise HookFailedError(
                f"{label_of(guardrail)} returned metadata that are not a JSON object: {error}"
            ) from error
        assert isinstance(metadata, dict)  # noqa: S101 (a copy of a mapping)
        size = len(json.dumps(metadata, ensure_ascii=False).encode())
        if size > STRUCTURED_LIMIT:
            metadata = {"left out": f"{size:,} bytes of JSON; the limit: {STRUCTURED_LIMIT:,}"}
        raise TripError(guardrail.name, cap(str(verdict.message)), metadata, guardrail.kind)


class InputGuardrails:
    """The input guardrails of one turn, and which of them have passed."""

    def __init__(self, segment: Segment, guardrails: Sequence[Guardrail[object]], caller: GuardrailCaller) -> None:
        self._segment = segment
        self._caller = caller
        self.blocking = tuple(guardrail for guardrail in guardrails if not guardrail.run_in_parallel)
        self.parallel = tuple(guardrail for guardrail in guardrails if guardrail.run_in_parallel)
        #: See `InputChecks.has_unchecked_fork`.
        self.has_unchecked_fork = False
        #: The guardrails that have not passed yet.
        self._unpassed = [] if _have_passed(segment) else list(guardrails)
        if segment.machine.turn.counters.prepared:  # the journal has that they passed
            self._unpassed = [guardrail for guardrail in self._unpassed if guardrail.run_in_parallel]
        if not guardrails:
            return
        notices = {UNCHECKED, *(withheld_text(guardrail.name) for guardrail in guardrails)}
        #: What a person begins the turn with: the prompt, its text files, and the other results of a fork.
        self._beginning = "\n\n".join(filter(None, [segment.journal.started.prompt, *_added_texts(segment)]))
        #: The text before the turn that is to be checked, without the lines in place of what was withheld.
        self._history = "\n\n".join(text for text in segment.unchecked if text not in notices)
        if any(name == "prompt" or name.startswith(_RESULTS) for name in segment.journal.started.forked_with):
            self._unpassed = list(guardrails)  # the journal is that of another prompt
            self.has_unchecked_fork = True

    @property
    def are_left(self) -> bool:
        """Whether a guardrail has not passed yet."""
        return bool(self._unpassed)

    async def check_blocking(self) -> None:
        """Ask the blocking guardrails, one after the other. Raises `TripError` and `ModelError`."""
        for guardrail in self.blocking:
            if guardrail in self._unpassed:  # else it passed before another one's model failed
                await self._check(guardrail, self._caller.check_once)

    async def check_added(self, text: str, kind: str) -> None:
        """Ask every guardrail about text that a person adds: a `message` or an `answer`.

        Raises `TripError` of that kind, and `HookFailedError`.
        """
        for guardrail in (*self.blocking, *self.parallel):
            try:
                await self._caller.check(guardrail, self._segment.context(), text)
            except TripError as trip:
                trip.kind = kind
                raise

    async def check_fork(self) -> None:
        """See `InputChecks.check_fork`. Raises `TripError`, and `HookFailedError` if a guardrail's model fails."""
        await self.check_all()
        self.has_unchecked_fork = False

    async def check_all(self) -> None:
        """Ask every guardrail that has not passed. Raises `TripError`, and `HookFailedError` if its model fails."""
        for guardrail in tuple(self._unpassed):
            await self._check(guardrail, self._caller.check)

    async def finish(self, _: Reviewing) -> None:
        """Ask every guardrail that has not passed, as a stage of a review. Raises `TripError` and `ModelError`."""
        for guardrail in tuple(self._unpassed):
            await self._check(guardrail, self._caller.check_once)

    async def beside(self, attempt: Callable[[], Awaitable[Input]], *, reviewed: bool) -> Input | None:
        """Make an attempt at a model call beside the guardrails that have not passed. Return the input to feed.

        A trip cancels the attempt and is raised here. A complete reply is fed at once if it will be `reviewed`, so that
        a crash does not lose it; else it waits for the guardrails here.
        """
        segment, finish = self._segment, anyio.Event()
        segment.hold(_INPUT_GATE)

        async def check() -> None:
            try:
                async with anyio.create_task_group() as group:
                    for guardrail in tuple(self._unpassed):
                        group.start_soon(self._check_beside, guardrail, reviewed)
            except BaseExceptionGroup as errors:
                raise first_error(errors) from None
            finish.set()

        async with background_task(check):
            event: Input | None = await attempt()
            if isinstance(event, ModelRepliedInput) and not _is_blank(event):
                if reviewed and event.review:
                    await segment.feed(event)
                    event = None
                    if segment.machine.state in FINAL:  # the provider has filtered the reply
                        return None
                segment.unfed = None if event is None else event.usage
                await finish.wait()
                segment.unfed = None
        return event

    async def _check_beside(self, guardrail: Guardrail[object], reviewed: bool) -> None:
        try:
            await self._check(guardrail, self._caller.check_once if reviewed else self._caller.check)
        except ModelError:
            return  # asked again in the review, where the machine counts the attempts

    async def _check(self, guardrail: Guardrail[object], check: Callable[..., Awaitable[None]]) -> None:
        segment = self._segment
        await check(guardrail, segment.context(), self._beginning)
        if self._history:
            try:
                await check(guardrail, segment.context(), self._history)
            except TripError as trip:
                trip.kind = "history"
                raise
        if guardrail in self._unpassed:
            self._unpassed.remove(guardrail)
        if not self._unpassed:
            segment.open_gate(_INPUT_GATE)
            review = segment.participants.review
            if review is not None:
                review.drop(self.finish)


def _added_texts(segment: Segment) -> Iterator[str]:
    """Yield what a person adds to the prompt: the texts of its files, and the results of calls that a fork changes."""
    turn_start = segment.journal.started
    for file in turn_start.files:
        yield FilePart.of_json(dict(file)).decoded_text
    changed_calls = {name.removeprefix(_RESULTS) for name in turn_start.forked_with if name.startswith(_RESULTS)}
    if changed_calls:
        for message in segment.journal.transcript.messages:
            for part in message.parts:
                if isinstance(part, ToolResultPart) and part.call in changed_calls:
                    yield part.text


class OutputGuardrails:
    """The output guardrails of one turn."""

    def __init__(self, segment: Segment, guardrails: Sequence[Guardrail[object]], caller: GuardrailCaller) -> None:
        self._segment = segment
        self._guardrails = guardrails
        self._caller = caller
        self._holds = any(guardrail.hold_stream for guardrail in guardrails)

    def hold(self) -> None:
        """Hold the pieces of the reply that begins back, unless every guardrail lets them stream."""
        if self._holds:
            self._segment.hold(_OUTPUT_GATE)

    async def review(self, reviewing: Reviewing) -> None:
        """Check a reply, or its typed answer as JSON, as a stage of its review. Raises `TripError` and `ModelError`."""
        text = reviewing.reply.text
        if reviewing.output is not None:
            text = json.dumps(thaw(reviewing.output), ensure_ascii=False)
        if not is_blank(text):
            for guardrail in self._guardrails:
                await self._check(guardrail, text, counted=True)

    async def check_text(self, text: str | None) -> None:
        """Check a conclusion or the reply of a text-only turn, which nothing reviews. Raises `TripError`."""
        if text is not None and not is_blank(text):
            for guardrail in self._guardrails:
                await self._check(guardrail, text, counted=False)
        self._segment.open_gate(_OUTPUT_GATE)

    async def _check(self, guardrail: Guardrail[object], text: str, *, counted: bool) -> None:
        segment = self._segment
        check = self._caller.check_once if counted else self._caller.check
        try:
            await check(guardrail, segment.context(), text)
        except TripError as trip:
            if not self._holds:
                journal = segment.journal
                journal.publish(ResponseWithdrawnEvent(journal.turn_id, journal.claim.seq, trip.guardrail))
            raise


def label_of(guardrail: Guardrail[object]) -> str:
    """Return the guardrail in an error."""
    return f"{guardrail.kind} guardrail {guardrail.name!r}"


def _have_passed(segment: Segment) -> bool:
    """Return whether the journal has that all guardrails passed: a verdict on the first reply says so."""
    turn, transcript = segment.machine.turn, segment.journal.transcript
    if turn.counters.steps > 1 or turn.state in (State.TOOL_EXEC, State.PAUSED):
        return True
    reply = transcript.reply
    if turn.state is not State.CONCLUDE or reply is None:
        return False
    is_refused = turn.counters.output_retries_left < turn.limits.output_retries
    return is_refused or transcript.accepted is not None or reply.state is not State.REVIEW


def _is_blank(reply: ModelRepliedInput) -> bool:
    """Return whether a reply will be a failed attempt, which waits for no guardrail."""
    return not reply.calls and is_blank(reply.text)
