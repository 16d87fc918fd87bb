"""Odd values of hooks and guardrails: a store can keep them, their size is bounded, and errors name the hook."""

from pathlib import Path

import pytest

from turnwright import (
    Agent,
    CallView,
    ChangeArguments,
    ChangeRequest,
    ConfigError,
    Engine,
    Hooks,
    Reject,
    RequireApproval,
    Retry,
    ReturnResult,
    ToolContext,
    ToolDecision,
    Trip,
    TurnContext,
    TurnResult,
    after_model,
    after_tool,
    before_model,
    before_tool,
    input_guardrail,
    output_guardrail,
    tool,
)
from turnwright.context import HooksBase
from turnwright.message import Message, ToolResultPart
from turnwright.model import ModelRequest, ModelResponse, ScriptedModel, asks_for
from turnwright.tools import RESULT_LIMIT
from turnwright.tools.result import STRUCTURED_LIMIT, ToolResult
from turnwright_states import CallStatus, EndReason, Outcome
from turnwright_states import facts as f

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Clerk")
#: Half of a surrogate pair, which no store can encode.
HALF = "a\ud800b"
LONG = " ".join(map(str, range(RESULT_LIMIT)))


@tool
async def look(n: int = 0) -> str:
    return f"seen {n}"


@tool(return_direct=True)
async def quote(n: int = 0) -> str:
    if n < 0:
        raise ValueError("negative")
    return f"seen {n}"


def decides(decision: object) -> HooksBase:
    @before_tool
    async def hook(ctx: ToolContext, call: CallView) -> ToolDecision | None:
        return decision  # type: ignore[return-value]

    return hook


async def test_hook_among_the_tools_is_refused_with_its_place() -> None:
    with pytest.raises(ConfigError, match=r"is not a tool: give it as hooks=\[\.\.\.\]"):
        Engine(model=ScriptedModel(), tools=[decides(None)])  # type: ignore[list-item]


async def decided(decision: object, path: Path, name: str = "look") -> TurnResult:
    model = ScriptedModel(asks_for((name, {"n": 1})), "Done.")
    store = f"sqlite:///{path}/t.db"
    async with Engine(model=model, tools=[look, quote], hooks=[decides(decision)], store=store) as engine:
        turn = await engine.run(AGENT, "hi")
        assert "\ud800" not in repr(await engine.get(turn.id))
        return turn


def results(turn: TurnResult) -> list[ToolResultPart]:
    return [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]


@pytest.mark.parametrize("text", [HALF, LONG], ids=["half", "long"])
@pytest.mark.parametrize("make", [Reject, RequireApproval, ReturnResult])
async def test_a_text_of_a_decision_can_be_stored_and_is_bounded(
    make: type[Reject | RequireApproval | ReturnResult], text: str, tmp_path: Path
) -> None:
    turn = await decided(make(text), tmp_path)
    shown_text = turn.interrupts[0].question if make is RequireApproval else results(turn)[0].text
    assert ("a?b" in shown_text) is (text == HALF)
    assert len(shown_text) < RESULT_LIMIT + 200


@pytest.mark.parametrize("decision", [Reject(None), RequireApproval(5)])  # type: ignore[arg-type]
async def test_non_text_reason_ends_the_turn_and_names_the_hook(decision: object, tmp_path: Path) -> None:
    turn = await decided(decision, tmp_path)
    assert turn.reason is EndReason.ENGINE_ERROR
    assert turn.error.startswith("before_tool hook 'hook' returned ")


async def test_invalid_changed_arguments_are_journaled() -> None:
    model = ScriptedModel(asks_for(("look", {"n": 1})), "Done.")
    engine = Engine(model=model, tools=[look], hooks=[decides(ChangeArguments({"n": "x"}))])
    turn = await engine.run(AGENT, "hi")
    (settled,) = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.CallSettled)]
    (decision,) = settled.decisions
    assert (settled.status, decision["decision"], decision["replaced"]) == (
        CallStatus.ERROR,
        "change_arguments",
        {"n": 1},
    )


async def test_the_result_of_a_hook_is_a_direct_tools_answer(tmp_path: Path) -> None:
    turn = await decided(ReturnResult("known before"), tmp_path, "quote")
    assert (turn.outcome, turn.text, turn.steps) == (Outcome.FINISHED, "known before", 1)


async def test_replaced_error_of_a_direct_tool_is_the_answer() -> None:
    @after_tool
    async def mend(ctx: ToolContext, call: CallView, result: ToolResult) -> ReturnResult | None:
        return ReturnResult("mended") if call.status is CallStatus.ERROR else None

    model = ScriptedModel(asks_for(("quote", {"n": -1})))
    turn = await Engine(model=model, tools=[quote], hooks=[mend]).run(AGENT, "hi")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "mended")


