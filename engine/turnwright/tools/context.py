"""What a tool is told about its call, and what it can do while it runs: ask a person, say how far it is, and stop."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel

from turnwright_states import Decision, InterruptKind

from .loop_handle import Door, door_here
from .text import shorten

#: What hears of a call's progress: how far it is, of how much, and a message.
Hear = Callable[[float, float | None, str], None]

_MESSAGE_LIMIT: Final = 1_000


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """What a person said to an interrupt of this call. `text` holds the words of a reply."""

    decision: Decision
    text: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A call wants a person before it runs, or before it goes on.

    `question` and `choices` are shown to the person. `grant` is what saying yes would allow. `expires_in` is the
    time to answer in seconds, after which the call is rejected; None waits for ever.
    """

    kind: InterruptKind
    question: str = ""
    choices: tuple[str, ...] = ()
    grant: str | None = None
    expires_in: float | None = None


class NeedsPersonError(BaseException):
    """A tool that runs wants a person before it goes on. Let it pass: the call waits then, and the turn pauses.

    It is no `Exception`, so that a tool that catches what its own work raises does not swallow it.
    """

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask.question)
        self.ask = ask


class AbortSignal:
    """Tells a running call that it should stop. It is set once, and never taken back.

    `aborted` may be read from any thread. `wait`, `ends` and `set` belong to the event loop in which the call runs.
    """

    __slots__ = ("_aborted", "_below", "_event", "_scopes")

    def __init__(self) -> None:
        self._aborted = False
        self._event: anyio.Event | None = None
        # Each turn in flight has a signal, and few have anything below.
        self._below: set[AbortSignal] | None = None
        self._scopes: set[anyio.CancelScope] | None = None

    def __repr__(self) -> str:
        return f"<AbortSignal{' aborted' if self._aborted else ''}>"

    @property
    def aborted(self) -> bool:
        """Whether the call should stop."""
        return self._aborted

    async def wait(self) -> None:
        """Return when the call should stop; at once if that is so already."""
        if self._aborted:
            await anyio.lowlevel.checkpoint()
            return
        self._event = self._event or anyio.Event()
        await self._event.wait()

    def set(self) -> None:
        """Say that it should stop. For whoever runs the call, and for tests of tools."""
        self._aborted = True
        if self._event is not None:
            self._event.set()
        for scope in self._scopes or ():
            scope.cancel()
        for one in tuple(self._below or ()):
            one.set()

    @contextmanager
    def ends(self) -> "Iterator[anyio.CancelScope]":
        """A scope around a block that is not worth going on with once the signal is set: it is cancelled then."""
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
        """A signal that is set with this one, until `forget` is told of it, and can be set by itself."""
        signal = AbortSignal()
        if self._aborted:
            signal.set()
        self._below = self._below or set()
        self._below.add(signal)
        return signal

    def forget(self, below: "AbortSignal") -> None:
        """Whoever heard that signal is done."""
        if self._below is not None:
            self._below.discard(below)


