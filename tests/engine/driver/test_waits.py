"""Calls whose results come from outside (docs/rules.md#waits)."""

import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import pytest

from turnwright import (
    Agent,
    AlreadySettledError,
    CallView,
    CannotRunError,
    ConfigError,
    Engine,
    InvalidAnswerError,
    Later,
    Limits,
    ReturnResult,
    StoreError,
    ToolContext,
    ToolResult,
    Trip,
    TurnContext,
    TurnResult,
    TurnwrightError,
    after_tool,
    agent_tool,
    external_tool,
    settled,
    tool,
    tool_output_guardrail,
)
from turnwright.message import ToolResultPart
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import MemoryStore, Store
from turnwright_states import CallStatus, Decision, EndReason, InterruptKind, Outcome, State
from turnwright_states.facts import Answered, CallSettled, CallStarted, CallWaiting
from turnwright_states.replay import replay
from turnwright_testing import FaultyStore
from turnwright_testing.faults.store import Fault
from turnwright_testing.faults.wrapper import StoreCall

# ruff: noqa: ANN401 (what a test gives may be anything)

pytestmark = pytest.mark.anyio

R = TypeVar("R")

AGENT = Agent(name="Studio")
NO_ARGUMENTS: Any = {"type": "object", "properties": {}}
NOW = 1_795_892_400.0


