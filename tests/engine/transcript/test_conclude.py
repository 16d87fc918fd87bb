"""A limit is reached: what the model is asked then, and what the turn says when it does not answer."""

import logging
from collections.abc import AsyncIterator, Callable

import anyio
import pytest

from turnwright import (
    Agent,
    Engine,
    Price,
    Retry,
    StoreError,
    TurnContext,
    TurnResult,
    after_model,
    agent_tool,
    output_guardrail,
    tool,
)
from turnwright.message import SentinelPart, ToolResultPart
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse, ResponseToolCall, TextDelta
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, ScriptedReply, asks_for
from turnwright.store import MemoryStore
from turnwright.transcript.events import ResponseRestartedEvent, TextDeltaEvent, TurnEvent
from turnwright.transcript.wording import prompt
from turnwright_states import CallStatus, Cause, EndReason, Finish, Limits, Outcome, State, Usage
from turnwright_states import facts as f
from turnwright_testing import FaultyStore

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

AGENT = Agent(name="Tidier")
AT_ONCE = Backoff(initial=0)


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


class Counting(ScriptedModel):
    """Asks for another note at each step, and concludes with `last`."""

    def __init__(
        self,
        last: ScriptedReply | Callable[[ModelRequest], ScriptedReply] = "That was it.",
        *,
        usage: Usage | None = None,
        text: str = "",
    ) -> None:
        self.n = 0
        super().__init__(self._say, repeat=True)
        self._last, self._usage, self._text = last, usage, text

    def _say(self, request: ModelRequest) -> ScriptedReply:
        if request.tool_choice == "none":
            return self._last(request) if callable(self._last) else self._last
        self.n += 1
        return asks_for(("note", {"n": self.n}), text=self._text, usage=self._usage)


def sentinel(turn: TurnResult) -> str:
    """The one sentinel's text."""
    (part,) = (part for message in turn.messages for part in message.parts if isinstance(part, SentinelPart))
    assert (part.kind, part.reason) == (turn.outcome, turn.reason)
    return part.text


def sentinels(turn: TurnResult) -> int:
    return sum(isinstance(part, SentinelPart) for message in turn.messages for part in message.parts)


# The step cap.


async def test_model_is_asked_to_conclude_at_the_step_cap() -> None:
    """Tools are disabled, not removed; the limit is named in the user's role, and said last."""
    model = Counting("Half is tidy, half is not.")
    turn = await Engine(model=model, tools=[note], limits=Limits(steps=5)).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.steps, turn.tool_calls) == (Outcome.CAP_HIT, EndReason.STEP_CAP, 5, 5)
    assert turn.text == "Half is tidy, half is not."
    assert len(model.requests) == 6
    concluding_request = model.requests[-1]
    assert (concluding_request.tools, concluding_request.tool_choice, concluding_request.max_tokens) == (
        (note.spec,),
        "none",
        1024,
    )
    assert concluding_request.messages[-1].role == "user"
    assert "Stopped at the step limit (5 of 5)" in concluding_request.messages[-1].text
    assert all(request.tool_choice == "auto" for request in model.requests[:-1])


async def test_conclude_request_is_in_no_transcript() -> None:
    turn = await Engine(model=Counting(), tools=[note], limits=Limits(steps=1)).run(AGENT, "hi")
    assert [message.text for message in turn.messages if message.role == "user"] == ["hi"]


async def test_sentinel_names_the_cap_and_the_next_action() -> None:
    turn = await Engine(model=Counting(), tools=[note], limits=Limits(steps=5)).run(AGENT, "hi")
    assert sentinel(turn) == "Stopped at the step limit (5 of 5). You can continue in a new message."


async def test_the_sentinel_names_no_setting_and_the_advice_does() -> None:
    """A user reads the one, the embedder the other."""
    turn = await Engine(model=Counting(), tools=[note]).run(Agent(name="Tidier", steps=1), "hi")
    assert "`" not in sentinel(turn)
    assert turn.advice == "Raise the agent's `steps` (now 1)."


