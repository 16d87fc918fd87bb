"""Play a recorded turn again: through the real engine, in memory, with the recorded replies and results."""

import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
from msgspec import structs
from pydantic import JsonValue

from turnwright.agent import Agent
from turnwright.driver.dependencies import FinishedCall
from turnwright.errors import Retry, StoreError, TurnwrightError
from turnwright.journal.answers import Answers
from turnwright.journal.inbox import abort_item
from turnwright.journal.result import TurnResult
from turnwright.journal.termination import supersede
from turnwright.message import ToolResultPart
from turnwright.model.capabilities import Capabilities
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.runtime.engine import Engine
from turnwright.store import Claim, MemoryStore
from turnwright.tools import RESULT_LIMIT, Ask, NeedsPersonError, Tool, ToolContext, ToolError, ToolResult
from turnwright_states import CallStatus, Decision, Turn
from turnwright_states.facts import Fact, Notice

from . import clock
from .faults import FaultyStore, StoreCall
from .flaky import Broke, FlakyModel, Line, Unfinished
from .played_decisions import PlayedDecisions
from .recording import At, Recorded, Recording

R = TypeVar("R")

#: Seconds, all skipped, after which a turn that stands still is given up: four months, for no turn's time was longer.
_FOREVER: Final = 1e7
_CUT: Final = re.compile(r"\n\[cut: the first \d+ of (\d+) bytes; ask for less\]\Z")
#: By how many of its bytes are kept where a result is cut: a character that is then dropped whole.
_DROPPED: Final = ("", "é", "€", "\N{GRINNING FACE}")
#: More than a tool can ask for another try. A call that was refused for that was refused with its reply.
_ENOUGH: Final = 10**6
#: The fields of an agent that are not limits.
_WHO: Final = {"name", "description", "instructions", "model", "conclude_prompt"}


class PlaybackError(TurnwrightError):
    """A recorded turn cannot be played to its end: it waits for an input that is missing, or has ended too early."""


def playback(recording: Recording) -> TurnResult:
    """Play a recorded turn and return its state then: ended, paused, or left by its driver.

    Raises `PlaybackError` when the engine does not come to where the recording says that something happened, and
    `ConfigError` for a recording that no engine takes. Not to be called from a running event loop.
    """
    return clock.run(_Player(recording).play)


def results_of(turn: TurnResult) -> dict[str, Recorded]:
    """The result of each call of the turn, by the call's id."""
    parts = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    return {
        part.call: Recorded(
            part.text,
            part.status,
            structured=part.structured,
            files=tuple(structs.replace(file, seq=0) for file in part.files),
        )
        for part in parts
    }