class Desk:
    """A store, its engines, and a clock that a test moves."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now = NOW
        self.ran: list[tuple[str, int, object]] = []
        self.act: Callable[[ToolContext], object] = lambda _: Later(kept={"job": 17})

        @tool(on_crash="ask")
        async def render(context: ToolContext) -> object:
            """Render a scene elsewhere."""
            self.ran.append((context.idempotency_key, context.attempt, context.kept))
            answer = self.act(context)
            if isinstance(answer, BaseException):
                raise answer
            return await answer if isinstance(answer, Awaitable) else answer

        @tool
        async def look() -> str:
            """Look."""
            return "seen"

        self.render, self.look = render, look
        self.pick = external_tool(name="pick", description="Pick a color.", parameters=NO_ARGUMENTS)

    def engine(self, *lines: Any, **options: Any) -> Engine:
        lines = lines or (asks_for(("render", {})), "Done.")
        self.model = ScriptedModel(*lines)
        tools = [self.render, self.look, self.pick, *options.pop("tools", ())]
        options = {"store": self.store, **options}
        return Engine(model=self.model, tools=tools, now=lambda: self.now, **options)

    async def facts(self, turn: str, *kinds: type) -> list[Any]:
        return [fact for _, fact in await self.store.facts(turn) if isinstance(fact, kinds or object)]

    def read_results(self) -> list[str]:
        """Return the results that the model read in its last request."""
        parts = [part for message in self.model.requests[-1].messages for part in message.parts]
        return [part.text for part in parts if isinstance(part, ToolResultPart)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


# Waiting


@pytest.mark.parametrize("raises", [True, False])
async def test_later_lets_the_call_wait_for_its_result(desk: Desk, raises: bool) -> None:
    """Rules 1 and 4: returned or raised, it is a wait of kind `result` after the start, which ends after 7 days."""

    def submit(_: ToolContext) -> Later:
        if raises:
            raise Later(kept={"job": 17})
        return Later(kept={"job": 17})

    desk.act = submit
    engine = desk.engine()
    turn: TurnResult = await engine.run(AGENT, "Render.")
    (interrupt,) = turn.interrupts
    assert turn.paused
    assert (interrupt.kind, interrupt.tool, interrupt.question) == (
        InterruptKind.RESULT,
        "render",
        "render waits for its result",
    )
    assert interrupt.id == f"result-{interrupt.call}"
    assert interrupt.key == f"{turn.id}:{interrupt.call}" == desk.ran[0][0]
    assert interrupt.expires_at == NOW + 604_800
    (start, wait) = await desk.facts(turn.id, CallStarted, CallWaiting)
    assert isinstance(start, CallStarted)
    assert wait.interrupt.kept == {"job": 17}
    assert await engine.settle(interrupt.key, {"file": "film.mp4"}, by="farm", via="webhook")
    turn = await engine.resume(turn.id)
    assert turn.text == "Done."
    assert desk.read_results() == ['{"file":"film.mp4"}']
    assert len(desk.ran) == 1, "the call does not start again"
    (answered, settled_fact) = await desk.facts(turn.id, Answered, CallSettled)
    assert (answered.decision, answered.by, answered.via, answered.at) == (Decision.SETTLE, "farm", "webhook", NOW)
    assert (settled_fact.status, settled_fact.structured) == (CallStatus.OK, {"file": "film.mp4"})
    assert replay(await desk.store.facts(turn.id)).fault is None


async def test_external_call_starts_and_waits_in_one_append(desk: Desk) -> None:
    """Rule 2: it counts in the budget, and no crash comes between."""
    appends: list[list[str]] = []
    append = desk.store.append

    async def counted(claim: Any, facts: Any, *rest: Any, **more: Any) -> Any:
        appends.append([fact.kind for fact in facts])
        return await append(claim, facts, *rest, **more)

    desk.store.append = counted  # type: ignore[method-assign]
    engine = desk.engine(asks_for(("pick", {})), "Blue.")
    turn: TurnResult = await engine.run(AGENT, "Pick.")
    assert turn.paused
    assert turn.tool_calls == 1
    assert appends[-1][-3:] == ["call_started", "call_waiting", "paused"]
    await engine.settle(turn.interrupts[0].key, "blue")
    assert (await engine.resume(turn.id)).text == "Blue."
    assert desk.read_results() == ["blue"]


async def test_external_call_is_approved_before_the_wait(desk: Desk) -> None:
    """Rule 2: approval, hooks and input guardrails come before."""
    buy = external_tool(name="buy", description="Buy.", parameters=NO_ARGUMENTS, needs_approval=True, approvers=2)
    engine = desk.engine(asks_for(("buy", {})), "Bought.", tools=[buy])
    turn: TurnResult = await engine.run(AGENT, "Buy.")
    assert (turn.interrupts[0].kind, turn.interrupts[0].approvals) == (InterruptKind.APPROVAL, 2)
    with pytest.raises(InvalidAnswerError, match=f"call {turn.interrupts[0].key} waits for it, not for a result"):
        await engine.settle(turn.interrupts[0].key, "bought")
    await engine.answer(turn.id, {"approval-1": True}, by="ann")
    turn = await engine.resume(turn.id, {"approval-1": True}, by="bob")
    assert turn.interrupts[0].kind is InterruptKind.RESULT
    await engine.settle(turn.interrupts[0].key, "bought")
    assert (await engine.resume(turn.id)).text == "Bought."


async def test_siblings_run_on_beside_a_wait(desk: Desk) -> None:
    """Rule 3, scenario 6: an early settlement does not disturb them, and the model reads both results in call order."""
    engine = desk.engine(asks_for(("pick", {}), ("render", {})), "Done.")

    async def settle_other(context: ToolContext) -> str:
        assert await engine.settle(f"{context.turn_id}:call00001", "blue")
        return "rendered"

    desk.act = settle_other
    turn: TurnResult = await engine.run(AGENT, "Pick and render.")
    assert turn.text == "Done."
    assert desk.read_results() == ["blue", "rendered"]


async def test_call_without_a_pause_left_is_unknown(desk: Desk) -> None:
    """Rule 3: each pause costs one of `max_pauses`."""
    turn: TurnResult = await desk.engine(limits=Limits(max_pauses=0)).run(AGENT, "Render.")
    assert turn.text == "Done."
    assert "outcome unknown" in desk.read_results()[0]


async def test_wait_expires_as_an_error(desk: Desk) -> None:
    """Rule 4, scenario 8: the call is an error, and a later result is refused."""
    desk.act = lambda _: Later(expires_in=60)
    engine = desk.engine()
    turn: TurnResult = await engine.run(AGENT, "Render.")
    key = turn.interrupts[0].key
    desk.now += 60
    with pytest.raises(InvalidAnswerError, match="it has expired"):
        await engine.settle(key, "late")
    assert (await engine.resume(turn.id)).text == "Done."
    assert desk.read_results() == ["no result came within its time"]
    (fact,) = await desk.facts(turn.id, CallSettled)
    assert fact.status is CallStatus.ERROR
    with pytest.raises(AlreadySettledError, match=r"has another result since .* \(by expiry\)"):
        await engine.settle(key, "later")


@pytest.mark.parametrize("otherwise", ["nothing came", ToolResult("nothing came", {"came": False})])
async def test_wait_that_expires_gives_its_other_result(desk: Desk, otherwise: str | ToolResult) -> None:
    """Rule 4: with the status `ok`."""
    desk.act = lambda _: Later(expires_in=60, otherwise=otherwise)
    engine = desk.engine()
    turn: TurnResult = await engine.run(AGENT, "Render.")
    desk.now += 61
    turn = await engine.resume(turn.id)
    assert desk.read_results() == ["nothing came"]
    (fact,) = await desk.facts(turn.id, CallSettled)
    assert fact.status is CallStatus.OK
    assert fact.structured == (None if isinstance(otherwise, str) else {"came": False})


async def test_wait_without_a_time_never_expires(desk: Desk) -> None:
    """Rule 4: None waits for ever."""
    desk.act = lambda _: Later(expires_in=None)
    engine = desk.engine()
    turn: TurnResult = await engine.run(AGENT, "Render.")
    assert turn.interrupts[0].expires_at is None
    desk.now += 10**9
    assert (await engine.resume(turn.id)).paused


# Settling


async def test_settling_again_is_false_or_an_error(desk: Desk) -> None:
    """Rule 6, scenario 5: also after the turn continued and ended."""
    engine = desk.engine()
    turn: TurnResult = await engine.run(AGENT, "Render.")
    key = turn.interrupts[0].key
    assert await engine.settle(key, {"a": 1}, by="farm")
    for _ in range(2):
        assert await engine.settle(key, {"a": 1}, by="farm") is False
        assert await engine.settle(key, {"a": 1}, by="somebody else") is False
        with pytest.raises(AlreadySettledError) as error:
            await engine.settle(key, {"a": 2})
        assert str(error.value) == f"call {key} has another result since 2026-11-28T19:00Z (by farm)"
        with pytest.raises(AlreadySettledError):
            await engine.settle(key, error="failed")
        await engine.resume(turn.id) if (await engine.get(turn.id)).outcome is None else None
    assert (await engine.get(turn.id)).text == "Done."


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("x" * (64 * 1024 + 1), "65,537 bytes of text"),
        ({"a": "x" * (256 * 1024)}, "bytes of data"),
        ("half \ud800", "half a surrogate pair at character 5"),
        ({"a": "half \ud800"}, "not JSON"),
        ({"a": math.nan}, "not JSON"),
        ({"a": {1, 2}}, "not JSON"),
    ],
)
async def test_result_that_cannot_be_stored_is_refused(desk: Desk, result: Any, words: str) -> None:
    """Rule 7: at most 64 KiB of text and 256 KiB of data; nothing is stored, and the call can still be settled."""
    engine = desk.engine()
    turn: TurnResult = await engine.run(AGENT, "Render.")
    with pytest.raises(ConfigError, match=words):
        await engine.settle(turn.interrupts[0].key, result)
    with pytest.raises(ConfigError, match=words):
        settled(result)
    assert not await desk.store.inbox(turn.id)
    assert await engine.settle(turn.interrupts[0].key, "x" * 64 * 1024)


def test_result_must_be_given_once() -> None:
    """Rule 6: the result or the error, one of both."""
    for options in ({}, {"error": "both"}):
        with pytest.raises(ConfigError, match="the result, or error="):
            settled(*(["a"] if options else []), **options)


async def test_result_is_checked_with_its_schema(desk: Desk) -> None:
    """Rule 7: before it is stored, with the schema that the wait kept; an error fits every schema."""
    schema: Any = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
    bill = external_tool(name="bill", description="Bill.", parameters=NO_ARGUMENTS, output_schema=schema)
    turn: TurnResult = await desk.engine(asks_for(("bill", {})), "Done.", tools=[bill]).run(AGENT, "Bill.")
    engine, key = Engine(store=desk.store), turn.interrupts[0].key  # a process without the tool
    misfits: list[tuple[Any, str]] = [
        ({"amount": "12"}, r"the result does not fit output_schema: \$\.amount is not a number"),
        ("12", r"the result does not fit output_schema: \$ is not an object"),
        ({}, r"output_schema: \$: 'amount' is a required property"),
    ]
    for result, misfit in misfits:
        with pytest.raises(InvalidAnswerError, match=misfit):
            await engine.settle(key, result)
        with pytest.raises(InvalidAnswerError, match=misfit):
            await engine.answer(turn.id, {turn.interrupts[0].id: settled(result)})
    assert not await desk.store.inbox(turn.id)
    assert await engine.settle(key, error="the bank is closed")
    assert await engine.settle(key, error="the bank is closed") is False


@pytest.mark.parametrize("schema", [{"type": "strange"}, {"$ref": "#/nowhere"}])
def test_wrong_output_schema_is_refused(schema: Any) -> None:
    """Rule 7: when the tool is made, not when the first result comes."""
    with pytest.raises(ConfigError, match="output_schema"):
        external_tool(name="bill", description="Bill.", parameters=NO_ARGUMENTS, output_schema=schema)


async def test_unknown_keys_are_refused(desk: Desk) -> None:
    """Rule 6: no call, a call that has not been made, or a call of another turn."""
    engine = desk.engine()
    turn: TurnResult = await engine.run(AGENT, "Render.")
    for key in (turn.id, f"{turn.id}:call9", f"{turn.id}:call00001:call00001", f"{turn.id}:", f"{turn.id}:call00001:"):
        with pytest.raises(InvalidAnswerError, match=f"call '{key}': no open call has this key"):
            await engine.settle(key, "x")
    assert not await desk.store.inbox(turn.id)


async def test_result_for_a_superseded_turn_is_refused_with_its_end(desk: Desk) -> None:
    """A job that answers too late learns why nobody waits for it."""
    turn: TurnResult = await desk.engine().run(AGENT, "Render.", session="s", id="t")
    engine = desk.engine("Hello.")
    await engine.run(AGENT, "Never mind.", session="s")
    with pytest.raises(InvalidAnswerError, match=r"turn t has ended \(aborted: superseded\) \(none is open\)"):
        await engine.settle(turn.interrupts[0].key, "film.mp4")


async def test_early_result_waits_in_the_inbox(desk: Desk) -> None:
    """Rule 8: a started call may be settled before its wait is journaled."""
    engine = desk.engine()

    async def submit(context: ToolContext) -> Later:
        assert await engine.settle(context.idempotency_key, "early", by="farm")
        assert await engine.settle(context.idempotency_key, "early") is False
        with pytest.raises(AlreadySettledError):
            await engine.settle(context.idempotency_key, "other")
        return Later()

    desk.act = submit
    turn: TurnResult = await engine.run(AGENT, "Render.")
    assert turn.text == "Done."
    assert desk.read_results() == ["early"]
    assert not await desk.store.inbox(turn.id)


async def test_result_of_the_tool_itself_stands(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Rule 8: the early result is dropped with a warning."""
    engine = desk.engine()

    async def finish(context: ToolContext) -> str:
        await engine.settle(context.idempotency_key, "early")
        return "own"

    desk.act = finish
    turn: TurnResult = await engine.run(AGENT, "Render.")
    assert desk.read_results() == ["own"]
    assert "call00001 ended with another result, and the one from outside is dropped" in caplog.text
    assert not await desk.store.inbox(turn.id)


