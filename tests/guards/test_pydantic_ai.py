"""The guard of pydantic-ai's agents, in a run with a scripted model."""

import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RetryModelRequest,
    RunContext,
    Tool,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from turnwright.errors import ConfigError, TurnAlreadyEndedError
from turnwright.journal.turn_journal import JournalFold
from turnwright.rules import Rule
from turnwright.store import open_store
from turnwright_guards.pydantic_ai import LoopGuardCapability
from turnwright_states import EndReason, Limits, Outcome, facts
from turnwright_states.replay import replay

from .any_model import any_limits, any_replies
from .page import run_block

pytestmark = pytest.mark.anyio
PROMPT = "What does the manual say?"
NOT_DONE = ModelResponse(parts=[TextPart("I am not done.")])
Reply = ModelResponse | Exception


def asks(*calls: tuple[str, str, dict[str, Any]]) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(name, arguments, own) for own, name, arguments in calls])


def says(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)] if text else [])


def pages(batch_size: int = 1) -> Iterator[Reply]:
    numbers = itertools.count(1)
    while True:
        yield asks(
            *((f"c{number}", "read_page", {"number": number}) for number in itertools.islice(numbers, batch_size))
        )


class Script:
    """A model that says its script, and sums up when it may not call functions."""

    def __init__(self, replies: Iterator[Reply], *summaries: Reply) -> None:
        self.replies = replies
        self.summaries = iter(summaries or itertools.repeat(NOT_DONE))
        self.requests: list[list[ModelMessage]] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append(messages)
        check_pairs(messages)
        none = (info.model_settings or {}).get("tool_choice") == "none"
        reply = next(self.summaries if none else self.replies)
        if isinstance(reply, Exception):
            raise reply
        return reply


def check_pairs(messages: Sequence[ModelMessage]) -> None:
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            assert not open_calls
            open_calls += [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
        else:
            for part in message.parts:
                if isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and part.tool_name):
                    open_calls.remove(part.tool_call_id)


def read_page(number: int) -> str:
    """Read a page."""
    if number > 100:
        raise ModelRetry("there are 100 pages")
    return f"page {number}"


def delete() -> str:
    """Delete the manual."""
    return "deleted"


def guarded(
    script: Script,
    journal: str | None = None,
    output: Any = str,  # noqa: ANN401 (pydantic-ai's)
    **limits: object,
) -> tuple[Agent[None, Any], LoopGuardCapability]:
    guard = LoopGuardCapability(Limits.model_validate(limits), journal=journal)
    agent: Agent[None, Any] = Agent(FunctionModel(script), output_type=output, capabilities=[guard])

    agent.tool_plain(read_page)
    return agent, guard


async def test_unguarded_run_raises_and_guarded_model_concludes() -> None:
    plain: Agent[None, str] = Agent(FunctionModel(Script(pages())))
    plain.tool_plain(read_page)
    with pytest.raises(UsageLimitExceeded):
        await plain.run(PROMPT)
    agent, guard = guarded(script := Script(pages()), steps=3)
    result = await agent.run(PROMPT)
    ending = guard.ending_of(result)
    assert (ending.outcome, ending.reason, result.output) == (Outcome.CAP_HIT, EndReason.STEP_CAP, "I am not done.")
    assert len(script.requests) == 4
    last = script.requests[-1][-1]
    assert isinstance(last, ModelRequest)
    assert "step limit (3 of 3)" in str(last.parts[-1])
    prompts = [part for message in result.all_messages() for part in message.parts if isinstance(part, UserPromptPart)]
    assert len(prompts) == 1


async def test_calls_beyond_the_budget_get_results_and_the_turn_is_journaled(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    agent, guard = guarded(Script(pages(3)), address, tool_calls=7)
    result = await agent.run(PROMPT)
    parts = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.content for part in parts].count("not executed: the tool budget is spent") == 2
    ending = guard.ending_of(result)
    store = open_store(address)
    (row,) = await store.turns()
    fold = await JournalFold.read(store, row.id)
    await store.aclose()
    assert (row.id, row.agent, row.status.reason) == (ending.turn_id, "pydantic-ai", EndReason.BUDGET)
    assert row.model.startswith("function:")
    assert replay(fold.facts).fault is None


