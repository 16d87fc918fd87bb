"""A person is asked: the turn rests, is answered, and continues."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
import pytest
from pydantic import JsonValue

from turnwright import (
    Agent,
    Answer,
    CallView,
    ConfigError,
    Engine,
    InvalidAnswerError,
    TurnAlreadyEndedError,
    TurnContext,
    TurnResult,
    before_tool,
    reject,
    tool,
)
from turnwright.driver.dependencies import Dependencies
from turnwright.driver.driver import Driver
from turnwright.journal.answers import answer_item
from turnwright.journal.recovery import recover_turns
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ResponseToolCall
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import Claim, InboxItem, InboxKind, MemoryStore, Status
from turnwright.tools import Tool, ToolContext, ToolInputError
from turnwright.tools.builtin import builtin_tools
from turnwright.transcript.events import TurnEvent
from turnwright_states import CallStatus, Decision, EndReason, InterruptKind, Limits, Outcome, State
from turnwright_states import facts as f
from turnwright_testing.faults import StoreWrapper

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")


class Desk:
    """Three tools, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @tool
        async def note(text: str) -> str:
            self.done.append(f"note {text}")
            return f"noted {text}"

        @tool(needs_approval=True)
        async def erase(path: str) -> str:
            self.done.append(f"erase {path}")
            return f"erased {path}"

        self.tools: list[Tool] = [note, erase]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def asking(*paths: str) -> Line:
    """A note, and an erasure of each path."""
    return asks_for(("note", {"text": "a"}), *[("erase", {"path": path}) for path in paths])


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


async def test_call_needing_approval_pauses_the_turn(desk: Desk) -> None:
    """Its siblings run and keep their results; it has not run, and takes no place in the budget yet."""
    turn = await Engine(model=ScriptedModel(asking("x.py")), tools=desk.tools).run(AGENT, "hi")
    assert (turn.state, turn.paused, turn.outcome, turn.reason) == (State.PAUSED, True, None, None)
    (open_,) = turn.interrupts
    assert (open_.id, open_.kind, open_.tool) == ("approval-1", InterruptKind.APPROVAL, "erase")
    assert open_.arguments == {"path": "x.py"}
    assert desk.done == ["note a"]
    assert results(turn) == [(CallStatus.OK, "noted a")]
    assert turn.tool_calls == 1