@pytest.mark.parametrize("on_crash", ["ask", "unknown", "rerun"])
async def test_early_result_beats_the_crash_policy(desk: Desk, on_crash: Any) -> None:
    """Rule 9: recovery uses it, and does not run, ask or give up."""
    ran: list[int] = []

    @tool(on_crash=on_crash, idempotent=on_crash == "rerun")
    async def charge(context: ToolContext) -> str:
        """Charge, and die."""
        ran.append(context.attempt)
        assert await engine.settle(context.idempotency_key, "paid, receipt 42")
        raise KeyboardInterrupt

    engine = desk.engine(asks_for(("charge", {})), "Done.", tools=[charge])
    with pytest.raises(BaseException):  # noqa: B017, PT011 (an interrupt, or a group with one)
        await engine.run(AGENT, "Charge.", id="t")
    engine = desk.engine("Done.", tools=[charge])
    turn: TurnResult = await engine.resume("t")
    assert turn.text == "Done."
    assert desk.read_results() == ["paid, receipt 42"]
    assert ran == [1]
    assert replay(await desk.store.facts("t")).fault is None


async def test_given_result_passes_hooks_and_guardrails(desk: Desk) -> None:
    """Rule 10: `after_tool` may replace it, and an output guardrail ends the turn (scenario 10)."""

    @after_tool
    def mask(_ctx: TurnContext, _call: CallView, result: ToolResult) -> ReturnResult | None:
        return ReturnResult(result.text.replace("1234", "****")) if "1234" in result.text else None

    @tool_output_guardrail
    def secret(_ctx: TurnContext, _call: CallView, result: ToolResult) -> Trip | None:
        return Trip("a secret") if "SECRET" in result.text else None

    for result, outcome in (("card 1234", Outcome.FINISHED), ("SECRET", Outcome.FAILED)):
        engine = desk.engine(hooks=[mask], guardrails=[secret])
        turn: TurnResult = await engine.run(AGENT, "Render.")
        await engine.settle(turn.interrupts[0].key, result)
        turn = await engine.resume(turn.id)
        assert turn.outcome is outcome
        if outcome is Outcome.FINISHED:
            assert desk.read_results() == ["card ****"]
        else:
            assert turn.reason is EndReason.GUARDRAIL
            assert len(desk.model.requests) == 1, "the model never reads it"


