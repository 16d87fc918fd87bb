"""A fork with changes: it is as if the original had had them from the beginning, and it names them."""

import pytest
from tests.engine.journal.test_fork import AGENT, KINDS, TOOLS, engine, holds, journals

from turnwright import Agent, ConfigError, Engine, ModelSettings, TurnResult, tool
from turnwright.context import TurnContext
from turnwright.journal.fork import fork_places, inputs_until
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ModelRequest, ModelResponse, ResponseToolCall
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore, Store
from turnwright_states import CallSettledInput, EndReason
from turnwright_states import facts as f
from turnwright_states.event_inference import started_input
from turnwright_states.rederive import rederive

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]


async def noted(store: Store, *more: str) -> tuple[Engine, TurnResult, dict[str, int]]:
    """A turn of three steps, and the places to fork it at: after the first batch, and after the second."""
    one = engine(store, asks_for(("note", {"n": 1})), asks_for(("note", {"n": 2})), "Done.", *more)
    turn = await one.run(AGENT, "hi")
    ends = [place for place in await one.fork_places(turn.id) if isinstance(place.event, CallSettledInput)]
    return one, turn, {"first": ends[0].last, "second": ends[1].last}


async def started(store: Store, turn_id: str) -> f.TurnStarted:
    first = (await store.facts(turn_id))[0][1]
    assert isinstance(first, f.TurnStarted)
    return first


@pytest.mark.parametrize("kind", KINDS)
async def test_replayed_inputs_give_the_same_facts(kind: str) -> None:
    store = MemoryStore()
    await KINDS[kind](store)
    for turn_id, journal in (await journals(store)).items():
        facts = [fact for _, fact in journal]
        first = facts[0]
        assert isinstance(first, f.TurnStarted)
        places = fork_places(turn_id, journal)
        for place in places:
            again = rederive(facts[: place.last], inputs_until(place.last, places, journal), started_input(first))
            assert again == facts[: place.last]


async def test_another_prompt_and_other_instructions_reach_the_model() -> None:
    heard: list[ModelRequest] = []

    def say(request: ModelRequest) -> str:
        heard.append(request)
        return "Done."

    store = MemoryStore()
    one = Engine(model=ScriptedModel("Hello.", say), store=store)
    turn = await one.run(Agent(name="Greeter", instructions="Greet."), "hi")
    fork = await one.fork(turn.id, at=2, prompt="Good evening", instructions="Greet in French.")
    await one.resume(fork)
    first = await started(store, fork)
    assert (first.prompt, first.forked_with) == ("Good evening", ("prompt", "instructions"))
    assert [part.to_json()["text"] for message in heard[0].messages for part in message.parts] == [
        *("Greet in French.", "Good evening")
    ]
    assert holds(await store.facts(fork))
    assert (await started(store, turn.id)).prompt == "hi"


async def test_another_model_answers_without_the_signatures_of_the_first() -> None:
    signed = ({"type": "thinking", "signature": "s"},)
    call = ResponseToolCall("note", {"n": 1})
    thinking = ScriptedModel(ModelResponse(reasoning="Hm.", reasoning_details=signed, calls=(call,)), "A.", name="one")
    other = ScriptedModel("B.", name="two")
    store = MemoryStore()
    both = Engine(model=thinking, models=lambda name: other if name == "two" else thinking, tools=TOOLS, store=store)
    turn = await both.run(AGENT, "hi")
    place = (await both.fork_places(turn.id))[-1].last
    fork = await both.fork(turn.id, at=place, model="two")
    assert (await both.resume(fork)).text == "B."
    replied = [fact for _, fact in await store.facts(fork) if isinstance(fact, f.ModelReplied)]
    assert replied[0].reasoning_details == ()
    assert ((await store.get(fork)).model, (await started(store, fork)).forked_with) == ("two", ("model",))
    assert holds(await store.facts(fork))


async def test_other_settings_take_the_place_of_the_originals() -> None:
    store = MemoryStore()
    one = Engine(model=ScriptedModel("A.", "B."), store=store, model_settings=ModelSettings(temperature=1, seed=2))
    turn = await one.run(AGENT, "hi")
    fork = await one.fork(turn.id, at=2, model_settings={"temperature": 0.5})
    first = await started(store, fork)
    assert (first.model_settings, first.forked_with) == ({"temperature": 0.5}, ("model_settings",))
    with pytest.raises(ConfigError, match="model_settings: temprature"):
        await one.fork(turn.id, at=2, model_settings={"temprature": 0.5})


