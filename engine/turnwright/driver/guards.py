"""Asks guardrails. What they say when they trip ends the turn."""

import json
from collections.abc import Callable

import anyio
from pydantic import JsonValue

from turnwright.errors import HookFailedError
from turnwright.hooks.asking import MODEL_ERROR, ask
from turnwright.hooks.decisions import Trip
from turnwright.hooks.guardrails import Guardrail
from turnwright.model.protocol import ModelError
from turnwright.model.retry import Backoff
from turnwright.tools.result import STRUCTURED_LIMIT, plain
from turnwright.tools.text import NotJsonError, cap
from turnwright_states.payload import thawed

from .review import TripError


class Guards:
    """Asks single guardrails of a turn.

    `max_retries` returns how often a check may be repeated whose own model failed, where no row of the chart counts
    its attempts. `grace` is in seconds.
    """

    def __init__(self, backoff: Backoff, max_retries: Callable[[], int], grace: float) -> None:
        self._backoff = backoff
        self._max_retries = max_retries
        self._grace = grace

    async def check(self, guardrail: Guardrail[object], *args: object) -> None:
        """Ask a guardrail, and repeat a check whose model failed. Raises `TripError` and `HookFailedError`.

        A check whose model fails each time fails closed: with `HookFailedError`.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self.check_once(guardrail, *args)
            except ModelError as error:
                if attempt > self._max_retries() or not error.cause.may_pass:
                    raise HookFailedError(f"{what(guardrail)} could not decide: {error}") from error
                await anyio.sleep(self._backoff.wait(attempt, error.retry_after))

    async def check_once(self, guardrail: Guardrail[object], *args: object) -> None:
        """Ask a guardrail. Raises `TripError`, `HookFailedError`, and the `ModelError` of its own model."""
        said = await ask(
            what(guardrail), guardrail.check, *args, seconds=guardrail.timeout, grace=self._grace, passed=MODEL_ERROR
        )
        if said is None:
            return
        if not isinstance(said, Trip):
            raise HookFailedError(f"{what(guardrail)} returned {said!r:.80}: return Trip or None")
        metadata: JsonValue
        try:
            metadata = plain(thawed(dict(said.metadata)))
        except (NotJsonError, TypeError, ValueError) as error:
            raise HookFailedError(f"{what(guardrail)} returned metadata that are not a JSON object: {error}") from error
        assert isinstance(metadata, dict)  # noqa: S101 (a copy of a mapping)
        size = len(json.dumps(metadata, ensure_ascii=False).encode())
        if size > STRUCTURED_LIMIT:
            metadata = {"left out": f"{size:,} bytes of JSON; the limit: {STRUCTURED_LIMIT:,}"}
        raise TripError(guardrail.name, cap(str(said.message)), metadata, guardrail.kind)


def what(guardrail: Guardrail[object]) -> str:
    """Return the guardrail in an error."""
    return f"{guardrail.kind} guardrail {guardrail.name!r}"
