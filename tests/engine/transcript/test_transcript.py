"""The transcript: messages and parts, computed from the facts."""

from collections.abc import Sequence
from typing import Final

import pytest
from msgspec.structs import replace

from turnwright import Agent, Engine, Price, TurnContext, TurnResult, before_model, tool
from turnwright.driver.driver import Driver
from turnwright.message import (
    AnyPart,
    Message,
    ReasoningPart,
    SentinelPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.status import sentinel_text
from turnwright.transcript.pairing import check_pairing
from turnwright.transcript.part_seq import fact_of
from turnwright.transcript.transcript import Transcript
from turnwright_states import (
    REASONS,
    AbortInput,
    AttemptFailedInput,
    CallSettledInput,
    CallStartedInput,
    Cause,
    ConcludedInput,
    EndReason,
    ExpireInput,
    FailInput,
    Finish,
    Input,
    Limits,
    ModelRepliedInput,
    Outcome,
    StartedInput,
    SteeredInput,
    ToolCall,
    Turn,
    TurnMachine,
    Usage,
)
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier", instructions="You tidy up.")


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


def parts(messages: Sequence[Message]) -> list[AnyPart]:
    return [part for message in messages for part in message.parts]


def kinds(messages: Sequence[Message]) -> list[tuple[str, list[str]]]:
    return [(message.role, [part.type for part in message.parts]) for message in messages]


async def worked() -> TurnResult:
    reply = ModelResponse(
        text="Let me see.",
        reasoning="hm",
        reasoning_details=({"signature": "s"},),
        calls=(ResponseToolCall("note", {"n": 1}), ResponseToolCall("note", {"n": 2})),
        usage=Usage(input_tokens=7, output_tokens=3),
    )
    return await Engine(model=ScriptedModel(reply, "Tidy."), tools=[note]).run(AGENT, "Tidy utils.py")


async def test_a_step_is_an_assistants_message_and_a_message_for_each_result() -> None:
    assert kinds((await worked()).messages) == [
        ("user", ["text"]),
        ("assistant", ["step_start", "reasoning", "text", "tool_call", "tool_call", "step_finish"]),
        ("tool", ["tool_result"]),
        ("tool", ["tool_result"]),
        ("assistant", ["step_start", "text", "step_finish"]),
    ]


async def test_parts_record_text_calls_and_results() -> None:
    turn = await worked()
    (_, _, thought, _, *_) = parts(turn.messages)
    assert isinstance(thought, ReasoningPart)
    assert (thought.text, thought.details) == ("hm", ({"signature": "s"},))
    starts = [part.step_number for part in parts(turn.messages) if isinstance(part, StepStartPart)]
    assert starts == [1, 2]
    finish = next(part for part in parts(turn.messages) if isinstance(part, StepFinishPart))
    assert (finish.step_number, finish.input_tokens, finish.output_tokens) == (1, 7, 3)
    assert finish.seconds >= 0
    calls = [part for part in parts(turn.messages) if isinstance(part, ToolCallPart)]
    results = [part for part in parts(turn.messages) if isinstance(part, ToolResultPart)]
    assert [(part.call, part.name) for part in results] == [(part.id, part.name) for part in calls]


async def test_instructions_are_not_in_the_transcript() -> None:
    assert all(message.role != "system" for message in (await worked()).messages)


async def test_reply_cut_by_length_is_an_answer() -> None:
    reply = ModelResponse(text="Once upon a", finish=Finish.LENGTH)
    turn = await Engine(model=ScriptedModel(reply)).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.FINISHED, EndReason.TRUNCATED, "Once upon a")


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(steps=5), "Stopped at the step limit (5 of 5)."),
        (Limits(steps=5, concluding="within"), "Stopped at the step limit (5 of 5)."),
        (Limits(), "Stopped at the tool-call limit (50 of 50 calls)."),
        (Limits(tool_calls=3), "Stopped at the tool-call limit (3 of 3 calls)."),
    ],
)
async def test_the_sentinel_gives_figures(limits: Limits, says: str) -> None:
    asking = [asks_for(("note", {"n": n})) for n in range(50)]
    model = ScriptedModel(*asking, ModelResponse(text="Stop."))
    turn = await Engine(model=model, tools=[note], limits=limits).run(AGENT, "hi")
    (sentinel,) = (part for part in parts(turn.messages) if isinstance(part, SentinelPart))
    assert sentinel.text.startswith(says)
    assert turn.messages[-1].parts[-1] == sentinel


