"""The runtime that the flags name: a Temporal server with an address, or else this machine."""

import logging
import math
import shlex
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Self

import typer

from turnwright.errors import ConfigError
from turnwright.model.providers import split_name
from turnwright.store.address import SCHEMES, find_scheme, open_store

from .options import (
    AddressOption,
    AgentQueuesOption,
    EngineFlags,
    NamespaceOption,
    QueueOption,
    ServesOption,
    first_given,
    model_named,
)

if TYPE_CHECKING:
    from turnwright.model.model_settings import ModelSettings
    from turnwright.model.protocol import Delta, ModelRequest, ModelResponse
    from turnwright.runtime import Runtime, Temporal
    from turnwright.store import Store

#: The default task queue.
QUEUE: Final = "turnwright"
#: The default number of turns of each queue that a worker of a service drives at once.
_AT_ONCE: Final = 100
_HIGHEST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class Service:
    """The Temporal server to which turns are submitted, with a namespace and a task queue. No address means no server.

    None is the value of Temporal's own environment, or Turnwright's default. Commands take this class as an options
    object. Raises `ConfigError` for a wrong address, and for other flags without an address.
    """

    address: AddressOption = None
    namespace: NamespaceOption = None
    queue: QueueOption = None
    agent_queues: AgentQueuesOption = None

    def __post_init__(self) -> None:
        flags = {"--namespace": self.namespace, "--queue": self.queue, "--agent-queue": self.agent_queues}
        check_flags(self.address, flags)
        self.queues  # noqa: B018 (raises for a flag without a queue)

    @property
    def queues(self) -> dict[str, str]:
        """The queue of each agent that does not use the default one."""
        return dict(map(_agent_queue, self.agent_queues or ()))

    @property
    def embedded(self) -> bool:
        """Whether this process drives its turns itself."""
        return self.address is None

    @property
    def flags(self) -> str:
        """The flags with which another command finds the service. They begin with a space, unless empty."""
        values = {"--temporal-address": self.address, "--namespace": self.namespace, "--queue": self.queue}
        flags = [(flag, value) for flag, value in values.items() if value is not None]
        flags += [("--agent-queue", text) for text in self.agent_queues or ()]
        return "".join(f" {flag} {shlex.quote(value)}" for flag, value in flags)

    def runtime(self) -> "Runtime":
        """Return the runtime. Raises `ConfigError` if the client of the service is not installed."""
        if self.address is None:
            from turnwright.runtime import Local  # noqa: PLC0415 (the help needs none)

            return Local()
        return temporal()(self.address, namespace=self.namespace, queue=self.queue or QUEUE, queues=self.queues)

    def refuse(self, flags: EngineFlags) -> None:
        """Raise `ConfigError` if any of `flags` was given: they are for a turn that this process drives."""
        flag = first_given(flags)
        if flag is not None:
            why = "with --temporal-address the workers have the tools and the models"
            raise ConfigError(f"{flag}: {why}: leave it out")

    def store(self, address: str, *, create: bool = True) -> "Store":
        """Return the store of the turns. With a service it must be a store that the workers share.

        Raises `ConfigError`.
        """
        return open_store(address, create=create) if self.embedded else shared_store(address, create=create)


@dataclass(frozen=True, slots=True)
class WorkerPace:
    """The flags that say which turns a worker takes, and how fast."""

    serves: ServesOption = None
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            help="The most turns at once [default: 8; with --temporal-address 100 per queue].",
        ),
    ] = None
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="The most turns that it starts per second and queue.")
    ] = None
    queue_rate: Annotated[
        float | None, typer.Option("--queue-rate", metavar="N", help="The same for all workers of a queue together.")
    ] = None
    drain: Annotated[
        float, typer.Option("--drain", metavar="SECONDS", help="How long turns may continue after a stop signal.")
    ] = 30.0