async def test_given_result_may_be_the_answer(desk: Desk) -> None:
    """Rule 10, scenario 11: `return_direct` of an external tool."""
    say = external_tool(name="say", description="Say.", parameters=NO_ARGUMENTS, return_direct=True)
    engine = desk.engine(asks_for(("say", {})), tools=[say])
    turn: TurnResult = await engine.run(AGENT, "Say.")
    await engine.settle(turn.interrupts[0].key, "the answer")
    turn = await engine.resume(turn.id)
    assert (turn.text, turn.outcome) == ("the answer", Outcome.FINISHED)
    assert len(desk.model.requests) == 1


async def test_failed_hook_of_a_given_result_settles_the_call_once(desk: Desk) -> None:
    """Rule 10: a crash between the answer and the result repeats only the hooks."""
    results: list[str] = []

    @after_tool
    def die_once(_ctx: TurnContext, _call: CallView, result: ToolResult) -> None:
        results.append(result.text)
        if len(results) == 1:
            raise KeyboardInterrupt

    engine = desk.engine(hooks=[die_once])
    turn: TurnResult = await engine.run(AGENT, "Render.")
    await engine.settle(turn.interrupts[0].key, "film")
    with pytest.raises(BaseException):  # noqa: B017, PT011 (an interrupt, or a group with one)
        await engine.resume(turn.id)
    turn = await desk.engine("Done.", hooks=[die_once]).resume(turn.id)
    assert turn.text == "Done."
    assert results == ["film", "film"]
    assert len(desk.ran) == 1
    assert len(await desk.facts(turn.id, Answered)) == len(await desk.facts(turn.id, CallSettled)) == 1


