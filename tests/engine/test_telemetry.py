"""The telemetry receives the work of turns, and cannot change it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import pytest

from turnwright import Agent, Engine, TurnResult, tool
from turnwright.model.protocol import ModelError
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store.outbox import NoticeCounts
from turnwright.telemetry import AttemptWork, Block, CallWork, JudgedCall, Move, TurnTelemetry, TurnWork, error_type
from turnwright_states import Cause

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier", steps=2)


@tool
async def note() -> str:
    """Take a note."""
    return "noted"


class Ear:
    """A telemetry that fails wherever its name says."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.heard: list[str] = []

    def hear(self, name: str) -> None:
        """Note it down, or fail."""
        self.heard.append(name)
        if name == self.fails:
            raise RuntimeError(f"no {name}")

    def outbox(self, counts: NoticeCounts) -> None:
        """See `Telemetry.outbox`."""

    def turn(self, work: TurnWork) -> TurnTelemetry:
        """See `Telemetry.turn`."""
        self.hear("turn")
        assert work.agent == "Tidier"
        return Stretch(self)


class Stretch:
    """One stretch of driving."""

    def __init__(self, ear: Ear) -> None:
        self.ear = ear

    def __enter__(self) -> object:
        self.ear.hear("enter turn")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool:
        self.ear.hear("leave turn")
        return True  # which would swallow what is raised

    def judged(self, judged_call: JudgedCall) -> None:
        """See `TurnTelemetry.judged`."""
        assert judged_call.decisions
        self.ear.hear("judged")

    def moved(self, move: Move) -> None:
        """See `TurnTelemetry.moved`."""
        assert move.source is not None
        self.ear.hear("moved")

    def attempt(self, work: AttemptWork) -> Block:
        """See `TurnTelemetry.attempt`."""
        assert work.attempt == 1
        self.ear.hear("attempt")
        return self._block("attempt")

    def call(self, work: CallWork) -> Block:
        """See `TurnTelemetry.call`."""
        assert work.tool == "note"
        self.ear.hear("call")
        return self._block("call")

    @contextmanager
    def _block(self, name: str) -> Iterator[None]:
        self.ear.hear(f"enter {name}")
        try:
            yield
        finally:
            self.ear.hear(f"leave {name}")


async def run(ear: Ear | None) -> TurnResult:
    model = ScriptedModel(asks_for(("note", {})), asks_for(("note", {})), "That is all.")
    return await Engine(model=model, tools=[note], telemetry=ear).run(AGENT, "Tidy up")


def shape(turn: TurnResult) -> tuple[object, ...]:
    return (turn.outcome, turn.reason, turn.text, turn.steps, turn.tool_calls, turn.path, turn.usage)


PLACES = (
    "turn",
    "enter turn",
    "leave turn",
    "moved",
    "attempt",
    "enter attempt",
    "leave attempt",
    "call",
    "enter call",
    "leave call",
)


@pytest.mark.parametrize("place", PLACES)
async def test_telemetry_error_is_logged_and_changes_nothing(place: str, caplog: pytest.LogCaptureFixture) -> None:
    ear = Ear(place)
    turn = await run(ear)
    assert place in ear.heard
    assert shape(turn) == shape(await run(None))
    warned = [record for record in caplog.records if record.name == "turnwright.telemetry"]
    assert warned
    assert all(record.levelno == logging.WARNING and "the turn continues" in record.message for record in warned)
    assert {vars(record).get("turn") for record in warned} == {turn.id}
    assert all({"step", "state"} <= vars(record).keys() for record in warned)


async def test_telemetry_receives_the_work_in_order(caplog: pytest.LogCaptureFixture) -> None:
    ear = Ear()
    await run(ear)
    step = ["attempt", "enter attempt", "leave attempt", "moved", "call", "enter call", "leave call"]
    blocks = [name for name in ear.heard if name != "moved"]
    assert blocks == [
        "turn",
        "enter turn",
        *([name for name in step if name != "moved"] * 2),
        *step[:3],
        "leave turn",
    ]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_telemetry_hides_no_error_of_the_engine() -> None:
    model = ScriptedModel(ModelError("no", cause=Cause.BAD_REQUEST))
    turn = await Engine(model=model, telemetry=Ear()).run(AGENT, "Tidy up")
    assert str(turn.reason) == "model_error"


async def test_error_type_is_the_class_of_the_first_error() -> None:
    class OwnError(Exception):
        pass

    assert error_type(ValueError("x")) == "ValueError"
    assert error_type(OwnError()).endswith("OwnError")
    assert error_type(ModelError("x", cause=Cause.TIMEOUT)) == "timeout"
