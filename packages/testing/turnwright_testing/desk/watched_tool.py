"""Tools that run for real, and are watched: what they raise, how long they block the event loop, where they wait."""

import asyncio
import copy
import dataclasses
import inspect
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Protocol

import anyio
from pydantic import JsonValue

from turnwright.context import JsonObject
from turnwright.errors import Retry, StoreError
from turnwright.tools import Ask, NeedsPersonError, Tool, ToolContext, ToolError
from turnwright.tools.context import GivenAnswer
from turnwright.tools.errors import holds
from turnwright_states import Decision
from turnwright_states import facts as f
from turnwright_states.limits import TOOL_TIMEOUT

from .desk import Desk
from .hang_watch import BlockedLoopError, frames_of_threads, voluntary_waits
from .locks import held_locks
from .world import amounts_of, changes, differences, sizes_of, state_of

#: Seconds for which an async tool may sleep, or compute, without giving the event loop a turn.
_ASLEEP: Final = 0.1
_AT_WORK: Final = 1.0
#: Seconds by which sums of times differ.
_MOMENT: Final = 0.001
#: The name of a thread in which a plain function runs.
_WORKER: Final = "AnyIO worker thread"
_TWICE: Final = "before its question, and again when it is answered"
#: Errors of a tool that are for the model, for a person, or for the end of the process, whose store fails.
_MEANT: Final = (ToolError, Retry, NeedsPersonError, StoreError, KeyboardInterrupt, GeneratorExit)


@dataclass(slots=True)
class Work:
    """A call at work. `coroutine` is the tool's own work, which has the place where it waits.

    `amounts` are those of the outside world when it started; `is_alone` says whether no other call was at work since
    then. `questions` counts those that it asked in the middle of its work. While effects are traced, `state` is the
    outside world when it started, and `changes` has the names that had another value since then.
    """

    turn: str
    call: str
    tool: str
    amounts: Mapping[str, float]
    is_alone: bool
    questions: int = 0
    state: Mapping[str, object] = field(default_factory=dict)
    changes: set[str] = field(default_factory=set)
    coroutine: Coroutine[object, object, object] | None = None

    def where(self, files: frozenset[str]) -> str:
        """Return the place in these files where the work waits."""
        return _place_of(self.coroutine, files) or place_in_threads(files)


class Effect(NamedTuple):
    """The names in the outside world that a call changed, and those that it changed and put back."""

    kept_changes: set[str]
    undone_changes: set[str]


class OnFault(Protocol):
    """Receives the tool of a fault, its kind, its description, and whether real time decides about it."""

    def __call__(self, tool: str, kind: str, detail: str, /, *, is_timed: bool = False) -> None: ...


