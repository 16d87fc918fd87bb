"""The options of an engine that say nothing about its dependencies."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from turnwright.context import NotGiven
from turnwright.driver.dependencies import Prepare, Synthesis
from turnwright.journal.answers import Authorize
from turnwright.journal.event_bus import Observer
from turnwright.journal.links import Links
from turnwright.journal.notices import Subscriber
from turnwright.model.model_settings import ModelSettings
from turnwright.model.prices import Price
from turnwright.model.protocol import Model
from turnwright.model.retry import Backoff
from turnwright.store import Store
from turnwright.transcript.pairing import Unpaired
from turnwright_states import Limits

from .protocol import Runtime

if TYPE_CHECKING:
    from turnwright.rules import Rule, RuleSet
    from turnwright.telemetry import Telemetry


class EngineArguments(TypedDict, total=False):
    """The options of `Engine` besides its dependencies, agents and tools. See there."""

    model: Model | None
    models: Callable[[str], Model] | None
    store: Store | str
    limits: Limits | None
    rules: "Sequence[Rule | RuleSet]"
    prices: Mapping[str, Price] | None
    history_processor: Prepare | None
    synthesize: Synthesis | None
    model_settings: ModelSettings | None
    strict_settings: bool
    stop_repetition: bool
    authorize: Authorize | None
    links: Links | None
    subscribers: Mapping[str, Subscriber] | None
    on_event: Sequence[Observer]
    backoff: Backoff | None
    tool_timeout: float | NotGiven | None
    max_parallel_tools: int
    max_threads: int
    cancel_grace: float
    poll_interval: float
    unpaired: Unpaired
    show_budget_to_model: bool | str
    runtime: Runtime | None
    now: Callable[[], float]
    clock: Callable[[], float]
    telemetry: "Telemetry | None"