@pytest.mark.parametrize(
    ("agent", "limits", "binds"),
    [
        (Agent(name="a", steps=2), Limits(steps=5), "Raise the agent's `steps` (now 2)."),
        (AGENT, Limits(steps=2), "Raise `steps` in the agent or in the engine's limits (now 2)."),
        (
            Agent(name="a", steps=9),
            Limits(ceiling=2),
            "Raise `ceiling` in the engine's limits (now 2): it applies",
        ),
        (
            Agent(name="a", steps=2),
            Limits(ceiling=2),
            "Raise `ceiling` in the engine's limits (now 2): it applies",
        ),
        (AGENT, Limits(tool_calls=None), "200 steps is the highest ceiling"),
        (Agent(name="a", budget=2), Limits(), "Raise `tool_calls` in the agent's budget (now 2)."),
        (AGENT, Limits(tool_calls=2), "Raise `tool_calls` in the agent's budget or in the engine's limits (now 2)."),
        (Agent(name="a", budget=Limits(tokens=1)), Limits(), "Raise `tokens` in the agent's budget (now 1)."),
    ],
    ids=["steps", "engine's steps", "ceiling", "both", "200", "budget", "engine's budget", "tokens"],
)
async def test_advice_names_the_binding_limit(agent: Agent, limits: Limits, binds: str) -> None:
    turn = await Engine(model=Counting(usage=Usage(input_tokens=1)), tools=[note], limits=limits).run(agent, "hi")
    assert turn.outcome is Outcome.CAP_HIT
    assert turn.advice.startswith(binds)


@pytest.mark.parametrize(("budget", "limits"), [(2, Limits(tool_calls=9)), (20, Limits(tool_calls=1))])
async def test_advice_of_a_sub_agent_names_lease_and_engine_limit(budget: int, limits: Limits) -> None:
    """Either may bind it, and its journal does not say which."""
    asks = ScriptedModel(
        asks_for(("Helper", {"prompt": "Look."})), *[asks_for(("note", {"n": n})) for n in range(3)], "x"
    )
    helper = agent_tool(Agent(name="Helper", description="Helps."))
    engine = Engine(model=asks, tools=[note, helper], limits=limits)
    turn = await engine.run(Agent(name="Lead", budget=budget), "hi")
    child = await engine.get(f"{turn.id}:call00001")
    assert child.reason is EndReason.BUDGET
    assert child.advice == (
        "Raise `tool_calls` in the engine's limits or in the turn that called this sub-agent (now 1)."
    )


async def test_an_answer_on_the_last_step_is_an_answer() -> None:
    model = ScriptedModel(asks_for(("note", {})), "Tidy.")
    turn = await Engine(model=model, tools=[note], limits=Limits(steps=2)).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, sentinels(turn)) == (Outcome.FINISHED, EndReason.ANSWERED, 0)


async def test_the_tools_of_the_last_step_still_run() -> None:
    turn = await Engine(model=Counting(), tools=[note], limits=Limits(steps=1)).run(AGENT, "hi")
    assert [p.text for m in turn.messages for p in m.parts if isinstance(p, ToolResultPart)] == ["noted 1"]


async def test_cap_in_mode_within_makes_the_last_call_the_conclusion() -> None:
    """A cap of 3 is two steps with tools and a conclusion; the sentinel prints the cap (docs/rules.md#last-step)."""
    model = Counting()
    turn = await Engine(model=model, tools=[note], limits=Limits(steps=3, concluding="within")).run(AGENT, "hi")
    assert (turn.outcome, turn.steps, len(model.requests)) == (Outcome.CAP_HIT, 3, 3)
    assert sentinel(turn).startswith("Stopped at the step limit (3 of 3)")


async def test_agent_may_word_the_conclude_request() -> None:
    model = Counting()
    agent = Agent(name="Tidier", steps=1, conclude_prompt="Halt! {limit}.")
    await Engine(model=model, tools=[note]).run(agent, "hi")
    assert model.requests[-1].messages[-1].text == "Halt! Stopped at the step limit (1 of 1)."


# No text.


@pytest.mark.parametrize(
    "last",
    [
        ModelResponse(),
        asks_for(("note", {"n": 9})),
        ModelError("no", cause=Cause.BAD_REQUEST),
        ModelError("down", cause=Cause.SERVER_ERROR),
        ModelResponse(finish=Finish.CONTENT_FILTER),
    ],
    ids=["empty", "calls", "refused", "down", "filtered"],
)
async def test_a_turn_never_ends_silently(last: ScriptedReply | Callable[[ModelRequest], ScriptedReply]) -> None:
    """Without a conclusion of the model's there is a fixed one: the limit, the steps, the tools, the last text."""
    model = Counting(last, text="Looking into it.")
    turn = await Engine(model=model, tools=[note], limits=Limits(steps=2), backoff=AT_ONCE).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.CAP_HIT, EndReason.STEP_CAP)
    for line in ("Stopped at the step limit (2 of 2)", "Steps taken: 2", "note (2)", "Looking into it."):
        assert line in turn.text
    assert turn.messages[-1].text == turn.text


