"""Runtimes as the command line names them: a Temporal server by its address; without one, the machine's own."""

import logging
import math
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from turnwright.errors import ConfigError
from turnwright.model.protocol import Delta, ModelRequest, ModelResponse
from turnwright.model.providers import split_name
from turnwright.runtime import Local, Runtime
from turnwright.store import Store, open_store
from turnwright.store.address import SCHEMES, find_scheme

from .models import model_named
from .options import AddressOption, AgentQueuesOption, EngineFlags, NamespaceOption, QueueOption, first_given

if TYPE_CHECKING:
    from turnwright.runtime import Temporal

#: The task queue where none is named.
QUEUE: Final = "turnwright"
#: How many turns of each queue a worker of a service drives at once, where nobody says.
_AT_ONCE: Final = 100
_HIGHEST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class Service:
    """Where turns are submitted: a Temporal server, in a namespace, on a task queue; without an address nowhere.

    What is None is as Temporal's own environment and Turnwright's defaults have it. Commands take it as an options
    object. Raises `ConfigError` for what is no address, and for flags without one.
    """

    address: AddressOption = None
    namespace: NamespaceOption = None
    queue: QueueOption = None
    agent_queues: AgentQueuesOption = None

    def __post_init__(self) -> None:
        flags = {"--namespace": self.namespace, "--queue": self.queue, "--agent-queue": self.agent_queues}
        check_flags(self.address, flags)
        self.queues  # noqa: B018 (it refuses what names no queue)

    @property
    def queues(self) -> dict[str, str]:
        """The agents whose turns have another queue, each with that."""
        return dict(map(_agent_queue, self.agent_queues or ()))

    @property
    def embedded(self) -> bool:
        """Whether this process drives its turns itself."""
        return self.address is None

    @property
    def flags(self) -> str:
        """What a command needs to find the same service: flags that begin with a space, or nothing."""
        given = {"--temporal-address": self.address, "--namespace": self.namespace, "--queue": self.queue}
        named = [(flag, value) for flag, value in given.items() if value is not None]
        named += [("--agent-queue", text) for text in self.agent_queues or ()]
        return "".join(f" {flag} {shlex.quote(value)}" for flag, value in named)

    def runtime(self) -> Runtime:
        """What has turns driven. Raises `ConfigError` when the client of the service is not installed."""
        if self.address is None:
            return Local()
        return temporal()(self.address, namespace=self.namespace, queue=self.queue or QUEUE, queues=self.queues)

    def refuse(self, flags: EngineFlags) -> None:
        """Raise `ConfigError` for any of `flags` that was given: they say how a turn is driven here."""
        given = first_given(flags)
        if given is not None:
            why = "with --temporal-address the workers have the tools and the models"
            raise ConfigError(f"{given}: {why}: leave it out")

    def store(self, address: str, *, create: bool = True) -> Store:
        """The store of the turns: where a service has them driven, one that its workers share.

        Raises `ConfigError`.
        """
        return open_store(address, create=create) if self.embedded else shared_store(address, create=create)


def local_worker(concurrency: int | None, drain: float) -> Runtime:
    _check_seconds(drain)
    return Local(drain=drain) if concurrency is None else Local(drain=drain, concurrency=concurrency)


def temporal_worker(
    service: Service,
    serves: Sequence[str],
    *,
    concurrency: int | None,
    rate: float | None,
    queue_rate: float | None,
    drain: float,
) -> Runtime:
    """The runtime of a worker that a Temporal server gives turns to.

    It takes from the queues in `serves`, by default from all of the service's. Raises `ConfigError`.
    """
    _check_seconds(drain)
    for flag, number in (("--rate", rate), ("--queue-rate", queue_rate)):
        if number is not None and not 0 < number < math.inf:
            raise ConfigError(f"{flag}: is a number of turns a second, above 0, and not {number:g}")
    queue, queues = service.queue or QUEUE, service.queues
    for one in serves:
        if one not in (queue, *queues.values()):
            raise ConfigError(f"--serves {one}: is no queue here: name it with --queue, or with --agent-queue")
    return temporal()(
        service.address,
        namespace=service.namespace,
        queue=queue,
        queues=queues,
        serves=tuple(serves),
        concurrency=_AT_ONCE if concurrency is None else concurrency,
        rate=rate,
        queue_rate=queue_rate,
        drain=drain,
    )


def temporal() -> "type[Temporal]":
    try:
        from turnwright.runtime import Temporal  # noqa: PLC0415 (an extra: who drives turns here need not have it)
    except ImportError as error:
        raise ConfigError(
            f"--temporal-address: Temporal's client cannot be imported ({error}): pip install 'turnwright[temporal]'"
        ) from error
    _quieten()
    return Temporal


def _quieten() -> None:
    """Have what Temporal's client says of itself go to `logging`, errors alone, and not straight to the terminal."""
    from temporalio import runtime as sdk  # noqa: PLC0415 (an extra)

    forwarded = sdk.LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    said = sdk.LoggingConfig(filter=sdk.TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding=forwarded)
    logging.getLogger("temporalio").setLevel(logging.ERROR)
    sdk.Runtime.set_default(sdk.Runtime(telemetry=sdk.TelemetryConfig(logging=said)), error_if_already_set=False)


def check_flags(address: str | None, flags: Mapping[str, object]) -> None:
    """Raise `ConfigError` for what is no `HOST:PORT`, and without an address for any of `flags` that was given."""
    if address is None:
        given = next((flag for flag, value in flags.items() if value not in (None, [])), None)
        if given is not None:
            raise ConfigError(f"{given}: is for a Temporal server: name it with --temporal-address HOST:PORT")
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) <= _HIGHEST_PORT:
        raise ConfigError(
            f"--temporal-address {address}: write the Temporal server's HOST:PORT, such as localhost:7233"
        )


def shared_store(address: str, *, create: bool = False, notify: bool = False) -> Store:
    """The store at `address`, which several processes use; with `notify` each append tells those who watch.

    Raises `ConfigError` for one that they cannot share, and for one that cannot notify.
    """
    scheme = find_scheme(address)
    if notify and scheme is not None and not scheme.notifies:
        able = " or ".join(one.help for one in SCHEMES if one.notifies)
        raise ConfigError(f"--notify: is for {able}; others are looked at again and again")
    store = open_store(address, create=create, notify=notify)
    if not store.shared:
        raise ConfigError(
            "--store memory: is this process's alone: name a store that its workers share, such as"
            " sqlite:///turns.db or postgresql://host/database"
        )
    return store


class WorkersModel:
    """A model that only workers have: its name is written down, and here it is never asked."""

    def __init__(self, name: str) -> None:
        self.name = split_name(name)[1] or name

    @classmethod
    def named(cls, name: str) -> Self:
        return cls(model_named(name, None))

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """See `Model.stream`. Raises `ConfigError`."""
        raise ConfigError(
            f"model {self.name!r} is the workers', and was asked for {len(request.messages)} messages here"
        )


def _agent_queue(text: str) -> tuple[str, str]:
    agent, _, queue = text.rpartition("=")
    if not agent or not queue:
        raise ConfigError(f"--agent-queue {text}: write AGENT=QUEUE, such as Painter=gpu")
    return agent, queue


def _check_seconds(drain: float) -> None:
    if not 0 <= drain < math.inf:
        raise ConfigError(f"--drain: is a number of seconds, at least 0, and not {drain:g}")