async def test_an_approved_call_runs_and_the_turn_goes_on(desk: Desk) -> None:
    engine = Engine(model=ScriptedModel(asking("x.py"), "Done."), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    turn = await engine.resume(paused.id, {"approval-1": True})
    assert (turn.id, turn.outcome, turn.text) == (paused.id, Outcome.FINISHED, "Done.")
    assert desk.done == ["note a", "erase x.py"], "nothing ran twice"
    assert [text for _, text in results(turn)] == ["noted a", "erased x.py"]
    assert (turn.steps, turn.tool_calls) == (2, 2), "the counters survive the pause"


async def test_a_denied_call_does_not_run_and_the_model_reads_why(desk: Desk) -> None:
    engine = Engine(model=ScriptedModel(asking("x.py"), "I see."), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    turn = await engine.resume(paused.id, {"approval-1": reject("not on a Friday")})
    assert (turn.outcome, turn.tool_calls) == (Outcome.FINISHED, 1)
    assert results(turn)[1] == (CallStatus.REJECTED, "rejected by the person: not on a Friday")
    assert desk.done == ["note a"]


async def test_nothing_runs_before_the_last_answer(desk: Desk) -> None:
    model = ScriptedModel(asking("x.py", "y.py"), "Done.")
    engine = Engine(model=model, tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    assert [interrupt.id for interrupt in paused.interrupts] == ["approval-1", "approval-2"]
    still = await engine.resume(paused.id, {"approval-2": True})
    assert (still.paused, [interrupt.id for interrupt in still.interrupts]) == (True, ["approval-1"])
    assert desk.done == ["note a"]
    assert len(model.requests) == 1
    turn = await engine.resume(paused.id, {"approval-1": "no"})
    assert turn.outcome is Outcome.FINISHED
    assert desk.done == ["note a", "erase y.py"]
    assert [status for status, _ in results(turn)] == [CallStatus.OK, CallStatus.REJECTED, CallStatus.OK]


async def test_all_interrupts_may_be_answered_at_once(desk: Desk) -> None:
    engine = Engine(model=ScriptedModel(asking("x.py", "y.py"), "Done."), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    turn = await engine.resume(paused.id, {"approval-1": True, "approval-2": True})
    assert (turn.outcome, desk.done) == (Outcome.FINISHED, ["note a", "erase x.py", "erase y.py"])


# Answers that are refused.


async def test_unfit_answer_discards_all_answers_beside(desk: Desk) -> None:
    """The fitting one beside it is not taken either, and the message lists what is open."""
    engine = Engine(model=ScriptedModel(asking("x.py", "y.py")), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    before = await engine.store.facts(paused.id)
    bad: list[tuple[str, str | bool | Answer]] = [("approval-3", True), ("approval-2", "perhaps"), ("doom-1", "stop")]
    for name, answer in bad:
        with pytest.raises(InvalidAnswerError, match=r"open: approval-1, approval-2"):
            await engine.resume(paused.id, {"approval-1": True, name: answer})
    assert await engine.store.facts(paused.id) == before
    assert await engine.store.inbox(paused.id) == []


async def test_an_interrupt_is_answered_once(desk: Desk) -> None:
    engine = Engine(model=ScriptedModel(asking("x.py", "y.py")), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    await engine.resume(paused.id, {"approval-1": True})
    with pytest.raises(InvalidAnswerError, match=r"'approval-1'.*open: approval-2"):
        await engine.resume(paused.id, {"approval-1": False})


async def test_answered_interrupts_are_told_apart_from_open_interrupts(desk: Desk) -> None:
    async with Engine(model=ScriptedModel(asking("a", "b"), "done"), tools=desk.tools) as engine:
        turn: TurnResult = await engine.run(AGENT, "Tidy up")
        assert turn.answered == frozenset()
        await engine.answer(turn.id, {"approval-1": "yes"})
        turn = await engine.get(turn.id)
        assert [interrupt.id for interrupt in turn.interrupts] == ["approval-1", "approval-2"]
        assert turn.answered == {"approval-1"}
        with pytest.raises(InvalidAnswerError, match=r"the first answer counts.* \(open: approval-2\)") as error:
            await engine.answer(turn.id, {"approval-1": "no"})
        assert error.value.interrupts == ("approval-2",)
        ended = await engine.resume(turn.id, {"approval-2": "no"})
        assert (ended.outcome, ended.answered, desk.done) == (Outcome.FINISHED, frozenset(), ["note a", "erase a"])


async def test_second_answerer_is_refused(desk: Desk) -> None:
    """Another process has answered, and nobody has driven the turn since: the first answer counts."""
    engine = Engine(model=ScriptedModel(asking("x.py"), "Done."), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    payload = json.dumps({"interrupt": "approval-1", "decision": "reject", "text": ""})
    await engine.store.post(InboxItem(paused.id, "answer:approval-1", InboxKind.ANSWER, payload))
    with pytest.raises(InvalidAnswerError, match="approval-1"):
        await engine.resume(paused.id, {"approval-1": True})
    turn = await engine.resume(paused.id)
    assert results(turn)[1][0] is CallStatus.REJECTED


async def test_second_answerer_posts_no_answer(desk: Desk) -> None:
    """One answer is too late, so the others of the same call are not posted either."""
    engine = Engine(model=ScriptedModel(asking("x.py", "y.py"), "Done."), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    payload = json.dumps({"interrupt": "approval-2", "decision": "reject", "text": ""})
    await engine.store.post(InboxItem(paused.id, "answer:approval-2", InboxKind.ANSWER, payload))
    with pytest.raises(InvalidAnswerError, match="approval-2"):
        await engine.resume(paused.id, {"approval-1": True, "approval-2": True})
    assert [item.id for item in await engine.store.inbox(paused.id)] == ["answer:approval-2"]


async def test_the_same_answer_may_be_given_again(desk: Desk) -> None:
    """It was posted, and then the turn could not be driven: a second try raises nothing."""
    store = MemoryStore()
    paused = await Engine(model=ScriptedModel(asking("x.py")), tools=desk.tools, store=store).run(AGENT, "hi")
    with pytest.raises(ConfigError, match="need the tools erase"):
        await Engine(model=ScriptedModel(), store=store).resume(paused.id, {"approval-1": True})
    turn = await Engine(model=ScriptedModel("Done."), tools=desk.tools, store=store).resume(
        paused.id, {"approval-1": True}
    )
    assert (turn.outcome, desk.done) == (Outcome.FINISHED, ["note a", "erase x.py"])


async def test_ended_turn_takes_no_answer(desk: Desk) -> None:
    engine = Engine(model=ScriptedModel(asking("x.py"), "Done."), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    await engine.resume(paused.id, {"approval-1": True})
    with pytest.raises(TurnAlreadyEndedError, match="finished: answered"):
        await engine.resume(paused.id, {"approval-1": True})


class AnswersAtOnce(StoreWrapper):
    """A store with an answer to the question of a turn as soon as it pauses."""

    async def append(
        self, claim: Claim, facts: Sequence[f.Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        waiting = await super().append(claim, facts, status, consumed)
        if status.state is not State.PAUSED:
            return waiting
        await self.post(answer_item(claim.turn, "question-1", Answer(Decision.REPLY, "there")))
        return await self.inbox(claim.turn)


async def test_answer_arriving_with_the_pause_is_taken_by_the_same_driver() -> None:
    """The call begins anew, also if it was started with the reply."""

    @tool
    async def move(context: ToolContext) -> str:
        return f"moved to {context.ask('Where to?')}"

    model = ScriptedModel(asks_for(("move", {})), "Done.")
    turn = await Engine(model=model, tools=[move], store=AnswersAtOnce(MemoryStore())).run(AGENT, "hi")
    assert (turn.text, results(turn)) == ("Done.", [(CallStatus.OK, "moved to there")])


async def test_answer_to_an_unknown_interrupt_is_dropped_by_the_driver(desk: Desk) -> None:
    """It was posted by somebody who did not know; it changes nothing, and does not stay."""
    engine = Engine(model=ScriptedModel(asking("x.py"), "Done."), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    payload = json.dumps({"interrupt": "approval-9", "decision": "approve", "text": ""})
    await engine.store.post(InboxItem(paused.id, "answer:approval-9", InboxKind.ANSWER, payload))
    assert (await engine.resume(paused.id)).paused
    assert await engine.store.inbox(paused.id) == []


async def test_resuming_without_answers_changes_nothing(desk: Desk) -> None:
    engine = Engine(model=ScriptedModel(asking("x.py")), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    before = await engine.store.facts(paused.id)
    assert (await engine.resume(paused.id)).interrupts == paused.interrupts
    assert await engine.store.facts(paused.id) == before


# Questions and grants, by the tools that the command line brings.


async def test_a_question_is_answered_with_text(tmp_path: Path) -> None:
    question: dict[str, JsonValue] = {"question": "Which one?", "choices": ["red", "blue"]}
    asking = asks_for(ResponseToolCall("ask_user_input", question))
    engine = Engine(model=ScriptedModel(asking, "Blue it is."), tools=builtin_tools(tmp_path))
    paused = await engine.run(AGENT, "hi")
    (open_,) = paused.interrupts
    assert (open_.id, open_.kind) == ("question-1", InterruptKind.QUESTION)
    assert (open_.question, open_.choices) == ("Which one?", ("red", "blue"))
    turn = await engine.resume(paused.id, {"question-1": "the blue one"})
    assert (turn.outcome, results(turn)) == (Outcome.FINISHED, [(CallStatus.OK, "the blue one")])


async def test_a_grant_holds_until_the_turn_ends(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    outside = tmp_path / "out" / "secret.txt"
    outside.write_text("42")
    read: tuple[str, Mapping[str, JsonValue]] = ("read_file", {"path": str(outside)})
    request = ("request_read_access", {"path": str(outside)})
    model = ScriptedModel(asks_for(read), asks_for(request), asks_for(read), "42.")
    engine = Engine(model=model, tools=builtin_tools(tmp_path / "in"))
    paused = await engine.run(AGENT, "hi")
    (open_,) = paused.interrupts
    assert (open_.id, open_.kind, open_.grant) == ("grant-1", InterruptKind.GRANT, str(outside))
    turn = await engine.resume(paused.id, {"grant-1": "yes"})
    statuses = [status for status, _ in results(turn)]
    assert statuses == [CallStatus.ERROR, CallStatus.OK, CallStatus.OK]
    assert "42" in results(turn)[2][1]


async def test_approved_call_is_checked_again_before_the_run() -> None:
    """An answer that was valid when it was posted may not be valid now."""

    class Erase(Tool):
        gone = False

        def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
            if self.gone:
                raise ToolInputError("path: there is no such file any more")
            return dict(arguments)

        async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
            raise AssertionError(f"{values} ran in {context}")

    erase = Erase(name="erase", description="", parameters={"type": "object"}, needs_approval=True)
    engine = Engine(model=ScriptedModel(asks_for(("erase", {})), "I see."), tools=[erase])
    paused = await engine.run(AGENT, "hi")
    erase.gone = True
    turn = await engine.resume(paused.id, {"approval-1": True})
    assert (turn.outcome, turn.tool_calls) == (Outcome.FINISHED, 0)
    assert results(turn) == [(CallStatus.ERROR, "path: there is no such file any more")]


# Another engine, another process.


async def test_another_process_may_answer(desk: Desk, tmp_path: Path) -> None:
    """Agent, limits and counters come from the journal."""
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    agent = Agent(name="Careful", instructions="Take care.", steps=2)
    async with Engine(model=ScriptedModel(asking("x.py")), tools=desk.tools, store=address) as first:
        paused = await first.run(agent, "hi")
    model = ScriptedModel(asks_for(("note", {"text": "b"})), "Cap.")
    async with Engine(model=model, tools=desk.tools, store=address) as second:
        turn = await second.resume(paused.id, {"approval-1": True})
    assert (turn.outcome, turn.reason, turn.steps, turn.tool_calls) == (Outcome.CAP_HIT, EndReason.STEP_CAP, 2, 3)
    assert model.requests[0].messages[0].text == "Take care."
    assert [text for _, text in results(turn)] == ["noted a", "erased x.py", "noted b"]
    assert desk.done == ["note a", "erase x.py", "note b"]


async def test_pause_uses_a_slot_and_without_a_slot_the_call_is_refused(desk: Desk) -> None:
    engine = Engine(
        model=ScriptedModel(asking("x.py"), asking("y.py"), "Done."), tools=desk.tools, limits=Limits(max_pauses=1)
    )
    paused = await engine.run(AGENT, "hi")
    turn = await engine.resume(paused.id, {"approval-1": True})
    assert turn.outcome is Outcome.FINISHED
    assert results(turn)[-1] == (
        CallStatus.REFUSED,
        "not executed: this turn may not pause for a person any more",
    )


# A doom loop asks.


def circling(desk: Desk, *more: Line, **limits: object) -> Engine:
    """An engine whose model asks for the same note three times, and then says `more`."""
    rounds = [asks_for(("note", {"text": "a"}))] * 3
    asks = Limits.model_validate({"doom_response": "ask"} | limits)
    return Engine(model=ScriptedModel(*rounds, *more), tools=desk.tools, limits=asks)


async def test_a_doom_loop_may_ask_first(desk: Desk) -> None:
    paused = await circling(desk).run(AGENT, "hi")
    (open_,) = paused.interrupts
    assert (open_.id, open_.kind, open_.tool) == ("doom-1", InterruptKind.DOOM_LOOP, "note")
    assert open_.choices == ("go_on", "always", "stop")


async def test_go_on_answer_resets_the_doom_rounds(desk: Desk) -> None:
    """Three more of the same, and it asks again."""
    engine = circling(desk, *[asks_for(("note", {"text": "a"}))] * 3)
    paused = await engine.run(AGENT, "hi")
    again = await engine.resume(paused.id, {"doom-1": "go_on"})
    assert ([interrupt.id for interrupt in again.interrupts], again.steps) == (["doom-2"], 6)


async def test_always_answer_lets_the_tool_repeat(desk: Desk) -> None:
    engine = circling(desk, *[asks_for(("note", {"text": "a"}))] * 5, "Done.")
    paused = await engine.run(AGENT, "hi")
    turn = await engine.resume(paused.id, {"doom-1": "always"})
    assert (turn.outcome, turn.steps) == (Outcome.FINISHED, 9)


async def test_stop_answer_concludes(desk: Desk) -> None:
    engine = circling(desk, "In circles.")
    paused = await engine.run(AGENT, "hi")
    turn = await engine.resume(paused.id, {"doom-1": "stop"})
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.DOOM_LOOP, EndReason.DOOM_LOOP, "In circles.")


# Time to answer.


def clocked(desk: Desk, now: Callable[[], float], *lines: Line, ask: bool = False) -> tuple[Engine, Driver]:
    """An engine, and a driver of the same store whose wall clock a test can set: an engine's cannot be."""

    @tool(needs_approval=True, expires_in=60)
    async def erase(path: str) -> str:
        desk.done.append(path)
        return path

    tools = {tool.name: tool for tool in (desk.tools[0], erase)}
    model, store = ScriptedModel(*lines), MemoryStore()
    limits = Limits(doom_response="ask") if ask else Limits()
    engine = Engine(model=model, tools=list(tools.values()), store=store, limits=limits)
    return engine, Driver(store, Dependencies(model=model, tools=tools, now=now))


async def test_expired_interrupt_denies(desk: Desk) -> None:
    """Applied at the next touch by any driver."""
    hour = 0.0
    engine, driver = clocked(desk, lambda: hour, asks_for(("erase", {"path": "x"})), "I see.")
    paused = await engine.run(AGENT, "hi")
    waiting = [fact for _, fact in await engine.store.facts(paused.id) if isinstance(fact, f.CallWaiting)]
    expires = waiting[0].interrupt.expires_at
    assert expires is not None
    hour = expires - 1
    await driver.drive(paused.id)
    assert (await engine.get(paused.id)).paused, "a second before"
    hour = expires
    await driver.drive(paused.id)
    turn = await engine.get(paused.id)
    assert (turn.outcome, desk.done) == (Outcome.FINISHED, [])
    assert results(turn) == [(CallStatus.REJECTED, "rejected by the person: nobody answered in time")]


async def test_recovery_applies_an_expiry(desk: Desk) -> None:
    hour = 0.0
    engine, driver = clocked(desk, lambda: hour, asks_for(("erase", {"path": "x"})), "I see.")
    paused = await engine.run(AGENT, "hi")

    async def drive(turn_id: str) -> TurnResult:
        await driver.drive(turn_id)
        return await engine.get(turn_id)

    assert await recover_turns(engine.store, drive, now=lambda: hour, at_once=1) == []
    hour = paused.interrupts[0].expires_at or 0.0
    (turn,) = await recover_turns(engine.store, drive, now=lambda: hour, at_once=1)
    assert (turn.id, turn.outcome, desk.done) == (paused.id, Outcome.FINISHED, [])


async def test_recovery_skips_a_turn_waiting_for_a_person(desk: Desk) -> None:
    engine = Engine(model=ScriptedModel(asking("x.py")), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    assert await engine.recover() == []
    assert (await engine.get(paused.id)).paused


async def test_recovery_drives_an_answered_but_undriven_turn(desk: Desk) -> None:
    """The process that answered died in between: the answer is in the inbox."""
    engine = Engine(model=ScriptedModel(asking("x.py"), "Done."), tools=desk.tools)
    paused = await engine.run(AGENT, "hi")
    payload = json.dumps({"interrupt": "approval-1", "decision": Decision.APPROVE, "text": ""})
    await engine.store.post(InboxItem(paused.id, "answer:approval-1", InboxKind.ANSWER, payload))
    (turn,) = await engine.recover()
    assert (turn.outcome, desk.done) == (Outcome.FINISHED, ["note a", "erase x.py"])
    assert await engine.store.inbox(paused.id) == []


@pytest.mark.parametrize("most", [1, 3, 8])
@pytest.mark.parametrize("slow", [("a",), ("b",), ("a", "b"), ()])
async def test_approvals_are_numbered_in_the_order_of_calls(slow: Sequence[str], most: int) -> None:
    """Whichever check is the fastest: a hook decides about each call, and some wait for another one."""
    checked = anyio.Event()

    @before_tool(tools=["a", "b"])
    async def check(_: TurnContext, call: CallView) -> None:
        if call.tool in slow and most > 1:
            await checked.wait()

    def needs_approval() -> bool:
        checked.set()
        return True

    def named(name: str) -> Tool:
        async def run() -> str:
            return name

        return tool(name=name, description="Run.", needs_approval=needs_approval)(run)

    @tool(read_only=True)
    async def free() -> str:
        """Ask nobody."""
        return "free"

    calls = asks_for(("a", {}), ("free", {}), ("b", {}), ("c", {}), ("d", {}))
    engine = Engine(
        model=ScriptedModel(calls, "Done."),
        tools=[free, *map(named, "abcd")],
        hooks=[check],
        max_parallel_tools=most,
    )
    with anyio.fail_after(60):
        turn = await engine.run(Agent(name="A"), "hi")
    assert [(interrupt.id, interrupt.tool) for interrupt in turn.interrupts] == [
        (f"approval-{number}", name) for number, name in enumerate("abcd", start=1)
    ]
    with anyio.fail_after(60):
        ended = await engine.resume(turn.id, {interrupt.id: True for interrupt in turn.interrupts})
    assert ended.text == "Done."


async def test_an_approval_has_a_question() -> None:
    """It is the one that people are shown, also in the event of the pause."""

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    events: list[TurnEvent] = []
    engine = Engine(model=ScriptedModel(asks_for(("pay", {}))), tools=[pay], on_event=[events.append])
    turn = await engine.run(Agent(name="A"), "hi")
    assert [interrupt.question for interrupt in turn.interrupts] == ["may pay run?"]
    assert events[-1].public()["interrupts"] == [turn.interrupts[0].to_json()]
    assert turn.interrupts[0].to_json()["question"] == "may pay run?"
