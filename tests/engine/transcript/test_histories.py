"""Histories and hooks that leave calls without results: what is sent is paired all the same, or it is refused."""

import logging
from collections.abc import Sequence

import pytest
from pydantic import JsonValue

from turnwright import Agent, ConfigError, Engine, Message, tool
from turnwright.message import ToolCallPart, ToolResultPart
from turnwright.model.protocol import ModelRequest
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.transcript.pairing import NO_RESULT, check_pairing
from turnwright_states import CallStatus, EndReason, Outcome
from turnwright_states.facts import TurnStarted

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")

#: Two calls were made, one has its result, and the person continued. The last result belongs to nothing.
BROUGHT: Sequence[dict[str, JsonValue]] = (
    {"role": "user", "content": "What is in a.py and b.py?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "note", "arguments": '{"n": 1}'}},
            {"id": "c2", "type": "function", "function": {"name": "note", "arguments": '{"n": 2}'}},
        ],
    },
    {"role": "user", "content": "Well?"},
    {"role": "tool", "tool_call_id": "c2", "name": "note", "content": "noted 2"},
    {"role": "tool", "tool_call_id": "call00001", "name": "note", "content": "noted 9"},
)
NOTES = (
    "message 1: call 'c1' has no result: it is sent as unknown",
    "message 3: the result of 'c2' is moved to its call in message 1",
    "message 4: the result of 'call00001' answers no open call: it is left out",
)


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return path


def said(request: ModelRequest) -> list[tuple[str, str]]:
    """Return the roles and texts of a request that a provider accepts."""
    check_pairing(request.messages)
    ids = [call.id for message in request.messages for call in message.calls]
    assert len(set(ids)) == len(ids)
    return [(message.role, message.text or _result(message)) for message in request.messages]


def _result(message: Message) -> str:
    return "".join(f"{part.status}: {part.text}" for part in message.parts if isinstance(part, ToolResultPart))


async def test_unpaired_history_is_sent_paired() -> None:
    model = ScriptedModel(asks_for(("note", {"n": 3})), "Done.")
    turn = await Engine(model=model, tools=[note]).run(AGENT, "And now?", message_history=BROUGHT)
    assert turn.outcome is Outcome.FINISHED
    before = [
        ("user", "What is in a.py and b.py?"),
        ("assistant", ""),
        ("tool", f"unknown: {NO_RESULT}"),
        ("tool", "ok: noted 2"),
        ("user", "Well?"),
        ("user", "And now?"),
    ]
    assert said(model.requests[0]) == before
    assert said(model.requests[1]) == [*before, ("assistant", ""), ("tool", "ok: noted 3")]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message(role="ai"), "role: Input should be 'system', 'user', 'assistant' or 'tool'"),  # type: ignore[arg-type]
        (Message(role="user", parts=("Hi",)), "parts.0: Input should be"),  # type: ignore[arg-type]
        (Message(role="user", parts=None), "parts: Input should be a valid tuple"),  # type: ignore[arg-type]
        (Message.user(None), "parts.0.text.text: Input should be a valid string"),  # type: ignore[arg-type]
        (
            Message.assistant(calls=[ToolCallPart(id="c1", name="note", arguments={"n": object()})]),  # type: ignore[dict-item]
            "parts.0.tool_call.arguments.n: input was not a valid JSON value",
        ),
        (Message.result("c1", "note", "a", "fine"), "parts.0.tool_result.status: Input should be"),  # type: ignore[arg-type]
    ],
)
async def test_wrong_message_is_refused_by_number_and_field(message: Message, why: str) -> None:
    """Messages are looked at where they come in: to make one in code checks nothing."""
    engine = Engine(model=ScriptedModel("Done."))
    with pytest.raises(ConfigError) as error:
        await engine.run(AGENT, "And now?", message_history=[Message.user("hi"), message])
    assert str(error.value).startswith(f"message_history: message 1: {why}")
    assert await engine.store.turns() == []