@pytest.mark.parametrize(
    ("key", "fields", "words"),
    [
        (5, {}, "key must be text"),
        (None, {}, "key must be text"),
        ("x" * 100_000, {}, "'xxx.* is not the key of a call: write TURN:CALL"),
        ("result-1", {}, "^'result-1' is not the key of a call: write TURN:CALL, as `Interrupt.key` has it$"),
        ("u:call00001", {}, "there is no turn 'u'"),
        ("t:" + "x" * 100_000, {}, "call 't:xxx"),
        ("t:call00001", {"error": 5}, "error must be text"),
    ],
)
async def test_wrong_key_or_error_is_refused_in_a_short_sentence(
    desk: Desk, key: Any, fields: dict[str, Any], words: str
) -> None:
    engine = desk.engine()
    await engine.run(AGENT, "Render.", id="t")
    with pytest.raises(TurnwrightError, match=words) as refusal:
        await (engine.settle(key, **fields) if fields else engine.settle(key, "film.mp4"))
    assert len(str(refusal.value)) < 1000
    assert await desk.store.inbox("t") == []


async def test_reject_gives_up_and_rerun_runs_again(desk: Desk) -> None:
    """Rule 11: `rerun` has the same key, and what `Later` kept."""
    engine = desk.engine()
    turn: TurnResult = await engine.run(AGENT, "Render.")
    desk.act = lambda _: Later(kept="second")
    turn = await engine.resume(turn.id, {turn.interrupts[0].id: "rerun"})
    assert turn.paused
    assert desk.ran == [(turn.interrupts[0].key, 1, None), (turn.interrupts[0].key, 2, {"job": 17})]
    turn = await engine.resume(turn.id, {turn.interrupts[0].id: False})
    assert turn.text == "Done."
    assert desk.read_results() == ["rejected by the person"]


@pytest.mark.parametrize("dies", [False, True])
async def test_sub_agent_uses_each_answer_for_one_wait(desk: Desk, dies: bool) -> None:
    """Its call that runs again waits under the same id. One `rerun` is one more run, also if the caller dies then."""

    class Mortal(FaultyStore):
        """Dies before the caller writes that its sub-agent waits once more."""

        def fault(self, call: StoreCall) -> Fault:
            waits = any(isinstance(fact, CallWaiting) for fact in call.facts)
            is_callers = call.claim is not None and call.claim.turn == "t"
            return "die before" if dies and waits and is_callers and len(desk.ran) > 1 else ""

    helper = agent_tool(Agent(name="Helper", description="Helps.", tools=["render"]))
    lines = (asks_for(("Helper", {"prompt": "Go."})), asks_for(("render", {})), "Made.", "Done.")
    engine = desk.engine(*lines, tools=[helper], store=Mortal(desk.store))
    turn: TurnResult = await engine.run(Agent(name="Studio", tools=("Helper",)), "Go.", id="t")
    answer = {turn.interrupts[0].id: "rerun"}
    if dies:
        with pytest.raises(StoreError):
            await engine.resume("t", answer)
        await desk.store.aclose()
        turn = await desk.engine("Made.", "Done.", tools=[helper]).resume("t")
    else:
        turn = await engine.resume("t", answer)
    assert [attempt for _, attempt, _ in desk.ran] == [1, 2]
    engine = desk.engine("Made.", "Done.", tools=[helper])
    turn = await engine.resume("t", {turn.interrupts[0].id: settled("film.mp4")})
    assert (turn.text, len(desk.ran)) == ("Done.", 2)
    (call,) = await desk.facts("t:call00001", CallSettled)
    assert call.result == "film.mp4"