@after_model
async def refuse(_: TurnContext, response: ModelResponse) -> None:
    """Refuse a reply with a promise."""
    if "refund" in response.text:
        raise Retry("promise nothing")


async def test_fixed_conclusion_does_not_quote_a_refused_reply() -> None:
    model = ScriptedModel(asks_for(("note", {})), "A refund is granted.", ModelResponse(), repeat=True)
    turn = await Engine(model=model, tools=[note], hooks=[refuse], limits=Limits(steps=2)).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.CAP_HIT, EndReason.STEP_CAP)
    assert "note (1)" in turn.text
    assert "refund" not in turn.text


UNUSABLE = (
    ModelResponse(),
    ModelResponse(text=" \n\u200b"),
    asks_for(("note", {})),
    ModelResponse(text="\n", calls=(ResponseToolCall("note", {}),)),
    ModelError("the provider sent no content", cause=Cause.EMPTY_REPLY),
)


@pytest.mark.parametrize("last", UNUSABLE, ids=["empty", "blank", "calls", "blank and calls", "reported as a failure"])
@pytest.mark.parametrize("template", [None, "Sum up ({limit})."])
async def test_a_conclusion_without_text_is_asked_for_once_more_and_more_sharply(
    last: ModelResponse | ModelError, template: str | None
) -> None:
    """The second instruction is the first with what is wrong, also where the agent has a text of its own."""
    model = Counting(last)
    engine = Engine(model=model, tools=[note], limits=Limits(steps=1), backoff=AT_ONCE)
    turn = await engine.run(Agent(name="Worker", conclude_prompt=template), "hi")
    _, first, second = (request.messages[-1].text for request in model.requests)
    assert first == (prompt("conclude") if template is None else template).strip().replace(
        "{limit}", "Stopped at the step limit (1 of 1)"
    )
    assert second == f"{first}\n\n{prompt('conclude_again').strip()}"
    assert [request.tool_choice for request in model.requests] == ["auto", "none", "none"]
    assert model.requests[1].messages[:-1] == model.requests[2].messages[:-1]
    assert "The model gave no summary." in turn.text


async def test_the_text_of_the_second_try_is_the_conclusion() -> None:
    """Calls of both replies are refused, and reported once."""
    model = ScriptedModel(asks_for(("note", {})), asks_for(("note", {})), "I noted one thing.")
    engine = Engine(model=model, tools=[note], limits=Limits(steps=1, max_retries=1))
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.CAP_HIT, EndReason.STEP_CAP, "I noted one thing.")
    assert turn.tool_calls == 1
    assert "were refused: note." in sentinel(turn)


async def test_second_try_needs_a_retry() -> None:
    model = Counting(ModelResponse())
    turn = await Engine(model=model, tools=[note], limits=Limits(steps=1, max_retries=0)).run(AGENT, "hi")
    assert len(model.requests) == 2
    assert "The model gave no summary." in turn.text


async def test_driver_resuming_the_second_try_asks_as_sharply() -> None:
    """The journal determines the instruction."""
    memory = MemoryStore()
    store = FaultyStore(memory, at=f.TurnEnded)  # the second try
    with pytest.raises(StoreError):
        await Engine(model=Counting(ModelResponse()), tools=[note], limits=Limits(steps=1), store=store).run(
            AGENT, "hi"
        )
    await store.aclose()
    model = ScriptedModel("I noted one thing.")
    (turn,) = await Engine(model=model, tools=[note], store=memory, backoff=AT_ONCE).recover()
    assert (turn.outcome, turn.text) == (Outcome.CAP_HIT, "I noted one thing.")
    (request,) = model.requests
    assert request.messages[-1].text.endswith(prompt("conclude_again").strip())


async def test_streamed_text_of_a_discarded_conclusion_is_dropped() -> None:
    model = ScriptedModel(
        asks_for(("note", {})), ModelResponse(text=" \n", calls=(ResponseToolCall("note", {}),)), "It is noted."
    )
    heard: list[str] = []

    def hear(event: TurnEvent) -> None:
        if isinstance(event, TextDeltaEvent):
            heard.append(event.text)
        elif isinstance(event, ResponseRestartedEvent):
            heard.clear()

    turn = await Engine(model=model, tools=[note], limits=Limits(steps=1), on_event=[hear]).run(AGENT, "hi")
    assert "".join(heard) == turn.text == "It is noted."


