"""The tab of rules, the chips of calls, and their links to the calls that decided."""

import pytest
from tests.engine.ruled_turn import AGENT, engine_with_rules
from tests.inspector.conftest import browser
from tests.inspector.turns_made import look

from turnwright import Agent
from turnwright.store import MemoryStore
from turnwright_inspector import Open, inspector_app
from turnwright_inspector.tabs import rules, transcript
from turnwright_inspector.views.rule_decisions import call_place

pytestmark = pytest.mark.anyio


async def test_each_rule_has_its_words_state_and_decisions() -> None:
    """The tab shows each rule, what is owed, and each decision with the calls that it names."""
    async with engine_with_rules(MemoryStore()) as engine:
        turn = (await engine.run(AGENT, "Pay order 7 back.")).id
        whole = rules.view(await look(engine, turn))
        step = rules.view(await look(engine, turn, "2"))
    assert [row.status.rule.name for row in whole.rules] == ["verify-first", "large", "tested", "noted"]
    assert (whole.owed, whole.broken) == (0, 4)
    first = whole.rules[0]
    assert first.words.splitlines()[0] == "before: refund"
    assert [place.call for place in first.by] == ["call00002"]
    effects = [(row.decision.effect, row.call and row.call.call) for row in first.decisions]
    assert effects == [("refuse", "call00001"), ("allow", "call00003")]
    assert [place.call for place in first.decisions[1].by] == ["call00002"]
    assert [row.decision.effect for row in step.rules[0].decisions] == ["allow"]


async def test_obligation_is_open_at_an_earlier_place() -> None:
    """An answer that is owed a call is shown as owed, at the place in the journal that is looked at."""
    async with engine_with_rules(MemoryStore()) as engine:
        turn = (await engine.run(AGENT, "Pay order 7 back.")).id
        whole = await look(engine, turn)
        third = next(step for step in whole.turn.steps if step.key == "3")
        view = rules.view(await look(engine, turn, at=third.last))
    assert (view.owed, [row.status.is_owed for row in view.rules]) == (1, [False, False, True, False])


async def test_judged_call_has_chips_that_link_to_their_evidence() -> None:
    """A call's row has each decision about it; its chip names the rule, and its evidence leads to the earlier call."""
    async with engine_with_rules(MemoryStore()) as engine:
        turn = (await engine.run(AGENT, "Pay order 7 back.")).id
        lines = transcript.view(await look(engine, turn)).lines
        rows = {part.row.id: part.row for line in lines for part in line.parts if part.row is not None}
        async with browser(inspector_app(engine, access=Open())) as client:
            page = (await client.get(f"/turns/{turn}")).text
            tab = (await client.get(f"/turns/{turn}?tab=rules")).text
            needs = (await client.get("/needs-you")).text
    effects = {call: [row.decision.effect for row in call_row.decisions] for call, call_row in rows.items()}
    assert effects["call00001"] == ["refuse"]
    assert effects["call00003"] == ["allow"]
    assert effects["call00004"] == ["report"]
    assert effects["call00006"] == ["ask"]
    assert ">refused by verify-first</span>" in page
    assert ">asked by large</span>" in page
    assert 'id="tab-rules"' in page
    assert 'call=call00002#call-call00002">call00002</a>' in page
    assert 'tab=journal&amp;until=4#fact-4">fact 4</a>' in tab
    assert "Asked by <code" in needs


async def test_turn_without_rules_has_no_tab() -> None:
    async with engine_with_rules(MemoryStore()) as engine:
        turn = (await engine.run(Agent(name="Clerk"), "Pay order 7 back.")).id
        async with browser(inspector_app(engine, access=Open())) as client:
            assert 'id="tab-rules"' not in (await client.get(f"/turns/{turn}")).text
            assert "This turn has no rules" in (await client.get(f"/turns/{turn}?tab=rules")).text


@pytest.mark.parametrize(
    ("event", "turn", "call"),
    [
        ("call00003", "root", "call00003"),
        ("call00001:call00002", "root:call00001", "call00002"),
        ("earlier/call00003", "earlier", "call00003"),
        ("earlier/call00001:call00002", "earlier:call00001", "call00002"),
        ("prompt", "root", ""),
        ("call00001:message3", "root:call00001", ""),
    ],
)
async def test_event_of_a_history_has_its_turn_and_its_call(event: str, turn: str, call: str) -> None:
    """Evidence may be a call of an earlier turn of the session, or of another agent of the tree."""
    for name in ("root", "root:call00009"):
        place = call_place(name, event)
        assert (place.words, place.turn, place.call) == (event, turn, call)