async def test_finished_turn_has_no_sentinel() -> None:
    assert not any(isinstance(part, SentinelPart) for part in parts((await worked()).messages))


async def test_failed_turn_has_a_reason_in_text() -> None:
    turn = await Engine(model=ScriptedModel()).run(AGENT, "hi")
    (sentinel,) = (part for part in parts(turn.messages) if isinstance(part, SentinelPart))
    assert (sentinel.kind, sentinel.reason) == (Outcome.FAILED, EndReason.MODEL_ERROR)
    assert sentinel.text == f"{REASONS[EndReason.MODEL_ERROR].means} You can try again."
    assert "ScriptedModel has no line" in turn.error


#: An error as a developer needs it, and no user.
INTERNAL = "KeyError in /srv/app/tools.py: set OPENAI_API_KEY, or call http://10.0.0.7:8000/v1: raise `max_tokens`"


async def test_no_sentinel_quotes_the_error_of_a_model() -> None:
    """Of each cause, as a model reports it and as a step or the conclusion meets it."""
    for cause in Cause:
        model = ScriptedModel(ModelError(INTERNAL, cause=cause), repeat=True)
        turn = await Engine(model=model, backoff=Backoff(initial=0)).run(AGENT, "hi")
        assert_for_users(sentinel_of(turn))
        if turn.reason is EndReason.MODEL_ERROR:
            assert turn.error == INTERNAL


async def test_no_sentinel_quotes_the_error_of_a_hook() -> None:
    @before_model
    async def fails(_: TurnContext, request: ModelRequest) -> None:
        raise KeyError(INTERNAL, request)

    turn = await Engine(model=ScriptedModel("Hi."), hooks=[fails]).run(AGENT, "hi")
    assert sentinel_of(turn) == "Something went wrong in the app. You can report it with the id of this turn."
    assert INTERNAL in turn.error


@pytest.mark.parametrize("reason", EndReason)
def test_a_sentinel_of_each_reason_is_for_users(reason: EndReason) -> None:
    """Also with refused calls, and without a word of the settings that `advice` names."""
    turn = Turn(Limits(tool_calls=3, tokens=3, cost=1, seconds=1))
    for refused in ((), ("note", "look")):
        assert_for_users(sentinel_text(turn, reason, refused_tools=refused, guardrail=""))
    assert "Not here." in sentinel_text(turn, reason, guardrail="Not here.")


def sentinel_of(turn: TurnResult) -> str:
    return "" if turn.sentinel is None else turn.sentinel.text


def assert_for_users(text: str) -> None:
    for word in ("`", "/", "http", "KeyError", "OPENAI_API_KEY", "raise", "hook", "engine", "journal", "agent"):
        assert word not in text, text


@pytest.mark.parametrize(
    "limits",
    [Limits(steps=1), Limits(tool_calls=1), Limits(tokens=2), Limits(cost=1e-9), Limits(seconds=1e-6)],
    ids=["steps", "calls", "tokens", "cost", "seconds"],
)
async def test_driving_a_stopped_turn_returns_at_once(limits: Limits) -> None:
    """A queue may deliver a job twice (docs/rules.md#drivers): nothing is written, whatever the limit was."""
    prices = {"scripted": Price(input=1.0, output=1.0)}
    model = ScriptedModel(asks_for(("note", {})), "Stop.", "Stop.")
    engine = Engine(model=model, tools=[note], limits=limits, prices=prices)
    turn = await engine.run(AGENT, "hi")
    assert turn.outcome is Outcome.CAP_HIT
    await Driver(engine.store, engine.setup).drive(turn.id)
    assert await engine.get(turn.id) == turn


# Parts and their places.


class Recorded:
    """A turn fed by hand, and its transcript after every fact."""

    def __init__(self) -> None:
        self.machine, facts = TurnMachine.start(StartedInput(prompt="hi"))
        self.facts: list[f.Fact] = list(facts)

    def snapshots(self) -> list[tuple[Message, ...]]:
        numbered = list(enumerate(self.facts, start=1))
        return [Transcript.of(numbered[:end]).messages for end in range(1, len(numbered) + 1)]