async def test_failed_conclusion_is_retried_while_a_retry_is_left() -> None:
    model = Counting(ModelError("down", cause=Cause.SERVER_ERROR))
    limits = Limits(steps=1, max_retries=2)
    turn = await Engine(model=model, tools=[note], limits=limits, backoff=AT_ONCE).run(AGENT, "hi")
    assert (turn.outcome, len(model.requests)) == (Outcome.CAP_HIT, 4)


async def test_calls_in_a_conclusion_never_run_and_are_noted_once() -> None:
    last = ModelResponse(
        text="That was it.", calls=(ResponseToolCall("note", {"n": 99}), ResponseToolCall("note", {"n": 98}))
    )
    engine = Engine(model=Counting(last), tools=[note], limits=Limits(steps=1))
    turn = await engine.run(AGENT, "hi")
    assert (turn.tool_calls, turn.text) == (1, "That was it.")
    assert sum(len(message.calls) for message in turn.messages) == 1
    assert "were refused: note, note" in sentinel(turn)
    (concluded,) = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.Concluded)]
    assert concluded.refused == ("note", "note")


class SlowToConclude(Counting):
    """Concludes with the pieces `begins`, and then says nothing more."""

    def __init__(self, *begins: str) -> None:
        super().__init__()
        self.begins = begins

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
        if request.tool_choice == "none":
            self.requests.append(request)
            for text in self.begins:
                yield TextDelta(text)
            await anyio.sleep_forever()
        async for item in super().stream(request):
            yield item  # type: ignore[misc]  # no reasoning is scripted


async def test_conclusion_has_a_time_limit() -> None:
    limits = Limits(steps=1, conclude_seconds=20, max_retries=1)
    engine = Engine(model=SlowToConclude(" "), tools=[note], limits=limits)
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.CAP_HIT, EndReason.STEP_CAP)
    failed = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.AttemptFailed)]
    assert [(attempt.cause, attempt.retry) for attempt in failed] == [(Cause.TIMEOUT, True), (Cause.TIMEOUT, False)]
    assert "within 20 s (`conclude_seconds`)" in failed[0].message


async def test_text_of_a_timed_out_conclusion_is_kept_without_a_retry() -> None:
    heard: list[TurnEvent] = []
    model = SlowToConclude("I noted ", "one")
    engine = Engine(model=model, tools=[note], limits=Limits(steps=1, conclude_seconds=20), on_event=[heard.append])
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.CAP_HIT, EndReason.STEP_CAP, "I noted one")
    assert len(model.requests) == 2
    assert not any(isinstance(event, ResponseRestartedEvent) for event in heard)


@output_guardrail(hold_stream=False)
async def fine(_: TurnContext, __: str) -> None:
    """Nothing is wrong with any text."""


async def test_timed_out_conclusion_is_dropped_if_a_guardrail_must_judge() -> None:
    limits = Limits(steps=1, conclude_seconds=20, max_retries=0)
    engine = Engine(model=SlowToConclude("I noted"), tools=[note], limits=limits, guardrails=[fine])
    turn = await engine.run(AGENT, "hi")
    assert "The model gave no summary." in turn.text
    (failed,) = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.AttemptFailed)]
    assert failed.partial == "I noted"


async def test_usage_of_a_conclusion_counts_without_a_verdict_in_time() -> None:
    @output_guardrail(timeout=None)
    async def slow(_: TurnContext, __: str) -> None:
        await anyio.sleep_forever()

    last = ModelResponse(text="That was it.", usage=Usage(input_tokens=5, output_tokens=2))
    limits = Limits(steps=1, conclude_seconds=20, max_retries=0)
    model = Counting(last, usage=Usage(input_tokens=1))
    turn = await Engine(model=model, tools=[note], limits=limits, guardrails=[slow]).run(AGENT, "hi")
    assert (turn.reason, turn.usage.tokens) == (EndReason.STEP_CAP, 8)
    assert "That was it." not in turn.text


# No step at all.


