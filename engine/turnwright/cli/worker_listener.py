"""Reports the turns that a worker drives, and their results."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from turnwright._base.words import count, cut_line
from turnwright.errors import ConfigError, StoreError, TurnBusyError, TurnwrightError
from turnwright.runtime import TurnStatus
from turnwright_states import State

from . import process
from .process import json_line

#: Seconds without an event after which the store is asked whether this worker drives the turn.
_SILENCE: Final = 1.0


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
                self._print_why("refused", turn_id, str(ending))
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