async def test_request_changed_by_unstorable_text_is_cleaned(tmp_path: Path) -> None:
    @before_model
    async def hook(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
        return ChangeRequest(instructions=HALF, append=(HALF,))

    model = ScriptedModel("Done.")
    async with Engine(model=model, hooks=[hook], store=f"sqlite:///{tmp_path}/t.db") as engine:
        assert (await engine.run(AGENT, "hi")).outcome is Outcome.FINISHED
    assert [message.text for message in model.requests[0].messages] == ["a?b", "hi", "a?b"]


@pytest.mark.parametrize(
    "wrong",
    [
        ChangeRequest(settings={"temperature": 0}),  # type: ignore[arg-type]
        ChangeRequest(append=5),  # type: ignore[arg-type]
        ChangeRequest(tools=([],)),  # type: ignore[arg-type]
        ChangeRequest(tools=5),  # type: ignore[arg-type]
    ],
)
async def test_a_wrong_part_of_a_request_ends_the_turn_and_names_the_hook(wrong: ChangeRequest) -> None:
    @before_model
    async def spoil(ctx: TurnContext, request: ModelRequest) -> ChangeRequest | None:
        return wrong

    turn = await Engine(model=ScriptedModel("Done."), tools=[look], hooks=[spoil]).run(AGENT, "hi")
    assert turn.reason is EndReason.ENGINE_ERROR
    assert turn.error.startswith("before_model hook 'spoil' returned ")


@pytest.mark.parametrize("feedback", [HALF, LONG, None], ids=["half", "long", "none"])
async def test_feedback_can_be_stored_and_is_bounded_for_each_call(feedback: str, tmp_path: Path) -> None:
    @after_model
    async def refuse(ctx: TurnContext, response: ModelResponse) -> None:
        if response.calls:
            raise Retry(feedback)

    model = ScriptedModel(asks_for(("look", {"n": 1}), ("look", {"n": 2})), "Done.")
    async with Engine(model=model, tools=[look], hooks=[refuse], store=f"sqlite:///{tmp_path}/t.db") as engine:
        turn = await engine.run(AGENT, "hi")
    assert turn.text == "Done."
    assert [part.status for part in results(turn)] == [CallStatus.REFUSED, CallStatus.REFUSED]
    assert all(len(part.text) < RESULT_LIMIT + 200 for part in results(turn))


async def test_guardrail_trip_details_are_storable_and_bounded(tmp_path: Path) -> None:
    @output_guardrail
    async def check(ctx: TurnContext, text: str) -> Trip | None:
        return Trip(text, {"text": LONG * 2} if text == LONG else {"n": 1})

    for text in (HALF, LONG):
        async with Engine(model=ScriptedModel(text), guardrails=[check], store=f"sqlite:///{tmp_path}/t.db") as engine:
            turn = await engine.run(AGENT, "hi")
            assert "\ud800" not in repr(await engine.get(turn.id))
        assert (turn.reason, turn.text) == (EndReason.GUARDRAIL, "withheld by check")
        assert turn.guardrail is not None
        assert len(turn.guardrail.message) < RESULT_LIMIT + 200
        left_out = {"left out": f"{len(LONG) * 2 + 12:,} bytes of JSON; the limit: {STRUCTURED_LIMIT:,}"}
        assert turn.guardrail.metadata == (left_out if text == LONG else {"n": 1})


async def test_non_text_guardrail_message_is_shown_as_text() -> None:
    @input_guardrail
    async def check(ctx: TurnContext, prompt: str) -> Trip | None:
        return Trip(5)  # type: ignore[arg-type]

    assert (await Engine(model=ScriptedModel("x"), guardrails=[check]).run(AGENT, "hi")).error == "check: 5"


def test_plain_text_as_tools_of_a_hook_is_refused() -> None:
    """A text is a sequence of letters: a hook for "looker" would be asked about "look"."""

    class Policy(Hooks):
        tools = "looker"

        async def before_tool(self, ctx: ToolContext, call: CallView) -> ToolDecision | None:
            return Reject("no")

    with pytest.raises(ConfigError, match=r"^engine: hooks: Policy: tools must be a list of tool names: \['looker'\]$"):
        Engine(hooks=[Policy()])


def test_hook_or_guardrail_with_wrong_parameters_is_refused_early() -> None:
    async def short(call: CallView) -> None: ...

    with pytest.raises(ConfigError, match=r"^@before_tool: short is called with \(ctx, call\), and takes \(call: "):
        before_tool(short)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(ConfigError, match=r"^@input_guardrail: short is called with \(ctx, prompt\), and takes "):
        input_guardrail(short)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]

    class Policy(Hooks):
        async def on_start(self) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
            """Lack the context."""

    with pytest.raises(ConfigError, match=r"^engine: hooks: Policy\.on_start is called with \(ctx\), and takes \(\)"):
        Engine(hooks=[Policy()])


@pytest.mark.parametrize("messages", [None, "abc", [{"role": "user", "content": "Hi."}], iter([Message.user("Hi.")])])
async def test_history_processor_without_messages_ends_the_turn(messages: object) -> None:
    engine = Engine(model=ScriptedModel("x"), history_processor=lambda _: messages)  # type: ignore[arg-type, return-value]
    turn = await engine.run(AGENT, "hi")
    assert turn.reason is EndReason.ENGINE_ERROR
    assert turn.error.startswith("history_processor returned ")
    assert turn.error.endswith(": return a list of messages")


def test_hook_among_guardrails_is_refused_with_the_right_place() -> None:
    @before_tool
    async def cap(ctx: ToolContext, call: CallView) -> None: ...

    @input_guardrail
    async def on_topic(ctx: TurnContext, prompt: str) -> None: ...

    with pytest.raises(ConfigError, match=r"cap is not a guardrail: hook 'cap' belongs into hooks=\[\.\.\.\]$"):
        Engine(guardrails=[cap])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(ConfigError, match=r"on_topic is not a hook: guardrail 'on_topic' belongs into guardrails=\["):
        Engine(hooks=[on_topic])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(ConfigError, match=r"^hooks must be a list: write hooks=\[cap\]$"):
        Engine(hooks=cap)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