@pytest.mark.parametrize(
    "limits",
    [Limits(steps=0), Limits(steps=1, concluding="within"), Limits(tool_calls=0)],
    ids=["0", "within", "budget"],
)
async def test_turn_without_steps_is_a_single_call_in_text(limits: Limits) -> None:
    """FINISHED; the tools are disabled, not removed. Only a limit of no calls is reported (docs/rules.md#zero)."""
    model = ScriptedModel("I would tidy it.")
    turn = await Engine(model=model, tools=[note], limits=limits).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.FINISHED, EndReason.TEXT_ONLY, "I would tidy it.")
    assert (turn.steps, turn.path, sentinels(turn)) == (
        int(limits.concluding == "within"),
        (State.CHECK, State.TEXT_ONLY, State.FINISHED),
        limits.tool_calls == 0,
    )
    (request,) = model.requests
    assert (request.tools, request.tool_choice) == ((note.spec,), "none")
    prompts = [message.text for message in request.messages if message.role == "user"]
    assert len(prompts) == (2 if limits.concluding == "within" else 1)
    assert turn.messages[0].text == "hi"


@pytest.mark.parametrize("template", [None, "Last step: {limit}."])
@pytest.mark.parametrize("limits", [Limits.preset("opencode", steps=1), Limits.preset("glm-cli", steps=9, ceiling=1)])
async def test_a_cap_of_1_within_sends_the_last_step_instruction(limits: Limits, template: str | None) -> None:
    """The one call is the concluding one. A `conclude_prompt` of the agent takes the usual one's place."""
    model = ScriptedModel("I would tidy it.")
    turn = await Engine(model=model, tools=[note], limits=limits).run(Agent(name="a", conclude_prompt=template), "hi")
    (request,) = model.requests
    expected = (template or prompt("conclude")).strip().replace("{limit}", "Stopped at the step limit (1 of 1)")
    assert [message.text for message in request.messages if message.role == "user"] == ["hi", expected]
    assert (turn.reason, turn.sentinel) == (EndReason.TEXT_ONLY, None)


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(tool_calls=0), "The tool-call limit is 0, so no tool could run."),
        (Limits(steps=0), "The step limit is 0, so no tool could run."),
        (Limits(steps=0, tool_calls=0), "The step limit is 0 and the tool-call limit is 0, so no tool could run."),
        (Limits(steps=1, concluding="within"), "The step limit is 1, and the last step answers in text, so no tool"),
    ],
    ids=["budget", "steps", "both", "within"],
)
@pytest.mark.parametrize("text", ["", " ", "\n", "\u200b", "Let me look."])
async def test_calls_in_a_text_only_turn_are_reported_and_logged(
    caplog: pytest.LogCaptureFixture, limits: Limits, why: str, text: str
) -> None:
    """No text advises to use an answer that does not exist."""
    caplog.set_level(logging.WARNING, "turnwright")
    model = ScriptedModel(asks_for(("note", {}), ("rm", {}), text=text), repeat=True)
    turn = await Engine(model=model, tools=[note], limits=limits).run(AGENT, "hi")
    assert len(model.requests) == (1 if text == "Let me look." else 2), "a reply without text is asked for once more"
    assert (turn.outcome, turn.reason, turn.tool_calls) == (Outcome.FINISHED, EndReason.TEXT_ONLY, 0)
    assert sentinel(turn).startswith(why)
    assert "were refused: note, rm." in sentinel(turn)
    unsaid = turn.text.endswith("The model asked for tools and gave no answer.")
    assert turn.text == text if text == "Let me look." else unsaid
    assert not any("Use the answer" in text for text in (turn.text, sentinel(turn), turn.advice))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "the model asked for 2 calls without being allowed any" in record.getMessage()


@pytest.mark.parametrize("limits", [Limits(ceiling=0), Limits.preset("opencode", ceiling=1)], ids=["none", "within"])
async def test_advice_for_a_turn_without_tools_names_a_binding_ceiling(limits: Limits) -> None:
    turn = await Engine(model=ScriptedModel(asks_for(("note", {})), repeat=True), tools=[note], limits=limits).run(
        AGENT, "hi"
    )
    assert turn.reason is EndReason.TEXT_ONLY
    assert turn.advice == "Raise `ceiling` in the engine's limits to allow tools."


async def test_a_budget_of_no_calls_is_named_also_beside_an_answer() -> None:
    turn = await Engine(model=ScriptedModel("Hello."), tools=[note]).run(Agent(name="a", budget=0), "hi")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Hello.")
    assert sentinel(turn) == "The tool-call limit is 0, so no tool could run."
    assert turn.advice == "Raise `tool_calls` to allow tools."


