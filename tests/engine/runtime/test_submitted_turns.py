"""An engine whose turns are driven elsewhere: it submits them, follows their journal, and says when nobody will."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    Outcome,
    RuntimeUnavailableError,
    SessionBusyError,
    TurnAlreadyEndedError,
    TurnNotFoundError,
    TurnResult,
    reject,
    tool,
)
from turnwright.errors import CannotRunError
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.runtime import Local, WorkerApi
from turnwright.store import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

CLERK = Agent(name="Clerk")


class Desk:
    """A runtime that keeps what it is asked. Its worker drives that, one after the other."""

    embedded = False

    def __init__(self, *, broken: bool = False, gives_up: str | None = None) -> None:
        self.submitted: list[tuple[str, int]] = []
        self.cancelled: list[str] = []
        self._broken = broken
        self._gives_up = gives_up
        self._works: list[WorkerApi] = []

    def bind(self, work: WorkerApi) -> None:
        self._works.append(work)

    async def submit(self, turn_id: str, segment: int) -> None:
        self._reach()
        self.submitted.append((turn_id, segment))

    async def cancel(self, turn_id: str) -> None:
        self._reach()
        self.cancelled.append(turn_id)

    async def failure(self, turn_id: str, segment: int) -> str | None:
        return None if self._gives_up is None else f"{self._gives_up} ({turn_id}, segment {segment})"

    async def run_worker(self, stopping: anyio.Event | None = None) -> None:
        done = 0
        while stopping is None or not stopping.is_set():
            if done < len(self.submitted):
                await self._works[0].drive(*self.submitted[done])
                done += 1
            await anyio.sleep(0.001)

    async def aclose(self) -> None:
        self._works.clear()

    def _reach(self) -> None:
        if self._broken:
            raise RuntimeUnavailableError("the desk is closed")


@tool(needs_approval=True)
async def erase() -> str:
    """Erase something, with leave."""
    return "erased"


def says(request: ModelRequest) -> ModelResponse:
    prompt = [message.text for message in request.messages if message.role == "user"][-1]
    wants = prompt == "erase" and request.messages[-1].role != "tool"
    return asks_for(("erase", {})) if wants else ModelResponse(text="Done.")


def engine(desk: Desk | Local, store: MemoryStore | None = None) -> Engine:
    model = ScriptedModel(says, repeat=True)
    return Engine(model=model, tools=[erase], store=store or MemoryStore(), runtime=desk, poll_interval=0.01)


@asynccontextmanager
async def working(engine: Engine) -> AsyncIterator[None]:
    stopping = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run_worker, stopping)
        yield
        stopping.set()


async def test_turn_is_submitted_and_awaited() -> None:
    desk = Desk()
    async with engine(desk) as client, working(client):
        turn = await client.run(CLERK, "hi")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    assert desk.submitted == [(turn.id, 1)]


async def test_each_pause_begins_a_segment() -> None:
    desk = Desk()
    async with engine(desk) as client, working(client):
        turn: TurnResult = await client.run(CLERK, "erase")
        assert turn.paused
        turn = await client.resume(turn.id, {"approval-1": True})
    assert turn.outcome is Outcome.FINISHED
    assert desk.submitted == [(turn.id, 1), (turn.id, 2)]


async def test_paused_turn_is_not_submitted() -> None:
    desk = Desk()
    async with engine(desk) as client, working(client):
        turn = await client.run(CLERK, "erase")
        assert (await client.resume(turn.id)).paused
    assert len(desk.submitted) == 1


async def test_submit_and_answer_do_not_wait() -> None:
    desk = Desk()
    async with engine(desk) as client:
        turn_id = await client.submit(CLERK, "erase")
        assert (await client.get(turn_id)).outcome is None
        async with working(client):
            assert (await client.resume(turn_id)).paused
        await client.answer(turn_id, {"approval-1": reject("keep it")})
        assert (await client.get(turn_id)).paused
        assert desk.submitted[-1] == (turn_id, 2)


async def test_stream_shows_the_journal_and_ends_at_the_pause() -> None:
    async with engine(Desk()) as client, working(client):
        async with client.stream(CLERK, "erase") as events:
            kinds = [event.type async for event in events]
        turn_id = (await client.store.turns())[0].id
        async with client.stream_resume(turn_id, {"approval-1": True}) as events:
            later = [event.type async for event in events]
    assert (kinds[0], kinds[-1]) == ("turn_started", "paused")
    assert (later[0], later[-1]) == ("answered", "turn_ended")


async def test_events_wait_for_the_worker_and_end_at_a_pause() -> None:
    async with engine(Desk()) as client:
        turn_id = await client.submit(CLERK, "erase")
        kinds: list[str] = []

        async def follow() -> None:
            kinds.extend([event.type async for event in client.events(turn_id)])

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await anyio.sleep(0.05)
            async with working(client):
                await client.resume(turn_id)
        assert kinds[-1] == "paused"
        await client.answer(turn_id, {"approval-1": True})
        async with anyio.create_task_group() as group:
            group.start_soon(follow)  # from the beginning: the pause that was answered does not end it
            await anyio.sleep(0.05)
            async with working(client):
                await client.resume(turn_id)
    assert kinds[-1] == "turn_ended"


async def test_canceled_waiting_does_not_stop_the_turn() -> None:
    async with engine(Desk()) as client:
        with anyio.move_on_after(0.05):
            await client.run(CLERK, "hi")
        turn_id = (await client.store.turns())[0].id
        assert (await client.get(turn_id)).outcome is None
        async with working(client):
            assert (await client.resume(turn_id)).outcome is Outcome.FINISHED


async def test_abandoned_job_is_reported_with_a_reason() -> None:
    async with engine(Desk(gives_up="its job failed")) as client:
        with (
            anyio.fail_after(60),
            pytest.raises(CannotRunError, match=r"turn \w+ is not driven: its job failed \(\w+, segment 1\)"),
        ):
            await client.run(CLERK, "hi")


async def test_temporary_service_failure_does_not_end_the_waiting(caplog: pytest.LogCaptureFixture) -> None:
    class Deaf(Desk):
        async def failure(self, turn_id: str, segment: int) -> str | None:
            raise RuntimeUnavailableError(f"the desk is closed to {turn_id}:{segment}")

    async with engine(Deaf()) as client, anyio.create_task_group() as group:
        turn_id = await client.submit(CLERK, "hi")
        group.start_soon(client.resume, turn_id)
        with anyio.fail_after(60):
            while "is waiting, and no worker has it" not in caplog.text:  # noqa: ASYNC110 (a log has no event)
                await anyio.sleep(0.01)
        assert "cannot be reached: the desk is closed to" in caplog.text
        async with working(client):
            assert (await client.resume(turn_id)).outcome is Outcome.FINISHED


async def test_stream_left_at_the_first_event_has_submitted_the_turn() -> None:
    class Slow(Desk):
        async def submit(self, turn_id: str, segment: int) -> None:
            await anyio.sleep(0.05)
            await super().submit(turn_id, segment)

    desk = Slow()
    async with engine(desk) as client:
        async with client.stream(CLERK, "hi") as events:
            async for _ in events:
                break
        assert [segment for _, segment in desk.submitted] == [1]


async def test_recovery_skips_turns_refused_by_the_service(caplog: pytest.LogCaptureFixture) -> None:
    async with engine(Desk(broken=True)) as client:
        for _ in range(2):
            with pytest.raises(RuntimeUnavailableError):
                await client.submit(CLERK, "hi")
        assert await client.recover() == []
    assert caplog.text.count("is skipped: the desk is closed") == 2


async def test_abort_of_an_undriven_turn_needs_no_worker() -> None:
    desk = Desk()
    async with engine(desk) as client:
        turn_id = await client.submit(CLERK, "hi")
        await client.abort(turn_id)
        assert (await client.get(turn_id)).outcome is Outcome.ABORTED
        with pytest.raises(TurnAlreadyEndedError):
            await client.resume(turn_id)
    assert desk.cancelled == [turn_id]


async def test_unreachable_service_loses_no_turn_and_prevents_no_abort(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with engine(Desk(broken=True)) as client:
        with pytest.raises(RuntimeUnavailableError, match=r"turn \w+ is written, .*: the desk is closed") as raised:
            await client.submit(CLERK, "hi")
        turn_id = raised.value.turn
        assert turn_id is not None
        with caplog.at_level(logging.WARNING):
            await client.abort(turn_id)
        assert (await client.get(turn_id)).outcome is Outcome.ABORTED
    assert "its job could not be canceled: the desk is closed" in caplog.text


async def test_session_has_a_single_turn_and_a_message_supersedes_a_pause() -> None:
    async with engine(Desk()) as client:
        await client.submit(CLERK, "erase", session="s1")
        with pytest.raises(SessionBusyError):
            await client.submit(CLERK, "hi", session="s1")
        async with working(client):
            (first,) = await client.store.turns()
            assert (await client.resume(first.id)).paused
            assert (await client.run(CLERK, "hi", session="s1")).outcome is Outcome.FINISHED
        assert (await client.get(first.id)).reason == "superseded"


async def test_recovery_submits_unsubmitted_turns() -> None:
    store, desk = MemoryStore(), Desk()
    async with engine(Desk(broken=True), store) as client:
        with pytest.raises(RuntimeUnavailableError):
            await client.submit(CLERK, "hi")
        async with engine(desk, store) as other_engine, working(other_engine):
            (turn,) = await other_engine.recover()
    assert turn.outcome is Outcome.FINISHED
    assert desk.submitted == [(turn.id, 1)]


async def test_unknown_turn_is_reported_as_unknown() -> None:
    async with engine(Desk()) as client:
        for call in (client.resume, client.abort, client.get):
            with pytest.raises(TurnNotFoundError):
                await call("nobody")
        with pytest.raises(TurnNotFoundError):
            await client.answer("nobody", {"approval-1": True})


async def test_local_runtime_can_leave_turns_to_workers() -> None:
    async with engine(Local(embedded=False, every=0.01)) as client, working(client):
        assert (await client.run(CLERK, "hi")).outcome is Outcome.FINISHED


def test_private_store_is_refused_with_remote_workers() -> None:
    with pytest.raises(ConfigError, match="store memory: belongs to this process alone"):
        Engine(model=ScriptedModel("hi"), runtime=Desk())