async def test_person_says_how_an_in_doubt_call_ended(desk: Desk) -> None:
    """Rule 6: "paid, receipt 42", by an answer or by the call's key."""
    for by_key in (False, True):
        desk.act = lambda _: KeyboardInterrupt()
        engine = desk.engine()
        with pytest.raises(BaseException):  # noqa: B017, PT011 (an interrupt, or a group with one)
            await engine.run(AGENT, "Render.", id=f"t{by_key}")
        engine = desk.engine("Done.")
        turn: TurnResult = await engine.resume(f"t{by_key}")
        (interrupt,) = turn.interrupts
        assert interrupt.kind is InterruptKind.UNKNOWN_OUTCOME
        if by_key:
            assert await engine.settle(interrupt.key, "paid, receipt 42", by="ann")
            turn = await engine.resume(turn.id)
        else:
            turn = await engine.resume(turn.id, {interrupt.id: settled("paid, receipt 42")}, by="ann")
        assert turn.text == "Done."
        assert desk.read_results() == ["paid, receipt 42"]
        assert await engine.settle(interrupt.key, "paid, receipt 42") is False


async def test_deepest_call_is_settled_by_its_key(desk: Desk) -> None:
    """Rule 16, scenario 13: all waits of three levels are visible at the root."""
    low = agent_tool(Agent(name="Low", description="Low.", tools=["pick"]))
    high = agent_tool(Agent(name="High", description="High.", tools=["Low"]))
    engine = desk.engine(
        asks_for(("High", {"prompt": "p"})),
        asks_for(("Low", {"prompt": "p"})),
        asks_for(("pick", {})),
        "low done",
        "high done",
        "Done.",
        tools=[low, high],
    )
    turn: TurnResult = await engine.run(Agent(name="Lead", tools=["High"]), "Go.")
    (interrupt,) = turn.interrupts
    assert interrupt.key == f"{turn.id}:call00001:call00001:call00001"
    assert (interrupt.kind, interrupt.tool) == (InterruptKind.RESULT, "pick")
    assert await engine.settle(interrupt.key, "blue", by="ann")
    assert await engine.settle(interrupt.key, "blue") is False
    assert (await engine.resume(turn.id)).text == "Done."
    deepest = f"{turn.id}:call00001:call00001"
    (answered,) = await desk.facts(deepest, Answered)
    assert (answered.by, answered.given.text) == ("ann", "blue")
    assert await engine.settle(interrupt.key, "blue") is False
    with pytest.raises(AlreadySettledError):
        await engine.settle(interrupt.key, "red")


async def test_early_result_of_a_sub_agents_call_is_read(desk: Desk) -> None:
    """Rule 8: the sub-agent's own turn takes it."""
    helper = agent_tool(Agent(name="Helper", description="Helps.", tools=["render"]))
    lines = (asks_for(("Helper", {"prompt": "p"})), asks_for(("render", {})), "helped", "Done.")
    engine = desk.engine(*lines, tools=[helper])

    async def submit(context: ToolContext) -> Later:
        assert await engine.settle(context.idempotency_key, "early")
        return Later()

    desk.act = submit
    turn: TurnResult = await engine.run(AGENT, "Go.")
    assert turn.text == "Done."
    assert "helped" in desk.read_results()[0]


class BetweenWaits(FaultyStore):
    """Calls `act` once: the sub-agents have paused, and turn `t` is about to write that it waits for their calls."""

    def __init__(self, inner: Store, act: Callable[[], Awaitable[None]], *, dies: bool = False) -> None:
        super().__init__(inner, at=CallWaiting if dies else 0)
        self.act: Callable[[], Awaitable[None]] | None = act

    def _is_chosen(self, call: StoreCall) -> bool:
        return call.claim is not None and call.claim.turn == "t" and super()._is_chosen(call)

    async def around(self, call: StoreCall, make: Callable[[], Awaitable[R]]) -> R:
        is_root = call.name == "append" and call.claim is not None and call.claim.turn == "t"
        if is_root and self.act is not None and any(isinstance(fact, CallWaiting) for fact in call.facts):
            act, self.act = self.act, None
            await act()
        return await super().around(call, make)


@pytest.mark.parametrize("second", ["settle", "answer", "rerun"])
async def test_result_that_was_refused_is_not_used(desk: Desk, second: str) -> None:
    """Rule 8: the first result comes while only the sub-agent waits. Before it is accepted, its caller is answered."""
    helper = agent_tool(Agent(name="Helper", description="Helps.", tools=["render"]))
    lines = (asks_for(("Helper", {"prompt": "p"})), asks_for(("render", {})), "helped", "Done.")
    key, name = "t:call00001:call00001", "call00001/result-call00001"
    refusals: list[type[TurnwrightError]] = []

    async def settle_first() -> None:
        try:
            await engine.settle(key, "first")
        except TurnwrightError as refusal:
            refusals.append(type(refusal))

    async def begin_to_settle() -> None:
        group.start_soon(settle_first)
        while not await desk.store.inbox("t:call00001"):
            await anyio.lowlevel.checkpoint()

    engine = desk.engine(*lines, tools=[helper], store=BetweenWaits(desk.store, begin_to_settle), poll_interval=0.01)
    async with anyio.create_task_group() as group:
        await engine.run(AGENT, "Go.", id="t")
        if second == "settle":
            assert await engine.settle(key, "second")
        else:
            await engine.answer("t", {name: settled("second") if second == "answer" else "rerun"})
    assert refusals == [InvalidAnswerError if second == "rerun" else AlreadySettledError]
    turn: TurnResult = await engine.resume("t")
    if second == "rerun":
        assert [interrupt.id for interrupt in turn.interrupts] == [name]
        turn = await engine.resume("t", {name: settled("second")})
    assert turn.text == "Done."
    (call,) = await desk.facts("t:call00001", CallSettled)
    assert call.result == "second"
    assert await desk.store.inbox("t:call00001") == []


