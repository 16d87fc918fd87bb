"""Runs a scripted turn on the real engine, and returns its course, for a comparison with `reference.predict`."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import fields
from functools import cache
from itertools import cycle
from secrets import token_hex
from typing import Final

import anyio
import anyio.lowlevel
from pydantic import JsonValue
from tests.oracle.mortal_store import DRIVEN, MortalStore
from tests.oracle.reference import predict
from tests.oracle.scripted_agent import PROMPT, helpers, prompt_of, scripted_agent
from tests.oracle.turn_script import (
    CHANGED_BY,
    HELPER,
    Course,
    Death,
    PersonAct,
    ScriptedCall,
    ScriptedReply,
    ScriptedTool,
    TurnScript,
)

from turnwright.agent import Agent
from turnwright.driver.dependencies import FinishedCall
from turnwright.driver.subagents import AgentTool, agent_tool
from turnwright.errors import Retry, StoreError, TurnAlreadyEndedError
from turnwright.journal.answers import Answer
from turnwright.journal.result import TurnResult
from turnwright.message import ToolCallPart, ToolResultPart
from turnwright.model import ScriptedModel
from turnwright.model.prices import Price
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.runtime.engine import Engine
from turnwright.store import MemoryStore, Store
from turnwright.tools import Tool, ToolContext, tool
from turnwright.transcript.interrupt import Interrupt
from turnwright_states import CallStatus, Cause, Decision, InterruptKind, State, Usage
from turnwright_testing import FlakyModel, Line, clock

__all__ = ["assert_as_predicted", "observe"]

_AGENT: Final = Agent(name="Somebody else")
_NAME: Final = "scripted"
#: A token costs one.
_PRICE: Final = Price(input=1_000_000, output=1_000_000)
_PRICES: Final[Mapping[str, Price]] = {_NAME: _PRICE, HELPER: _PRICE}
#: Seconds in which every question expires, and seconds that pass when nobody answers.
_EXPIRES_IN, _NOBODY_ANSWERS = 60.0, 100.0
_YES: Final = ("yes", "always", "change")
#: The most turns of the event loop until a canceled caller has canceled its sub-agents.
_UNTIL_CANCELED: Final = 8


def observe(
    script: TurnScript, *, store: Callable[[], Store] = MemoryStore, deaths: list[Death] | None = None
) -> Course:
    """Run the turn of a script on the engine, and return what it did. The deaths of its processes go to `deaths`.

    The model and the tools count their own calls. Time is virtual, so a script takes no longer than its work. `store`
    opens the store, for each process anew if it is shared. Not to be called from a running event loop.
    """
    script_run = _ScriptRun(script, store, [] if deaths is None else deaths)
    token = _SCRIPT_RUN.set(script_run)
    try:
        return clock.run(script_run.observe)
    finally:
        _SCRIPT_RUN.reset(token)


def assert_as_predicted(script: TurnScript, *, store: Callable[[], Store] = MemoryStore) -> Course:
    """Run the turn of a script on the engine, and return its course, which must be the one of `reference.predict`.

    Raises `AssertionError`, which names each difference, and what `reference.predict` raises.
    """
    deaths: list[Death] = []
    observed = observe(script, store=store, deaths=deaths)
    predicted = predict(script, deaths)
    differences = [
        f"{field.name}: {getattr(observed, field.name)!r}, and by the rules {getattr(predicted, field.name)!r}"
        for field in fields(Course)
        if getattr(observed, field.name) != getattr(predicted, field.name)
    ]
    if differences:
        raise AssertionError("the turn took another course:\n" + "\n".join(differences))
    return observed


class _ScriptRun:
    """Everything around the engine: the model, the tools, and the people."""

    def __init__(self, script: TurnScript, store: Callable[[], Store], deaths: list[Death]) -> None:
        self._script = script
        self._open = store
        self._deaths = deaths
        self._people = cycle(script.people)
        #: A session of its own: a store may have turns of other scripts.
        self._session = token_hex(8)
        self._offers = 0
        self._waited = 0.0
        #: The calls that ran: the tool and the number of each.
        self.executed: list[tuple[str, int]] = []
        #: The number of runs of each call's tool, by idempotency key.
        self.ran = Counter[str]()
        self._model = _Model(script)
        self._helper = _HelperModel(script)
        self._store: MortalStore
        self._engine: Engine
        self._agent = scripted_agent(script, lambda: self._model.current_reply)

    async def observe(self) -> Course:
        opened = self._open()
        remaining = [*self._script.crashes, None]
        async with anyio.create_task_group() as group:
            for at in self._script.messages:
                group.start_soon(self._act_at, at, self._steer)
            if self._script.abort_at is not None:
                group.start_soon(self._act_at, self._script.abort_at, self._abort)
            if self._script.dies_at is not None:
                group.start_soon(self._act_at, self._script.dies_at, self._kill)
            turn = ""
            while True:
                self._store = MortalStore(opened, remaining.pop(0) if remaining else None, self.ran)
                async with self._process() as self._engine:
                    try:
                        with self._store.life:
                            result = await self._live(turn)
                            if result is not None:
                                group.cancel_scope.cancel()
                                return self._course(result)
                    except StoreError:
                        if not self._store.dead:
                            raise
                turn = self._store.turn or turn
                await opened.aclose()
                opened = self._open() if opened.shared else opened
                self._deaths.append(await self._store.death(opened, turn, self._helper.calls))
        raise AssertionError("unreachable")

    def _process(self) -> Engine:
        return Engine(
            model=self._model,
            models=lambda _: self._helper,
            tools=[*map(_tool, self._script.tools), *self._helpers()],
            store=self._store,
            # A hint changes no course.
            limits=self._script.limits.model_copy(update={"stall_response": "hint"}),
            prices=_PRICES,
            synthesize=self._synthesize if self._script.synthesis else None,
            backoff=Backoff(initial=0),
            cancel_grace=self._script.cancel_grace,
            now=lambda: anyio.current_time() + self._waited,
            clock=anyio.current_time,
        )

    def _helpers(self) -> list[AgentTool[None]]:
        return [agent_tool(helper, expires_in=_EXPIRES_IN) for helper in helpers(self._script)]

    async def _live(self, turn: str) -> TurnResult:
        """Drive the turn to its end, in one process."""
        engine = self._engine
        if turn:
            result: TurnResult = await engine.get(turn)
            result = result if result.outcome is not None else await engine.resume(turn, agent=self._agent)
        else:
            result = await (await engine.start(self._agent, PROMPT, session=self._session)).result()
        while result.outcome is None:
            await self._answer(engine, self._agent, result)
            result = await engine.get(result.id)
        return await engine.get(result.id)

    async def _steer(self) -> None:
        await self._engine.steer(self._store.turn, "Go on.")

    async def _abort(self) -> None:
        await self._engine.abort(self._store.turn)

    async def _kill(self) -> None:
        self._store.kill()

    async def _act_at(self, seconds: float, act: Callable[[], Awaitable[object]]) -> None:
        await anyio.sleep(seconds)
        with suppress(TurnAlreadyEndedError):
            await act()

    async def _answer(self, engine: Engine, agent: Agent[None, object], turn: TurnResult) -> None:
        """Let a person act on the first open question."""
        asking = await self._store.asking(turn.id)
        interrupt, act = min(turn.interrupts, key=lambda pending: asking.get(pending.id, 0)), next(self._people)
        if act == "abort":
            await engine.abort(turn.id)
        elif act == "message":
            other_engine = Engine(model=ScriptedModel("Done."), store=engine.store)
            await other_engine.run(_AGENT, "Something else.", session=self._session)
        elif act == "expire" and interrupt.expires_at is not None:
            self._waited += _NOBODY_ANSWERS
            await engine.resume(turn.id, agent=agent)
        else:
            await engine.resume(turn.id, {interrupt.id: _answer(interrupt, act)}, agent=agent)

    async def _synthesize(self, batch: tuple[FinishedCall, ...]) -> str | None:
        texts, successes = self._script.synthesis, sum(call.status is CallStatus.OK for call in batch)
        summary = texts[(successes if self._script.helper else self._offers) % len(texts)]
        self._offers += 1
        if isinstance(summary, Cause):
            raise ModelError("scripted", cause=summary)
        if isinstance(summary, type):
            raise summary
        return summary

    def _course(self, turn: TurnResult) -> Course:
        outcome, reason = turn.outcome, turn.reason
        assert outcome is not None and reason is not None  # noqa: PT018 (it has ended)
        return Course(
            outcome=outcome,
            reason=reason,
            also_reached=turn.also_reached,
            steps=turn.steps,
            tool_calls=turn.tool_calls,
            executed=tuple(sorted(self.executed)),
            model_calls=len(self._model.requests) + self._helper.calls.total(),
            pauses=turn.path.count(State.PAUSED),
            tokens=turn.usage.tokens,
            results=tuple(_results(turn)),
            undelivered=len(turn.undelivered),
            sentinel=None if turn.sentinel is None else _figures(turn.sentinel.text),
        )


#: The run of the turn. Tools are made once, because their schemas take most of a short turn's time.
_SCRIPT_RUN: Final[ContextVar[_ScriptRun]] = ContextVar("script_run")


@cache
def _tool(scripted: ScriptedTool) -> Tool:
    async def work(  # noqa: PLR0917 (its arguments are those of a model's call)
        ctx: ToolContext[None],
        number: int,
        does: str,
        seconds: float,
        before: str = "",  # noqa: ARG001 (for hooks)
        after: str = "",  # noqa: ARG001
    ) -> str:
        _SCRIPT_RUN.get().executed.append((scripted.name, number))
        _SCRIPT_RUN.get().ran[ctx.idempotency_key] += 1
        if seconds:
            await anyio.sleep(seconds)
        if does == "retry":
            raise Retry("Once more.")
        if does == "fail":
            raise ValueError("It failed.")
        return f"Result {number}."

    return tool(
        name=scripted.name,
        description="It does what its arguments say.",
        needs_approval=scripted.needs_approval,
        expires_in=_EXPIRES_IN,
        ignore_in_loop_detection=scripted.ignore_in_loop_detection,
        loop_key=(lambda _: "always the same") if scripted.one_loop_key else None,
        return_direct=scripted.return_direct,
        retries=scripted.retries,
        on_crash=scripted.on_crash,
        idempotent=scripted.on_crash == "rerun",
    )(work)


def _answer(interrupt: Interrupt, act: PersonAct) -> Answer:
    arguments = interrupt.arguments or {}
    number = arguments.get("number")
    if act != "change" or interrupt.kind is not InterruptKind.APPROVAL or not isinstance(number, int):
        return Answer(_decision(interrupt.kind, act))
    return Answer(Decision.APPROVE, arguments={**arguments, "number": number + CHANGED_BY})


def _decision(kind: InterruptKind, act: PersonAct) -> Decision:
    if kind is InterruptKind.UNKNOWN_OUTCOME:
        return Decision.RERUN if act in _YES else Decision.UNKNOWN
    if kind is InterruptKind.DOOM_LOOP:
        return {"yes": Decision.GO_ON, "change": Decision.GO_ON, "always": Decision.ALWAYS}.get(act, Decision.STOP)
    return Decision.APPROVE if act in _YES else Decision.REJECT


def _results(turn: TurnResult) -> list[tuple[str, CallStatus]]:
    """Return the tool and the status of each call of the transcript, in order. Raises if one lacks its result."""
    results: list[tuple[str, CallStatus]] = []
    open_calls: list[str] = []
    for message in turn.messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                open_calls.append(part.id)
            elif isinstance(part, ToolResultPart):
                if not open_calls or part.call != open_calls.pop(0):
                    raise AssertionError(f"the result of {part.call} ({part.name}) does not follow its call")
                results.append((part.name, part.status))
    if open_calls:
        raise AssertionError(f"calls without results: {', '.join(open_calls)}")
    return results


def _figures(sentinel: str) -> str:
    match = re.search(r"\((\d+ of \d+( calls)?)\)", sentinel)
    return match[1] if match else ""


class _Model(FlakyModel):
    """A model that replies from a script."""

    name = _NAME

    def __init__(self, script: TurnScript) -> None:
        super().__init__()
        self.current_reply = script.replies[0]
        self._replies = cycle(script.replies)

    async def next_line(self, request: ModelRequest) -> Line:  # noqa: ARG002 (a script does not listen)
        self.current_reply = next(self._replies)
        return await _line_of(self.current_reply)


class _HelperModel(FlakyModel):
    """The model of the sub-agent. Its turns run side by side, so each reply depends on its own conversation."""

    name = HELPER

    def __init__(self, script: TurnScript) -> None:
        super().__init__()
        #: Its calls by turn, without those that were canceled as they began.
        self.calls = Counter[str]()
        self._replies = script.helper

    async def next_line(self, request: ModelRequest) -> Line:
        # The time of a sub-agent ends with that of its caller: a conclusion that begins then is canceled.
        for _ in range(_UNTIL_CANCELED):
            await anyio.lowlevel.checkpoint()
        self.calls[DRIVEN.get()] += 1
        reply_count = sum(message.role == "assistant" for message in request.messages)
        return await _line_of(self._replies[reply_count % len(self._replies)])


async def _line_of(scripted: ScriptedReply) -> Line:
    """Return a scripted reply, or its error, after its time."""
    if scripted.seconds:
        await anyio.sleep(scripted.seconds)
    reply = ModelResponse(
        text=scripted.text,
        calls=tuple(ResponseToolCall(call.tool, _arguments(call)) for call in scripted.calls),
        finish=scripted.finish,
        usage=Usage(input_tokens=scripted.tokens),
    )
    return reply if scripted.error is None else ModelError("scripted", cause=scripted.error, partial=reply)


def _arguments(call: ScriptedCall) -> dict[str, JsonValue]:
    number: JsonValue = call.number if call.fits else [call.number]
    if call.tool == HELPER:
        return {"prompt": prompt_of(call) if call.fits else [prompt_of(call)]}
    decided = {name: verdict for name, verdict in (("before", call.before), ("after", call.after)) if verdict}
    return {"number": number, "does": call.does, "seconds": float(call.seconds), **decided}
