"""Dependencies: made once for each driver of a turn, closed when it lets the turn go, and never written down."""

import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from pydantic import JsonValue

from turnwright import (
    Agent,
    CannotRunError,
    ConfigError,
    Engine,
    NoOutputError,
    Outcome,
    StoreError,
    Trip,
    TurnContext,
    TurnInfo,
    TurnResult,
    agent_tool,
    output_guardrail,
    tool,
)
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.runtime import Local
from turnwright.store import MemoryStore, Store, open_store
from turnwright.tools import ToolContext
from turnwright_states import EndReason, Limits
from turnwright_states import facts as f
from turnwright_testing import FaultyStore

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Clerk")
METADATA: Mapping[str, JsonValue] = {"user": "ann"}


@dataclass
class Deps:
    """Knows the turn that it was made for."""

    turn: TurnInfo
    closed: bool = False

    @property
    def user(self) -> str:
        return str(self.turn.metadata.get("user", "nobody"))


@dataclass
class Factory:
    """Makes dependencies, and keeps them."""

    created: list[Deps] = field(default_factory=list)
    #: Raised instead, the first time.
    error: BaseException | None = None

    async def plain(self, turn: TurnInfo) -> Deps:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.created.append(Deps(turn))
        return self.created[-1]

    async def closing(self, turn: TurnInfo) -> AsyncIterator[Deps]:
        deps = await self.plain(turn)
        yield deps
        await anyio.lowlevel.checkpoint()  # a close may wait, also after a cancellation
        deps.closed = True


@tool
async def whoami(ctx: ToolContext[Deps]) -> str:
    return f"{ctx.deps.user}, {ctx.agent}, session {ctx.session}, step {ctx.step}, {ctx.usage.tokens} tokens"


@tool(needs_approval=True)
async def sign(ctx: ToolContext[Deps]) -> str:
    return f"signed by {ctx.deps.user}"


def risky(ctx: ToolContext[Deps], arguments: Mapping[str, JsonValue]) -> bool:
    return ctx.deps.user != "admin" and arguments["amount"] != 0


@tool(needs_approval=risky)
async def pay(ctx: ToolContext[Deps], amount: int) -> str:
    return f"{ctx.deps.user} paid {amount}"


def results(turn: TurnResult) -> list[str]:
    return [part.text for message in turn.messages for part in message.parts if part.type == "tool_result"]


def build_engine(factory: Factory, *lines: Line, store: MemoryStore | None = None) -> Engine[Deps]:
    model = ScriptedModel(*lines)
    return Engine(deps=factory.closing, model=model, tools=[whoami, sign, pay], store=store or MemoryStore())


async def test_a_tool_gets_the_dependencies_and_the_turn() -> None:
    factory = Factory()
    turn = await build_engine(factory, asks_for(("whoami", {})), "Done.").run(
        AGENT, "hi", session="s1", metadata=METADATA
    )
    assert results(turn) == ["ann, Clerk, session s1, step 1, 2 tokens"]
    assert [deps.turn for deps in factory.created] == [
        TurnInfo(turn_id=turn.id, agent="Clerk", session="s1", metadata=METADATA, resumed=False)
    ]
    assert factory.created[0].closed


async def test_tool_gets_the_messages_before_and_of_the_turn() -> None:
    @tool
    async def count(ctx: ToolContext) -> str:
        return ", ".join(f"{message.role} {message.text}".strip() for message in ctx.messages)

    model = ScriptedModel("Hello.", asks_for(("count", {})), "Done.")
    engine = Engine(model=model, tools=[count])
    await engine.run(Agent(name="Clerk", instructions="Be short."), "hi", session="s")
    turn = await engine.run(Agent(name="Clerk", instructions="Be short."), "count", session="s")
    assert results(turn) == ["user hi, assistant Hello., user count, assistant"]


async def test_async_function_may_make_dependencies() -> None:
    factory = Factory()
    engine = Engine(deps=factory.plain, model=ScriptedModel(asks_for(("whoami", {})), "Done."), tools=[whoami])
    assert results(await engine.run(AGENT, "hi", metadata=METADATA)) == ["ann, Clerk, session None, step 1, 2 tokens"]