class ToolWatch:
    """Watches the tools of a desk, and calls `on_fault` with their faults. `warnings` are those of the run."""

    def __init__(self, desk: Desk, on_fault: OnFault, warnings: dict[str, None]) -> None:
        self.running: dict[tuple[str, str], Work] = {}
        #: The arguments of each call by the journal, as hooks and people changed them.
        self.arguments: dict[tuple[str, str], JsonObject] = {}
        #: The call of each interrupt.
        self._asking_calls: dict[tuple[str, str], str] = {}
        #: The calls that have an approval as their answer, which they do not have by themselves.
        self.approved: set[tuple[str, str]] = set()
        #: The calls that do nothing but fail.
        self.skipped: frozenset[tuple[str, str]] = frozenset()
        #: The effects of the calls that ran alone, while they are traced.
        self.effects: dict[tuple[str, str], Effect] = {}
        self._is_tracing = False
        self.files = desk.files
        #: The number of the question at which each call paused, and what it changed before.
        self._pauses: dict[tuple[str, str], tuple[int, Mapping[str, float]]] = {}
        #: When a call was cut off that did not wait for a lock.
        self._cut_off_at = -1.0
        self._modules = desk.modules
        #: The names that invariants read.
        self._judged = {
            name for invariant in desk.invariants for name in _names_in(getattr(invariant, "__code__", None))
        }
        self._on_fault = on_fault
        self._warnings = warnings

    def watch(self, tool: Tool) -> Tool:
        """Return a copy of the tool that is watched."""
        watched_copy = copy.copy(tool)
        watched_copy.takes_context = True
        vars(watched_copy)["execute"] = partial(self._execute, tool)
        vars(watched_copy)["asks_first"] = partial(self._asks_first, tool)
        return watched_copy

    def read(self, turn: str, fact: f.Fact) -> None:
        """Read the arguments of calls in a fact."""
        match fact:
            case f.ModelReplied():
                self.arguments |= {(turn, call.id): call.arguments or {} for call in fact.calls}
            case f.CallWaiting(call=call):
                self._asking_calls |= {(turn, interrupt.id): call for interrupt in fact.interrupts}
                if fact.changed is not None:
                    self.arguments[turn, call] = fact.changed
            case f.Answered(interrupt=interrupt, arguments=Mapping() as arguments):
                self.arguments[turn, self._asking_calls[turn, interrupt]] = arguments
            case f.CallStarted(call=call, arguments=Mapping() as arguments):
                self.arguments[turn, call] = arguments
            case _:
                pass

    @contextmanager
    def effects_traced(self) -> Iterator[None]:
        """Note in `effects` what the calls of a block do, by a look at the world before each line. It is slow."""
        self._is_tracing, before = True, threading.gettrace()
        threading.settrace(self._look)
        try:
            yield
        finally:
            threading.settrace(before)

    def _look(self, frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401 (a trace function)
        if frame.f_code.co_filename not in self.files:
            return None
        for work in self.running.values():
            work.changes |= differences(work.state, self._state())
        return self._look

    def _state(self) -> dict[str, object]:
        """Return the data of the outside world, and how often each of its locks is held."""
        return {**state_of(self._modules), **held_locks(self._modules)}

    async def _asks_first(self, tool: Tool, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
        try:
            return await tool.asks_first(arguments, context)
        except Exception as error:
            cause = error.__cause__ if isinstance(error, ToolError) else error
            if cause is not None and not isinstance(cause, ToolError):  # that one is for the model
                self._on_fault(tool.name, "approval check fails", f"its check for approval {self._describe(cause)}")
            raise

    async def _execute(self, tool: Tool, values: Mapping[str, object], context: ToolContext) -> object:
        key, amounts = (context.turn_id, context.call_id), amounts_of(self._modules) if tool.takes_context else {}
        if key in self.skipped:
            raise ToolError("the call is left out")
        self._compare_arguments(tool, values, key)
        state = self._state() if self._is_tracing else {}
        work = Work(*key, tool.name, amounts, is_alone=not self.running, state=state)
        for parallel_work in self.running.values():
            parallel_work.is_alone = False
        answers = (GivenAnswer(Decision.APPROVE),) if key in self.approved else ()
        fields = {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}
        fields["answers"] = (*answers, *context.answers)
        self.running[key] = work
        try:
            return await self._run(tool, values, _WatchedContext(**fields, on_ask=partial(self._compare, work)), work)
        except BaseException as error:
            if work.is_alone and isinstance(error, NeedsPersonError):
                self._pauses[key] = work.questions, changes(work.amounts, amounts_of(self._modules))
            raise
        finally:
            del self.running[key]
            if work.is_alone and self._is_tracing:
                kept_changes = differences(state, self._state())
                self.effects[key] = Effect(kept_changes, work.changes - kept_changes)

    def _compare_arguments(self, tool: Tool, values: Mapping[str, object], key: tuple[str, str]) -> None:
        """Look whether a call runs with the arguments that people and reviewers read."""
        arguments = self.arguments.get(key, {})
        try:
            journaled_values, same_values = tool.parse(arguments), tool.parse(arguments)
        except ToolError as error:
            journaled_values = same_values = {"": error}
        if values != journaled_values == same_values:  # else the values cannot be compared
            text = f"call {key[1]} runs with {dict(values)}, and the journal has {arguments}"
            self._on_fault(tool.name, "runs with other arguments", text)

    async def _run(self, tool: Tool, values: Mapping[str, object], context: ToolContext, work: Work) -> object:
        execution, start = tool.execute(values, context), anyio.current_time()
        work.coroutine = execution if inspect.iscoroutine(execution) else None
        try:
            if work.coroutine is None:
                return await execution
            look = self._look if self._is_tracing else None
            return await _Sections(work.coroutine, partial(self._blocks, work), look)
        except _MEANT:
            raise
        except anyio.get_cancelled_exc_class() as error:
            now, seconds = anyio.current_time(), tool.seconds_of_call(TOOL_TIMEOUT) or math.inf
            is_cut_off = now - start >= seconds - _MOMENT
            if is_cut_off and (self._is_deadlocked(error, now) or not tool.has_own_timeout):
                place = place_of_error(error, self.files) or place_in_threads(self.files)
                text = f"never ends: call {work.call} is cut off after {seconds:g} s, at {place}"
                self._on_fault(tool.name, "never ends", text)
            raise
        except BaseException as error:
            if not any(holds(error, kind) for kind in (*_MEANT, BlockedLoopError, anyio.get_cancelled_exc_class())):
                self._on_fault(tool.name, f"raises {type(error).__name__}", self._describe(error))
            raise

    def _is_deadlocked(self, error: BaseException, now: float) -> bool:
        """Whether the call that this error cuts off waited for a lock, and all other code of the desk does.

        A call that did something else, and is cut off at the same time, may have held the lock.
        """
        coroutines: list[object] = [work.coroutine for work in self.running.values()]
        coroutines += [task.get_coro() for task in asyncio.all_tasks()]
        stacks = [[*_frames_of(coroutine)] for coroutine in coroutines]
        stacks.append([frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code is not _SECTIONS])
        waits = [stack[-1].f_code for stack in stacks if any(frame.f_code.co_filename in self.files for frame in stack)]
        if waits and all(code.co_name == "acquire" and code.co_filename not in self.files for code in waits):
            return self._cut_off_at != now and not place_in_threads(self.files)
        self._cut_off_at = now
        return False

    def _compare(self, work: Work) -> None:
        """Compare what a call changed before a question, which has its answer, with the change before it paused there.

        The call runs from its beginning again: what it changes before its question, it changes once for each run. Data
        whose size an invariant knows may be notes of a test: the invariant judges them. So may data in memory that none
        of the invariants reads: they are worth a warning.
        """
        work.questions += 1
        number, earlier_changes = self._pauses.get((work.turn, work.call), (0, {}))
        if not work.is_alone or number != work.questions:
            return
        now, sizes, lasting = amounts_of(self._modules), sizes_of(self._modules), sizes_of(self._modules, True)
        for name, change in changes(work.amounts, now).items():
            is_judged = name.partition(".")[0] in self._judged
            if earlier_changes.get(name) != change or (is_judged and name in sizes):
                continue
            if is_judged or not self._judged or {name, name.rpartition(".")[0]} & {*lasting}:
                text = f"call {work.call} changes {name} ({work.amounts[name]} to {now[name]})"
                self._on_fault(work.tool, "repeats an effect", f"{text} {_TWICE}")
            else:
                self._warnings[f"{work.tool} changes {name} {_TWICE}"] = None

    def _describe(self, error: BaseException) -> str:
        place = place_of_error(error, self.files)
        return f"raises {type(error).__name__}: {error}" + (f" ({place})" if place else "")

    def _blocks(self, work: Work, seconds: float) -> None:
        self._on_fault(work.tool, "blocks the event loop", f"blocks the event loop for {seconds:.2f} s", is_timed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WatchedContext(ToolContext):
    """The context of a call that says when the call asks in the middle of its work."""

    on_ask: Callable[[], None]

    def ask(self, question: str, choices: Sequence[str] = (), *, expires_in: float | None = None) -> str:
        """See `ToolContext.ask`."""
        self.on_ask()
        return ToolContext.ask(self, question, choices, expires_in=expires_in)


class _Sections:
    """A coroutine whose sections between two waits are measured: `on_long` is called with one that takes too long.

    `look` traces them.
    """

    def __init__(
        self,
        work: Coroutine[object, object, object],
        on_long: Callable[[float], None],
        look: Callable[[FrameType, str, object], Any] | None,
    ) -> None:
        self._work = work
        self._on_long = on_long
        self._look = look

    def __await__(self) -> Generator[object, object, object]:
        resume: Callable[[], object] = partial(self._work.send, None)
        while True:
            start, cpu_start, waits, trace = time.monotonic(), time.thread_time(), voluntary_waits(), sys.gettrace()
            sys.settrace(self._look or trace)
            try:
                waiter = resume()
            except StopIteration as stop:
                return stop.value
            finally:
                sys.settrace(trace)
                seconds, cpu_seconds = time.monotonic() - start, time.thread_time() - cpu_start
                is_asleep = seconds - cpu_seconds > _ASLEEP and voluntary_waits() > waits
                if is_asleep or cpu_seconds > _AT_WORK:
                    self._on_long(seconds)
            try:
                value = yield waiter
            except BaseException as error:  # noqa: BLE001 (passed on to the work)
                resume = partial(self._work.throw, error)
            else:
                resume = partial(self._work.send, value)


#: It is in the traceback of an error once more, where it passed the error on.
_SECTIONS: Final = _Sections.__await__.__code__


def _names_in(code: object) -> Iterator[str]:
    """Yield the names that a function reads from its module."""
    if isinstance(code, CodeType):
        yield from code.co_names
        for constant in code.co_consts:
            yield from _names_in(constant)


def place_of_error(error: BaseException, files: frozenset[str]) -> str:
    """Return the innermost place in these files of a traceback: `desk.py:12 in redeem`."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{_short(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""


def waiting_functions(files: frozenset[str]) -> dict[str, str]:
    """Return the functions in these files that wait, in a task or in a thread, each with its place."""
    coroutines = [task.get_coro() for task in asyncio.all_tasks()]
    places = [*sorted(_place_of(coroutine, files) for coroutine in coroutines), place_in_threads(files)]
    return {place.rpartition(" in ")[2]: place for place in places if place}


def place_of_frame(frame: FrameType | None, files: frozenset[str]) -> str:
    """Return the innermost place in these files of a running frame."""
    while frame is not None and frame.f_code.co_filename not in files:
        frame = frame.f_back
    return "" if frame is None else _show(frame)


def _place_of(coroutine: object, files: frozenset[str]) -> str:
    places = [_show(frame) for frame in _frames_of(coroutine) if frame.f_code.co_filename in files]
    return places[-1] if places else ""


def _frames_of(coroutine: object) -> Iterator[FrameType]:
    """Yield the frames of a coroutine that waits, from the outermost one."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if isinstance(frame, FrameType):
            yield frame
        # The engine awaits functions of the app through an object that notes their work.
        coroutine = getattr(coroutine, "cr_await", getattr(coroutine, "_work", None))


def place_in_threads(files: frozenset[str]) -> str:
    """Return the place in these files of the first worker thread that is there; empty if none is."""
    frames = frames_of_threads()
    workers = [frames.get(thread.ident or 0) for thread in threading.enumerate() if thread.name == _WORKER]
    return next(filter(None, (place_of_frame(frame, files) for frame in workers)), "")


def _show(frame: FrameType) -> str:
    return f"{_short(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"


def _short(file: str) -> str:
    return file.rpartition("/")[2]
