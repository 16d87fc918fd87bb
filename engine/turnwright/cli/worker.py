"""`turnwright worker`: drives the turns that other processes submit, until a signal stops it."""

import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Final

import anyio
import typer
from pydantic import JsonValue

from turnwright._base.background_task import background_task
from turnwright.runtime import Runtime
from turnwright.store import InboxKind

from . import codes, process
from .options import (
    DEFAULT_STORE,
    ConfigOption,
    DriverFlags,
    JsonLinesOption,
    ServesOption,
    StoreOption,
    configuration,
)
from .runtimes import QUEUE, Service, check_flags, local_worker, shared_store, temporal_worker
from .signals import ORDERLY, Opening, QuitError, RepeatedSignal
from .stores import without_password
from .worker_engine import driving_model, open_driver
from .worker_listener import WorkerListener

#: Seconds after the drain at which the process is ended, because a tool may block it.
_BEYOND: Final = 10.0
#: With these thresholds a process that drives thousands of turns is up to twice as fast (docs/scale.md).
GC_THRESHOLDS: Final = (20_000, 50, 50)
#: Loggers that repeat what a worker prints itself.
_QUIET: Final = ("turnwright.runtime.local", "turnwright.runtime.temporal.activities", "temporalio")


def worker(
    *,
    store: StoreOption = DEFAULT_STORE,
    flags: DriverFlags,
    service: Service,
    serves: ServesOption = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            help="The most turns at once [default: 8; with --temporal-address 100 per queue].",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", help="The most turns that it starts per second and queue."),
    ] = None,
    queue_rate: Annotated[
        float | None,
        typer.Option("--queue-rate", metavar="N", help="The same for all workers of a queue together."),
    ] = None,
    drain: Annotated[
        float,
        typer.Option("--drain", metavar="SECONDS", help="How long turns may continue after a stop signal."),
    ] = 30.0,
    notify: Annotated[bool, typer.Option("--notify", help="PostgreSQL: notify followers of each write.")] = False,
    config: ConfigOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Drive turns that other processes submit.

    Workers share the store; with --temporal-address, a Temporal server assigns the turns. A turn runs with the worker's
    tools, and with the model of its agent or else the worker's. A worker leaves turns that need others.

    Ctrl-C or SIGTERM drains the worker: it starts no turn, and after --drain it releases its turns. A second signal
    leaves at once.
    """
    config_read = configuration(config, {"base_url": flags.base_url, "timeout": flags.timeout})
    runtime = _runtime(service, serves or [], concurrency=concurrency, rate=rate, queue_rate=queue_rate, drain=drain)
    opened = shared_store(store, create=True, notify=notify)
    model_id = driving_model(config_read, flags.model)
    listener = WorkerListener(as_json=as_json)
    opening = open_driver(opened, config_read, model_id, flags, runtime=runtime)
    at: dict[str, JsonValue] = {}
    if service.address is not None:
        queues = serves or dict.fromkeys((service.queue or QUEUE, *service.queues.values()))
        at = {"address": service.address, "namespace": service.namespace, "queues": [*queues]}
    # Objects of a running turn are never garbage, and should not be scanned again and again.
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        anyio.run(
            _work, opening, runtime, listener, partial(listener.started, without_password(store), model_id, at), drain
        )
    except QuitError as quit_error:
        process.say_last(str(quit_error))
        raise typer.Exit(quit_error.code) from None


def _runtime(
    service: Service,
    serves: list[str],
    *,
    concurrency: int | None,
    rate: float | None,
    queue_rate: float | None,
    drain: float,
) -> Runtime:
    check_flags(service.address, {"--serves": serves, "--rate": rate, "--queue-rate": queue_rate})
    if service.embedded:
        return local_worker(concurrency, drain)
    return temporal_worker(service, serves, concurrency=concurrency, rate=rate, queue_rate=queue_rate, drain=drain)


async def _work(
    opening: Opening,
    runtime: Runtime,
    listener: WorkerListener,
    started: Callable[[list[str]], None],
    drain: float,
) -> None:
    stopping = anyio.Event()
    async with opening as engine:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            # A tool may block the loop, which then receives no signal.
            repeated = RepeatedSignal((drain + _BEYOND, ORDERLY), partial(_farewell, listener))
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, repeated)
            async with background_task(_drain_on_signal, signals, stopping, listener, drain):
                # An error of the store or of the service must appear before the worker starts.
                await engine.store.requests(InboxKind.ABORT)
                await runtime.failure("worker", 1)  # the answer does not matter
                started(sorted(engine.setup.tools))
                await engine.run_worker(stopping, listener=listener)
    listener.stopped()


async def _drain_on_signal(
    signals: AsyncIterator[signal.Signals],
    stopping: anyio.Event,
    listener: WorkerListener,
    drain: float,
) -> None:
    async for number in signals:
        if stopping.is_set():
            raise QuitError(codes.TERMINATED if number == signal.SIGTERM else codes.ABORTED, _farewell(listener))
        listener.draining(drain)
        stopping.set()


def _farewell(listener: WorkerListener) -> str:
    driven = listener.driven
    turns = "one of its turns" if len(driven) == 1 else f"{len(driven)} of its turns"
    return "left at once" + (f"; other workers can resume {turns}: {', '.join(driven)}" if driven else "")