async def test_journal_records_only_the_need_for_dependencies() -> None:
    engine = build_engine(Factory(), "Done.")
    turn = await engine.run(AGENT, "hi")
    started = (await engine.store.facts(turn.id))[0][1]
    assert isinstance(started, f.TurnStarted)
    assert started.agent == {"name": "Clerk", "needs": ["deps"]}
    plain = Engine(model=ScriptedModel("Done."))
    turn = await plain.run(AGENT, "hi")
    started = (await plain.store.facts(turn.id))[0][1]
    assert isinstance(started, f.TurnStarted)
    assert started.agent == {"name": "Clerk"}


async def test_resumed_turn_gets_new_dependencies_from_session_and_metadata() -> None:
    factory, store = Factory(), MemoryStore()
    paused = await build_engine(factory, asks_for(("sign", {})), store=store).run(
        AGENT, "hi", session="s", metadata=METADATA
    )
    assert factory.created[0].closed, "nothing is held while a person is waited for"
    turn = await build_engine(factory, "Done.", store=store).resume(paused.id, {"approval-1": True})
    assert results(turn) == ["signed by ann"]
    assert [(deps.turn.resumed, deps.turn.session, deps.closed) for deps in factory.created] == [
        (False, "s", True),
        (True, "s", True),
    ]


async def test_approval_function_gets_the_dependencies() -> None:
    store, pays = MemoryStore(), asks_for(("pay", {"amount": 5}), ("pay", {"amount": 0}))
    paused = await build_engine(Factory(), pays, store=store).run(AGENT, "hi", metadata=METADATA)
    assert [interrupt.arguments for interrupt in paused.interrupts] == [{"amount": 5}]
    turn = await build_engine(Factory(), pays, "Done.").run(AGENT, "hi", metadata={"user": "admin"})
    assert results(turn) == ["admin paid 5", "admin paid 0"]


async def test_deps_of_a_call_replace_the_factory() -> None:
    factory = Factory()
    engine = build_engine(factory, asks_for(("sign", {})), asks_for(("whoami", {})), "Done.")
    own = Deps(TurnInfo(turn_id="t", agent="Clerk", metadata={"user": "bob"}))
    paused = await engine.run(AGENT, "hi", metadata=METADATA, deps=own)
    turn = await engine.resume(paused.id, {"approval-1": True}, deps=own)
    assert results(turn) == ["signed by bob", "bob, Clerk, session None, step 2, 4 tokens"]
    assert not factory.created
    assert not own.closed, "the caller made them, and closes them"


async def test_dependencies_are_closed_when_the_driver_is_canceled() -> None:
    factory, entered = Factory(), anyio.Event()

    @tool
    async def wait(ctx: ToolContext[Deps]) -> str:
        entered.set()
        await anyio.sleep_forever()
        return ctx.deps.user

    engine = Engine(deps=factory.closing, model=ScriptedModel(asks_for(("wait", {}))), tools=[wait], cancel_grace=0.0)
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run, AGENT, "hi")
        await entered.wait()
        group.cancel_scope.cancel()
    assert factory.created[0].closed


async def test_dependencies_are_closed_after_a_store_failure_or_tool_bug() -> None:
    factory = Factory()

    async def breaks(calls: object) -> str | None:
        raise RuntimeError(str(calls))

    engine = Engine(
        deps=factory.closing, model=ScriptedModel(asks_for(("whoami", {}))), tools=[whoami], synthesize=breaks
    )
    turn = await engine.run(AGENT, "hi")
    assert turn.outcome is Outcome.FAILED
    assert factory.created[0].closed


async def test_a_generator_may_hold_a_task_group_open() -> None:
    done: list[str] = []

    async def beat() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            done.append("stopped")

    async def make(turn: TurnInfo) -> AsyncIterator[Deps]:
        async with anyio.create_task_group() as group:
            group.start_soon(beat)
            yield Deps(turn)
            group.cancel_scope.cancel()

    engine = Engine(deps=make, model=ScriptedModel(asks_for(("whoami", {})), "Done."), tools=[whoami])
    assert (await engine.run(AGENT, "hi")).outcome is Outcome.FINISHED
    assert done == ["stopped"]