def test_a_message_to_the_running_turn_stands_after_the_results() -> None:
    """Never between a call and its result (docs/rules.md#messages)."""
    turn = Recorded()
    turn.facts += turn.machine.feed(ModelRepliedInput(calls=(ToolCall(name="note", arguments={}),) * 2))
    turn.facts += turn.machine.feed(SteeredInput(text="and hurry"))
    for call in ("call00002", "call00001"):
        turn.facts += turn.machine.feed(CallStartedInput(call=call))
        turn.facts += turn.machine.feed(CallSettledInput(call=call, result=call))
    turn.facts += turn.machine.feed(ModelRepliedInput(text="Hurrying."))
    final = turn.snapshots()[-1]
    assert kinds(final)[2:5] == [("tool", ["tool_result"]), ("tool", ["tool_result"]), ("user", ["text"])]
    assert [part.text for part in parts(final) if isinstance(part, ToolResultPart)] == ["call00001", "call00002"]
    check_pairing(final)


async def test_seq_of_a_part_is_stable_and_unique() -> None:
    """However long the journal grows: what was there is there, unchanged, and no two parts share a `seq`."""
    model = ScriptedModel(
        asks_for(("note", {"n": 1}), ("nowhere", {}), text="Let me see."),
        asks_for(("note", {"n": 2}), ("note", {"n": 3})),
        "That was it.",
    )
    engine = Engine(model=model, tools=[note], limits=Limits(steps=2))
    turn = await engine.run(AGENT, "hi")
    facts = await engine.store.facts(turn.id)
    earlier: dict[int, AnyPart] = {}
    for end in range(1, len(facts) + 1):
        there = parts(Transcript.of(facts[:end]).messages)
        places = [part.seq for part in there]
        assert len(set(places)) == len(places)
        now = {part.seq: part for part in there}
        assert {seq: now[seq] for seq in earlier} == earlier
        earlier = now
    assert TextPart(seq=min(earlier), text="hi") == earlier[min(earlier)]


def at_every_fact(facts: Sequence[f.Fact]) -> list[list[int]]:
    """Return the numbers of the parts after each fact: no part's changes, and each leads to its own fact."""
    journal, earlier, sequences = list(enumerate(facts, start=1)), dict[int, AnyPart](), list[list[int]]()
    for end in range(1, len(journal) + 1):
        there = parts(Transcript.of(journal[:end]).messages)
        now = {part.seq: part for part in there}
        assert now | earlier == now
        assert {fact_of(now[seq]) for seq in now.keys() - earlier.keys()} <= {end}
        earlier = now
        sequences.append([part.seq for part in there])
    return sequences


def played(*events: Input, files: int = 0) -> list[f.Fact]:
    picture = {"media_type": "image/png", "url": "https://example.com/a.png"}
    machine, facts = TurnMachine.start(StartedInput(prompt="hi", files=(picture,) * files))
    for event in events:
        facts += machine.feed(event)
    return facts


def settled(call: str, files: int = 0) -> tuple[Input, Input]:
    picture = {"media_type": "image/png", "url": "https://example.com/a.png"}
    return CallStartedInput(call=call), CallSettledInput(call=call, result=call, files=(picture,) * files)


TWO: Final = ModelRepliedInput(text="Let me see.", reasoning="hm", calls=(ToolCall(name="note", arguments={}),) * 2)


