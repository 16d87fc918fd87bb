"""Temporal knows of a turn: jobs, queues, search attributes, cancellation."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest
from tests.servers.temporal_server import TemporalServer

from turnwright import Agent, ConfigError, Engine, Outcome, RuntimeUnavailableError, ToolContext, TurnResult, tool
from turnwright.errors import CannotRunError
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.store import MemoryStore
from turnwright.tools import Tool
from turnwright_states import CallStatus
from turnwright_states.facts import CallSettled

pytest.importorskip("temporalio")

from temporalio.api.enums.v1 import EventType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus

from turnwright.runtime import Temporal
from turnwright.runtime.temporal.names import AGENT, ATTRIBUTES, OUTCOME, REASON, schedule_id, workflow_id

pytestmark = pytest.mark.anyio

PRIVATE: Final = "the plan for Tuesday"
CLERK: Final = Agent(name="Clerk")


@pytest.fixture(scope="module")
def server() -> Iterator[TemporalServer]:
    reason = TemporalServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    with TemporalServer() as server:
        yield server


@tool
async def note(text: str) -> str:
    """Note something."""
    return f"noted {text}"


@tool
async def wait(context: ToolContext) -> str:
    """Wait until somebody says stop."""
    await context.abort_signal.wait()
    return "stopped"


@tool(needs_approval=True)
async def erase() -> str:
    """Erase something, with leave."""
    return "erased"


def says(request: ModelRequest) -> ModelResponse:
    """Call the tool that each agent's prompt names, and then answer."""
    prompt = next(message.text for message in request.messages if message.role == "user")
    if request.messages[-1].role == "tool" or prompt not in ("erase", "wait"):
        return ModelResponse(text=f"Done: {PRIVATE}")
    return asks_for(("erase", {})) if prompt == "erase" else asks_for(("note", {"text": PRIVATE}), ("wait", {}))


class Fleet:
    """One server, one store, and as many engines as a test asks for."""

    def __init__(self, server: TemporalServer, folder: Path) -> None:
        self.address = server.address
        self.queue = f"queue-{secrets.token_hex(4)}"
        self._store = f"sqlite:///{folder / 'turns.db'}"

    def runtime(self, **options: object) -> Temporal:
        usual = {"queue": self.queue, "heartbeat": 0.1, "patience": 1.0, "sweep": 1.0, "drain": 2.0}
        return Temporal(self.address, **{**usual, **options})  # type: ignore[arg-type]

    def engine(
        self,
        *,
        tools: tuple[Tool, ...] = (note, wait, erase),
        models: Callable[[str], ScriptedModel] | None = None,
        **options: object,
    ) -> Engine:
        model = ScriptedModel(says, repeat=True)
        runtime = self.runtime(**options)
        return Engine(model=model, models=models, tools=tools, store=self._store, poll_interval=0.05, runtime=runtime)

    @asynccontextmanager
    async def worker(
        self,
        *,
        tools: tuple[Tool, ...] = (note, wait, erase),
        models: Callable[[str], ScriptedModel] | None = None,
        **options: object,
    ) -> AsyncIterator[Engine]:
        own_engine = self.engine(tools=tools, models=models, **options)
        async with own_engine as engine, anyio.create_task_group() as group:
            stopping = anyio.Event()
            group.start_soon(engine.run_worker, stopping)
            yield engine
            stopping.set()

    async def temporal(self) -> Client:
        return await Client.connect(self.address)

    async def job(self, turn_id: str, segment: int = 1) -> WorkflowExecution:
        return await (await self.temporal()).get_workflow_handle(workflow_id(turn_id, segment)).describe()


@pytest.fixture
def fleet(server: TemporalServer, tmp_path: Path) -> Iterator[Fleet]:
    yield Fleet(server, tmp_path)
    server.delete_schedules()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(60):
        while not await holds():  # noqa: ASYNC110 (it happens in another process)
            await anyio.sleep(0.05)


async def tool_runs(engine: Engine, turn_id: str) -> bool:
    """Whether the note was taken and its sibling runs."""
    return any(isinstance(fact, CallSettled) for _, fact in await engine.store.facts(turn_id))


async def test_temporal_receives_only_the_turn_id(fleet: Fleet) -> None:
    async with fleet.worker(), fleet.engine() as client:
        turn = await client.run(CLERK, "hi", metadata={"key": PRIVATE})
        assert PRIVATE in turn.text
        handle = (await fleet.temporal()).get_workflow_handle(workflow_id(turn.id, 1))
        history = (await handle.fetch_history()).to_json()
    assert turn.id in history
    assert "Tuesday" not in history
    assert "Done" not in history


