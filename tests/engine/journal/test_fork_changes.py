"""A fork with changes: it is as if the original had had them from the beginning, and it names them."""

import pytest
from tests.engine.journal.test_fork import AGENT, KINDS, TOOLS, build_engine, holds, journals

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
    engine = build_engine(store, asks_for(("note", {"n": 1})), asks_for(("note", {"n": 2})), "Done.", *more)
    turn = await engine.run(AGENT, "hi")
    ends = [place for place in await engine.fork_places(turn.id) if isinstance(place.event, CallSettledInput)]
    return engine, turn, {"first": ends[0].last, "second": ends[1].last}


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
    engine = Engine(model=ScriptedModel("Hello.", say), store=store)
    turn = await engine.run(Agent(name="Greeter", instructions="Greet."), "hi")
    fork = await engine.fork(turn.id, at=2, prompt="Good evening", instructions="Greet in French.")
    await engine.resume(fork)
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
    other_model = ScriptedModel("B.", name="two")
    store = MemoryStore()
    engine = Engine(
        model=thinking, models=lambda name: other_model if name == "two" else thinking, tools=TOOLS, store=store
    )
    turn = await engine.run(AGENT, "hi")
    place = (await engine.fork_places(turn.id))[-1].last
    fork = await engine.fork(turn.id, at=place, model="two")
    assert (await engine.resume(fork)).text == "B."
    replied = [fact for _, fact in await store.facts(fork) if isinstance(fact, f.ModelReplied)]
    assert replied[0].reasoning_details == ()
    assert ((await store.get(fork)).model, (await started(store, fork)).forked_with) == ("two", ("model",))
    assert holds(await store.facts(fork))


async def test_other_settings_take_the_place_of_the_originals() -> None:
    store = MemoryStore()
    engine = Engine(model=ScriptedModel("A.", "B."), store=store, model_settings=ModelSettings(temperature=1, seed=2))
    turn = await engine.run(AGENT, "hi")
    fork = await engine.fork(turn.id, at=2, model_settings={"temperature": 0.5})
    first = await started(store, fork)
    assert (first.model_settings, first.forked_with) == ({"temperature": 0.5}, ("model_settings",))
    with pytest.raises(ConfigError, match="model_settings: temprature"):
        await engine.fork(turn.id, at=2, model_settings={"temprature": 0.5})


async def test_a_lower_limit_holds_from_the_place_of_the_fork() -> None:
    store = MemoryStore()
    engine, turn, places = await noted(store, "So far.")
    fork = await engine.fork(turn.id, at=places["first"], limits={"steps": 2, "tokens": 1000})
    ended = await engine.resume(fork)
    first = await started(store, fork)
    assert first.forked_with == ("limits.steps", "limits.tokens")
    assert first.limits.cap == 2
    assert ended.steps == 2
    assert holds(await store.facts(fork))
    starts = [
        [fact.started_at for _, fact in await store.facts(name) if isinstance(fact, f.StepStarted)]
        for name in (turn.id, fork)
    ]
    assert starts[0][:2] == starts[1]


async def test_limit_passed_before_the_fork_place_is_refused() -> None:
    store = MemoryStore()
    engine, turn, places = await noted(store)
    with pytest.raises(ConfigError, match="would differ before fact"):
        await engine.fork(turn.id, at=places["second"], limits={"steps": 1})
    with pytest.raises(ConfigError, match=r"limits\.stepps: .*did you mean"):
        await engine.fork(turn.id, at=places["second"], limits={"stepps": 1})
    assert len(await store.turns()) == 1


async def test_the_model_reads_another_result() -> None:
    store = MemoryStore()
    engine, turn, places = await noted(store, "Done again.")
    call = next(fact.call for _, fact in await store.facts(turn.id) if isinstance(fact, f.CallSettled))
    fork = await engine.fork(turn.id, at=places["second"], results={call: "Something else."})
    ended = await engine.resume(fork)
    texts = [part.text for message in ended.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert texts == ["Something else.", "noted 2"]
    assert (await started(store, fork)).forked_with == (f"results.{call}",)
    assert holds(await store.facts(fork))
    with pytest.raises(ConfigError, match="has no result of a tool"):
        await engine.fork(turn.id, at=2, results={call: "x"})


async def test_changed_results_forming_a_loop_stop_the_fork() -> None:
    store = MemoryStore()
    note_calls = [asks_for(("note", {"n": 1})) for _ in range(3)]
    numbers = iter(range(9))

    @tool
    async def note(n: int) -> str:
        """Note."""
        return f"{n}: {next(numbers)}"

    engine = Engine(model=ScriptedModel(*note_calls, "Done."), tools=[note], store=store)
    turn = await engine.run(AGENT, "hi")
    assert turn.reason is EndReason.ANSWERED
    calls = [fact.call for _, fact in await store.facts(turn.id) if isinstance(fact, f.CallSettled)]
    place = (await engine.fork_places(turn.id))[-1].last
    ended = await engine.resume(await engine.fork(turn.id, at=place, results=dict.fromkeys(calls, "same")))
    assert ended.reason is EndReason.DOOM_LOOP


async def test_unchanged_or_unknown_change_is_refused() -> None:
    store = MemoryStore()
    engine, turn, places = await noted(store)
    plain = await engine.fork(turn.id, at=places["first"])
    same = await engine.fork(turn.id, at=places["first"], prompt="hi", limits={"steps": None})
    assert await store.facts(same) == await store.facts(plain)
    for changes, why in (
        ({"promt": "x"}, "cannot be changed"),
        ({"prompt": " "}, "blank"),
        ({"model": ""}, "model"),
    ):
        with pytest.raises(ConfigError, match=why):
            await engine.fork(turn.id, at=2, **changes)  # type: ignore[arg-type]  # what is wrong is tried


async def test_instructions_made_by_a_function_cannot_be_changed() -> None:
    def say(context: TurnContext[None]) -> str:
        return f"You are in {context.turn_id}."

    store = MemoryStore()
    agent = Agent(name="Dynamic", instructions=say)
    engine = Engine(model=ScriptedModel("A."), agents=[agent], store=store)
    turn = await engine.run(agent, "hi")
    with pytest.raises(ConfigError, match="a function of the agent makes them"):
        await engine.fork(turn.id, at=2, instructions="Other.")
