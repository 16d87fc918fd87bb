"""The messages before a turn: sessions, histories, continued turns, and the hook that shortens them."""

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from turnwright import (
    Agent,
    ConfigError,
    Engine,
    Message,
    SessionBusyError,
    TurnNotFoundError,
    TurnResult,
    UnreadableTurnError,
    tool,
)
from turnwright.journal.termination import end_turn
from turnwright.message import ReasoningPart, SentinelPart, ToolCallPart, ToolResultPart
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import AbandonedDrivers, MemoryStore
from turnwright.store.protocol import TurnRow
from turnwright.transcript.events import TurnEndedEvent, TurnEvent
from turnwright.transcript.pairing import check_pairing
from turnwright_states import CallStatus, EndReason, Limits, Outcome

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return path


def said(request: ModelRequest) -> list[tuple[str, str]]:
    """Return the texts for a provider, with their roles."""
    return [(message.role, message.text) for message in request.messages if message.text]


# Sessions.


async def test_session_remembers_earlier_turns() -> None:
    model = ScriptedModel("One.", "Two.", "Three.")
    engine = Engine(model=model)
    for prompt in ("first", "second", "third"):
        await engine.run(AGENT, prompt, session="s1")
    assert said(model.requests[2]) == [
        ("user", "first"),
        ("assistant", "One."),
        ("user", "second"),
        ("assistant", "Two."),
        ("user", "third"),
    ]


@pytest.mark.parametrize("session", ["", " ", "a\nb", "a\x00b", "\ud800", "\u202ea", "a" * 1001])
async def test_session_without_a_visible_name_is_refused(session: str) -> None:
    """An empty one would join the turns of all users whose id an app has lost."""
    async with Engine(model=ScriptedModel()) as engine:
        with pytest.raises(ConfigError, match=r"^session: 1 to 1,000 visible characters, not "):
            await engine.run(AGENT, "hi", session=session)
        assert await engine.turns() == []


async def test_sessions_do_not_hear_each_other() -> None:
    model = ScriptedModel("One.", "Two.", "Three.")
    engine = Engine(model=model)
    await engine.run(AGENT, "first", session="s1")
    await engine.run(AGENT, "second", session="s2")
    await engine.run(AGENT, "third")
    assert said(model.requests[1]) == [("user", "second")]
    assert said(model.requests[2]) == [("user", "third")]


async def test_the_calls_of_earlier_turns_have_ids_of_their_own() -> None:
    """Each turn counts its calls from one; what is sent must not hold an id twice."""
    lines: tuple[Line, ...] = (asks_for(("note", {"n": 1}), ("note", {"n": 2})), "Done.")
    model = ScriptedModel(*lines * 3)
    engine = Engine(model=model, tools=[note])
    for prompt in ("first", "second", "third"):
        await engine.run(AGENT, prompt, session="s1")
    for request in model.requests:
        check_pairing(request.messages)
        ids = [call.id for message in request.messages for call in message.calls]
        assert len(set(ids)) == len(ids)
    assert len([call for message in model.requests[-1].messages for call in message.calls]) == 6


async def test_stop_reason_of_an_earlier_turn_is_in_the_transcript() -> None:
    model = ScriptedModel(asks_for(("note", {})), "Half done.", "On it.")
    engine = Engine(model=model, tools=[note])
    await engine.run(Agent(name="Tidier", steps=1), "first", session="s1")
    await engine.run(AGENT, "go on", session="s1")
    parts = [part for message in model.requests[2].messages for part in message.parts]
    assert [part.reason for part in parts if isinstance(part, SentinelPart)] == [EndReason.STEP_CAP]
    assert said(model.requests[2])[-2:] == [("assistant", "Half done."), ("user", "go on")]


SIGNED = {"type": "reasoning.encrypted", "data": "x"}


def reasonings(request: ModelRequest) -> list[tuple[str, bool]]:
    """The reasoning that a model is shown, and whether it is signed."""
    parts = [part for message in request.messages for part in message.parts]
    return [(part.text, part.details != ()) for part in parts if isinstance(part, ReasoningPart)]


@pytest.mark.parametrize(("name", "signed"), [("first", True), ("second", False)])
async def test_signatures_go_only_to_the_model_of_their_turn(name: str, signed: bool) -> None:
    """Another one cannot read them, and many servers refuse them; the words are for all. Within a turn they stay."""
    store = MemoryStore()
    thought = ModelResponse(text="One.", reasoning="hm", reasoning_details=(SIGNED,))
    calls = asks_for(("note", {"n": 1}))
    reply = ModelResponse(calls=calls.calls, reasoning="so", reasoning_details=(SIGNED,))
    first = ScriptedModel(reply, thought, name="first")
    await Engine(model=first, tools=[note], store=store).run(AGENT, "hi", session="s1")
    assert reasonings(first.requests[1]) == [("so", True)]
    later = ScriptedModel("Two.", name=name)
    await Engine(model=later, tools=[note], store=store).run(AGENT, "and?", session="s1")
    assert reasonings(later.requests[0]) == [("so", signed), ("hm", signed)]