async def test_repeating_model_concludes() -> None:
    same = (asks((f"c{number}", "read_page", {"number": 1})) for number in itertools.count())
    agent, guard = guarded(Script(same))
    ending = guard.ending_of(await agent.run(PROMPT))
    assert (ending.outcome, ending.reason) == (Outcome.DOOM_LOOP, EndReason.DOOM_LOOP)


async def test_answer_ends_the_turn_and_each_run_is_a_turn() -> None:
    agent, guard = guarded(Script(iter([next(pages()), says("Hello."), says("Bye.")])), steps=2)
    first, second = await agent.run(PROMPT), await agent.run(PROMPT)
    assert guard.ending_of(first).reason is EndReason.ANSWERED
    assert guard.ending_of(first).turn_id != guard.ending_of(second).turn_id


async def test_blank_replies_are_repeated_and_a_blank_conclusion_summarized() -> None:
    agent, guard = guarded(script := Script(iter([says(""), next(pages())]), says(""), says("")), steps=1)
    result = await agent.run(PROMPT)
    assert guard.ending_of(result).reason is EndReason.STEP_CAP
    assert result.output.startswith("Stopped at the step limit (1 of 1).")
    assert len(script.requests) == 4


async def test_calls_of_the_conclusion_are_removed() -> None:
    response = ModelResponse(parts=[TextPart("Half of it."), ToolCallPart("read_page", {"number": 9}, "c9")])
    agent, _ = guarded(Script(pages(), response), steps=1)
    result = await agent.run(PROMPT)
    assert result.output == "Half of it."
    check_pairs([*result.all_messages(), NOT_DONE])


async def test_failed_conclusion_is_summarized_and_other_failures_are_raised(tmp_path: Path) -> None:
    agent, guard = guarded(Script(pages(), ConnectionError("down")), steps=1)
    assert guard.ending_of(await agent.run(PROMPT)).reason is EndReason.STEP_CAP
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    agent, _ = guarded(Script(iter([ConnectionError("down")])), address)
    with pytest.raises(ConnectionError):
        await agent.run(PROMPT)
    agent, _ = guarded(Script(pages()), address)

    @agent.instructions
    def broken() -> str:
        raise LookupError("no such manual")

    with pytest.raises(LookupError):
        await agent.run(PROMPT)
    store = open_store(address)
    assert [row.status.reason for row in await store.turns()] == [EndReason.ENGINE_ERROR, EndReason.MODEL_ERROR]
    await store.aclose()


async def test_results_without_a_tool_run_are_recorded(tmp_path: Path) -> None:
    """Unknown tools, arguments that do not fit, and tools that ask for another try."""
    calls = [("c1", "fly", {}), ("c2", "read_page", {"wrong": 1}), ("c3", "read_page", {"number": 101})]
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    agent, guard = guarded(Script(iter([asks(*calls), says("Hello.")])), address)
    assert guard.ending_of(await agent.run(PROMPT)).reason is EndReason.ANSWERED
    store = open_store(address)
    (row,) = await store.turns()
    settled = [fact for _, fact in await store.facts(row.id) if isinstance(fact, facts.CallSettled)]
    await store.aclose()
    assert {fact.status for fact in settled} == {"error"}
    assert "there are 100 pages" in str(settled)


class Manual(BaseModel):
    """The words of the manual."""

    says: str


OUTPUT = ("c9", "final_result", {"says": "hello"})


async def test_output_ends_the_turn_and_an_invalid_output_is_a_step() -> None:
    wrong = asks(("c8", "final_result", {"wrong": 1}))
    agent, guard = guarded(script := Script(iter([wrong, asks(OUTPUT)])), output=Manual, steps=2)
    result = await agent.run(PROMPT)
    assert result.output == Manual(says="hello")
    assert guard.ending_of(result).reason is EndReason.ANSWERED
    assert len(script.requests) == 2


async def test_output_with_other_calls_ends_the_turn() -> None:
    agent, guard = guarded(Script(iter([asks(("c1", "read_page", {"number": 1}), OUTPUT)])), output=Manual)
    assert guard.ending_of(await agent.run(PROMPT)).reason is EndReason.ANSWERED


