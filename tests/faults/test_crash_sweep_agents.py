"""The process dies at every append of a turn with a typed answer and a compaction; another one takes it up."""

import pytest
from pydantic import BaseModel

from turnwright import Agent, Compact, Engine, StoreError, TurnResult, tool
from turnwright.context import TurnContext
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore, Store
from turnwright.transcript.pairing import check_pairing
from turnwright_states import Outcome
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict
from turnwright_testing import FaultyStore

from .test_crash_sweep import follows, shown

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

SUMMARY = "Note a was written."


class Report(BaseModel):
    notes: int


def reply(request: ModelRequest) -> ModelResponse | str:
    """Choose the reply by the conversation: two notes, a report that does not fit, a report that does."""
    text = str(request.messages)
    if "only your summary of it will remain" in text:
        return SUMMARY
    if "notes: Input should be a valid integer" in text:
        return asks_for(("final_result", {"notes": 2}))
    if "noted b" in text:
        return asks_for(("final_result", {"notes": "two"}))
    return asks_for(("note", {"text": "b" if "noted a" in text else "a"}))


def counted(_: TurnContext, report: Report) -> Report:
    return report.model_copy(update={"notes": report.notes + 10})


AGENT = Agent(
    name="Reporter",
    output_type=Report,
    output_validators=[counted],
    compaction=Compact(at_tokens=30, keep_steps=1, max_compactions=1),
)


@tool(idempotent=True)
async def note(text: str) -> str:
    """Write a note."""
    return f"noted {text} " + "word " * 40


def engine(store: Store) -> Engine:
    return Engine(model=ScriptedModel(reply, repeat=True), tools=[note], agents=[AGENT], store=store)


async def finished(store: Store) -> TurnResult:
    """Take the only turn up until it has ended. Each time it is another engine."""
    (row,) = await store.turns()
    while (await store.get(row.id)).status.outcome is None:
        await engine(store).resume(row.id)
    return await engine(store).attach(row.id, AGENT).result()


async def undisturbed() -> tuple[TurnResult, int]:
    """Return the turn as it ends without a crash, and the number of its appends."""
    store = FaultyStore(MemoryStore())
    return await engine(store).run(AGENT, "Write two notes."), store.appends


async def test_turn_compacts_refuses_and_answers() -> None:
    turn, _ = await undisturbed()
    assert (turn.outcome, turn.output) == (Outcome.FINISHED, Report(notes=12))
    assert SUMMARY not in str(turn.messages)
    assert turn.steps == 4


@pytest.mark.parametrize("after", [False, True])
async def test_turn_with_a_death_at_any_append_ends_the_same(*, after: bool) -> None:
    """The same transcript, the same answer, every hash right, and the journal replays."""
    whole, appends = await undisturbed()
    for at in range(1, appends + 1):
        store = MemoryStore()
        dying = FaultyStore(store, at=at, after=after)
        with pytest.raises(StoreError, match="as planned"):
            await engine(dying).run(AGENT, "Write two notes.")
        await dying.aclose()
        turn = await finished(store)
        assert (shown(turn), turn.output) == (shown(whole), Report(notes=12)), at
        facts = await store.facts(turn.id)
        assert follows(facts)
        assert replay(facts).check.verdict is Verdict.HOLDS
        assert sum(isinstance(fact, f.Compacted) for _, fact in facts) == 1, (at, [fact.kind for _, fact in facts])
        check_pairing(turn.messages)