async def test_job_submitted_repeatedly_is_a_single_activity(fleet: Fleet) -> None:
    async with fleet.engine() as client:
        turn_id = await client.submit(CLERK, "hi")
        handle = (await fleet.temporal()).get_workflow_handle(workflow_id(turn_id, 1))
        async with fleet.engine() as other_engine, anyio.create_task_group() as group:
            for engine in (client, client, other_engine):
                group.start_soon(engine.resume, turn_id)
            await anyio.sleep(0.2)
            async with fleet.worker():
                assert (await client.resume(turn_id)).outcome is Outcome.FINISHED
                assert await handle.result() == "FINISHED"
        kinds = [event.event_type async for event in handle.fetch_history_events()]
    assert kinds.count(EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED) == 1


async def test_pause_ends_the_job_and_the_answer_begins_another(fleet: Fleet) -> None:
    async with fleet.worker(), fleet.engine() as client:
        turn: TurnResult = await client.run(CLERK, "erase")
        await until(lambda: _is(fleet, turn.id, WorkflowExecutionStatus.COMPLETED))
        turn = await client.resume(turn.id, {turn.interrupts[0].id: True})
        assert turn.outcome is Outcome.FINISHED
        await until(lambda: _is(fleet, turn.id, WorkflowExecutionStatus.COMPLETED, segment=2))


async def test_jobs_can_be_searched_by_agent_outcome_and_reason(fleet: Fleet) -> None:
    async with fleet.worker(), fleet.engine() as client:
        turn = await client.run(CLERK, "hi")
        paused = await client.run(CLERK, "erase")
        await until(
            lambda: _found(fleet, f'{AGENT} = "Clerk" AND {OUTCOME} = "finished" AND {REASON} = "answered"', turn.id)
        )
        await until(lambda: _found(fleet, f'{OUTCOME} = "PAUSED"', paused.id))


async def test_missing_search_attributes_are_created_by_a_worker(tmp_path: Path) -> None:
    with TemporalServer(search_attributes=()) as server:
        fleet = Fleet(server, tmp_path)
        async with fleet.engine() as client:
            first = await client.submit(CLERK, "hi")  # nobody has asked for them yet
            async with fleet.worker():
                assert (await client.resume(first)).outcome is Outcome.FINISHED
                await until(lambda: _has_attributes(fleet))
        async with fleet.worker(), fleet.engine() as client:
            turn = await client.run(CLERK, "hi")
            await until(lambda: _found(fleet, f'{OUTCOME} = "finished"', turn.id))


async def test_canceled_job_aborts_the_turn_and_keeps_finished_results(fleet: Fleet) -> None:
    async with fleet.worker(), fleet.engine() as client:
        turn_id = await client.submit(CLERK, "wait")
        await until(lambda: tool_runs(client, turn_id))
        await (await fleet.temporal()).get_workflow_handle(workflow_id(turn_id, 1)).cancel()
        with anyio.fail_after(60):
            turn = await client.resume(turn_id)
        await until(lambda: _is(fleet, turn_id, WorkflowExecutionStatus.CANCELED))
        settled = {fact.status for _, fact in await client.store.facts(turn_id) if isinstance(fact, CallSettled)}
    assert turn.outcome is Outcome.ABORTED
    assert CallStatus.OK in settled


async def test_job_canceled_before_a_worker_is_aborted_by_the_next_worker(fleet: Fleet) -> None:
    async with fleet.engine() as client:
        turn_id = await client.submit(CLERK, "hi")
        await (await fleet.temporal()).get_workflow_handle(workflow_id(turn_id, 1)).cancel()
        async with fleet.worker():
            assert (await client.resume(turn_id)).outcome is Outcome.ABORTED


async def test_missing_tools_are_reported_to_the_waiting_client(fleet: Fleet) -> None:
    """The job fails once, and is not tried again; a worker with the tool takes the turn up by the next sweep."""
    async with fleet.engine() as client:
        async with fleet.worker():
            turn = await client.run(CLERK, "erase")
        async with fleet.worker(tools=(note,)):
            with anyio.fail_after(60), pytest.raises(CannotRunError, match="need the tools erase"):
                await client.resume(turn.id, {turn.interrupts[0].id: True})
            await until(lambda: _is(fleet, turn.id, WorkflowExecutionStatus.FAILED, segment=2))
        async with fleet.worker():
            await until(lambda: _has_ended(client, turn.id))