async def test_agent_with_an_output_type_concludes_with_an_output_or_raises() -> None:
    agent, guard = guarded(Script(pages(), asks(OUTPUT)), output=Manual, steps=1)
    result = await agent.run(PROMPT)
    assert (guard.ending_of(result).reason, result.output) == (EndReason.STEP_CAP, Manual(says="hello"))
    agent, _ = guarded(Script(pages(), says("No.")), output=Manual, steps=1)
    with pytest.raises(TurnAlreadyEndedError):
        await agent.run(PROMPT)


@pytest.mark.parametrize("guard", [True, False], ids=["guard", "plain"])
@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (True, (["a.txt"], "a.txt is deleted", "success")),
        (ToolApproved(override_args={"path": "b.txt"}), (["b.txt"], "b.txt is deleted", "success")),
        (ToolDenied("Keep it."), ([], "Keep it.", "denied")),
    ],
    ids=["approved", "changed", "denied"],
)
@pytest.mark.parametrize("asks_itself", [True, False], ids=["tool", "option"])
async def test_call_decided_by_a_person_has_a_result(
    decision: bool | ToolApproved | ToolDenied,
    expected: tuple[list[str], str, str],
    asks_itself: bool,
    guard: bool,
) -> None:
    ran = list[str]()

    def delete_file(ctx: RunContext[None], path: str) -> str:
        """Delete a file."""
        if asks_itself and not ctx.tool_call_approved:
            raise ApprovalRequired
        ran.append(path)
        return f"{path} is deleted"

    calls = asks(("c1", "delete_file", {"path": "a.txt"})), asks(("c2", "read_page", {"number": 1}))
    script = Script(iter([*calls, says("Done.")]))
    bound = LoopGuardCapability(Limits(steps=4, tool_calls=2))
    agent = Agent(
        FunctionModel(script),
        output_type=[str, DeferredToolRequests],
        tools=[Tool(delete_file, requires_approval=not asks_itself)],
        capabilities=[bound] if guard else [],
    )
    agent.tool_plain(read_page)
    first = await agent.run("Delete a.txt.")
    decided = DeferredToolResults(approvals={"c1": decision})
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=decided)
    returned = [part for message in second.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert (ran, returned[0].content, returned[0].outcome) == expected
    assert (returned[1].content, second.output) == ("page 1", "Done.")
    if guard:
        assert bound.ending_of(second).reason is EndReason.ANSWERED


async def test_external_result_reaches_the_model() -> None:
    def look_up(number: int) -> str:
        """Look up a receipt elsewhere."""
        del number
        raise CallDeferred

    script = Script(iter([asks(("c1", "look_up", {"number": 1})), says("Done.")]))
    agent, guard = guarded(script, output=[str, DeferredToolRequests])
    agent.tool_plain(look_up)
    first = await agent.run(PROMPT)
    decided = DeferredToolResults(calls={"c1": "the receipt is 42"})
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=decided)
    assert (second.output, guard.ending_of(second).reason) == ("Done.", EndReason.ANSWERED)
    assert "the receipt is 42" in str(script.requests[-1])


async def test_refused_call_is_a_failure_for_the_model() -> None:
    script = Script(iter([next(pages(3)), says("Done.")]))
    agent, _ = guarded(script, tool_calls=1)
    result = await agent.run(PROMPT)
    returned = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.outcome for part in returned] == ["success", "failed", "failed"]


async def test_run_ending_with_deferred_calls_aborts_the_turn() -> None:
    agent, guard = guarded(Script(iter([asks(("c1", "delete", {}))])), output=[str, DeferredToolRequests])
    agent.tool_plain(requires_approval=True)(delete)
    result = await agent.run(PROMPT)
    assert isinstance(result.output, DeferredToolRequests)
    assert guard.ending_of(result).outcome is Outcome.ABORTED


class AsksTwice(AbstractCapability[Any]):
    """A capability that rejects the first reply."""

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        del ctx
        if request_context.attempt == 1:
            raise RetryModelRequest
        return response