class _Player:
    """The environment of one turn."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._then = deque(recording.then)
        self._journal = _Journal(self._then, recording.limits.seconds or 0.0)
        self._decisions = PlayedDecisions(recording, lambda: self._journal.written_count)
        self._model = _Model(recording, self._journal, self._abort, self._decisions)
        self._tools = [_Tool(name, recording, self._journal, self._model) for name in recording.tools]
        self._synthesis = deque(recording.synthesis or ())
        self._agent = _agent(recording)
        self._engine = self._new_engine()

    async def play(self) -> TurnResult:
        recording = self._recording
        messages = recording.message_history
        begin = partial(
            self._engine.run, self._agent, recording.prompt, files=recording.files, message_history=messages
        )
        await self._drive(begin)
        while self._then:
            act = self._then.popleft()
            if isinstance(act, At) and act.what == "left":
                break
            answers = None if isinstance(act, At) else act
            if isinstance(act, At) and act.what == "superseded":
                await supersede(self._journal, self._journal.turn)
                continue
            if isinstance(act, At):
                await self._happens(act)
            self._engine = self._new_engine()
            await self._drive(partial(self._engine.resume, self._journal.turn, answers))
        return await self._engine.get(self._journal.turn)

    async def _happens(self, act: At) -> None:
        if act.what == "deadline":
            await self._journal.let_time_pass()
        elif act.what == "decision":
            self._decisions.end()
        elif act.what != "crash":
            await self._journal.post(abort_item(self._journal.turn))

    async def _drive(self, work: Callable[[], Awaitable[object]]) -> None:
        """Drive the turn until it pauses, or the next recorded event stops it."""
        try:
            with anyio.fail_after(_FOREVER):
                await work()
        except TimeoutError:
            raise PlaybackError(f"the turn stands still after {self._journal.written_count} facts") from None
        except StoreError:
            if not self._journal.failed:
                raise
            self._journal.failed = False

    async def _abort(self) -> None:
        await self._engine.abort(self._journal.turn)

    def _new_engine(self) -> Engine:
        return Engine(
            model=self._model,
            models=lambda _: self._model,
            tools=self._tools,
            agents=[self._agent],
            hooks=[self._decisions] if self._recording.needs_decisions else [],
            store=self._journal,
            limits=self._recording.limits,
            synthesize=None if self._recording.synthesis is None else self._synthesize,
            backoff=Backoff(initial=0),
            max_parallel_tools=1 if self._journal.next_event is None else self._recording.limits.max_calls_per_step,
            cancel_grace=0,
            clock=self._journal.clock,
        )

    async def _synthesize(self, _batch: tuple[FinishedCall, ...]) -> str | None:
        await anyio.lowlevel.checkpoint()  # where time that is up already is noticed
        self._journal.hold_up()
        synthesis = self._synthesis.popleft() if self._synthesis else None
        if isinstance(synthesis, Broke):
            raise RuntimeError(synthesis.error)  # noqa: TRY004 (no type is wrong: it is what the hook raised)
        if isinstance(synthesis, ModelError):
            raise synthesis
        return synthesis


class _Journal(FaultyStore):
    """The turn's store. It stops the driver before the next recorded event, by an append that fails."""

    def __init__(self, then: deque[Answers | At], seconds: float) -> None:
        super().__init__(MemoryStore())
        self.turn = ""
        #: Facts so far, without the notices.
        self.written_count = 0
        self._then = then
        self._seconds = seconds
        #: The facts after which time passed while nobody drove.
        self._before_time: set[int] = set()
        #: Seconds for which the process was held up.
        self._held_up = 0.0

    async def around(self, call: StoreCall, make: Callable[[], Awaitable[R]]) -> R:
        result = await super().around(call, make)
        if call.name == "create":
            self.turn = call.turn
        self.written_count += sum(not isinstance(fact, Notice) for fact in call.facts)
        if call.facts and self._is_due(delay=False):
            self.failed = True
            if isinstance(result, Claim):
                await self.release(result)
            raise StoreError(f"the driver is stopped after {self.written_count} facts, as it was recorded")
        return result

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        """See `Store.facts`. The facts contain the elapsed time, and their hashes the state that follows from it."""
        if not self._before_time:
            return await super().facts(turn_id, after)
        turn, facts = Turn(), list[tuple[int, Fact]]()
        for seq, recorded_fact in await super().facts(turn_id):
            fact, is_late = recorded_fact, seq in self._before_time
            if is_late:
                fact = structs.replace(fact, elapsed=max(fact.elapsed, self._seconds))
            turn.apply(fact)
            facts.append((seq, structs.replace(fact, hash=turn.digest()) if is_late and fact.hash else fact))
        return facts[after:]

    @property
    def next_event(self) -> At | None:
        """The event that stops the driver, unless the turn pauses before."""
        act = next((act for act in self._then if not isinstance(act, At) or act.what != "delay"), None)
        return act if isinstance(act, At) else None

    async def let_time_pass(self) -> None:
        """Use up the turn's time. The turn must be resumed to notice."""
        self._before_time.add(len(await super().facts(self.turn)))

    def hold_up(self) -> None:
        """Use up the time now if the next recorded event is a deadline. Models and tools call this."""
        if self._is_due(delay=True):
            self._then.popleft()
            self._held_up += self._seconds

    def clock(self) -> float:
        """Return the time that the turn is driven by: the real one, and the time for which the process was held up."""
        return time.monotonic() + self._held_up

    def _is_due(self, *, delay: bool) -> bool:
        act = self._then[0] if self._then else None
        return isinstance(act, At) and self.written_count >= act.facts and (act.what == "delay") is delay


class _Model(FlakyModel):
    """A model that replies as recorded. It knows the ids that the calls of its last reply will get."""

    name = "recorded"
    #: Its replies contain the costs that were recorded.
    capabilities: Final = Capabilities(reports_cost=True)

    def __init__(
        self,
        recording: Recording,
        journal: _Journal,
        abort: Callable[[], Awaitable[None]],
        decisions: PlayedDecisions,
    ) -> None:
        super().__init__()
        #: The calls of the last reply that are not looked up yet, with their ids.
        self.open_calls: list[tuple[str, ResponseToolCall]] = []
        self._lines = deque(recording.model)
        self._call_count = 0
        self._journal = journal
        self._abort = abort
        self._decisions = decisions

    async def next_line(self, request: ModelRequest) -> Line | None:  # noqa: ARG002 (a recording does not listen)
        await anyio.lowlevel.checkpoint()  # where time that is up already is noticed
        self._journal.hold_up()
        self._decisions.begin_reply(len(self.requests) - 1)
        line = self._lines.popleft() if self._lines else None
        if isinstance(line, ModelResponse):
            self._note(line.calls)
        return line

    async def fall_silent(self, line: Unfinished) -> None:
        if line.by == "abort":
            await self._abort()
        await super().fall_silent(line)

    def _note(self, calls: Sequence[ResponseToolCall]) -> None:
        self.open_calls = [(f"call{self._call_count + number:05d}", call) for number, call in enumerate(calls, start=1)]
        self._call_count += len(calls)

    def looked_up(self, name: str, arguments: Mapping[str, JsonValue], *, done: bool = False) -> str:
        """The id of the call that is being looked up, empty if none is. `done`: the next one is its successor."""
        for place, (call, open_call) in enumerate(self.open_calls):
            if open_call.name == name and open_call.arguments == arguments:
                if done:
                    del self.open_calls[: place + 1]
                return call
        return ""