async def test_text_only_call_is_marked_as_the_first() -> None:
    model = ScriptedModel("Hello.")
    await Engine(model=model, limits=Limits(steps=0)).run(AGENT, "hi")
    assert model.requests[0].first


async def test_calls_in_a_text_only_reply_never_run() -> None:
    model = ScriptedModel(asks_for(("note", {}), text="I would note it."))
    turn = await Engine(model=model, tools=[note], limits=Limits(steps=0)).run(AGENT, "hi")
    assert (turn.outcome, turn.tool_calls, turn.text) == (Outcome.FINISHED, 0, "I would note it.")
    (result,) = (part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart))
    assert (result.status, result.text) == (CallStatus.REFUSED, "not executed: tools are disabled in this reply")


# What went wrong.


@pytest.mark.parametrize("finish", [Finish.STOP, Finish.LENGTH])
async def test_turn_of_empty_replies_ends_with_a_single_sentence(finish: Finish) -> None:
    model = ScriptedModel(ModelResponse(finish=finish), repeat=True)
    turn = await Engine(model=model, backoff=AT_ONCE).run(AGENT, "hi")
    assert turn.reason is EndReason.EMPTY_REPLY
    assert ("output limit" in turn.error) is (finish is Finish.LENGTH)
    means = "The model kept replying with neither text nor tool calls."
    assert sentinel(turn) == f"{means} You can try again."


async def test_words_of_a_models_own_about_an_empty_reply_are_kept() -> None:
    def fails(_: ModelRequest) -> ScriptedReply:
        raise ModelError("the provider sent no content", cause=Cause.EMPTY_REPLY)

    turn = await Engine(model=ScriptedModel(fails, repeat=True), backoff=AT_ONCE).run(AGENT, "hi")
    assert turn.reason is EndReason.EMPTY_REPLY
    assert turn.error == "the provider sent no content"
    assert sentinel(turn) == "The model kept replying with neither text nor tool calls. You can try again."


# Budgets.


async def test_tool_call_budget_concludes_and_is_quoted() -> None:
    turn = await Engine(model=Counting(), tools=[note]).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.tool_calls) == (Outcome.CAP_HIT, EndReason.BUDGET, 50)
    assert sentinel(turn).startswith("Stopped at the tool-call limit (50 of 50 calls). ")


async def test_tokens_are_checked_between_calls_and_clamp_the_request() -> None:
    model = Counting(usage=Usage(input_tokens=30, output_tokens=10))
    turn = await Engine(model=model, tools=[note]).run(Agent(name="Tidier", budget=Limits(tokens=100)), "hi")
    assert (turn.outcome, turn.reason, turn.steps) == (Outcome.CAP_HIT, EndReason.TOKENS, 3)
    assert [request.max_tokens for request in model.requests] == [100, 60, 20, 1024]
    assert "of 100)" in sentinel(turn)


async def test_cost_is_the_price_of_the_tokens() -> None:
    model = Counting(usage=Usage(input_tokens=100_000, output_tokens=10_000))
    engine = Engine(model=model, tools=[note], prices={"scripted": Price(input=1.0, output=10.0)})
    turn = await engine.run(Agent(name="Tidier", budget=Limits(cost=0.5)), "hi")
    assert (turn.reason, turn.steps) == (EndReason.COST, 3)
    assert turn.usage.cost == pytest.approx(0.6, abs=1e-3)
    assert sentinel(turn).startswith("Stopped at the cost limit (0.6")


async def test_missing_usage_is_noticed_once() -> None:
    model = ScriptedModel(ModelResponse(calls=(ResponseToolCall("note", {}),)), ModelResponse(text="Done."))
    engine = Engine(model=model, tools=[note])
    turn = await engine.run(AGENT, "hi")
    notices = [fact.limit for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.Notice)]
    assert notices == ["usage_unknown"]


async def test_four_fifths_of_a_limit_give_a_single_notice() -> None:
    engine = Engine(model=Counting(), tools=[note], limits=Limits(steps=10, tool_calls=5))
    turn = await engine.run(AGENT, "hi")
    notices = [fact for _, fact in await engine.store.facts(turn.id) if isinstance(fact, f.Notice)]
    assert [(notice.limit, notice.used, notice.of) for notice in notices] == [("tool_calls", 4, 5)]


# Time.