async def test_a_lower_limit_holds_from_the_place_of_the_fork() -> None:
    store = MemoryStore()
    one, turn, places = await noted(store, "So far.")
    fork = await one.fork(turn.id, at=places["first"], limits={"steps": 2, "tokens": 1000})
    ended = await one.resume(fork)
    first = await started(store, fork)
    assert first.forked_with == ("limits.steps", "limits.tokens")
    assert first.limits.cap == 2
    assert ended.steps == 2
    assert holds(await store.facts(fork))
    began = [
        [fact.started_at for _, fact in await store.facts(name) if isinstance(fact, f.StepStarted)]
        for name in (turn.id, fork)
    ]
    assert began[0][:2] == began[1]


async def test_limit_passed_before_the_fork_place_is_refused() -> None:
    store = MemoryStore()
    one, turn, places = await noted(store)
    with pytest.raises(ConfigError, match="would differ before fact"):
        await one.fork(turn.id, at=places["second"], limits={"steps": 1})
    with pytest.raises(ConfigError, match=r"limits\.stepps: .*did you mean"):
        await one.fork(turn.id, at=places["second"], limits={"stepps": 1})
    assert len(await store.turns()) == 1


async def test_the_model_reads_another_result() -> None:
    store = MemoryStore()
    one, turn, places = await noted(store, "Done again.")
    call = next(fact.call for _, fact in await store.facts(turn.id) if isinstance(fact, f.CallSettled))
    fork = await one.fork(turn.id, at=places["second"], results={call: "Something else."})
    ended = await one.resume(fork)
    texts = [part.text for message in ended.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert texts == ["Something else.", "noted 2"]
    assert (await started(store, fork)).forked_with == (f"results.{call}",)
    assert holds(await store.facts(fork))
    with pytest.raises(ConfigError, match="has no result of a tool"):
        await one.fork(turn.id, at=2, results={call: "x"})


async def test_changed_results_forming_a_loop_stop_the_fork() -> None:
    store = MemoryStore()
    said = [asks_for(("note", {"n": 1})) for _ in range(3)]
    numbers = iter(range(9))

    @tool
    async def note(n: int) -> str:
        """Note."""
        return f"{n}: {next(numbers)}"

    one = Engine(model=ScriptedModel(*said, "Done."), tools=[note], store=store)
    turn = await one.run(AGENT, "hi")
    assert turn.reason is EndReason.ANSWERED
    calls = [fact.call for _, fact in await store.facts(turn.id) if isinstance(fact, f.CallSettled)]
    place = (await one.fork_places(turn.id))[-1].last
    ended = await one.resume(await one.fork(turn.id, at=place, results=dict.fromkeys(calls, "same")))
    assert ended.reason is EndReason.DOOM_LOOP


async def test_unchanged_or_unknown_change_is_refused() -> None:
    store = MemoryStore()
    one, turn, places = await noted(store)
    plain = await one.fork(turn.id, at=places["first"])
    same = await one.fork(turn.id, at=places["first"], prompt="hi", limits={"steps": None})
    assert await store.facts(same) == await store.facts(plain)
    for changes, why in (
        ({"promt": "x"}, "cannot be changed"),
        ({"prompt": " "}, "blank"),
        ({"model": ""}, "model"),
    ):
        with pytest.raises(ConfigError, match=why):
            await one.fork(turn.id, at=2, **changes)  # type: ignore[arg-type]  # what is wrong is tried


async def test_instructions_made_by_a_function_cannot_be_changed() -> None:
    def say(context: TurnContext[None]) -> str:
        return f"You are in {context.turn_id}."

    store = MemoryStore()
    agent = Agent(name="Dynamic", instructions=say)
    one = Engine(model=ScriptedModel("A."), agents=[agent], store=store)
    turn = await one.run(agent, "hi")
    with pytest.raises(ConfigError, match="a function of the agent makes them"):
        await one.fork(turn.id, at=2, instructions="Other.")