async def test_raising_factory_leaves_the_turn_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    factory, store = Factory(error=OSError("no database")), MemoryStore()
    with pytest.raises(CannotRunError, match=r"deps: Factory.closing raised OSError: no database") as raised:
        await build_engine(factory, store=store).run(AGENT, "hi", metadata=METADATA)
    assert raised.value.may_pass
    (row,) = await store.turns()
    assert (row.status.outcome, row.owner, len(await store.facts(row.id))) == (None, None, 2)
    again = Factory(error=OSError("no database"))
    assert await build_engine(again, store=store).recover() == []
    assert caplog.messages[-1].startswith(f"turn {row.id} is skipped: turn {row.id}: deps: Factory.closing raised OSE")
    (turn,) = await build_engine(factory, asks_for(("whoami", {})), "Done.", store=store).recover()
    assert results(turn) == ["ann, Clerk, session None, step 1, 2 tokens"]


async def test_raising_plain_factory_is_named() -> None:
    factory = Factory(error=OSError("no database"))
    with pytest.raises(CannotRunError, match=r"deps: Factory.plain raised OSError: no database"):
        await Engine(deps=factory.plain, model=ScriptedModel()).run(AGENT, "hi")


@pytest.mark.parametrize("kind", ["plain", "closing"])
async def test_a_factory_ends_neither_the_process_nor_the_loop(kind: str) -> None:
    factory, store = Factory(error=SystemExit(3)), MemoryStore()
    with pytest.raises(CannotRunError, match=rf"deps: Factory.{kind} raised SystemExit: 3"):
        await Engine(deps=getattr(factory, kind), model=ScriptedModel(), store=store).run(AGENT, "hi")
    (row,) = await store.turns()
    assert row.owner is None


async def empty(turn: TurnInfo) -> AsyncIterator[Deps]:
    if turn.resumed:
        yield Deps(turn)


async def test_factory_without_a_yield_is_named() -> None:
    with pytest.raises(CannotRunError, match="deps: empty ended without a `yield`"):
        await Engine(deps=empty, model=ScriptedModel()).run(AGENT, "hi")


async def test_failing_close_changes_no_turn(caplog: pytest.LogCaptureFixture) -> None:
    async def make(turn: TurnInfo) -> AsyncIterator[Deps]:
        yield Deps(turn)
        raise OSError("gone")

    async def twice(turn: TurnInfo) -> AsyncIterator[Deps]:
        yield Deps(turn)
        yield Deps(turn)

    for factory in (make, twice):
        turn = await Engine(deps=factory, model=ScriptedModel("Done.")).run(AGENT, "hi")
        assert turn.outcome is Outcome.FINISHED
    assert ["raised while it closed them" in message for message in caplog.messages] == [True, False]
    assert "has a second `yield`" in caplog.messages[1]


# Engines without a factory.


