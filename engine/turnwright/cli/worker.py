"""`turnwright worker`: drives the turns that other processes submit, until a signal stops it."""

import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Annotated, Final

import anyio
import typer
from pydantic import JsonValue

from turnwright._base.background_task import background_task
from turnwright._base.words import count, cut_line
from turnwright.errors import ConfigError, StoreError, TurnBusyError, TurnwrightError
from turnwright.runtime import Runtime, TurnStatus
from turnwright.store import InboxKind
from turnwright.store.protocol import is_read_only
from turnwright_states import State

from . import codes, process
from .engines import Opening, driving_model, open_driver
from .options import (
    DEFAULT_STORE,
    ConfigOption,
    DriverFlags,
    JsonLinesOption,
    StoreOption,
    configuration,
)
from .process import ORDERLY, QuitError, RepeatedSignal, json_line
from .runtimes import QUEUE, Service, WorkerPace, shared_store, worker_runtime
from .stores import without_password

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
    pace: WorkerPace,
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
    runtime = worker_runtime(service, pace)
    model_id = driving_model(config_read, flags.model)
    turn_store = shared_store(store, create=True, notify=notify)
    listener = WorkerListener(as_json=as_json)
    opening = open_driver(turn_store, config_read, model_id, flags, runtime=runtime)
    at: dict[str, JsonValue] = {}
    if service.address is not None:
        queues = pace.serves or dict.fromkeys((service.queue or QUEUE, *service.queues.values()))
        at = {"address": service.address, "namespace": service.namespace, "queues": [*queues]}
    # Objects of a running turn are never garbage, and should not be scanned again and again.
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        on_start = partial(listener.started, without_password(store), model_id, at)
        anyio.run(_work, opening, runtime, listener, on_start, pace.drain)
    except QuitError as quit_error:
        process.say_last(str(quit_error))
        raise typer.Exit(quit_error.code) from None


class WorkerListener:
    """Prints what a worker does, as a JSON object or as text, a line each: a `JobListener`."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._out = process.Output(alone=as_json)
        #: The turn of each attempt that has claimed its turn.
        self._claimed: list[str] = []

    @property
    def driven(self) -> list[str]:
        """The turns that the worker drives now."""
        return [*dict.fromkeys(self._claimed)]

    def started(self, store: str, model: str, service: Mapping[str, JsonValue], tools: list[str]) -> None:
        at = f" at {service['address']}" if service else ""
        words = f"worker of {store}{at}  model {cut_line(model)}  {count(len(tools), 'tool')}"
        fields: dict[str, JsonValue] = {"store": store, **service, "model": model, "tools": [*tools]}
        self._print("started", words, **fields)

    def claimed(self, turn_id: str) -> None:
        self._claimed.append(turn_id)
        self._print("claimed", f"turn {turn_id}  claimed", turn=turn_id)

    def ended(self, turn_id: str, ending: TurnStatus | BaseException, *, claimed: bool, seconds: float) -> None:
        if claimed:
            self._claimed.remove(turn_id)
        match ending:
            case TurnStatus(state=state):
                if claimed and (state.outcome is not None or state is State.PAUSED):
                    self._settled(turn_id, ending, seconds)
            case TurnBusyError():
                pass  # another driver has it
            case ConfigError() | StoreError():
                self._print_why("refused", turn_id, process.explain(ending))
            case _ if claimed:
                why = str(ending) if isinstance(ending, TurnwrightError) else "another worker can resume it"
                self._print_why("released", turn_id, why)
            case _:
                pass

    def _settled(self, turn: str, status: TurnStatus, seconds: float) -> None:
        outcome, reason = status.state.outcome, status.reason
        how = "paused" if outcome is None else f"{outcome}: {reason}"
        self._print(
            "settled",
            f"turn {turn}  {how}  ({seconds:.1f} s)",
            turn=turn,
            state=str(status.state),
            outcome=None if outcome is None else str(outcome),
            reason=None if reason is None else str(reason),
            seconds=round(seconds, 3),
        )

    def _print_why(self, kind: str, turn: str, why: str) -> None:
        self._print(kind, f"turn {turn}  {kind}: {cut_line(why, 600)}", turn=turn, why=why)

    def waits(self, error: StoreError) -> None:
        why = str(error)
        self._print("waiting", f"cannot look for turns: {cut_line(why, 600)}", why=why)

    def draining(self, seconds: float) -> None:
        turns = self.driven
        words = f"draining: {count(len(turns), 'turn')} may continue for {seconds:g} s; a second signal leaves at once"
        self._print("draining", words, turns=[*turns], seconds=seconds)

    def stopped(self) -> None:
        self._print("stopped", "stopped")

    def _print(self, kind: str, words: str, **fields: JsonValue) -> None:
        self._out.write(json_line({"type": kind, **fields}) if self._as_json else words)


async def _work(
    opening: Opening,
    runtime: Runtime,
    listener: WorkerListener,
    on_start: Callable[[list[str]], None],
    drain: float,
) -> None:
    stopping = anyio.Event()
    async with opening as engine:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            # A tool may block the loop, which then receives no signal.
            handler = RepeatedSignal((drain + _BEYOND, ORDERLY), partial(_farewell, listener))
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, handler)
            async with background_task(_drain_on_signal, signals, stopping, listener, drain):
                # An error of the store or of the service must appear before the worker starts.
                await engine.store.requests(InboxKind.ABORT)
                if is_read_only(engine.store):
                    raise StoreError(
                        "--store: it can only be read here, and a worker writes to it: give this user write access to"
                        " the file and its folder"
                    )
                await runtime.failure("worker", 1)  # the answer does not matter
                on_start(sorted(engine.setup.tools))
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
    driven_turns = listener.driven
    turns = "one of its turns" if len(driven_turns) == 1 else f"{len(driven_turns)} of its turns"
    return "left at once" + (f"; other workers can resume {turns}: {', '.join(driven_turns)}" if driven_turns else "")