def worker_runtime(service: Service, pace: WorkerPace) -> "Runtime":
    """Return the runtime of a worker of this machine, or of a Temporal server.

    It takes turns from the queues in `serves`, by default from all queues of the service. Raises `ConfigError`.
    """
    rates = {"--rate": pace.rate, "--queue-rate": pace.queue_rate}
    check_flags(service.address, {"--serves": pace.serves, **rates})
    if not 0 <= pace.drain < math.inf:
        raise ConfigError(f"--drain: must be a number of seconds, at least 0, and is {pace.drain:g}")
    if service.embedded:
        from turnwright.runtime import Local  # noqa: PLC0415 (as above)

        drain, most = pace.drain, pace.concurrency
        return Local(drain=drain) if most is None else Local(drain=drain, concurrency=most)
    for flag, number in rates.items():
        if number is not None and not 0 < number < math.inf:
            raise ConfigError(f"{flag}: must be a number of turns per second above 0, and is {number:g}")
    queue, queues = service.queue or QUEUE, service.queues
    for name in pace.serves or ():
        if name not in (queue, *queues.values()):
            raise ConfigError(f"--serves {name}: is not a queue of this worker: name it with --queue or --agent-queue")
    return temporal()(
        service.address,
        namespace=service.namespace,
        queue=queue,
        queues=queues,
        serves=tuple(pace.serves or ()),
        concurrency=_AT_ONCE if pace.concurrency is None else pace.concurrency,
        rate=pace.rate,
        queue_rate=pace.queue_rate,
        drain=pace.drain,
    )


def temporal() -> "type[Temporal]":
    try:
        from turnwright.runtime import Temporal  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ConfigError(f"--temporal-address: {error}") from error
    _quieten()
    return Temporal


def _quieten() -> None:
    """Send the messages of Temporal's client to `logging`, errors only, instead of straight to the terminal."""
    from temporalio import runtime as sdk  # noqa: PLC0415 (an extra)

    forwarding = sdk.LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    logging_config = sdk.LoggingConfig(
        filter=sdk.TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding=forwarding
    )
    logging.getLogger("temporalio").setLevel(logging.ERROR)
    sdk.Runtime.set_default(
        sdk.Runtime(telemetry=sdk.TelemetryConfig(logging=logging_config)), error_if_already_set=False
    )


def check_flags(address: str | None, flags: Mapping[str, object]) -> None:
    """Raise `ConfigError` for an address that is not `HOST:PORT`, and for a flag of `flags` without an address."""
    if address is None:
        flag = next((flag for flag, value in flags.items() if value not in (None, [])), None)
        if flag is not None:
            raise ConfigError(f"{flag}: needs a Temporal server: name it with --temporal-address HOST:PORT")
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) <= _HIGHEST_PORT:
        raise ConfigError(
            f"--temporal-address {address}: write the Temporal server's HOST:PORT, such as localhost:7233"
        )


def shared_store(address: str, *, create: bool = False, notify: bool = False) -> "Store":
    """Return the store at `address`, for several processes. With `notify` each append notifies the followers.

    Raises `ConfigError` for a store that processes cannot share, and for one that cannot notify.
    """
    scheme = find_scheme(address)
    if notify and scheme is not None and not scheme.notifies:
        able = " or ".join(scheme.help for scheme in SCHEMES if scheme.notifies)
        raise ConfigError(f"--notify: is for {able}; other stores are polled")
    store = open_store(address, create=create, notify=notify)
    if not store.shared:
        raise ConfigError(
            "--store memory: belongs to one process: name a store that the workers share, such as"
            " sqlite:///turns.db or postgresql://host/database"
        )
    return store


class WorkersModel:
    """A model that only the workers have. This process records its name and never calls it."""

    def __init__(self, name: str) -> None:
        self.name = split_name(name)[1] or name

    @classmethod
    def with_name(cls, name: str) -> Self:
        return cls(model_named(name, None))

    def unsupported_settings(self, settings: "ModelSettings") -> Mapping[str, str]:  # noqa: ARG002 (the worker's model knows)
        """Return nothing: the worker that drives the turn warns of settings that its model does not send."""
        return {}

    def stream(self, request: "ModelRequest") -> "AsyncIterator[Delta | ModelResponse]":
        """See `Model.stream`. Raises `ConfigError`."""
        raise ConfigError(
            f"model {self.name!r} runs in the workers, and was called here with {len(request.messages)} messages"
        )


def _agent_queue(text: str) -> tuple[str, str]:
    agent, _, queue = text.rpartition("=")
    if not agent or not queue:
        raise ConfigError(f"--agent-queue {text}: write AGENT=QUEUE, such as Painter=gpu")
    return agent, queue
