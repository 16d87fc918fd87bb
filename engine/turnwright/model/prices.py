"""Prices of models: yours, or those that the package `genai-prices` publishes.

The package is optional, and is imported when the first price is looked up. A price of yours precedes the cost that a
model reports, which precedes a published price (docs/rules.md#budgets).
"""

import logging
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from turnwright.errors import ConfigError
from turnwright_states import Usage

from .capabilities import Capabilities
from .protocol import Model, ModelResponse

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, Provider

_LOG = logging.getLogger(__name__)
_PACKAGE: Final = "genai_prices"
#: A host with a domain, which no address and no name on this machine has.
_PUBLIC: Final = re.compile(r"\.[a-z]{2,}$", re.IGNORECASE)


class PriceOf(Protocol):
    """A price, which computes the cost of a usage."""

    def of(self, usage: Usage, cache_writes: int = 0, hour_writes: int = 0) -> Usage:
        """Return the usage with its cost. Of its input tokens, `cache_writes` were written to a cache.

        Of those, `hour_writes` are kept for an hour.
        """
        ...


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens of a model, in the currency of the limit `cost`.

    `cached` is the price of input tokens that were read from a cache, and `cache_write` that of input tokens that were
    written to one. Without them, these tokens cost `input`.

    A price replaces the cost that the model reports, so `Price(0, 0)` makes the model free. Raises `ConfigError` for
    a price that is negative or no finite number.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached", "cache_write"):
            price = getattr(self, name)
            if price is None and name in {"cached", "cache_write"}:
                continue
            if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < math.inf:
                raise ConfigError(f"Price: {name} must be a number of at least 0, not {price!r}")

    def of(self, usage: Usage, cache_writes: int = 0, hour_writes: int = 0) -> Usage:  # noqa: ARG002 (see `PriceOf`)
        """See `PriceOf.of`. All that is written to a cache costs the same."""
        cached_tokens, cache_write_tokens, plain = _parts(usage, cache_writes)
        cost = plain * self.input + usage.output_tokens * self.output
        cost += cached_tokens * (self.input if self.cached is None else self.cached)
        cost += cache_write_tokens * (self.input if self.cache_write is None else self.cache_write)
        return replace(usage, cost=cost / 1_000_000)


def price_usage(price: PriceOf | None, reply: ModelResponse | None) -> Usage | None:
    """Return the usage of a reply, complete or not, with its cost if there is a price."""
    if reply is None or reply.usage is None or price is None:
        return None if reply is None else reply.usage
    response = reply.response
    if response is None:
        return price.of(reply.usage)
    return price.of(
        reply.usage, response.cache_creation_input_tokens or 0, response.cache_creation_1h_input_tokens or 0
    )


def is_free(price: PriceOf) -> bool:
    """Whether no reply at this price costs anything."""
    tokens = Usage(input_tokens=3_000_000, output_tokens=1_000_000, cached_tokens=1_000_000)
    return not price.of(tokens, 1_000_000).cost


def reports_cost(model: Model) -> bool | None:
    """Whether the model's replies have their cost in `Usage.cost`; None if the model does not say."""
    capabilities: object = getattr(model, "capabilities", None)
    return capabilities.reports_cost if isinstance(capabilities, Capabilities) else None


def _parts(usage: Usage, cache_writes: int) -> tuple[int, int, int]:
    """Return the input tokens that were read from a cache, those that were written to one, and the others."""
    cached_tokens = min(usage.cached_tokens, usage.input_tokens)
    write_tokens = min(cache_writes, usage.input_tokens - cached_tokens)
    return cached_tokens, write_tokens, usage.input_tokens - cached_tokens - write_tokens


class PublishedPrice:
    """The price of a model in `genai-prices`, in US dollars. It may depend on the size of the prompt and on the time.

    It is looked up when it is first needed. The model is found by the host of its server and its name there.
    """

    def __init__(self, name: str, host: str) -> None:
        self._name = name
        self._host = host

    @cached_property
    def _find(self) -> "tuple[Provider, ModelInfo] | None":
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 (an extra, which takes 0.3 s to import)

        try:
            return get_snapshot().find_provider_model(self._name, None, None, f"https://{self._host}/")
        except LookupError:
            return None

    @property
    def is_known(self) -> bool:
        """Whether the package has the price."""
        return self._find is not None

    def of(self, usage: Usage, cache_writes: int = 0, hour_writes: int = 0) -> Usage:
        """See `PriceOf.of`. The usage is unchanged if the price is not known, or if the model reported its cost."""
        if usage.cost or self._find is None:
            return usage
        from genai_prices import Usage as Counted  # noqa: PLC0415 (as above)

        provider, model = self._find
        cached_tokens, write_tokens, _ = _parts(usage, cache_writes)
        counted_usage = Counted(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=cached_tokens,
            cache_write_tokens=write_tokens,
            cache_write_1h_tokens=min(hour_writes, write_tokens),
        )
        try:
            cost = float(model.calc_price(counted_usage, provider).total_price)
        except ValueError:  # the package has no price for a part of it
            _LOG.warning("model %s: genai-prices cannot compute the cost of a reply", self._name, exc_info=True)
            return usage
        return replace(usage, cost=cost)


def published_price(model: Model) -> PublishedPrice | None:
    """Return the published price of a model of a public server; None without the package, and for any other model."""
    server: object = getattr(model, "server", None)
    host = server[0] if isinstance(server, tuple) and server else None
    if not isinstance(host, str) or not _PUBLIC.search(host) or find_spec(_PACKAGE) is None:
        return None
    return PublishedPrice(str(getattr(model, "model_name", None) or model.name), host)


@dataclass(frozen=True, slots=True)
class PriceData:
    """The version of the installed `genai-prices`, and the date of its newest price."""

    version: str
    #: As in RFC 3339; None if no price has a date.
    newest: str | None

    def __str__(self) -> str:
        return f"genai-prices {self.version}" + ("" if self.newest is None else f", newest price of {self.newest}")


def price_data(today: date | None = None) -> PriceData | None:
    """Return what is known of the published prices; None without the package. Prices that begin later do not count."""
    if find_spec(_PACKAGE) is None:
        return None
    import genai_prices  # noqa: PLC0415 (an extra)
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 (an extra)

    snapshot, today = get_snapshot(), today or datetime.now(tz=UTC).date()
    if snapshot.from_auto_update:
        return PriceData(genai_prices.__version__, snapshot.timestamp.date().isoformat())
    dates = (
        begin for provider in snapshot.providers for model_info in provider.models for begin in _begins(model_info)
    )
    newest = max((day for day in dates if day <= today), default=None)
    return PriceData(genai_prices.__version__, None if newest is None else newest.isoformat())


def _begins(model: "ModelInfo") -> Iterator[date]:
    """Yield the days from which a price of the model applies."""
    for price in (*(model.prices if isinstance(model.prices, list) else ()), *(model.price_variants or ())):
        begin = getattr(price.constraint, "start_date", None)
        if isinstance(begin, date):
            yield begin