async def test_signatures_are_dropped_when_another_model_continues() -> None:
    store = MemoryStore()
    thought = ModelResponse(text="One.", reasoning="hm", reasoning_details=(SIGNED,))
    before = await Engine(model=ScriptedModel(thought, name="first"), store=store).run(AGENT, "hi")
    later = ScriptedModel("Two.", name="second")
    await Engine(model=later, store=store).run(AGENT, "and?", continue_from=before.id)
    assert reasonings(later.requests[0]) == [("hm", False)]


@pytest.mark.parametrize(("name", "signed"), [("first", True), ("second", False)])
async def test_signatures_copied_by_a_fork_belong_to_the_forked_turns_model(name: str, signed: bool) -> None:
    """Whether another model drives the fork, or continues from it."""
    store = MemoryStore()
    first = ScriptedModel(*[ModelResponse(text="One.", reasoning="hm", reasoning_details=(SIGNED,))] * 3, name="first")
    engine = Engine(model=first, store=store)
    await engine.run(AGENT, "hi", session="s1")
    turn = await engine.run(AGENT, "and?", session="s1")
    driven, gone_on_from = await engine.fork(turn.id, at=2), await engine.fork(turn.id, at=2)
    await engine.resume(gone_on_from)
    later = ScriptedModel("Two.", "Three.", name=name)
    other_engine = Engine(model=later, store=store)
    await other_engine.resume(driven)
    await other_engine.run(AGENT, "more", continue_from=gone_on_from)
    assert reasonings(later.requests[0]) == [("hm", signed)]
    assert reasonings(later.requests[1]) == [("hm", signed)] * 2


@pytest.mark.parametrize(("name", "signed"), [("first", True), ("second", False)])
async def test_signatures_are_dropped_when_another_model_resumes(name: str, signed: bool) -> None:
    """Its own replies are signed, and stay so."""
    store = MemoryStore()
    thought = ModelResponse(text="One.", reasoning="hm", reasoning_details=(SIGNED,))
    reply = ModelResponse(calls=asks_for(("erase", {"path": "a"})).calls, reasoning="so", reasoning_details=(SIGNED,))
    first = ScriptedModel(thought, reply, name="first")
    engine = Engine(model=first, tools=[note, erase], store=store)
    await engine.run(AGENT, "hi", session="s1")
    turn = await engine.run(AGENT, "erase it", session="s1")
    again = ModelResponse(calls=asks_for(("note", {"n": 1})).calls, reasoning="now", reasoning_details=(SIGNED,))
    later = ScriptedModel(again, "Done.", name=name)
    other_engine = Engine(model=later, tools=[note, erase], store=store)
    ended = await other_engine.resume(turn.id, {turn.interrupts[0].id: True})
    assert (ended.text, [call.text for call in ended.messages[2].parts if isinstance(call, ToolResultPart)]) == (
        "Done.",
        ["a"],
    )
    assert reasonings(later.requests[0]) == [("hm", signed), ("so", signed)]
    assert reasonings(later.requests[1]) == [("hm", signed), ("so", signed), ("now", True)]


async def test_imported_history_is_unsigned_for_another_model() -> None:
    store = MemoryStore()
    part = ReasoningPart(text="hm", details=(SIGNED,))
    history = [Message.user("hi"), Message(role="assistant", parts=(part, *Message.assistant("One.").parts))]
    await Engine(model=ScriptedModel("Two.", name="first"), store=store).run(
        AGENT, "and?", session="s1", message_history=history
    )
    later = ScriptedModel("Three.", name="second")
    await Engine(model=later, store=store).run(AGENT, "more", session="s1")
    assert reasonings(later.requests[0]) == [("hm", False)]


async def test_signatures_in_an_imported_history_are_kept() -> None:
    part = ReasoningPart(text="hm", details=(SIGNED,))
    history = [Message.user("hi"), Message(role="assistant", parts=(part, *Message.assistant("One.").parts))]
    model = ScriptedModel("Two.")
    await Engine(model=model).run(AGENT, "and?", message_history=history)
    assert reasonings(model.requests[0]) == [("hm", True)]