async def test_turn_needing_dependencies_is_skipped_without_a_factory(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    own = Deps(TurnInfo(turn_id="t", agent="Clerk", metadata=METADATA))
    first = Engine(deps_type=Deps, model=ScriptedModel(asks_for(("sign", {}))), tools=[sign], store=store)
    paused = await first.run(AGENT, "hi", deps=own)
    await first.answer(paused.id, {"approval-1": True})
    before = await store.facts(paused.id)
    caplog.set_level(logging.WARNING)
    for other_engine in (
        Engine(model=ScriptedModel("Done."), tools=[agent_tool(AGENT, name="sign", description="s")], store=store),
        Engine(deps_type=Deps, model=ScriptedModel("Done."), tools=[sign], store=store),
    ):
        caplog.clear()
        assert await other_engine.recover() == []
        (warning,) = caplog.messages
        assert warning.startswith(f"turn {paused.id} is skipped: turn {paused.id}: it needs deps, which no journal")
    assert await store.facts(paused.id) == before
    assert (await store.get(paused.id)).owner is None
    last = Engine(deps_type=Deps, model=ScriptedModel("Done."), tools=[sign], store=store)
    assert results(await last.resume(paused.id, deps=own)) == ["signed by ann"]


async def test_missing_or_unaccepted_deps_are_refused() -> None:
    needs = Engine(deps_type=Deps, model=ScriptedModel("Done."))
    with pytest.raises(ConfigError, match=r"deps: every turn of this engine needs them: give this call deps="):
        await needs.run(AGENT, "hi")
    assert await needs.turns() == []
    takes_none = Engine(model=ScriptedModel("Done."))
    assert (await takes_none.run(AGENT, "hi", deps=None)).output == "Done."
    with pytest.raises(ConfigError, match="deps: this engine takes none"):
        await takes_none.run(AGENT, "hi", deps=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    own = Deps(TurnInfo(turn_id="t", agent="Clerk"))
    away = Engine(deps_type=Deps, model=ScriptedModel(), runtime=Local(embedded=False), store=MemoryStore())
    with pytest.raises(ConfigError, match="deps: they cannot be sent to a worker"):
        await away.run(AGENT, "hi", deps=own)


# Workers, sub-agents.


async def test_worker_makes_the_dependencies() -> None:
    store, factory = MemoryStore(), Factory()
    client = Engine(deps_type=Deps, model=ScriptedModel(), tools=[whoami], store=store)
    turn_id = await client.submit(AGENT, "hi", metadata=METADATA)
    worker, stopping = build_engine(factory, asks_for(("whoami", {})), "Done.", store=store), anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run_worker, stopping)
        async for _ in client.events(turn_id, wait=True):
            pass
        stopping.set()
    assert results(await client.get(turn_id)) == ["ann, Clerk, session None, step 1, 2 tokens"]
    assert [(deps.turn.turn_id, deps.turn.resumed, deps.closed) for deps in factory.created] == [(turn_id, False, True)]


async def test_a_worker_tries_again_soon_when_the_factory_raised(caplog: pytest.LogCaptureFixture) -> None:
    store, factory = MemoryStore(), Factory(error=OSError("no database"))
    worker = Engine(
        deps=factory.closing,
        model=ScriptedModel(asks_for(("whoami", {})), "Done."),
        tools=[whoami],
        store=store,
        runtime=Local(every=0.01),
    )
    turn_id, stopping = await worker.submit(AGENT, "hi"), anyio.Event()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run_worker, stopping)
            async for _ in worker.events(turn_id, wait=True):
                pass
            stopping.set()
    assert [deps.closed for deps in factory.created] == [True]
    assert ["is skipped for 0.01 s" in message for message in caplog.messages] == [True]


async def test_subagent_shares_the_dependencies_of_the_caller() -> None:
    factory = Factory()
    reader = agent_tool(Agent(name="Reader", mode="subagent", description="reads"))
    model = ScriptedModel(asks_for(("Reader", {"prompt": "who?"})), asks_for(("whoami", {})), "ann", "Done.")
    engine = Engine(deps=factory.closing, model=model, tools=[whoami, reader], limits=Limits(tokens=1000))
    turn = await engine.run(Agent(name="Lead"), "hi", session="s", metadata=METADATA)
    assert turn.output == "Done."
    assert len(factory.created) == 1
    (child,) = [row for row in await engine.turns() if row.id != turn.id]
    assert results(await engine.get(child.id)) == ["ann, Reader, session s, step 1, 2 tokens"]


# A factory that takes too long.


@dataclass
class Hanging:
    """A factory that makes nothing for a day."""

    entered: anyio.Event = field(default_factory=anyio.Event)
    #: Whether it ignores its cancellation.
    stubborn: bool = False
    free: anyio.Event = field(default_factory=anyio.Event)
    created: list[Deps] = field(default_factory=list)

    async def plain(self, turn: TurnInfo) -> Deps:
        self.entered.set()
        with anyio.CancelScope(shield=self.stubborn):
            await self.free.wait()
        self.created.append(Deps(turn))
        return self.created[-1]

    async def closing(self, turn: TurnInfo) -> AsyncIterator[Deps]:
        deps = await self.plain(turn)
        yield deps
        deps.closed = True

    def engine(self, kind: str, store: Store, *lines: Line, limits: Limits | None = None) -> Engine[Deps]:
        factory = self.plain if kind == "plain" else self.closing
        model = ScriptedModel(*lines)
        return Engine(
            deps=factory,
            model=model,
            tools=[whoami, sign],
            store=store,
            limits=limits,
            cancel_grace=0.1,
            poll_interval=0.01,
        )