async def test_own_json_is_a_history_too() -> None:
    """With its parts and their numbers, as the turn has them."""
    engine = Engine(model=(model := ScriptedModel("Hello, Ann.", "You are Ann.")))
    turn = await engine.run(AGENT, "I am Ann.")
    await engine.run(AGENT, "Who am I?", message_history=[message.to_json() for message in turn.messages])
    texts = [message.text for message in model.requests[1].messages]
    assert texts == ["I am Ann.", "Hello, Ann.", "Who am I?"]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"role": "user", "text": "I am Ann."}, "it has no content: write {'role': ..., 'content': ...}"),
        ({"role": "assistant"}, "it has no content"),
        ({"role": "user", "parts": [{"type": "data-weather"}]}, "parts.0: Input tag 'data-weather' found using"),
        ({"role": "user", "parts": "I am Ann."}, "parts: Input should be a valid tuple"),
    ],
)
async def test_message_without_content_is_refused(message: dict[str, JsonValue], why: str) -> None:
    """It would be left out of the history, and nobody would see it."""
    with pytest.raises(ConfigError) as error:
        await Engine(model=ScriptedModel("Done.")).run(AGENT, "Who am I?", message_history=[message])
    assert str(error.value).startswith(f"message_history: message 0: {why}")


async def test_imported_history_ignores_later_changes_by_the_caller() -> None:
    arguments: dict[str, JsonValue] = {"n": 1}
    history = [Message.assistant(calls=[ToolCallPart(id="c1", name="note", arguments=arguments)])]
    engine = Engine(model=ScriptedModel("Done."), store=(store := MemoryStore()))
    turn = await engine.run(AGENT, "And now?", message_history=history)
    arguments["n"] = 2
    started = (await store.facts(turn.id))[0][1]
    assert isinstance(started, TurnStarted)
    assert Message.of_json(started.message_history[0]).calls[0].arguments == {"n": 1}


async def test_repair_of_a_history_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many requests it is sent with."""
    model = ScriptedModel(asks_for(("note", {})), asks_for(("note", {"n": 1})), "Done.")
    turn = await Engine(model=model, tools=[note]).run(AGENT, "And now?", message_history=BROUGHT)
    assert caplog.messages == [f"turn {turn.id}: its history is repaired: {note}" for note in NOTES]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert {vars(record)["turn"] for record in caplog.records} == {turn.id}


async def test_journal_keeps_an_imported_history_unrepaired() -> None:
    """It is repaired in the same way for each request: after a resume, and in later turns of the session."""
    store = MemoryStore()
    model = ScriptedModel(asks_for(("erase", {"path": "x"})))
    paused = await Engine(model=model, tools=[erase], store=store).run(
        AGENT, "Go", session="s1", message_history=BROUGHT
    )
    started = (await store.facts(paused.id))[0][1]
    assert isinstance(started, TurnStarted)
    assert [Message.of_json(message) for message in started.message_history] == [
        Message.from_chat(chat) for chat in BROUGHT
    ]

    later = ScriptedModel("Kept.", "Yes.")
    engine = Engine(model=later, tools=[erase], store=store)
    await engine.resume(paused.id, {"approval-1": False})
    await engine.run(AGENT, "And now?", session="s1")
    first = said(model.requests[0])
    assert [said(request)[: len(first)] for request in later.requests] == [first, first]


async def test_hook_is_shown_paired_messages() -> None:
    histories: list[Sequence[Message]] = []

    async def look(messages: Sequence[Message]) -> Sequence[Message]:
        histories.append(messages)
        return messages

    await Engine(model=ScriptedModel("Done."), history_processor=look).run(AGENT, "And now?", message_history=BROUGHT)
    check_pairing(histories[0])


async def last_three(messages: Sequence[Message]) -> Sequence[Message]:
    """A hook that shortens: the request, and the last three messages, whatever they are."""
    return [messages[0], *messages[1:][-3:]]


async def test_hook_splitting_a_call_from_the_result_is_repaired(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel(asks_for(("note", {"n": 1}), ("note", {"n": 2})), asks_for(("note", {"n": 3})), "Done.")
    turn = await Engine(model=model, tools=[note], history_processor=last_three).run(AGENT, "hi")
    assert turn.outcome is Outcome.FINISHED
    assert [said(request) for request in model.requests] == [
        [("user", "hi")],
        [("user", "hi"), ("assistant", ""), ("tool", "ok: noted 1"), ("tool", "ok: noted 2")],
        [("user", "hi"), ("assistant", ""), ("tool", "ok: noted 3")],
    ]
    (record,) = caplog.records
    assert vars(record)["turn"] == turn.id
    assert record.getMessage() == (
        f"turn {turn.id}: a request is repaired: message 1:"
        " the result of 'call00002' answers no open call: it is left out"
    )


async def forgetful(messages: Sequence[Message]) -> Sequence[Message]:
    """A hook that leaves results out, to save tokens."""
    return [message for message in messages if message.role != "tool"]


async def test_call_with_a_dropped_result_is_sent_as_unknown() -> None:
    model = ScriptedModel(asks_for(("note", {"n": 1})), "Done.")
    turn = await Engine(model=model, tools=[note], history_processor=forgetful).run(AGENT, "hi")
    assert said(model.requests[1])[2:] == [("tool", f"unknown: {NO_RESULT}")]
    results = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert [(part.status, part.text) for part in results] == [(CallStatus.OK, "noted 1")]


# A strict engine.


@pytest.mark.parametrize(
    ("history", "why"),
    [
        (BROUGHT, "message 1: call 'c1' has no result before message 2"),
        (BROUGHT[:2], "message 1: call 'c1' has no result"),
        ([BROUGHT[0], *BROUGHT[3:]], "message 1: a tool result that answers no open call"),
    ],
)
async def test_strict_engine_refuses_unpaired_history_with_the_place(
    history: Sequence[dict[str, JsonValue]], why: str
) -> None:
    engine = Engine(model=ScriptedModel("Done."), tools=[note], unpaired="reject")
    with pytest.raises(ConfigError) as error:
        await engine.run(AGENT, "And now?", message_history=history)
    assert str(error.value) == f"message_history: {why}: a provider would refuse it"
    assert await engine.store.turns() == []


async def test_a_turn_of_a_strict_engine_fails_when_a_hook_leaves_half_a_pair() -> None:
    """Nothing is sent then. The number counts what would have been sent, the agent's instructions among it."""
    model = ScriptedModel(asks_for(("note", {})), "Done.")
    engine = Engine(model=model, tools=[note], history_processor=forgetful, unpaired="reject")
    turn = await engine.run(Agent(name="Tidier", instructions="Tidy."), "hi")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert turn.error == "UnpairedError: message 2: call 'call00001' has no result"
    assert len(model.requests) == 1