async def test_quoted_error_text_stays_in_the_worker_log(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(name: str) -> ScriptedModel:
        raise ValueError(f"{name}: 401 for the key {PRIVATE}")

    async with fleet.engine(models=lambda name: ScriptedModel(name=name)) as client:
        turn_id = await client.submit(Agent(name="Clerk", model="theirs"), "hi")
        async with fleet.worker(models=refuse):
            with (
                anyio.fail_after(60),
                pytest.raises(CannotRunError, match="CannotRunError: see the log of the worker"),
            ):
                await client.resume(turn_id)
        handle = (await fleet.temporal()).get_workflow_handle(workflow_id(turn_id, 1))
        assert "Tuesday" not in (await handle.fetch_history()).to_json()
    assert f"401 for the key {PRIVATE}" in caplog.text


async def test_agents_have_separate_queues(fleet: Fleet) -> None:
    painting = f"{fleet.queue}-gpu"
    queues = {"Painter": painting}
    async with fleet.engine(queues=queues) as client:
        painter = await client.submit(Agent(name="Painter"), "hi")
        async with fleet.worker(queues=queues, serves=[fleet.queue]):
            assert (await client.run(CLERK, "hi")).outcome is Outcome.FINISHED
            assert (await client.get(painter)).outcome is None
        async with fleet.worker(queues=queues, serves=[painting]):
            assert (await client.resume(painter)).outcome is Outcome.FINISHED


async def test_worker_respects_the_concurrency_limit(fleet: Fleet) -> None:
    async with fleet.worker(concurrency=2), fleet.engine() as client:
        turns = [await client.submit(CLERK, "wait") for _ in range(4)]
        await until(lambda: _driven(client, turns, 2))
        await anyio.sleep(0.3)
        assert await _driven(client, turns, 2)
        for turn_id in turns:
            await client.abort(turn_id)


async def test_several_workers_share_a_single_sweep_schedule(fleet: Fleet) -> None:
    async with fleet.worker(), fleet.worker(sweep=2.0):
        temporal = await fleet.temporal()
        described = temporal.get_schedule_handle(schedule_id(fleet.queue))

        async def says_two_seconds() -> bool:
            try:
                (interval,) = (await described.describe()).schedule.spec.intervals
            except Exception:  # noqa: BLE001 (it is not there yet)
                return False
            return interval.every.total_seconds() in (1.0, 2.0)

        await until(says_two_seconds)


async def test_unreachable_server_is_reported_and_the_turn_is_kept(tmp_path: Path) -> None:
    runtime = Temporal("127.0.0.1:1")
    async with Engine(model=ScriptedModel("hi"), store=f"sqlite:///{tmp_path / 't.db'}", runtime=runtime) as engine:
        with pytest.raises(RuntimeUnavailableError, match=r"turn \w+ is written.*Temporal at 127.0.0.1:1") as raised:
            await engine.submit(CLERK, "hi")
        assert raised.value.turn is not None
        assert (await engine.get(raised.value.turn)).outcome is None
        await engine.abort(raised.value.turn)
        assert (await engine.get(raised.value.turn)).outcome is Outcome.ABORTED
        with pytest.raises(RuntimeUnavailableError, match=r"127\.0\.0\.1:1"):
            await engine.run_worker()


@pytest.mark.parametrize(
    "wrong", [{"concurrency": 0}, {"rate": -1.0}, {"heartbeat": 0.0}, {"patience": 1.0}, {"drain": -1.0}, {"sweep": 0}]
)
def test_number_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Temporal("127.0.0.1:1", **wrong)  # type: ignore[arg-type]


def test_runtime_belongs_to_a_single_engine() -> None:
    runtime = Temporal("127.0.0.1:1")
    Engine(model=ScriptedModel("hi"), store=MemoryStore(), runtime=runtime)
    with pytest.raises(ConfigError, match="belongs to another engine"):
        Engine(model=ScriptedModel("hi"), store=MemoryStore(), runtime=runtime)


async def _is(fleet: Fleet, turn_id: str, status: WorkflowExecutionStatus, *, segment: int = 1) -> bool:
    return (await fleet.job(turn_id, segment)).status is status


async def _found(fleet: Fleet, query: str, turn_id: str) -> bool:
    jobs = (await fleet.temporal()).list_workflows(query)
    return workflow_id(turn_id, 1) in [job.id async for job in jobs]


async def _has_attributes(fleet: Fleet) -> bool:
    request = ListSearchAttributesRequest(namespace="default")
    attributes = await (await fleet.temporal()).operator_service.list_search_attributes(request)
    return set(ATTRIBUTES) <= set(attributes.custom_attributes)


async def _has_ended(engine: Engine, turn_id: str) -> bool:
    return (await engine.get(turn_id)).outcome is not None


async def _driven(engine: Engine, turns: list[str], number: int) -> bool:
    return sum([await tool_runs(engine, turn_id) for turn_id in turns]) == number