KINDS = pytest.mark.parametrize("kind", ["plain", "closing"])


@KINDS
@pytest.mark.parametrize("stubborn", [False, True])
async def test_abort_ends_a_turn_still_waiting_for_dependencies(kind: str, stubborn: bool) -> None:
    hanging = Hanging(stubborn=stubborn)
    engine = hanging.engine(kind, MemoryStore())
    handle = await engine.start(AGENT, "hi")
    await hanging.entered.wait()
    await handle.abort()
    with anyio.fail_after(10):
        turn = await handle.result()
    assert (turn.outcome, turn.reason) == (Outcome.ABORTED, EndReason.ABORTED)
    assert (await engine.store.get(turn.id)).owner is None
    hanging.free.set()
    await anyio.wait_all_tasks_blocked()
    assert [deps.closed for deps in hanging.created] == [kind == "closing"] * stubborn, (
        "what it makes too late is closed"
    )


async def test_abort_of_another_process_ends_the_wait_for_dependencies(tmp_path: Path) -> None:
    hanging = Hanging()
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    async with Engine(store=address, model=ScriptedModel()) as other_engine:
        driving_engine = hanging.engine("closing", open_store(address))
        async with driving_engine:
            handle = await driving_engine.start(AGENT, "hi")
            await hanging.entered.wait()
            await other_engine.abort(handle.id)
            with anyio.fail_after(10):
                assert (await handle.result()).outcome is Outcome.ABORTED


@KINDS
@pytest.mark.no_waiting
async def test_deadline_concludes_a_turn_still_waiting_for_dependencies(kind: str) -> None:
    hanging = Hanging()
    engine = hanging.engine(kind, MemoryStore(), "Nothing is done.", limits=Limits(seconds=5))
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.CAP_HIT, EndReason.DEADLINE, "Nothing is done.")