@pytest.mark.parametrize("first", [True, False])
async def test_other_capabilities_may_reject_replies(*, first: bool) -> None:
    guard = LoopGuardCapability(Limits(steps=3))
    capabilities: list[AbstractCapability[Any]] = [AsksTwice(), guard] if first else [guard, AsksTwice()]
    agent: Agent[None, str] = Agent(
        FunctionModel(Script(iter([says("Hello."), says("Hello, again.")]))), capabilities=capabilities
    )
    result = await agent.run(PROMPT)
    assert (guard.ending_of(result).reason, result.output) == (EndReason.ANSWERED, "Hello, again.")


async def test_streamed_runs_conclude_too() -> None:
    numbers = itertools.count(1)

    async def stream(_: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        if (info.model_settings or {}).get("tool_choice") == "none":
            yield "I am not done."
        else:
            yield {0: DeltaToolCall("read_page", f'{{"number": {next(numbers)}}}', tool_call_id=f"c{next(numbers)}")}

    guard = LoopGuardCapability(Limits(steps=2))
    agent: Agent[None, str] = Agent(FunctionModel(stream_function=stream), capabilities=[guard])
    agent.tool_plain(read_page)
    async with agent.run_stream(PROMPT) as run:
        assert await run.get_output() == "I am not done."
    (ending,) = guard._endings.values()  # noqa: SLF001 (a streamed run has no result)
    assert ending.reason is EndReason.STEP_CAP


def test_unenforceable_limits_are_refused() -> None:
    with pytest.raises(ConfigError, match="no prices"):
        LoopGuardCapability(Limits(cost=1.0))


def test_code_of_the_page_bounds_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_block("bound-your-loop.md", "pydantic_ai", {"model": FunctionModel(Script(pages())), "tools": [read_page]})
    assert capsys.readouterr().out == "I am not done. cap_hit: step_cap\n"


@pytest.mark.parametrize("seed", range(20))
async def test_any_model_ends_within_the_limits(seed: int) -> None:
    random = Random(seed)  # noqa: S311 (a script, no secret)
    limits = any_limits(random)
    replies = (
        ModelResponse(parts=[*says(reply.text).parts, *asks(*reply.calls).parts]) for reply in any_replies(random)
    )
    summary = random.choice([says(""), says("done"), asks(("z", "read_page", {"number": 1}))])
    script = Script(replies, *itertools.repeat(summary, 9))
    guard = LoopGuardCapability(limits)
    agent: Agent[None, str] = Agent(FunctionModel(script), capabilities=[guard], retries=99)
    agent.tool_plain(read_page)
    result = await agent.run(PROMPT)
    assert result.output
    assert guard.ending_of(result).outcome
    assert len(script.requests) <= limits.model_calls


#: Page 2 is read only after page 1, and an answer needs a page.
RULES = [
    Rule("in-order", before="read_page if args.number == 2", need="read_page if args.number == 1"),
    Rule("read-first", before="@answer", need="read_page"),
]


async def test_rules_refuse_calls_and_answers_of_a_run() -> None:
    """A call that a rule couples with an earlier one of its reply is called again."""
    pages_read: list[int] = []

    def read_page(number: int) -> str:
        """Read a page."""
        pages_read.append(number)
        return f"page {number}"

    first, second = ("read_page", {"number": 1}), ("read_page", {"number": 2})
    replies = [
        says("Done."),
        asks(("c1", *second)),
        asks(("c2", *first), ("c3", *second)),
        asks(("c4", *second)),
        says("Read."),
    ]
    script = Script(iter(replies))
    guard = LoopGuardCapability(rules=RULES)
    agent: Agent[None, str] = Agent(FunctionModel(script), capabilities=[guard])
    agent.tool_plain(read_page)
    result = await agent.run(PROMPT)
    assert (result.output, str(guard.ending_of(result)), pages_read) == ("Read.", "finished: answered", [1, 2])
    assert "read-first" in str(script.requests[1])
    assert "in-order" in str(script.requests[2])
    assert "it comes after read_page" in str(script.requests[3])


async def test_answer_that_rules_refuse_again_and_again_is_not_shown() -> None:
    guard = LoopGuardCapability(rules=RULES)
    agent: Agent[None, str] = Agent(FunctionModel(Script(itertools.repeat(says("Done.")))), capabilities=[guard])
    agent.tool_plain(read_page)
    result = await agent.run(PROMPT)
    assert str(guard.ending_of(result)) == "failed: guardrail"
    assert result.output != "Done."