class Hanging:
    """Hangs at its first call, and answers at the others."""

    name = "hanging"

    def __init__(self) -> None:
        self.hangs = anyio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
        assert request.messages
        if not self.hangs.is_set():
            self.hangs.set()
            await anyio.sleep_forever()
        yield ModelResponse(text="Hello.")


async def test_session_has_a_single_live_turn() -> None:
    """A second one is refused while the first runs, and after its driver was stopped; an abort makes room."""
    model = Hanging()
    engine = Engine(model=model)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: engine.run(AGENT, "first", session="s1"))
        await model.hangs.wait()
        with pytest.raises(SessionBusyError, match="session 's1' is busy with turn"):
            await engine.run(AGENT, "second", session="s1")
        assert (await engine.run(AGENT, "elsewhere", session="s2")).outcome is Outcome.FINISHED
        group.cancel_scope.cancel()
    with pytest.raises(SessionBusyError) as busy:
        await engine.run(AGENT, "second", session="s1")
    await engine.abort(busy.value.turn)
    assert (await engine.run(AGENT, "second", session="s1")).outcome is Outcome.FINISHED


async def test_a_new_message_supersedes_a_paused_turn() -> None:
    """The pending call is not run, and the model receives that in order (docs/rules.md#approvals)."""
    model = ScriptedModel(asks_for(("erase", {"path": "x"}), ("note", {})), "Never mind.")
    heard: list[TurnEvent] = []
    engine = Engine(model=model, tools=[note, erase], on_event=[heard.append])
    paused = await engine.run(AGENT, "erase x", session="s1")
    turn = await engine.run(AGENT, "no, wait", session="s1")
    old = await engine.get(paused.id)
    ended = [event for event in heard if isinstance(event, TurnEndedEvent)]
    assert [(event.turn, event.reason) for event in ended] == [
        (old.id, EndReason.SUPERSEDED),
        (turn.id, EndReason.ANSWERED),
    ]
    assert (old.outcome, old.reason, old.interrupts) == (Outcome.ABORTED, EndReason.SUPERSEDED, ())
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Never mind.")
    messages = model.requests[1].messages
    check_pairing(messages)
    results = [part for message in messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert [part.status for part in results] == [CallStatus.REJECTED, CallStatus.OK]
    assert [message.text for message in messages if message.role == "user"] == ["erase x", "no, wait"]


async def test_new_message_supersedes_an_answered_but_undriven_turn() -> None:
    """The approved call does not run: nobody drove the turn on from the answer before the message came."""
    model = ScriptedModel(asks_for(("erase", {"path": "x"})), "Never mind.")
    engine = Engine(model=model, tools=[note, erase])
    paused = await engine.run(AGENT, "erase x", session="s1")
    await engine.answer(paused.id, {paused.interrupts[0].id: True})
    turn = await engine.run(AGENT, "no, wait", session="s1")
    old = await engine.get(paused.id)
    assert (old.outcome, old.reason, old.tool_calls) == (Outcome.ABORTED, EndReason.SUPERSEDED, 0)
    results = [part for message in old.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert [part.status for part in results] == [CallStatus.REJECTED]
    assert turn.outcome is Outcome.FINISHED


async def test_claimed_paused_turn_is_not_superseded() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"}))), tools=[erase])
    paused = await engine.run(AGENT, "erase x", session="s1")
    await engine.store.claim(paused.id)
    with pytest.raises(SessionBusyError) as busy:
        await engine.run(AGENT, "no, wait", session="s1")
    assert (busy.value.session, busy.value.turn) == ("s1", paused.id)


async def test_turn_with_a_damaged_row_is_not_superseded() -> None:
    class Damaged(MemoryStore):
        async def turns(self, **filters: Any) -> list[TurnRow]:  # noqa: ANN401 (what a store takes)
            return [replace(row, fault="its state is 'x'") for row in await super().turns(**filters)]

    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"}))), tools=[erase], store=Damaged())
    paused = await engine.run(AGENT, "erase x", session="s1")
    with pytest.raises(UnreadableTurnError) as unreadable:
        await engine.run(AGENT, "no, wait", session="s1")
    assert (unreadable.value.turn, unreadable.value.why) == (paused.id, "its state is 'x'")


async def test_only_the_turn_of_an_abandoned_driver_is_ended() -> None:
    """A driven turn is left to its driver, which finds the abort in its inbox."""
    store = MemoryStore()
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"}))), tools=[erase], store=store)
    paused = await engine.run(AGENT, "erase x")
    claim = await store.claim(paused.id)
    await end_turn(store, paused.id)
    assert (await engine.get(paused.id)).outcome is None
    await end_turn(
        store, paused.id, abandoned_drivers=AbandonedDrivers(frozenset({store.owner}), frozenset({claim.epoch}))
    )
    assert (await engine.get(paused.id)).outcome is Outcome.ABORTED


async def test_turn_failing_to_begin_supersedes_nothing() -> None:
    """A prompt that cannot be stored, an agent that cannot run, a history that no provider takes."""
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"}))), tools=[erase], unpaired="reject")
    paused = await engine.run(AGENT, "erase x", session="s1")
    with pytest.raises(ConfigError):
        await engine.run(Agent(name="Tidier", tools=("nope",)), "hi", session="s1")
    with pytest.raises(ConfigError):
        await engine.run(AGENT, "hi", session="s1", message_history=[Message.result("c1", "note", "noted")])
    with pytest.raises(TurnNotFoundError):
        await engine.run(AGENT, "hi", session="s1", continue_from="nobody")
    with pytest.raises(ConfigError):
        await engine.run(AGENT, "half a pair: \ud800", session="s1")
    assert (await engine.get(paused.id)).paused


# Histories.


HISTORY = [
    Message.user("What is in a.py?"),
    Message.assistant(calls=[ToolCallPart(id="call00001", name="note", arguments={"n": 7})]),
    Message.result("call00001", "note", "noted 7"),
    Message.assistant("A seven."),
]


async def test_a_history_may_be_brought_along() -> None:
    """Its calls have ids of their own as well."""
    model = ScriptedModel(asks_for(("note", {})), "Done.")
    await Engine(model=model, tools=[note]).run(AGENT, "And now?", message_history=HISTORY)
    assert said(model.requests[0]) == [
        ("user", "What is in a.py?"),
        ("assistant", "A seven."),
        ("user", "And now?"),
    ]
    check_pairing(model.requests[1].messages)
    ids = [call.id for message in model.requests[1].messages for call in message.calls]
    assert len(set(ids)) == len(ids) == 2


async def test_imported_history_is_kept_for_a_resume() -> None:
    store = MemoryStore()
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"}))), tools=[erase], store=store)
    paused = await engine.run(AGENT, "And now?", message_history=HISTORY)
    model = ScriptedModel("Done.")
    await Engine(model=model, tools=[erase], store=store).resume(paused.id, {"approval-1": False})
    assert said(model.requests[0])[:2] == [("user", "What is in a.py?"), ("assistant", "A seven.")]


@pytest.mark.parametrize("broken", [HISTORY[:2], HISTORY[2:], [*HISTORY[:2], HISTORY[3]]])
async def test_a_history_without_pairs_is_refused_by_a_strict_engine(broken: Sequence[Message]) -> None:
    engine = Engine(model=ScriptedModel("Done."), tools=[note], unpaired="reject")
    with pytest.raises(ConfigError, match=r"message_history: message \d: .*: a provider would refuse it"):
        await engine.run(AGENT, "And now?", message_history=broken)
    assert await engine.store.turns() == []


async def test_session_remembers_the_history_imported_by_the_first_turn() -> None:
    model = ScriptedModel("One.", "Two.")
    engine = Engine(model=model, tools=[note])
    await engine.run(AGENT, "first", session="s1", message_history=HISTORY)
    await engine.run(AGENT, "second", session="s1")
    assert said(model.requests[1])[:3] == [("user", "What is in a.py?"), ("assistant", "A seven."), ("user", "first")]


# Continuing after a limit.


async def capped(engine: Engine, prompt: str) -> TurnResult:
    """A turn that is stopped after one step."""
    turn = await engine.run(Agent(name="Tidier", steps=1), prompt)
    assert turn.outcome is Outcome.CAP_HIT
    return turn


async def test_turn_may_continue_a_stopped_turn() -> None:
    """With the transcript, limits of its own, and nothing run again (docs/rules.md#continuing)."""
    ran: list[int] = []

    @tool
    async def work(n: int) -> str:
        ran.append(n)
        return f"worked {n}"

    model = ScriptedModel(asks_for(("work", {"n": 1})), "Half.", asks_for(("work", {"n": 2})), "Whole.")
    engine = Engine(model=model, tools=[work])
    first = await capped(engine, "work")
    turn = await engine.run(Agent(name="Tidier", steps=2), "go on", continue_from=first.id)
    assert (turn.outcome, turn.steps, turn.tool_calls, ran) == (Outcome.FINISHED, 2, 1, [1, 2])
    assert said(model.requests[2]) == [("user", "work"), ("assistant", "Half."), ("user", "go on")]


async def test_continuing_twice_keeps_the_whole_transcript() -> None:
    """And the history that the first turn brought."""
    lines = [line for n in range(3) for line in (asks_for(("note", {"n": n})), f"Part {n}.")]
    model = ScriptedModel(*lines)
    engine = Engine(model=model, tools=[note])
    agent = Agent(name="Tidier", steps=1)
    first = await engine.run(agent, "begin", message_history=HISTORY)
    second = await engine.run(agent, "go on", continue_from=first.id)
    await engine.run(agent, "and on", continue_from=second.id)
    texts = [text for _, text in said(model.requests[4])]
    assert texts == ["What is in a.py?", "A seven.", "begin", "Part 0.", "go on", "Part 1.", "and on"]


async def test_continuing_stays_in_the_session() -> None:
    model = ScriptedModel(asks_for(("note", {})), "Half.", "Whole.")
    engine = Engine(model=model, tools=[note])
    first = await engine.run(Agent(name="Tidier", steps=1), "work", session="s1")
    turn = await engine.run(AGENT, "go on", continue_from=first.id)
    assert (await engine.store.get(turn.id)).session == "s1"
    assert [text for _, text in said(model.requests[2])] == ["work", "Half.", "go on"]


async def test_continuing_in_a_new_session_brings_the_transcript_along() -> None:
    model = ScriptedModel(asks_for(("note", {})), "Half.", "Whole.")
    engine = Engine(model=model, tools=[note])
    first = await capped(engine, "work")
    await engine.run(AGENT, "go on", continue_from=first.id, session="s1")
    assert [text for _, text in said(model.requests[2])] == ["work", "Half.", "go on"]


async def test_only_an_ended_turn_can_be_continued() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"}))), tools=[erase])
    paused = await engine.run(AGENT, "erase x")
    with pytest.raises(ConfigError, match=f"turn {paused.id} has not ended"):
        await engine.run(AGENT, "go on", continue_from=paused.id)
    with pytest.raises(TurnNotFoundError):
        await engine.run(AGENT, "go on", continue_from="nobody")


# The hook that prepares what is sent.


async def test_prepare_changes_the_request_and_not_the_journal() -> None:
    async def last_two(messages: tuple[Message, ...]) -> Sequence[Message]:
        assert all(message.role != "system" for message in messages), "instructions are not its business"
        return [Message.user("(shortened)"), *messages[-2:]]

    model = ScriptedModel("One.", "Two.")
    engine = Engine(model=model, history_processor=last_two)
    agent = Agent(name="Tidier", instructions="Be brief.")
    await engine.run(agent, "first", session="s1")
    turn = await engine.run(agent, "second", session="s1")
    request_texts = said(model.requests[1])
    assert request_texts[0] == ("system", "Be brief.")
    assert request_texts[1] == ("user", "(shortened)")
    assert ("user", "first") not in request_texts
    assert [message.text for message in turn.messages] == ["second", "Two."]
    assert [message.text for message in (await engine.get(turn.id)).messages] == ["second", "Two."]


async def test_prepare_is_asked_before_every_request() -> None:
    lengths: list[int] = []

    async def count(messages: tuple[Message, ...]) -> Sequence[Message]:
        lengths.append(len(messages))
        return messages

    model = ScriptedModel(asks_for(("note", {})), "Half.")
    engine = Engine(model=model, tools=[note], history_processor=count, limits=Limits(steps=1))
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, len(lengths)) == (Outcome.CAP_HIT, 2)


async def test_prepare_breaking_a_pair_ends_the_turn_of_a_strict_engine(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing unpaired is ever sent (docs/rules.md#pairing)."""

    async def drop_results(messages: tuple[Message, ...]) -> Sequence[Message]:
        return [message for message in messages if message.role != "tool"]

    model = ScriptedModel(asks_for(("note", {})), "Done.")
    with caplog.at_level(logging.ERROR, "turnwright"):
        turn = await Engine(model=model, tools=[note], history_processor=drop_results, unpaired="reject").run(
            AGENT, "hi"
        )
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert "call 'call00001' has no result" in turn.error
    assert len(model.requests) == 1


async def test_prepare_raising_an_error_ends_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(messages: tuple[Message, ...]) -> Sequence[Message]:
        raise LookupError(f"lost among {len(messages)}")

    with caplog.at_level(logging.ERROR, "turnwright"):
        turn = await Engine(model=ScriptedModel("Done."), history_processor=broken).run(AGENT, "hi")
    assert turn.reason is EndReason.ENGINE_ERROR
    assert turn.error.startswith("history_processor 'broken' raised LookupError: lost among")