async def test_strict_engine_accepts_paired_history() -> None:
    model = ScriptedModel(asks_for(("note", {})), "Done.")
    history = [
        Message.user("a"),
        Message.assistant(calls=[ToolCallPart(id="", name="note")]),
        Message.result("", "", "b"),
    ]
    turn = await Engine(model=model, tools=[note], unpaired="reject").run(AGENT, "hi", message_history=history)
    assert turn.outcome is Outcome.FINISHED
    assert [role for role, _ in said(model.requests[1])] == ["user", "assistant", "tool", "user", "assistant", "tool"]


async def test_strict_engine_keeps_histories_of_lenient_engines() -> None:
    """It fails nobody's turn for it; an engine that repairs continues with it."""
    store = MemoryStore()
    asking = ScriptedModel(asks_for(("erase", {"path": "x"})))
    paused = await Engine(model=asking, tools=[erase], store=store).run(AGENT, "Go", message_history=BROUGHT)
    strict = Engine(model=ScriptedModel("Done."), tools=[erase], store=store, unpaired="reject")
    with pytest.raises(ConfigError) as error:
        await strict.resume(paused.id, {"approval-1": False})
    assert str(error.value) == (
        f"turn {paused.id}: its history: message 1: call 'c1' has no result before message 2:"
        ' a provider would refuse it; drive the turn with unpaired="repair"'
    )
    mild = Engine(model=ScriptedModel("Done."), tools=[erase], store=store)
    assert (await mild.resume(paused.id)).outcome is Outcome.FINISHED


def test_messages_for_the_engine_are_refused_with_advice() -> None:
    with pytest.raises(ConfigError, match=r"your own messages go into `run\(message_history="):
        Engine(model=ScriptedModel(), unpaired=[Message.user("hi")])  # type: ignore[call-overload]
