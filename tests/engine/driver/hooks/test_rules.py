"""Rules of hooks and guardrails that hold for any of them: who wins, who is asked again, and what stays private."""

from collections.abc import Sequence

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright import (
    Agent,
    CallView,
    ChangeArguments,
    ChangeRequest,
    Engine,
    Hooks,
    Reject,
    RequireApproval,
    ReturnResult,
    ToolContext,
    ToolDecision,
    Trip,
    TurnContext,
    TurnResult,
    approve,
    before_model,
    before_tool,
    tool,
    tool_input_guardrail,
)
from turnwright.message import ToolResultPart
from turnwright.model import ModelRequest, ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_states import CallStatus, EndReason, Outcome
from turnwright_states import facts as f
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

AGENT = Agent(name="Clerk")


@tool(idempotent=True)
async def pay(amount: int) -> str:
    return f"paid {amount}"


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


DECISIONS = st.one_of(
    st.none(),
    st.integers(0, 9).map(lambda n: ChangeArguments({"amount": n})),
    st.sampled_from(["no", "never"]).map(Reject),
    st.just(RequireApproval("Sure?")),
    st.sampled_from(["given", "had"]).map(ReturnResult),
)


class Decides(Hooks):
    """Decides the same each time, and notes the arguments that it was shown."""

    def __init__(self, decision: ToolDecision | None, amounts: list[object]) -> None:
        self.decision = decision
        self.amounts = amounts

    async def before_tool(self, ctx: ToolContext, call: CallView) -> ToolDecision | None:
        self.amounts.append(call.arguments["amount"])
        return self.decision


@given(st.lists(DECISIONS, max_size=4), st.lists(DECISIONS, max_size=2))
def test_the_first_rejection_or_result_wins_and_changes_add_up(
    engines: Sequence[ToolDecision | None], agents: Sequence[ToolDecision | None]
) -> None:
    amount, expected_amounts, approval, ending = 70, list[object](), False, ("ok", "")
    for decision in (*engines, *agents):
        expected_amounts.append(amount)
        match decision:
            case ChangeArguments(arguments=arguments):
                amount = int(str(arguments["amount"]))
            case RequireApproval():
                approval = True
            case Reject(reason=reason):
                ending = ("rejected", f"rejected: {reason}")
                break
            case ReturnResult(value=value):
                ending = ("ok", str(value))
                break
    expected = ending if ending[1] else ("ok", f"paid {amount}")
    amounts: list[object] = []

    async def play() -> TurnResult:
        agent = Agent(name="Clerk", hooks=[Decides(decision, amounts) for decision in agents])
        model = ScriptedModel(asks_for(("pay", {"amount": 70})), "Done.")
        engine = Engine(model=model, tools=[pay], hooks=[Decides(decision, amounts) for decision in engines])
        turn: TurnResult = await engine.run(agent, "hi")
        assert turn.paused is (approval and not ending[1])
        if turn.paused:
            assert turn.interrupts[0].arguments == {"amount": amount}
            turn = await engine.resume(turn.id, {"approval-1": True}, agent=agent)
        assert replay(await engine.store.facts(turn.id)).check.verdict is Verdict.HOLDS
        return turn

    turn = anyio.run(play)
    assert turn.outcome is Outcome.FINISHED
    assert results(turn) == [(CallStatus(expected[0]), expected[1])]
    assert amounts == expected_amounts, "each hook is asked once, with the arguments so far"


@pytest.mark.anyio
@pytest.mark.parametrize("amount", [5, 500])
async def test_arguments_changed_by_a_person_pass_guardrails_and_no_hook(amount: int) -> None:
    amounts: list[object] = []

    @tool_input_guardrail
    async def small(ctx: ToolContext, call: CallView) -> Trip | None:
        return Trip("too much") if int(str(call.arguments["amount"])) > 100 else None

    hooks = [Decides(ChangeArguments({"amount": 50}), amounts), Decides(RequireApproval(), amounts)]
    model = ScriptedModel(asks_for(("pay", {"amount": 70})), "Done.")
    engine = Engine(model=model, tools=[pay], hooks=hooks, guardrails=[small])
    turn: TurnResult = await engine.run(AGENT, "hi")
    turn = await engine.resume(turn.id, {"approval-1": approve(arguments={"amount": amount})})
    assert amounts == [70, 50]
    if amount > 100:
        assert (turn.reason, turn.tool_calls) == (EndReason.GUARDRAIL, 0)
    else:
        assert "paid 5" in results(turn)[0][1]


@pytest.mark.anyio
async def test_fork_keeps_decisions_and_asks_only_about_later_calls() -> None:
    amounts: list[object] = []
    store = MemoryStore()
    hooks = [Decides(ChangeArguments({"amount": 50}), amounts)]
    engine = Engine(
        model=ScriptedModel(asks_for(("pay", {"amount": 70})), "Done."), tools=[pay], hooks=hooks, store=store
    )
    turn = await engine.run(AGENT, "hi")
    facts = await store.facts(turn.id)
    places = {type(fact): seq for seq, fact in facts}
    for at, questions in ((places[f.CallStarted], 0), (places[f.StepStarted], 0), (places[f.CallStarted] - 1, 1)):
        amounts.clear()
        again = Engine(model=ScriptedModel("Done."), tools=[pay], hooks=hooks, store=store)
        copied = await again.resume(await again.fork(turn.id, at=at))
        assert results(copied) == [(CallStatus.OK, "paid 50")]
        assert len(amounts) == questions


@pytest.mark.anyio
async def test_decisions_of_hooks_are_not_sent_to_browsers() -> None:
    @before_model
    async def remind(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
        return ChangeRequest(instructions="secret-instructions", append=("secret-append",))

    @before_tool
    async def refuse(ctx: ToolContext, call: CallView) -> ToolDecision | None:
        return Reject("public reason")

    engine = Engine(model=ScriptedModel(asks_for(("pay", {"amount": 1})), "Done."), tools=[pay], hooks=[remind, refuse])
    turn = await engine.run(AGENT, "hi")
    public_text = repr([event.public() async for event in engine.events(turn.id)])
    assert "public reason" in public_text, "the model reads it too"
    assert "secret-" not in public_text
    assert "decisions" not in public_text
