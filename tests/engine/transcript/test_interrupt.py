"""Open interrupts are listed in the order of their calls."""

from turnwright.journal.result import result_of
from turnwright.model import asks_for
from turnwright.tools import tool
from turnwright_states import facts as f
from turnwright_testing import Answers, Asks, Scenario, play


@tool
async def look(name: str) -> str:
    return name


def test_interrupts_are_listed_in_the_order_of_their_calls() -> None:
    scenario = Scenario(
        script=(asks_for(("look", {"name": "first"}), ("look", {"name": "second"})), "Done."),
        behaviours=(Asks(midway=True), Asks()),
        people=(Answers(first=1),),
    )
    (driven,) = play(scenario, tools=[look])
    facts = [fact for _, fact in driven.facts]
    call_ids = [fact.call for fact in facts if isinstance(fact, f.CallWaiting)]
    assert call_ids == ["call00002", "call00001"], "the one that asks before it starts is the first"
    paused = next(number for number, fact in enumerate(facts, 1) if isinstance(fact, f.Paused))
    waiting = result_of("turn", driven.facts[:paused]).interrupts
    assert [(interrupt.arguments or {}).get("name") for interrupt in waiting] == ["first", "second"]
    answered = next(fact for fact in facts if isinstance(fact, f.Answered))
    assert answered.interrupt == waiting[0].id