class ProgressLine:
    """The line between one running call and those who listen to its turn. Nothing goes through once it is closed.

    It is made in the event loop of the turn, and used from any thread.
    """

    __slots__ = ("_asked", "_hand_over", "_hear", "_thread")

    def __init__(self, hear: Hear | None = None) -> None:
        self._hear = hear
        self._asked = itertools.count()
        self._thread = threading.get_ident()
        self._hand_over: Door | None = None if hear is None else door_here()

    def count(self) -> int:
        """How many questions the call has put so far in this attempt, before the one that is counted here."""
        return next(self._asked)

    def say(self, progress: float, total: float | None, message: str) -> None:
        """Pass on how far the call is."""
        if self._hand_over is None or threading.get_ident() == self._thread:
            self._pass_on(progress, total, message)
            return
        with suppress(RuntimeError):  # the event loop is gone, and with it all who listened
            self._hand_over(partial(self._pass_on, progress, total, message))

    def close(self) -> None:
        """The call is over, or nobody waits for it any more. Called in the event loop."""
        self._hear = None

    def _pass_on(self, progress: float, total: float | None, message: str) -> None:
        if self._hear is not None:
            self._hear(progress, total, message)


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The call that is being made.

    A tool whose function has a parameter annotated `ToolContext` is given one; the model never sees that parameter.
    `turn` is the turn's id, `call` the call's, unique in the turn. `attempt` counts from 1. `answers` are those to
    this call's own interrupts, oldest first. `grants` is everything that was granted so far in this turn: absolute
    paths, for the built-in tools. `abort` is set when the call should stop: when somebody aborts the turn, as soon as
    that is known, so that the tool can finish its work in the grace time; when the call has run out of its own time;
    and when it is cancelled. A tool that runs in a thread cannot be cancelled, and should look at it now and then.

    `ToolContext(turn_id="t", call_id="c")` is enough for a test of a tool: nobody listens then, and nobody has
    answered.
    """

    turn_id: str
    call_id: str
    attempt: int = 1
    answers: tuple[GivenAnswer, ...] = ()
    grants: tuple[str, ...] = ()
    abort_signal: AbortSignal = field(default_factory=AbortSignal, compare=False, repr=False)
    _line: ProgressLine = field(default_factory=ProgressLine, compare=False, repr=False, kw_only=True)

    @property
    def idempotency_key(self) -> str:
        """The idempotency key `{turn}:{call}`: the same at every attempt (DESIGN 4.13)."""
        return f"{self.turn_id}:{self.call_id}"

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Tell those who listen to the turn how far the call is: `progress` of `total`, in a unit of your choice.

        It may be called from the event loop and from a thread, and never waits. Listeners hear it as a
        `ToolProgressEvent` event; it is not written down, the model does not see it, and once the call has its result,
        or nobody waits for it any more, nobody hears it. Raises `ValueError` for what is no finite number.
        """
        _check_number("progress", progress)
        if total is not None:
            _check_number("total", total)
        self._line.say(progress, total, shorten(str(message), _MESSAGE_LIMIT))

    def ask(self, question: str, choices: Sequence[str] = (), *, expires_in: float | None = None) -> str:
        """Ask a person in the middle of the work, and return what they said.

        The n-th question of a call is answered by the n-th reply that it was given so far. Where there is none yet this
        raises `NeedsPersonError`: the call waits, and the turn pauses, for days and over restarts if need be. Once a
        person has answered, the call runs again **from its beginning** (`attempt` is one higher), with the answer at
        hand. So all that stands before this is done again: ask first, or make sure that doing it twice does no harm
        (`key`). Ask the same questions in the same order every time, one after the other. The same pattern as the
        requests of several round trips in MCP.

        `choices` are shown; a person may say something else. `expires_in` is the time to answer in seconds. Whoever is
        turned down, or not answered in time, does not run again: the call is rejected. Where the turn may not pause any
        more, the outcome of the call is unknown. Replies to what the tool's `asks` asked count too.

        Raises `NeedsPersonError`, which no tool should catch, `ValueError` for a question that says nothing or a time
        that is not above 0, and `TypeError` for choices that are no texts.
        """
        number = self._line.count()
        ask = _question(question, choices, expires_in)
        replies = [answer.text for answer in self.answers if answer.decision == Decision.REPLY]
        if number < len(replies):
            return replies[number]
        raise NeedsPersonError(ask)


def _question(question: str, choices: Sequence[str], expires_in: float | None) -> Ask:
    if not isinstance(question, str) or not question.strip():
        raise ValueError(f"question is a text that says something, and not {question!r}")
    if isinstance(choices, str) or not all(isinstance(one, str) for one in choices):
        raise TypeError(f"choices are texts in a list or a tuple, and not {choices!r}")
    if expires_in is not None:
        _check_number("expires_in", expires_in)
        if expires_in <= 0:
            raise ValueError(f"expires_in is a number of seconds above 0, or None, and not {expires_in!r}")
    return Ask(InterruptKind.QUESTION, question, tuple(choices), expires_in=expires_in)


def _check_number(name: str, value: float) -> None:
    fine = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        fine = fine and math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        fine = False
    if not fine:
        raise ValueError(f"{name} is a finite number, and not {shorten(repr(value), 40)}")