async def test_deadline_stops_a_stream_and_keeps_the_text() -> None:
    class Endless(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
            self.requests.append(request)
            if request.tool_choice == "none":
                yield ModelResponse(text="Out of time.")
                return
            yield TextDelta("Once upon")
            await anyio.sleep_forever()

    model = Endless()
    turn = await Engine(model=model, limits=Limits(seconds=60), clock=anyio.current_time).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.CAP_HIT, EndReason.DEADLINE, "Out of time.")
    assert "Once upon" in [message.text for message in turn.messages]
    assert "Once upon" in [message.text for message in model.requests[1].messages]
    assert "Stopped at the time limit" in model.requests[1].messages[-1].text


async def test_the_time_of_the_conclusion_is_not_counted_against_the_limit() -> None:
    class Endless:
        name = "endless"

        async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
            if request.tool_choice == "none":
                await anyio.sleep(20)
                yield ModelResponse(text="Out of time.")
                return
            yield TextDelta("Once upon")
            await anyio.sleep_forever()

    turn = await Engine(model=Endless(), limits=Limits(seconds=60), clock=anyio.current_time).run(AGENT, "hi")
    assert sentinel(turn) == "Stopped at the time limit (60.0 of 60.0 s). You can continue in a new message."
    assert turn.seconds >= 80
    limits = Limits(steps=1, seconds=10, conclude_seconds=20)
    engine = Engine(model=SlowToConclude("One."), tools=[note], limits=limits, clock=anyio.current_time)
    capped = await engine.run(AGENT, "hi")
    assert (capped.next_limit, capped.seconds >= 20) == ("the tool-call limit (1 of 50)", True)


async def test_deadline_stops_a_tool_and_closes_the_call() -> None:
    cancelled: list[bool] = []

    @tool
    async def dawdle() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(True)

    asking = asks_for(("note", {}), ("dawdle", {}), text="Let me see.")
    model = ScriptedModel(asking, "Out of time.")
    engine = Engine(model=model, tools=[note, dawdle], limits=Limits(seconds=60), clock=anyio.current_time)
    turn = await engine.run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.text) == (Outcome.CAP_HIT, EndReason.DEADLINE, "Out of time.")
    parts = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert [(part.status, part.text) for part in parts] == [
        (CallStatus.OK, "noted 0"),
        (CallStatus.ABORTED, "not finished: the turn's time is up; it had begun: verify before retrying"),
    ]
    assert cancelled == [True]
    assert [message.text for message in turn.messages].count("Let me see.") == 1


async def test_the_deadline_ends_a_turn_in_text() -> None:
    class Endless:
        name = "endless"

        async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResponse]:
            assert request.messages
            yield TextDelta("Once upon")
            await anyio.sleep_forever()

    limits = Limits(steps=0, seconds=60)
    turn = await Engine(model=Endless(), limits=limits, clock=anyio.current_time).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.steps) == (Outcome.CAP_HIT, EndReason.DEADLINE, 0)
    assert sentinel(turn).startswith("Stopped at the time limit")
    assert "Once upon" in [message.text for message in turn.messages]


# Doom loops.


async def test_the_same_round_three_times_is_a_doom_loop() -> None:
    model = ScriptedModel(*[asks_for(("note", {"n": 1}), ("note", {"n": 2}))] * 3, "I was going in circles.")
    turn = await Engine(model=model, tools=[note]).run(AGENT, "hi")
    assert (turn.outcome, turn.reason, turn.steps) == (Outcome.DOOM_LOOP, EndReason.DOOM_LOOP, 3)
    assert turn.text == "I was going in circles."
    assert "repeated the same tool calls: note" in sentinel(turn)
    assert "repeated the same tool calls: note" in model.requests[-1].messages[-1].text


async def test_doom_loop_sentinel_lists_few_and_shortened_tool_names() -> None:
    asking = asks_for(*((f"{number:02}" + "x" * 500, {}) for number in range(30)))
    turn = await Engine(model=ScriptedModel(*[asking] * 3, "In circles."), tools=[note]).run(AGENT, "hi")
    assert turn.reason is EndReason.DOOM_LOOP
    assert f"repeated the same tool calls: 00{'x' * 97}…, 01" in sentinel(turn)
    assert " and 20 more. You" in sentinel(turn)


async def test_doom_loop_without_a_conclusion_stays_a_doom_loop() -> None:
    asking = [asks_for(("note", {}))] * 3
    model = ScriptedModel(*asking, ModelError("no", cause=Cause.BAD_REQUEST))
    turn = await Engine(model=model, tools=[note]).run(AGENT, "hi")
    assert (turn.outcome, turn.reason) == (Outcome.DOOM_LOOP, EndReason.DOOM_LOOP)
    assert "repeated the same tool calls" in turn.text


