"""A runtime of one's own, on a queue in PostgreSQL: `python examples/postgres_queue.py postgresql://localhost/turns`.

Needs procrastinate: `pip install 'turnwright[examples,postgres]'`. The queue says who drives a turn; the journal says
what is done. So the queue need not notice that a worker died, nor give a job to one worker alone: a sweep submits again
whatever should be driven and is not, and of two that drive one turn one gets `TurnBusyError`, or `LeaseLostError`, and
leaves it.
"""

import asyncio
import logging
import sys

import anyio
from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    LeaseLostError,
    RuntimeUnavailableError,
    StoreError,
    TurnBusyError,
    TurnNotFoundError,
    tool,
)
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.runtime import Runtime, WorkerApi
from turnwright.store.postgres.store import PostgresStore

_LOG = logging.getLogger("postgres_queue")


class PostgresQueue:
    """A runtime whose workers take turns from a queue in the database at `address`.

    A worker drives at most `concurrency` turns at once, looks every `sweep` seconds for turns that were left, and when
    it stops gives those that run `drain` seconds.
    """

    embedded = False

    def __init__(self, address: str, *, concurrency: int = 8, sweep: float = 5.0, drain: float = 30.0) -> None:
        self._app = App(connector=PsycopgConnector(conninfo=address))
        self._task = self._app.task(name="turnwright.drive", queue="turnwright")(self._drive)
        self._concurrency = concurrency
        self._sweep = sweep
        self._drain = drain
        self._opened = False
        self._bound: WorkerApi | None = None

    def bind(self, work: WorkerApi) -> None:
        """Receive the worker's interface."""
        self._bound = work

    async def submit(self, turn_id: str, segment: int) -> None:
        """Put a job into the queue, unless one for this segment waits there already."""
        # A running job is not an obstacle: the next one finds everything written to the turn since then.
        name = f"turn:{turn_id}:{segment}"
        try:
            await self._open()
            await self._task.configure(queueing_lock=name).defer_async(turn_id=turn_id, segment=segment)
        except AlreadyEnqueued:
            pass
        except ConnectorException as error:
            raise RuntimeUnavailableError(f"the queue: {error}") from error

    async def cancel(self, turn_id: str) -> None:
        """Do nothing: the turn's driver reads the abort in the inbox."""

    async def failure(self, turn_id: str, segment: int) -> str | None:  # noqa: ARG002 (the protocol has it)
        """Ignore the failure: the sweep submits the turn again."""
        return None

    async def run_worker(self, stopping: anyio.Event | None = None) -> None:
        """Drive the turns in the queue until canceled, or until `stopping` is set and the running ones have ended."""
        await self._open()
        worker = asyncio.create_task(
            self._app.run_worker_async(
                queues=["turnwright"],
                concurrency=self._concurrency,
                shutdown_graceful_timeout=self._drain,
                install_signal_handlers=False,
                delete_jobs="always",
            )
        )
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._keep_sweeping)
                await (stopping or anyio.Event()).wait()
                group.cancel_scope.cancel()
        finally:
            worker.cancel()  # which is how this library is asked to end gracefully
            await asyncio.wait([worker])

    async def aclose(self) -> None:
        """Close the queue's connections."""
        if self._opened:
            await self._app.close_async()

    @property
    def _work(self) -> WorkerApi:
        if self._bound is None:
            raise ConfigError("this runtime belongs to no engine: give it to one, Engine(runtime=...)")
        return self._bound

    async def _open(self) -> None:
        if not self._opened:
            await self._app.open_async()
            self._opened = True

    async def _drive(self, turn_id: str, segment: int) -> None:
        try:
            await self._work.drive(turn_id, segment)
        except (TurnBusyError, LeaseLostError, TurnNotFoundError):
            pass  # another worker has it, or it was deleted
        except ConfigError as error:
            _LOG.warning("turn %s is skipped: %s", turn_id, error)

    async def _keep_sweeping(self) -> None:
        while True:
            await anyio.sleep(self._sweep)
            try:
                for job in await self._work.pending(idle=self._sweep):
                    await self.submit(job.turn, job.segment)
            except (StoreError, RuntimeUnavailableError) as error:
                _LOG.warning("the next sweep is tried in %g s: %s", self._sweep, error)

    async def prepare(self) -> None:
        """Make the queue's own tables, once."""
        await self._open()
        if not await self._app.check_connection_async():
            await self._app.schema_manager.apply_schema_async()


@tool(needs_approval=True)
async def erase(path: str) -> str:
    """Erase a file, with leave."""
    return f"erased {path}"


def reply(request: ModelRequest) -> ModelResponse:
    """Reply like a model, without one."""
    return (
        ModelResponse(text="It is gone.")
        if request.messages[-1].role == "tool"
        else asks_for(("erase", {"path": "a.txt"}))
    )


def engine(address: str, runtime: Runtime) -> Engine:
    """Make an engine of this queue, the same for submitters and workers."""
    model = ScriptedModel(reply, repeat=True)
    return Engine(model=model, tools=[erase], store=PostgresStore(address), runtime=runtime)


async def main(address: str) -> None:
    """Run a worker, and beside it a client that submits, answers and awaits turns."""
    logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it warns of apps that are made in a main module
    queue = PostgresQueue(address)
    async with engine(address, PostgresQueue(address)) as worker, engine(address, queue) as client:
        await client.store.migrate()
        await queue.prepare()
        stopping = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run_worker, stopping)
            cleaner = Agent(name="Cleaner")
            turn = await client.run(cleaner, "Erase a.txt")
            print(f"{turn.state}: {turn.interrupts[0].tool} {turn.interrupts[0].arguments}")
            turn = await client.resume(turn.id, {turn.interrupts[0].id: True}, agent=cleaner)
            print(f"{turn.outcome}: {turn.text}")
            stopping.set()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
