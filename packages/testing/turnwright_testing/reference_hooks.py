"""Hooks and guardrails of calls in the reference simulator (docs/rules.md#hooks)."""

from dataclasses import replace

from turnwright_states import CallStatus

from .reference_core import Turn
from .reference_parts import Call, Life
from .turn_script import CHANGED_BY, LATE_AFTER, RAISES_AFTER, TRIPS_AFTER

#: The faults of hooks and guardrails of calls, and the seconds until they end the turn.
FAULTS = {"trip": TRIPS_AFTER, "raise": RAISES_AFTER, "late": LATE_AFTER}


class HookedCalls(Turn):
    """A turn whose calls meet hooks and guardrails."""

    #: The seconds by which its faults take longer.
    later = 0.0

    def _run(self, open_: list[Call], batch: list[Call]) -> Life:
        self._begin()
        for call in open_:
            self._judge(call)
        return super()._run([call for call in open_ if call.status is None], batch)

    def _judge(self, call: Call) -> None:
        """Ask the hook before a call, once."""
        if call.judged or not self.script.hooked:
            return
        call.judged = True
        match call.asked.before:
            case "reject":
                call.status = CallStatus.REJECTED
            case "spoil":
                call.status, call.result = CallStatus.ERROR, "spoiled"
            case "change":
                call.asked = replace(call.asked, number=call.asked.number + CHANGED_BY)
            case "ask":
                call.asks = True
            case "result" | "trip" | "raise" | "late":
                call.asks = False
            case _:
                pass

    def _decision(self, call: Call) -> tuple[str, str]:
        """Return the decisions before and after a call."""
        return (call.asked.before, call.asked.after) if self.script.hooked else ("", "")

    def _trips(self, call: Call) -> bool:
        return any(one in FAULTS for one in self._decision(call))

    def _runs(self, call: Call) -> bool:
        return self._decision(call)[0] not in ("result", *FAULTS)

    def _lasts(self, call: Call) -> float:
        before, after = self._decision(call)
        seconds = super()._lasts(call) if self._runs(call) else 0.0
        fault = before if before in FAULTS else after
        return seconds + FAULTS[fault] + self.later if fault in FAULTS else seconds

    def _settle(self, call: Call) -> None:
        before, after = self._decision(call)
        if self._trips(call):
            raise self._trip() if (before if before in FAULTS else after) == "trip" else self._failed()
        if before == "result":
            self.started, call.starts, self.idle = self.started + 1, call.starts + 1, 0
            call.status, call.result = CallStatus.OK, "known"
        elif after == "hide":
            call.asked = replace(call.asked, does="return")  # a hidden `Retry` asks for no other try
            super()._settle(call)
        else:
            super()._settle(call)
        if after == "hide":
            call.status, call.result = CallStatus.OK, "hidden"