async def test_deep_call_is_settled_after_the_process_died_before_the_wait(desk: Desk) -> None:
    """Rules 8 and 16: the turn in between takes the result, since it waits already."""
    low = agent_tool(Agent(name="Low", description="Low.", tools=["pick"]))
    high = agent_tool(Agent(name="High", description="High.", tools=["Low"]))
    lines = (asks_for(("High", {"prompt": "p"})), asks_for(("Low", {"prompt": "p"})), asks_for(("pick", {})))
    lead = Agent(name="Lead", tools=["High"])

    async def do_nothing() -> None: ...

    engine = desk.engine(*lines, tools=[low, high], store=BetweenWaits(desk.store, do_nothing, dies=True))
    with pytest.raises(StoreError):
        await engine.run(lead, "Go.", id="t")
    await desk.store.aclose()
    engine = desk.engine("low done", "high done", "Done.", tools=[low, high])
    assert await engine.settle("t:call00001:call00001:call00001", "blue")
    assert (await engine.resume("t")).text == "Done."


async def test_expired_question_of_a_sub_agent_is_rejected_alone(desk: Desk) -> None:
    """Rule 16, scenario 14: the other three of the child's questions are answered, and it continues."""
    done: list[str] = []

    @tool(needs_approval=True)
    async def erase(path: str) -> str:
        """Erase."""
        done.append(path)
        return "erased"

    @tool(needs_approval=True, expires_in=60)
    async def burn(path: str) -> str:
        """Burn."""
        done.append(path)
        return "burnt"

    worker = agent_tool(Agent(name="Worker", description="Works.", tools=("erase", "burn")))
    calls = [("erase", {"path": "a"}), ("burn", {"path": "b"}), ("erase", {"path": "c"}), ("erase", {"path": "d"})]
    engine = desk.engine(
        asks_for(("Worker", {"prompt": "Go."})), asks_for(*calls), "Worked.", "Done.", tools=[worker, erase, burn]
    )
    turn: TurnResult = await engine.run(AGENT, "Work.")
    assert len(turn.interrupts) == 4
    desk.now += 61
    answers = {interrupt.id: True for interrupt in turn.interrupts if interrupt.tool == "erase"}
    assert (await engine.resume(turn.id, answers)).text == "Done."
    assert sorted(done) == ["a", "c", "d"]
    statuses = {fact.call: fact.status for fact in await desk.facts(f"{turn.id}:call00001", CallSettled)}
    assert [statuses[f"call0000{number}"] for number in (1, 2, 3, 4)] == [
        CallStatus.OK,
        CallStatus.REJECTED,
        CallStatus.OK,
        CallStatus.OK,
    ]


async def test_call_without_its_tool_is_settled_and_waits(desk: Desk) -> None:
    """Rule 6, scenario 25: settling needs no code, and the turn runs when the tool is there again."""
    turn: TurnResult = await desk.engine().run(AGENT, "Render.")
    bare = Engine(model=ScriptedModel("Done."), store=desk.store, now=lambda: desk.now)
    assert await bare.settle(turn.interrupts[0].key, "film")
    with pytest.raises(CannotRunError, match="render"):
        await bare.resume(turn.id)
    assert (await desk.engine("Done.").resume(turn.id)).text == "Done."
    assert desk.read_results() == ["film"]


async def test_wait_of_a_sub_agent_expires_with_its_other_result(desk: Desk) -> None:
    """Rules 4 and 16: the root's expiry passes the result down."""
    helper = agent_tool(Agent(name="Helper", description="Helps.", tools=["render"]))
    desk.act = lambda _: Later(expires_in=60, otherwise="nothing came")
    lines = (asks_for(("Helper", {"prompt": "p"})), asks_for(("render", {})), "helped", "Done.")
    engine = desk.engine(*lines, tools=[helper])
    turn: TurnResult = await engine.run(AGENT, "Go.")
    desk.now += 61
    assert (await engine.resume(turn.id)).text == "Done."
    (fact,) = await desk.facts(f"{turn.id}:call00001", CallSettled)
    assert (fact.status, fact.result) == (CallStatus.OK, "nothing came")


