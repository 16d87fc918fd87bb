"""The machine's actions: what each hands back to be fed, with the seconds of driving until then."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import cast

import anyio
import pytest

from turnwright import Agent, Engine, StoreError, tool
from turnwright.driver.actions import perform
from turnwright.driver.segment import Segment
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright.model.retry import Backoff
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import MemoryStore, Store
from turnwright.testing import FaultyStore
from turnwright_states import Cause, EndReason, Halt, Limits, Outcome, Usage
from turnwright_states import facts as f

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Helper")
USED = Usage(input_tokens=7)
ONE_STEP = Limits(steps=1, conclude_seconds=20, max_retries=1)


@tool
def look() -> str:
    return "seen"


def error(cause: Cause) -> ModelError:
    return ModelError("no", cause=cause, partial=ModelResponse(usage=USED))


async def hangs(_: ModelRequest) -> ModelResponse:
    await anyio.sleep_forever()
    raise AssertionError


def ticking() -> float:
    """A clock that goes on a second whenever it is read."""
    return float(next(_SECONDS))


_SECONDS = count(100)


def engine(*said: object, store: Store | None = None, limits: Limits | None = None) -> Engine:
    model = ScriptedModel(*said)  # type: ignore[arg-type]  # replies, and functions that make one
    return Engine(
        model=model,
        tools=[look],
        store=store or MemoryStore(),
        limits=limits,
        clock=ticking,
        backoff=Backoff(initial=0),
    )


async def untimed(store: Store) -> list[str]:
    """The kinds of the facts that say no time, of the one turn in the store."""
    (row,) = await store.turns()
    return [fact.kind for _, fact in await store.facts(row.id) if not fact.elapsed]


CALLS = asks_for(("look", {}))
BUSY = error(Cause.OVERLOADED)


@pytest.mark.parametrize(
    ("said", "limits"),
    [
        (["Done."], None),
        ([BUSY, "Done."], None),
        ([error(Cause.CONTENT_FILTER)], None),
        ([CALLS, "Done."], ONE_STEP),
        ([CALLS, BUSY, "Done."], ONE_STEP),
        ([CALLS, error(Cause.EMPTY_REPLY), "Done."], ONE_STEP),
        ([CALLS, hangs, "Done."], ONE_STEP),
        (["Done."], Limits(steps=0)),
    ],
)
async def test_every_fact_but_the_first_ones_has_its_time(said: Sequence[Line], limits: Limits | None) -> None:
    store = MemoryStore()
    await engine(*said, store=store, limits=limits).run(AGENT, "Go.")
    assert set(await untimed(store)) <= {"turn_started", "step_started"}


@pytest.mark.parametrize(
    ("said", "limits", "kind"),
    [
        ([error(Cause.CONTENT_FILTER)], None, f.ModelReplied),
        ([BUSY, "Done."], None, f.AttemptFailed),
        ([CALLS, BUSY, "Done."], ONE_STEP, f.AttemptFailed),
        ([CALLS, error(Cause.EMPTY_REPLY), "Done."], ONE_STEP, f.Concluded),
    ],
)
async def test_what_a_failed_call_used_is_in_the_journal(
    said: Sequence[Line], limits: Limits | None, kind: type[f.ModelReplied | f.AttemptFailed | f.Concluded]
) -> None:
    store = MemoryStore()
    turn = await engine(*said, store=store, limits=limits).run(AGENT, "Go.")
    found = [fact.usage for _, fact in await store.facts(turn.id) if isinstance(fact, kind)]
    assert found[0] == USED


async def test_a_call_during_which_the_process_died_is_a_failed_attempt_that_says_so() -> None:
    memory = MemoryStore()
    with suppress(StoreError):
        await engine("Lost.", store=FaultyStore(memory, at=1)).run(AGENT, "Go.")
    await memory.aclose()
    (row,) = await memory.turns()
    await engine("Done.", store=memory).resume(row.id)
    (failed,) = [fact for _, fact in await memory.facts(row.id) if isinstance(fact, f.AttemptFailed)]
    assert (failed.cause, failed.message) == (Cause.CRASH, "the process died during this call")
    assert failed.elapsed


def test_a_turn_that_rests_has_no_action_to_perform() -> None:
    with pytest.raises(TypeError, match=r"^Halt is nothing to perform$"):
        perform(cast("Segment", None), Halt(Outcome.FINISHED, EndReason.ANSWERED))