async def test_polling_tools_and_loop_keys_are_the_tools_own_business() -> None:
    @tool(ignore_in_loop_detection=True)
    async def poll() -> str:
        return "not yet"

    @tool(loop_key=lambda arguments: str(arguments["page"]))
    async def read(page: int, stamp: int) -> str:
        return f"page {page}, read at {stamp} s"

    polls = [asks_for(("poll", {}))] * 5
    turn = await Engine(model=ScriptedModel(*polls, "Ready."), tools=[poll]).run(AGENT, "hi")
    assert (turn.outcome, turn.steps) == (Outcome.FINISHED, 6)
    reads = [asks_for(("read", {"page": 1, "stamp": n})) for n in range(3)]
    turn = await Engine(model=ScriptedModel(*reads, "Stop."), tools=[read]).run(AGENT, "hi")
    assert turn.outcome is Outcome.DOOM_LOOP


async def test_a_nudge_is_said_once_and_leaves_no_trace() -> None:
    """It is in one request, in the user's role, and in no transcript; it costs a step (docs/rules.md#doom-loops)."""
    model = ScriptedModel(*[asks_for(("note", {}))] * 3, asks_for(("note", {"n": 5})), "Done.")
    turn = await Engine(model=model, tools=[note], limits=Limits(nudges=1)).run(AGENT, "hi")
    assert (turn.outcome, turn.steps) == (Outcome.FINISHED, 5)
    nudged = ["Do not repeat them" in request.messages[-1].text for request in model.requests]
    assert nudged == [False, False, False, True, False]
    assert model.requests[3].messages[-1].role == "user"
    assert not any("Do not repeat" in m.text for request in model.requests[4:] for m in request.messages)
    assert not any("Do not repeat" in message.text for message in turn.messages)


async def test_stall_hint_is_sent_in_each_stalled_step_and_leaves_no_trace() -> None:
    @tool
    async def find(n: int) -> str:
        raise ValueError("the index is locked" if n >= 0 else "")

    model = ScriptedModel(*[asks_for(("find", {"n": n})) for n in range(5)], asks_for(("note", {})), "Done.")
    turn = await Engine(model=model, tools=[note, find]).run(AGENT, "hi")
    assert (turn.outcome, turn.steps) == (Outcome.FINISHED, 7)
    hint = prompt("same_error").strip()
    assert [request.messages[-1].text == hint for request in model.requests] == [False] * 4 + [True, True, False]
    assert sum(message.text == hint for request in model.requests for message in request.messages) == 2
    assert not any(hint in message.text for message in turn.messages)


async def test_calls_without_new_results_give_a_hint() -> None:
    model = ScriptedModel(*[asks_for(("note", {"n": n % 5})) for n in range(11)], "Done.")
    await Engine(model=model, tools=[note]).run(AGENT, "hi")
    hint = prompt("nothing_new").strip()
    assert [request.messages[-1].text == hint for request in model.requests] == [False] * 11 + [True]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(stall_errors=2, stall_response="loop"), "got the same error again and again: lose"),
        (Limits(stall_rounds=2, stall_response="loop", doom_threshold=None), "found out nothing new: lose"),
    ],
    ids=["errors", "rounds"],
)
async def test_stall_ending_as_a_doom_loop_tells_the_cause(limits: Limits, words: str) -> None:
    @tool
    async def lose() -> str:
        raise ValueError("lost")

    limits = limits.model_copy(update={"stall_errors": None}) if limits.doom_threshold is None else limits
    model = ScriptedModel(asks_for(("lose", {})), repeat=True)
    turn = await Engine(model=model, tools=[lose], limits=limits).run(AGENT, "hi")
    assert turn.outcome is Outcome.DOOM_LOOP
    assert turn.sentinel is not None
    assert f"Stopped because the model {words}" in turn.sentinel.text


async def test_fruitless_nudge_is_followed_by_the_end() -> None:
    model = ScriptedModel(*[asks_for(("note", {}))] * 4, "Enough.")
    turn = await Engine(model=model, tools=[note], limits=Limits(nudges=1)).run(AGENT, "hi")
    assert (turn.outcome, turn.steps) == (Outcome.DOOM_LOOP, 4)
