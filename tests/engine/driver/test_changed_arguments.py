"""A person approves a call with other arguments: both are kept, and the call runs with the person's."""

from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from turnwright import Agent, Engine, InvalidAnswerError, Tool, ToolContext, agent_tool, approve, reject, tool
from turnwright.journal.answers import Answer, Answers
from turnwright.journal.result import TurnResult
from turnwright.message import ToolCallPart, ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright_states import Decision
from turnwright_states.facts import Answered, ModelReplied

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Clerk")
RAN: list[tuple[str, int]] = []


@tool(needs_approval=True)
async def pay(to: str, amount: int = 1) -> str:
    RAN.append((to, amount))
    return f"paid {amount} to {to}"


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def engine_of(model: ScriptedModel, *tools: Tool) -> Engine:
    return Engine(model=model, tools=tools or [pay])


def script() -> ScriptedModel:
    return ScriptedModel(asks_for(("pay", {"to": "Ann", "amount": 500})), "Paid.")


def result_text(turn: TurnResult[object]) -> str:
    (part,) = (part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart))
    return part.text


@pytest.mark.parametrize(
    "answer", [approve(arguments={"to": "Ann", "amount": 50}), '{"to": "Ann", "amount": 50}'], ids=["code", "text"]
)
async def test_the_call_runs_with_the_persons_arguments_and_both_are_kept(answer: str | Answer) -> None:
    model = script()
    engine = engine_of(model)
    paused = await engine.run(AGENT, "Pay Ann.")
    turn = await engine.resume(paused.id, {"approval-1": answer})
    assert RAN == [("Ann", 50)]
    facts = [fact for _, fact in await engine.store.facts(turn.id)]
    (replied, _) = (fact for fact in facts if isinstance(fact, ModelReplied))
    assert replied.calls[0].arguments == {"to": "Ann", "amount": 500}
    assert [fact.arguments for fact in facts if isinstance(fact, Answered)] == [{"to": "Ann", "amount": 50}]
    call = next(part for message in turn.messages for part in message.parts if isinstance(part, ToolCallPart))
    assert call.arguments == {"to": "Ann", "amount": 500}
    assert result_text(turn) == (
        '[a person approved this call with other arguments: {"to": "Ann", "amount": 50}]\n\npaid 50 to Ann'
    )
    assert result_text(await engine.get(turn.id)) == result_text(turn)
    result_part = model.requests[1].messages[-1].parts[0]
    assert isinstance(result_part, ToolResultPart)
    assert result_part.text == result_text(turn)


async def test_the_same_arguments_are_no_change() -> None:
    engine = engine_of(script())
    paused = await engine.run(AGENT, "Pay Ann.")
    turn = await engine.resume(paused.id, {"approval-1": approve(arguments={"amount": 500, "to": "Ann"})})
    assert result_text(turn) == "paid 500 to Ann"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (approve(arguments={"to": "Ann", "amount": "much"}), "the changed arguments do not fit pay: (?s:.*)amount"),
        (approve(arguments={"amount": 1}), "do not fit pay: (?s:.*)to: is missing"),
        (approve(arguments={"to": "\ud800"}), "do not fit pay"),
        (approve(arguments={"to": "Ann", "amount": float("nan")}), "do not fit pay"),
        ("{to: Ann}", "the changed arguments are not a JSON object"),
        (approve(arguments=["Ann"]), "the changed arguments are not a JSON object"),  # type: ignore[arg-type]
        (Answer(Decision.REJECT, arguments={"to": "Ann"}), "only the approval of a call may change its arguments"),
    ],
)
async def test_unfit_arguments_are_refused_and_the_question_stays_open(answer: str | Answer, why: str) -> None:
    engine = engine_of(script())
    paused = await engine.run(AGENT, "Pay Ann.")
    with pytest.raises(InvalidAnswerError, match=why):
        await engine.answer(paused.id, {"approval-1": answer})
    turn = await engine.resume(paused.id, {"approval-1": reject("no")})
    assert not turn.paused
    assert not RAN


async def test_a_process_without_the_tool_changes_no_arguments() -> None:
    engine = engine_of(script())
    paused = await engine.run(AGENT, "Pay Ann.")
    other_engine = Engine(model=ScriptedModel(), store=engine.store)
    with pytest.raises(InvalidAnswerError, match="this process has no tool 'pay' that checks them"):
        await other_engine.answer(paused.id, {"approval-1": approve(arguments={"to": "Bo"})})


async def test_question_takes_no_arguments_and_a_braced_text_is_the_answer() -> None:
    @tool
    def choose(context: ToolContext) -> str:
        return context.ask("Which?")

    model = ScriptedModel(asks_for(("choose", {})), "Chosen.")
    engine = engine_of(model, choose)
    paused = await engine.run(AGENT, "Choose.")
    with pytest.raises(InvalidAnswerError, match="only the approval of a call"):
        await engine.answer(paused.id, {"question-1": Answer(Decision.REPLY, "a", {"to": "Ann"})})
    turn = await engine.resume(paused.id, {"question-1": "{a}"})
    assert result_text(turn) == "{a}"


async def test_call_of_a_sub_agent_is_changed_through_the_caller() -> None:
    payer = agent_tool(Agent(name="Payer", description="Pays."))
    model = ScriptedModel(
        asks_for(("Payer", {"prompt": "Pay Ann."})), asks_for(("pay", {"to": "Ann", "amount": 500})), "Paid.", "Done."
    )
    engine = engine_of(model, pay, payer)
    paused = await engine.run(AGENT, "Pay Ann.")
    (interrupt,) = paused.interrupts
    assert (interrupt.question, interrupt.arguments) == ("Payer: may pay run?", {"to": "Ann", "amount": 500})
    with pytest.raises(InvalidAnswerError, match="do not fit pay"):
        await engine.answer(paused.id, {interrupt.id: approve(arguments={"to": 1})})
    turn = await engine.resume(paused.id, {interrupt.id: approve(arguments={"to": "Ann", "amount": 5})})
    assert RAN == [("Ann", 5)]
    assert "other arguments" not in result_text(turn)
    child = await engine.get(f"{turn.id}:call00001")
    assert '[a person approved this call with other arguments: {"to": "Ann", "amount": 5}]' in result_text(child)


async def test_changed_arguments_wait_in_the_inbox_for_another_process() -> None:
    engine = engine_of(script())
    paused = await engine.run(AGENT, "Pay Ann.")
    answers: Answers = {"approval-1": approve(arguments={"to": "Bo", "amount": 2})}
    await engine.answer(paused.id, answers)
    later = Engine(model=ScriptedModel("Paid."), tools=[pay], store=engine.store)
    (turn,) = await later.recover()
    assert RAN == [("Bo", 2)]
    assert "paid 2 to Bo" in result_text(turn)


async def test_the_arguments_are_checked_again_before_the_call_runs() -> None:
    """Arguments that fit at the approval may not fit when the call runs."""
    limit: Mapping[str, JsonValue] = {"to": "Ann", "amount": 50}
    engine = engine_of(script())
    paused = await engine.run(AGENT, "Pay Ann.")
    await engine.answer(paused.id, {"approval-1": approve(arguments=limit)})

    @tool(name="pay", needs_approval=True)
    async def newer(to: str, amount: str, why: str) -> str:
        return to + amount + why

    later = Engine(model=ScriptedModel("Not paid."), tools=[newer], store=engine.store)
    turn = await later.resume(paused.id)
    assert not RAN
    assert "why" in result_text(turn)