@pytest.mark.parametrize(
    "facts",
    {
        "results that come in another order": played(
            TWO, *settled("call00002", 2), *settled("call00001", 1), ModelRepliedInput(text="Done."), files=3
        ),
        "messages while calls run": played(
            TWO, SteeredInput(text="a"), *settled("call00002"), SteeredInput(text="b"), *settled("call00001"), TWO
        ),
        "messages before a reply": played(
            SteeredInput(text="a"),
            SteeredInput(text="b"),
            TWO,
            *settled("call00001"),
            *settled("call00002"),
            SteeredInput(text="c"),
            TWO,
        ),
        "messages before a reply that fails": played(
            SteeredInput(text="a"),
            AttemptFailedInput(cause=Cause.TIMEOUT),
            SteeredInput(text="b"),
            FailInput(error="x", partial="I w"),
        ),
        "an abort while calls are open": played(TWO, *settled("call00002"), AbortInput(partial="I w")),
        "a deadline while calls are open": played(
            TWO, *settled("call00002"), ExpireInput(partial="I w"), ConcludedInput(text="x")
        ),
        "an answer": played(ModelRepliedInput(text="x", reasoning="hm")),
        "the most calls": played(
            ModelRepliedInput(
                calls=(ToolCall(name="a", problem="unknown"),) * 511 + (ToolCall(name="a", arguments={}),)
            ),
            SteeredInput(text="a"),
            *settled("call00512"),
            ModelRepliedInput(text="x"),
        ),
    }.items(),
    ids=lambda case: case[0],
)
def test_numbers_rise_with_the_order_of_the_parts(facts: tuple[str, list[f.Fact]]) -> None:
    """At every fact, through all that a result holds; and a float holds each, as in JavaScript."""
    for places in at_every_fact(facts[1]):
        assert places == sorted(set(places))
        assert all(int(float(place)) == place for place in places)
    numbered = enumerate(facts[1], start=1)
    inside = [
        file_or_part.seq
        for part in parts(Transcript.of(numbered).messages)
        for file_or_part in (part, *(part.files if isinstance(part, ToolResultPart) else ()))
    ]
    assert inside == sorted(set(inside))


async def test_step_records_the_start_in_utc_and_elapsed_seconds() -> None:
    """By the engine's clock, in the event, the journal and the part; and nothing is decided by it."""
    now = [1_796_000_000.0]

    @tool
    async def wait() -> str:
        """Wait for a second, by the engine's clock."""
        now[0] += 0.9996
        return "waited"

    engine = Engine(model=ScriptedModel(asks_for(("wait", {})), "Done."), tools=[wait], now=lambda: now[0])
    async with engine.stream(AGENT, "hi") as stream:
        events = [event async for event in stream]
    lines = [line for line in (event.to_json() for event in events) if line["type"] == "step_started"]
    assert [line["started_at"] for line in lines] == ["2026-11-30T00:53:20.000Z", "2026-11-30T00:53:20.999Z"]
    messages = (await engine.get(events[0].turn)).messages
    begun = [part for part in parts(messages) if isinstance(part, StepStartPart)]
    assert [(part.started_at, part.elapsed) for part in begun] == [
        (line["started_at"], line["elapsed"]) for line in lines
    ]
    journal = await engine.store.facts(events[0].turn)
    assert replay(journal).check.verdict is Verdict.HOLDS


def for_models(messages: Sequence[Message]) -> list[Message]:
    """The messages without the parts for people."""
    bare = [
        replace(
            message,
            parts=tuple(part for part in message.parts if not isinstance(part, StepStartPart | StepFinishPart)),
        )
        for message in messages
    ]
    return [message for message in bare if message.says_something]


async def test_closed_messages_stay_the_same_objects() -> None:
    """The very same messages, however long the journal grows: who looked at them need not look again."""
    asking = (asks_for(("note", {"n": n}), ("note", {"n": -n})) for n in (1, 2))
    engine = Engine(model=ScriptedModel(*asking, "That was it."), tools=[note])
    turn = await engine.run(AGENT, "hi")
    transcript, known_messages = Transcript(), list[Message]()
    for seq, fact in await engine.store.facts(turn.id):
        transcript.turn.apply(fact)
        transcript.add(seq, fact)
        assert list(map(id, transcript.closed[: len(known_messages)])) == list(map(id, known_messages))
        assert for_models(transcript.messages) == [
            message for message in (*transcript.closed, *transcript.open) if message.says_something
        ]
        known_messages = list(transcript.closed)
    assert transcript.open == ()
    assert known_messages == for_models(turn.messages)


async def test_sent_messages_equal_the_messages_of_the_journal() -> None:
    model = ScriptedModel(asks_for(("note", {"n": 1}), text="Let me see."), "Done.")
    turn = await Engine(model=model, tools=[note]).run(AGENT, "hi")
    assert list(model.requests[-1].messages[1:4]) == for_models(turn.messages)[:3]
