"""The context of a running call: its data, questions to a person, progress, and the signal to stop."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
from pydantic import JsonValue

from turnwright._base.words import cut_clean
from turnwright.context import DepsT_co, TurnContext
from turnwright.errors import ConfigError, PicklableError
from turnwright_states import Decision, InterruptKind
from turnwright_states.inputs import GivenResult

from .loop_handle import LoopHandle, loop_handle

#: Returns the address that takes the result of the call with this key.
Callback = Callable[[str, float | None], str]
#: Receives a call's progress: the amount, the total, and a message.
ProgressListener = Callable[[float, float | None, str], None]

#: Characters of the message of a report.
MESSAGE_LIMIT: Final = 1_000


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """A person's answer to an interrupt of this call. `text` is the text of a reply."""

    decision: Decision
    text: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a person, before a call runs or continues.

    It may be a wait for a result from outside. `question` and `choices` are shown to the person. `grant` is the access
    that an approval gives. `expires_in` is the time to answer in seconds, after which the call is rejected. None means
    no limit. `approvals` is the number of people who must approve.
    """

    kind: InterruptKind
    question: str = ""
    choices: tuple[str, ...] = ()
    grant: str | None = None
    expires_in: float | None = None
    approvals: int = 1
    #: Of a wait for a result: the result if none comes in time, data for the next run of the call, and the JSON Schema.
    otherwise: GivenResult | None = None
    kept: JsonValue = None
    schema: Mapping[str, JsonValue] | None = None


class NeedsPersonError(PicklableError):
    """A running tool needs a person. Do not catch it: the call waits, and the turn pauses.

    It is not an `Exception`, so that a tool that catches the errors of its own work does not swallow it. `more` are
    further questions: the call asks them all at once, and runs again after the last answer.
    """

    def __init__(self, ask: Ask, *more: Ask) -> None:
        super().__init__(ask.question)
        self.ask = ask
        self.more = more


class AbortSignal:
    """Signals a running call to stop. It is set once and never cleared.

    `aborted` may be read from any thread. Use `wait`, `scope` and `set` only in the event loop of the call.
    """

    __slots__ = ("_aborted", "_below", "_event", "_scopes")

    def __init__(self) -> None:
        self._aborted = False
        self._event: anyio.Event | None = None
        # Created on demand: each running turn has a signal, and few signals have children or scopes.
        self._below: set[AbortSignal] | None = None
        self._scopes: set[anyio.CancelScope] | None = None

    def __repr__(self) -> str:
        return f"<AbortSignal{' aborted' if self._aborted else ''}>"

    @property
    def aborted(self) -> bool:
        """Whether the call should stop."""
        return self._aborted

    async def wait(self) -> None:
        """Wait until the call should stop."""
        if self._aborted:
            await anyio.lowlevel.checkpoint()
            return
        self._event = self._event or anyio.Event()
        await self._event.wait()

    def set(self) -> None:
        """Signal the call to stop. For the engine, and for tests of tools."""
        self._aborted = True
        if self._event is not None:
            self._event.set()
        for scope in self._scopes or ():
            scope.cancel()
        for child in tuple(self._below or ()):
            child.set()

    @contextmanager
    def scope(self) -> "Iterator[anyio.CancelScope]":
        """Open a cancel scope around a block that is canceled when the signal is set."""
        with anyio.CancelScope() as scope:
            if self._aborted:
                scope.cancel()
            self._scopes = scopes = self._scopes or set()
            scopes.add(scope)
            try:
                yield scope
            finally:
                scopes.discard(scope)

    def below(self) -> "AbortSignal":
        """Return a child signal. It is set with this one, until `forget`, and can be set alone."""
        signal = AbortSignal()
        if self._aborted:
            signal.set()
        self._below = self._below or set()
        self._below.add(signal)
        return signal

    def forget(self, below: "AbortSignal") -> None:
        """Detach a child signal, because its call has ended."""
        if self._below is not None:
            self._below.discard(below)


class ProgressLine:
    """Passes the progress of one running call to the listeners of its turn, until it is closed.

    It is created in the event loop of the turn, and used from any thread.
    """

    __slots__ = ("_listener", "_loop", "_question_numbers", "_thread")

    def __init__(self, listener: ProgressListener | None = None) -> None:
        self._listener = listener
        self._question_numbers = itertools.count()
        self._thread = threading.get_ident()
        self._loop: LoopHandle | None = None if listener is None else loop_handle()

    def count(self) -> int:
        """Count a question, and return the number of earlier questions of this attempt."""
        return next(self._question_numbers)

    def send(self, progress: float, total: float | None, message: str) -> None:
        """Pass the progress on."""
        if self._loop is None or threading.get_ident() == self._thread:
            self._deliver(progress, total, message)
            return
        with suppress(RuntimeError):  # the event loop is gone, and its listeners too
            self._loop(partial(self._deliver, progress, total, message))

    def close(self) -> None:
        """Drop all later progress, because the call has ended or was abandoned. Called in the event loop."""
        self._listener = None

    def _deliver(self, progress: float, total: float | None, message: str) -> None:
        if self._listener is not None:
            self._listener(progress, total, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext(TurnContext[DepsT_co]):
    """The context of a running call. It has all that `TurnContext` has, such as the dependencies (`deps`).

    A tool's function receives it in a parameter annotated `ToolContext` or `ToolContext[Deps]`, which the model does
    not see. `call_id` is unique in the turn. `attempt` counts from 1. `answers` are the answers to this call's own
    interrupts, oldest first, and its replies in the order of their questions. `grants` has everything granted so far in
    this turn; for the built-in tools these are absolute paths.

    `abort_signal` is set when the call should stop: the turn is aborted, the call's timeout has passed, or the call is
    canceled. After an abort the tool has the grace time to finish. A tool in a thread cannot be canceled, so it should
    check the signal now and then.

    For a test of a tool, `ToolContext(turn_id="t", call_id="c")` is enough. It has no listeners and no answers.
    """

    call_id: str
    attempt: int = 1
    answers: tuple[GivenAnswer, ...] = ()
    grants: tuple[str, ...] = ()
    #: The data that `Later(kept=...)` gave, when the call runs again; None in its first attempt.
    kept: JsonValue = None
    abort_signal: AbortSignal = field(default_factory=AbortSignal, compare=False, repr=False)
    _line: ProgressLine = field(default_factory=ProgressLine, compare=False, repr=False)
    _callback: Callback | None = field(default=None, compare=False, repr=False)

    @property
    def idempotency_key(self) -> str:
        """The idempotency key `{turn_id}:{call_id}`, the same in every attempt (docs/rules.md#recovery)."""
        return f"{self.turn_id}:{self.call_id}"

    def callback_url(self, *, expires_in: float | None = None) -> str:
        """Return an address to which a service posts the result of this call, as JSON: `{"result": ...}`.

        It also takes `{"error": "..."}` and `{"progress": 0.5}`. It is valid for `expires_in` seconds, 7 days by
        default, and says nothing but the result of this call. Raises `ConfigError` without `Engine(links=...)`.
        """
        if self._callback is None:
            raise ConfigError("callback_url: give the engine links=Links(base, keys=[...])")
        return self._callback(self.idempotency_key, expires_in)

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Send the progress of the call to the turn's listeners: `progress` of `total`, in a unit of your choice.

        Call it from the event loop or from a thread; it never waits. Listeners receive a `ToolProgressEvent`. It is not
        stored, and the model does not see it. Progress after the end of the call is dropped. Raises `ValueError` for
        anything but finite numbers.
        """
        check_number("progress", progress)
        if total is not None:
            check_number("total", total)
        self._line.send(progress, total, cut_clean(str(message), MESSAGE_LIMIT))

    def ask(self, question: str, choices: Sequence[str] = (), *, expires_in: float | None = None) -> str:
        """Ask a person during the call, and return the answer.

        The n-th question of a call gets the call's n-th reply. Without that reply, this raises `NeedsPersonError`: the
        call waits, and the turn pauses, for days and across restarts if necessary. After the answer the call runs again
        **from its beginning**, with `attempt` raised by one. So ask before the work, or make the work safe to repeat
        (`idempotency_key`). Ask the same questions in the same order in every attempt, one after the other. Multi
        round-trip requests in MCP work in the same way.

        `choices` are shown, but a person may reply with another text. `expires_in` is the time to answer in seconds. A
        rejected or expired question rejects the call, and it does not run again. If the turn has no pauses left, the
        outcome of the call is unknown. Replies to a question of the tool's `asks` count too.

        Raises `NeedsPersonError`, which a tool must not catch, `ValueError` for a blank question or a time that is not
        above 0, and `TypeError` for choices that are not strings.
        """
        number = self._line.count()
        ask = _make_question(question, choices, expires_in)
        replies = [answer.text for answer in self.answers if answer.decision == Decision.REPLY]
        if number < len(replies):
            return replies[number]
        raise NeedsPersonError(ask)


def _make_question(question: str, choices: Sequence[str], expires_in: float | None) -> Ask:
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"question must be a str that is not blank, not {question!r}")
    if isinstance(choices, str) or not all(isinstance(choice, str) for choice in choices):
        raise TypeError(f"choices must be a list or a tuple of str, not {choices!r}")
    if expires_in is not None:
        check_number("expires_in", expires_in)
        if expires_in <= 0:
            raise ValueError(f"expires_in must be a number of seconds above 0, or None, not {expires_in!r}")
    return Ask(InterruptKind.QUESTION, question, tuple(choices), expires_in=expires_in)


def check_number(name: str, value: float) -> None:
    """Raise `ValueError` for anything but a finite number. `name` is in the error."""
    fine = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        fine = fine and math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        fine = False
    if not fine:
        raise ValueError(f"{name} must be a finite number, not {cut_clean(repr(value), 40)}")