class _Tool(Tool):
    """A tool that gives each call its recorded result, with any arguments."""

    def __init__(self, name: str, recording: Recording, journal: _Journal, model: _Model) -> None:
        on_crash = recording.on_crash.get(name)
        super().__init__(
            name=name,
            description="As it was recorded.",
            parameters={"type": "object"},
            timeout=None,  # a recorded call ends when the recording says so
            idempotent=on_crash == "rerun",
            on_crash=on_crash,
            ignore_in_loop_detection=name in recording.ignore_in_loop_detection,
            retries=_ENOUGH,
        )
        self._recording = recording
        self._journal = journal
        self._model = model

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """Raise the recorded error of a call, if its reply had one."""
        recorded_result = self._recording.results.get(self._model.looked_up(self.name, arguments))
        if recorded_result is not None and recorded_result.at == "reply" and recorded_result.status is CallStatus.ERROR:
            raise ToolError(recorded_result.text)
        return dict(arguments)

    def loop_key(self, arguments: Mapping[str, JsonValue]) -> str | None:
        return self._recording.loop_keys.get(self._model.looked_up(self.name, arguments, done=True))

    async def asks_first(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
        """Wait, so that the start shares no append with the facts before it: the recording may stop between them."""
        await anyio.lowlevel.checkpoint()
        event = self._journal.next_event
        if event is not None and context.call_id in event.ready:
            await anyio.sleep_forever()
        return await super().asks_first(arguments, context)

    def asks(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
        """Ask the recorded questions, one after the other."""
        del arguments
        self._journal.hold_up()
        recorded_result = self._recording.results.get(context.call_id)
        ask, attempt = self._next_ask(context)
        if ask is not None and not attempt:
            return ask
        if recorded_result is not None and recorded_result.at == "bug":
            raise RuntimeError("a bug, as it was recorded")
        if recorded_result is not None and recorded_result.at == "start":
            raise ToolError(_uncut(recorded_result.text))
        return None

    def _next_ask(self, context: ToolContext) -> tuple[Ask | None, int]:
        """Return the call's next question, and its attempt; 0 is before it runs."""
        asks = self._recording.asks.get(context.call_id, ())
        answer_count = sum(answer.decision is not Decision.RERUN for answer in context.answers)
        if answer_count >= len(asks):
            return None, 0
        attempts = self._recording.asked_in.get(context.call_id, ())
        return asks[answer_count], attempts[answer_count] if answer_count < len(attempts) else 0

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        del values
        self._journal.hold_up()
        ask, attempt = self._next_ask(context)
        if ask is not None and attempt == context.attempt:
            raise NeedsPersonError(ask)
        recorded_result = self._recording.results.get(context.call_id)
        if recorded_result is not None and context.attempt == recorded_result.attempt:
            if recorded_result.status is CallStatus.OK:
                return ToolResult(
                    _uncut(recorded_result.text),
                    recorded_result.structured,
                    recorded_result.files,
                    recorded_result.final,
                )
            if recorded_result.retry:
                raise Retry(_uncut(recorded_result.text))
            if recorded_result.status is CallStatus.ERROR:
                raise ToolError(_uncut(recorded_result.text))
        await anyio.sleep_forever()
        return None


def _agent(recording: Recording) -> Agent:
    fields = recording.agent.model_dump(include=_WHO)
    if recording.output is not None:
        fields |= {"output_type": JsonValue, "output_mode": recording.output}
    return Agent.model_validate(fields)


def _uncut(text: str) -> str:
    """A text that the engine will cut to `text`, if it was cut."""
    match = _CUT.search(text)
    if match is None or len(text.encode()) <= RESULT_LIMIT:
        return text
    short_text = text[: match.start()]
    short_text += _DROPPED[RESULT_LIMIT - len(short_text.encode())]
    return short_text + "x" * (int(match[1]) - len(short_text.encode()))
