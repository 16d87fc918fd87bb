"""The output guardrails of a turn: they check each reply before people read it (docs/rules.md#guardrails)."""

import json
from collections.abc import Sequence

from turnwright.events import ResponseWithdrawnEvent
from turnwright.hooks.guardrails import Guardrail
from turnwright_states.inputs import is_blank
from turnwright_states.payload import thawed

from .guards import Guards
from .review import Reviewing, TripError
from .segment import Segment

#: The gate that output guardrails keep closed.
GATE = "output"


class OutputGuards:
    """The output guardrails of one turn."""

    def __init__(self, segment: Segment, guardrails: Sequence[Guardrail[object]], guards: Guards) -> None:
        self._segment = segment
        self._guardrails = guardrails
        self._guards = guards
        self._holds = any(one.hold_stream for one in guardrails)

    def hold(self) -> None:
        """Hold the pieces of the reply that begins back, unless every guardrail lets them stream."""
        if self._holds:
            self._segment.hold(GATE)

    async def review(self, reviewing: Reviewing) -> None:
        """Check a reply, or its typed answer as JSON, as a stage of its review. Raises `TripError` and `ModelError`."""
        text = reviewing.reply.text
        if reviewing.output is not None:
            text = json.dumps(thawed(reviewing.output), ensure_ascii=False)
        if not is_blank(text):
            for one in self._guardrails:
                await self._check(one, text, counted=True)

    async def check_text(self, text: str | None) -> None:
        """Check a conclusion or the reply of a text-only turn, which nothing reviews. Raises `TripError`."""
        if text is not None and not is_blank(text):
            for one in self._guardrails:
                await self._check(one, text, counted=False)
        self._segment.open_gate(GATE)

    async def _check(self, guardrail: Guardrail[object], text: str, *, counted: bool) -> None:
        segment = self._segment
        check = self._guards.check_once if counted else self._guards.check
        try:
            await check(guardrail, segment.context(), text)
        except TripError as trip:
            if not self._holds:
                journal = segment.journal
                journal.publish(ResponseWithdrawnEvent(journal.turn_id, journal.claim.seq, trip.guardrail))
            raise
