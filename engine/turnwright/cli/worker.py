"""`turnwright worker`: drives the turns that others submit, until it is told to stop."""

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
from .interactive import ORDERLY, Opening, QuitError, RepeatedSignal
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
from .stores import without_password
from .telemetry import Exporting
from .worker_engine import driving, driving_model
from .worker_listener import ObservedRuntime, WorkerListener

#: Seconds beyond the drain after which a process is ended that has not left: a tool may block it.
_BEYOND: Final = 10.0
#: With these thresholds a process that drives thousands of turns does up to twice as much (docs/speed.md).
_GARBAGE: Final = (20_000, 50, 50)
#: What these log of a turn, and of a store that is gone, a worker tells in its own words.
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
            help="How many turns it drives at once [default: 8; with --temporal-address 100 of each queue].",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", help="How many turns a second it begins at most, of each queue."),
    ] = None,
    queue_rate: Annotated[
        float | None,
        typer.Option("--queue-rate", metavar="N", help="How many a second all workers of a queue begin together."),
    ] = None,
    drain: Annotated[
        float,
        typer.Option("--drain", metavar="SECONDS", help="How long turns may go on when the worker is told to stop."),
    ] = 30.0,
    notify: Annotated[
        bool, typer.Option("--notify", help="PostgreSQL: tell whoever follows a turn of all that is written.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Drive turns that others submit (`Engine.submit`, `run --temporal-address`) or left behind, until told to stop.

    Without --temporal-address the worker finds them in the store, which any number of workers share.
    With it a Temporal server, which all of them name, says who drives what.

    A turn runs with the worker's tools, and with its own agent's model or else the worker's. One that needs others is
    left alone.

    Ctrl-C or SIGTERM drains: nothing new is begun, and what takes longer than --drain is let go of, for other workers.
    A second one leaves at once.
    """
    said = configuration(config, {"base_url": flags.base_url, "timeout": flags.timeout})
    runtime = _runtime(service, serves or [], concurrency=concurrency, rate=rate, queue_rate=queue_rate, drain=drain)
    opened = shared_store(store, create=True, notify=notify)
    named = driving_model(said, flags.model)
    listener = WorkerListener(as_json=as_json)
    observed = ObservedRuntime(runtime, opened, listener)
    exporting = Exporting()
    opening = driving(
        opened,
        said,
        named,
        flags,
        runtime=observed,
        on_event=[observed.observe],
        telemetry=exporting.telemetry,
    )
    at: dict[str, JsonValue] = {}
    if service.address is not None:
        queues = serves or dict.fromkeys((service.queue or QUEUE, *service.queues.values()))
        at = {"address": service.address, "namespace": service.namespace, "queues": [*queues]}
    # What a turn in flight is made of would be looked through again and again, and is never garbage.
    gc.set_threshold(*_GARBAGE)
    gc.freeze()
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with exporting.sent():
            anyio.run(
                _work, opening, observed, listener, partial(listener.started, without_password(store), named, at), drain
            )
    except QuitError as left:
        process.say_last(str(left))
        raise typer.Exit(left.code) from None


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
    observed: ObservedRuntime,
    listener: WorkerListener,
    started: Callable[[list[str]], None],
    drain: float,
) -> None:
    stopping = anyio.Event()
    async with opening as engine:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            # As where a turn is driven: a tool may block the loop, which then hears of no signal.
            repeated = RepeatedSignal((drain + _BEYOND, ORDERLY), partial(_farewell, observed))
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, repeated)
            async with background_task(_heed, signals, stopping, observed, listener, drain):
                # What is wrong with the store, or with the way to the service, is said before anything begins.
                await engine.store.requests(InboxKind.ABORT)
                await observed.reach()
                started(sorted(engine.setup.tools))
                await engine.run_worker(stopping)
    listener.stopped()


async def _heed(
    signals: AsyncIterator[signal.Signals],
    stopping: anyio.Event,
    observed: ObservedRuntime,
    listener: WorkerListener,
    drain: float,
) -> None:
    async for number in signals:
        if stopping.is_set():
            raise QuitError(codes.TERMINATED if number == signal.SIGTERM else codes.ABORTED, _farewell(observed))
        listener.draining(observed.driven, drain)
        stopping.set()


def _farewell(observed: ObservedRuntime) -> str:
    driven = observed.driven
    what = "one of its turns" if len(driven) == 1 else f"{len(driven)} of its turns"
    return "left at once" + (f"; other workers take up {what}: {', '.join(driven)}" if driven else "")