@pytest.mark.no_waiting
async def test_guardrail_without_dependencies_fails_and_names_the_factory() -> None:
    @output_guardrail
    async def check(ctx: TurnContext[Deps], text: str) -> Trip | None:
        raise AssertionError(f"{ctx.deps} of {text}")

    engine = Hanging().engine("plain", MemoryStore(), "Nothing is done.", limits=Limits(seconds=5))
    turn = await engine.run(Agent(name="Clerk", guardrails=[check]), "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert turn.error == "deps: Hanging.plain had not made them when the turn was stopped"


@pytest.mark.no_waiting
async def test_timely_answer_is_kept_when_the_deadline_passes() -> None:
    store, hanging = MemoryStore(), Hanging()
    asking = ScriptedModel(asks_for(("sign", {})))
    first = Engine(deps=Factory().plain, model=asking, tools=[sign], store=store, limits=Limits(seconds=5))
    paused = await first.run(AGENT, "hi", metadata=METADATA)
    turn = await hanging.engine("plain", store, "Not signed.").resume(paused.id, {"approval-1": True})
    assert (turn.reason, turn.text) == (EndReason.DEADLINE, "Not signed.")
    kinds = [type(fact) for _, fact in await store.facts(paused.id)]
    assert f.Answered in kinds
    assert f.CallStarted not in kinds


@KINDS
async def test_stubborn_factory_holds_no_driver(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    hanging, store = Hanging(stubborn=True), MemoryStore()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(hanging.engine(kind, store).run, AGENT, "hi")
            await hanging.entered.wait()
            group.cancel_scope.cancel()
    assert "ignored its cancellation and is abandoned" in caplog.text
    (row,) = await store.turns()
    assert (row.status.outcome, row.owner) == (None, None)
    (turn,) = await build_engine(Factory(), asks_for(("whoami", {})), "Done.", store=store).recover()
    assert turn.outcome is Outcome.FINISHED
    hanging.free.set()
    await anyio.wait_all_tasks_blocked()


async def test_closing_the_engine_releases_a_started_turn() -> None:
    hanging, store = Hanging(), MemoryStore()
    engine = hanging.engine("closing", store)
    await engine.start(AGENT, "hi")
    await hanging.entered.wait()
    with anyio.fail_after(10):
        await engine.aclose()
    (row,) = await store.turns()
    assert (row.status.outcome, row.owner) == (None, None)


@pytest.mark.no_waiting
async def test_turn_past_the_deadline_gets_dependencies_for_the_conclusion() -> None:
    texts: list[str] = []

    @output_guardrail
    async def check(ctx: TurnContext[Deps], text: str) -> Trip | None:
        texts.append(f"{ctx.deps.user}: {text}")
        return None

    async def slow(turn: TurnInfo) -> Deps:
        await anyio.sleep(0.5)
        return Deps(turn)

    engine = Engine(deps=slow, model=ScriptedModel("So far."), limits=Limits(seconds=0.1), clock=anyio.current_time)
    turn = await engine.run(Agent(name="Clerk", guardrails=[check]), "hi", metadata=METADATA)
    assert (turn.outcome, turn.reason, texts) == (Outcome.CAP_HIT, EndReason.DEADLINE, ["ann: So far."])


# The answer.


async def test_output_is_the_answer_of_a_finished_turn_only() -> None:
    finished = await Engine(model=ScriptedModel("Done.")).run(AGENT, "hi")
    assert (finished.output, finished.require_output()) == ("Done.", "Done.")
    capped = await Engine(model=ScriptedModel(asks_for(("whoami", {})), "So far."), limits=Limits(steps=1)).run(
        AGENT, "hi"
    )
    assert (capped.text, capped.output) == ("So far.", None)
    with pytest.raises(NoOutputError, match=r"has no output \(cap_hit: step_cap\): check `output` for None, or use"):
        capped.require_output()
    paused = await build_engine(Factory(), asks_for(("sign", {}))).run(AGENT, "hi")
    with pytest.raises(NoOutputError, match=r"has no output \(PAUSED\)"):
        paused.require_output()


# Crashes.


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 13))
async def test_next_driver_after_any_crash_makes_dependencies_again(at: int, after: bool) -> None:
    """Each driver closed what it made, and the turn ends as without a crash."""
    memory, factory = MemoryStore(), Factory()
    store = FaultyStore(memory, at=at, after=after)
    reader = agent_tool(Agent(name="Reader", mode="subagent", description="reads"))

    def tell(request: ModelRequest) -> ModelResponse:
        result_texts = [
            part.text for message in request.messages for part in message.parts if part.type == "tool_result"
        ]
        if result_texts:
            return ModelResponse(text="; ".join(result_texts))
        child = request.messages[-1].text == "who?"
        return asks_for(("whoami", {})) if child else asks_for(("Reader", {"prompt": "who?"}), ("whoami", {}))

    def make() -> Engine[Deps]:
        model = ScriptedModel(tell, repeat=True)
        return Engine(deps=factory.closing, model=model, tools=[idempotent_whoami, reader], store=store)

    drivers = 1
    with suppress(StoreError):
        await make().run(AGENT, "hi", session="s", metadata=METADATA)
    if store.dead:
        await store.aclose()
        store = FaultyStore(memory)
        drivers += len(await make().recover())
    turn = await make().get(factory.created[0].turn.turn_id)
    assert re.sub(r"turn \w+", "turn", turn.text) == (
        "ann, Reader, s\n\n[sub-agent: finished, answered; turn:call00001]; ann, Clerk, s"
    )
    assert [(deps.closed, deps.turn.resumed) for deps in factory.created] == [(True, False), (True, True)][:drivers]


@tool(name="whoami", read_only=True)
async def idempotent_whoami(ctx: ToolContext[Deps]) -> str:
    return f"{ctx.deps.user}, {ctx.agent}, {ctx.session}"
