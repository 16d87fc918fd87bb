"""Eight processes settle, answer and expire one wait at once: one of them wins, and the others are refused."""

import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from turnwright import (
    Agent,
    AlreadySettledError,
    Engine,
    InvalidAnswerError,
    Later,
    TurnAlreadyEndedError,
    reject,
    tool,
)
from turnwright.model import ScriptedModel, asks_for
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.store import open_store
from turnwright_states.facts import Answered, CallSettled
from turnwright_states.replay import replay
from turnwright_testing.faults import DriverProcess
from turnwright_testing.faults.process import CONTEXT

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

KEY, QUESTION = "t:call00001", "result-call00001"
EIGHT_DAYS = 691_200.0
#: What each process does.
ACTS = ("settle", "settle", "settle", "settle again", "settle again", "reject", "expire", "drive")
REFUSALS = {"AlreadySettledError", "InvalidAnswerError", "TurnAlreadyEndedError"}


@tool
def render() -> Later:
    """Render elsewhere."""
    return Later()


def reply(request: ModelRequest) -> ModelResponse | str:
    """Reply by the conversation, not by the number of calls."""
    return "Done." if any(message.calls for message in request.messages) else asks_for(("render", {}))


def make_engine(address: str, now: Callable[[], float] = time.time) -> Engine:
    return Engine(model=ScriptedModel(reply, repeat=True), tools=[render], store=open_store(address), now=now)


async def act(address: str, barrier: Barrier, number: int, folder: Path) -> None:
    """Do the act of this number when all processes are ready, and write its outcome to a file."""
    kind = ACTS[number]
    async with make_engine(address, (lambda: time.time() + EIGHT_DAYS) if kind == "expire" else time.time) as engine:
        await engine.get("t")  # the store is open
        barrier.wait(600)
        try:
            if kind == "reject":
                await engine.answer("t", {QUESTION: reject(f"by {number}")}, by=str(number))
                outcome = "True"
            elif kind.startswith("settle"):
                result = "same" if kind == "settle again" else f"by {number}"
                outcome = str(await engine.settle(KEY, result, by=str(number)))
            else:
                await engine.recover()
                outcome = "drove"
        except (AlreadySettledError, InvalidAnswerError, TurnAlreadyEndedError) as error:
            outcome = type(error).__name__
    (folder / str(number)).write_text(outcome)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that processes share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/turns.db"
    make: Callable[[], str] = request.getfixturevalue("new_database")
    return make()


@pytest.mark.parametrize("race", range(4))
async def test_one_of_eight_processes_wins_a_wait(address: str, tmp_path: Path, race: int) -> None:
    """Rules 6 and 11: no result that was accepted is lost, and none that was refused is used."""
    async with make_engine(address) as engine:
        await engine.run(Agent(name="A"), "Go.", id="t")
    barrier = CONTEXT.Barrier(len(ACTS))
    order = [(number + 3 * race) % len(ACTS) for number in range(len(ACTS))]
    processes = [DriverProcess(act, address, barrier, number, tmp_path) for number in order]
    assert [process.wait(600) for process in processes] == [0] * len(ACTS)
    async with make_engine(address) as engine:
        await engine.recover()
        turn = await engine.get("t")
        facts = await engine.store.facts("t")
    (answered,) = [fact for _, fact in facts if isinstance(fact, Answered)]
    (settled,) = [fact for _, fact in facts if isinstance(fact, CallSettled)]
    assert turn.text == "Done."
    assert replay(facts).fault is None
    outcomes = {number: (tmp_path / str(number)).read_text() for number in range(len(ACTS))}
    winners = [str(number) for number, outcome in outcomes.items() if outcome == "True"]
    assert winners == ([] if answered.via == "expiry" else [answered.by]), (outcomes, answered)
    repeats = [number for number, outcome in outcomes.items() if outcome == "False"]
    assert all(ACTS[number] == "settle again" and settled.result == "same" for number in repeats), outcomes
    counts = Counter(outcomes.values())
    assert sum(counts[refusal] for refusal in REFUSALS) + len(winners) + len(repeats) == 6, outcomes