async def test_settling_is_authorized(desk: Desk) -> None:
    """Rule 15: with the interrupt that it closes, also for an early result; another process refuses."""
    questions: list[Any] = []

    def may(answering: Any) -> bool:
        questions.append(answering)
        return answering.by == "farm"  # type: ignore[no-any-return]

    engine = desk.engine(authorize=may)

    async def submit(context: ToolContext) -> Later:
        with pytest.raises(InvalidAnswerError, match="not authorized"):
            await engine.settle(context.idempotency_key, "early", by="mallory")
        with pytest.raises(InvalidAnswerError, match="your app must authorize"):
            await Engine(store=desk.store).settle(context.idempotency_key, "early")
        return Later()

    desk.act = submit
    turn: TurnResult = await engine.run(AGENT, "Render.")
    with pytest.raises(InvalidAnswerError, match="your app must authorize"):
        await Engine(store=desk.store).settle(turn.interrupts[0].key, "x")
    assert await engine.settle(turn.interrupts[0].key, "film", by="farm")
    assert [(answering.decision, answering.interrupt.key) for answering in questions] == [
        (Decision.SETTLE, turn.interrupts[0].key)
    ] * 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"expires_in": 0}, ValueError),
        ({"expires_in": math.inf}, ValueError),
        ({"expires_in": "1"}, TypeError),
        ({"expires_in": True}, TypeError),
        ({"kept": {1, 2}}, ValueError),
        ({"kept": "x" * 300_000}, ValueError),
        ({"otherwise": "x" * 70_000}, ValueError),
    ],
)
def test_later_checks_its_options(options: Any, error: type[Exception]) -> None:
    """Rule 4: a time above 0, or None; and data that the journal can hold."""
    with pytest.raises(error):
        Later(**options)
    if "kept" not in options:
        with pytest.raises(ConfigError):
            external_tool(name="pick", description="Pick.", parameters=NO_ARGUMENTS, **options)


async def test_approval_check_cannot_wait_for_a_result(desk: Desk) -> None:
    """Rule 1: the call has not started then."""

    def ask(**_: object) -> bool:
        raise Later

    @tool(needs_approval=ask)
    async def odd() -> str:
        """Ask oddly."""
        return "ran"

    turn: TurnResult = await desk.engine(asks_for(("odd", {})), "Done.", tools=[odd]).run(AGENT, "Go.")
    assert (turn.state, turn.text) == (State.FINISHED, "Done.")
    assert "its approval check" in desk.read_results()[0] or "approval check of odd" in desk.read_results()[0]


async def test_progress_replaces_the_earlier_report(desk: Desk) -> None:
    """Rule 12: the inbox has the latest one, `get` shows it, followers in this process receive it, the journal none."""
    engine = desk.engine()
    turn: TurnResult = await engine.run(AGENT, "Render.")
    key, facts = turn.interrupts[0].key, await desk.store.facts(turn.id)
    events: list[Any] = []
    watching = desk.engine("Done.", on_event=[events.append])
    for done in (0.25, 0.5):
        await watching.progress(key, done, 1.0, "half way")
    assert [(event.call, event.tool, event.progress, event.total, event.message) for event in events] == [
        ("call00001", "render", done, 1.0, "half way") for done in (0.25, 0.5)
    ]
    (interrupt,) = (await engine.get(turn.id)).interrupts
    assert str(interrupt.progress) == "0.5 of 1: half way"
    assert len(await desk.store.inbox(turn.id)) == 1
    assert await desk.store.facts(turn.id) == facts
    assert await watching.settle(key, "film")
    assert (await watching.resume(turn.id)).text == "Done."
    assert not await desk.store.inbox(turn.id)


@pytest.mark.parametrize("report", [(math.nan,), ("1",), (1, math.inf), (1, None, "half \ud800"), (1, None, 5)])
async def test_progress_that_is_no_number_is_refused(desk: Desk, report: Any) -> None:
    """Rule 12: nothing is stored."""
    engine = desk.engine()
    turn: TurnResult = await engine.run(AGENT, "Render.")
    with pytest.raises(ConfigError):
        await engine.progress(turn.interrupts[0].key, *report)
    with pytest.raises(InvalidAnswerError, match="no open call has this key"):
        await engine.progress(f"{turn.id}:call9", 1)
    assert not await desk.store.inbox(turn.id)


def test_result_is_given_without_an_event_loop(desk: Desk) -> None:
    """`settle_sync` does what `settle` does."""
    with desk.engine() as engine:
        turn = engine.run_sync(AGENT, "Render.")
        key = turn.interrupts[0].key
        assert engine.settle_sync(key, error="the farm is closed")
        assert engine.settle_sync(key, error="the farm is closed") is False
        assert engine.resume_sync(turn.id).text == "Done."
    assert desk.read_results() == ["the farm is closed"]
