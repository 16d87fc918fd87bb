"""The guard of the OpenAI Agents SDK, in runs with a scripted model."""
# pyright: reportAttributeAccessIssue=false

import itertools
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

# Only the environment of `make guards` has them.
from agents import (  # pyright: ignore[reportMissingImports]
    Agent,
    MaxTurnsExceeded,
    Model,
    ModelBehaviorError,
    ModelProvider,
    ModelResponse,
    RunConfig,
    RunHooks,
    Runner,
    Usage,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from agents.testing import assistant_message, function_call  # pyright: ignore[reportMissingImports]
from agents.tool_context import ToolContext  # pyright: ignore[reportMissingImports]
from openai.types.responses import Response, ResponseCompletedEvent  # pyright: ignore[reportMissingImports]
from openai.types.responses.response_reasoning_item import (  # pyright: ignore[reportMissingImports]
    ResponseReasoningItem,
)
from pydantic import BaseModel

from turnwright.journal.turn_journal import JournalFold
from turnwright.rules import Rule
from turnwright.store import open_store
from turnwright_guards.openai_agents import guarded_run, guarded_run_streamed
from turnwright_states import EndReason, Limits, Outcome
from turnwright_states.replay import replay

from .any_model import any_limits, any_replies, noting
from .clients import check_pairs
from .page import run_block

pytestmark = pytest.mark.anyio
PROMPT = "What does the manual say?"
QUIET = RunConfig(tracing_disabled=True)
#: The items of a reply, or an error that the model raises.
Reply = Any


def asks(*calls: tuple[str, str, dict[str, Any]]) -> list[Any]:
    return [function_call(name, json.dumps(arguments), call_id=own) for own, name, arguments in calls]


def pages(batch_size: int = 1) -> Iterator[Reply]:
    numbers = itertools.count(1)
    while True:
        yield asks(
            *((f"c{number}", "read_page", {"number": number}) for number in itertools.islice(numbers, batch_size))
        )


class Script(Model):  # type: ignore[misc]
    """A model that says its script, and sums up when calls are forbidden."""

    def __init__(self, replies: Iterator[Reply], *summaries: Reply) -> None:
        self.replies = replies
        self.summaries = iter(summaries or itertools.repeat([assistant_message("I am not done.")]))
        self.requests: list[list[dict[str, Any]]] = []
        self.stored: list[str | None] = []

    async def get_response(
        self,
        system_instructions: object,
        input: Any,  # noqa: A002, ANN401 (the SDK's)
        model_settings: Any,  # noqa: ANN401
        *_: object,
        **options: Any,  # noqa: ANN401
    ) -> ModelResponse:
        del system_instructions
        self.requests.append(input)
        self.stored.append(options["previous_response_id"])
        if self.stored[-1] is None:
            check_pairs(input)
        reply = next(self.summaries if model_settings.tool_choice == "none" else self.replies)
        if isinstance(reply, Exception):
            raise reply
        usage = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
        return ModelResponse(output=reply, usage=usage, response_id=f"resp_{len(self.requests)}")

    async def stream_response(self, *request: Any, **options: Any) -> AsyncGenerator[Any, None]:  # noqa: ANN401
        """Only a run inside a tool streams: that of the guard asks for whole replies."""
        output = (await self.get_response(*request, **options)).output
        fields: dict[str, Any] = {"tool_choice": "auto", "tools": [], "parallel_tool_calls": True, "model": ""}
        response = Response(id="r", created_at=0, object="response", output=output, **fields)
        yield ResponseCompletedEvent(type="response.completed", sequence_number=0, response=response)


def reader(read: Callable[[int], str] = lambda number: f"page {number}") -> Any:  # noqa: ANN401
    def read_page(number: int) -> str:
        """Read a page."""
        return read(number)

    return function_tool(read_page)


def agent_of(script: Model, **fields: Any) -> Any:  # noqa: ANN401
    return Agent(name="Reader", model=script, **({"tools": [reader()]} | fields))


async def run(script: Script, limits: Limits | None = None, **options: Any) -> tuple[Any, Outcome, EndReason]:  # noqa: ANN401
    fields = options.pop("fields", {})
    result, ending = await guarded_run(agent_of(script, **fields), PROMPT, limits=limits, run_config=QUIET, **options)
    check_pairs(result.to_input_list())
    return result, ending.outcome, ending.reason


def texts(items: Sequence[Any]) -> str:
    return json.dumps(items, default=str)


async def test_unguarded_run_raises_and_guarded_model_concludes() -> None:
    with pytest.raises(MaxTurnsExceeded):
        await Runner.run(agent_of(Script(pages())), PROMPT, run_config=QUIET)
    result, *ending = await run(script := Script(pages()), Limits(steps=3))
    assert ending == [Outcome.CAP_HIT, EndReason.STEP_CAP]
    assert result.final_output == "I am not done."
    assert len(script.requests) == 4
    assert "Stopped at the step limit (3 of 3)" in script.requests[-1][-1]["content"]


async def test_calls_beyond_the_budget_do_not_run_and_get_a_reason(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    ran: list[int] = []
    script = Script(pages(3))
    tools = [reader(noting(ran))]
    _, *ending = await run(script, Limits(tool_calls=7), fields={"tools": tools}, journal=address)
    assert ending == [Outcome.CAP_HIT, EndReason.BUDGET]
    assert ran == [1, 2, 3, 4, 5, 6, 7]
    assert texts(script.requests[-1]).count("the tool budget is spent") == 2
    store = open_store(address)
    (row,) = await store.turns()
    fold = await JournalFold.read(store, row.id)
    await store.aclose()
    assert (row.agent, row.status.outcome) == ("openai-agents", Outcome.CAP_HIT)
    assert replay(fold.facts).fault is None
    assert fold.machine.turn.usage.tokens == 4 * 110


async def test_refused_calls_keep_the_order_in_later_requests() -> None:
    """The model reads its calls in the order in which it made them, and each reasoning before its call."""
    thinks = ResponseReasoningItem(id="rs_1", type="reasoning", summary=[])
    bad = function_call("read_page", "{", call_id="c1")
    good = asks(("c2", "read_page", {"number": 2}))
    replies = [[thinks, bad], [bad.model_copy(update={"call_id": "c3"}), *good], [assistant_message("Hello.")]]
    script = Script(iter(replies))
    result, *ending = await run(script)
    assert ending == [Outcome.FINISHED, EndReason.ANSWERED]
    order = [item.get("call_id", item.get("role", item.get("type"))) for item in script.requests[-1]]
    assert order == ["user", "reasoning", "c1", "c1", "c2", "c2", "c3", "c3"]
    assert result.context_wrapper.usage.requests == 3


async def test_server_side_conversation_receives_the_refusals_once() -> None:
    bad = function_call("read_page", "{", call_id="c1")
    replies = [[bad], [bad, *asks(("c2", "read_page", {"number": 2}))], [assistant_message("Hello.")]]
    script = Script(iter(replies))
    await guarded_run(agent_of(script), PROMPT, run_config=QUIET, previous_response_id="resp_0")
    assert script.stored == ["resp_0", "resp_1", "resp_2"]
    call_ids = [[item.get("call_id") for item in items] for items in script.requests[1:]]
    assert call_ids == [["c1"], ["c2", "c1"]]


async def test_streamed_run_is_bounded_and_events_arrive_by_reply() -> None:
    ran: list[int] = []
    script = Script(pages(3))
    agent = agent_of(script, tools=[reader(noting(ran))])
    stream = await guarded_run_streamed(agent, PROMPT, limits=Limits(tool_calls=7), run_config=QUIET)
    assert stream.ending is None
    names = [event.name async for event in stream if event.type == "run_item_stream_event"]
    assert stream.ending is not None
    assert stream.ending.reason is EndReason.BUDGET
    assert stream.result.final_output == "I am not done."
    assert (names.count("tool_called"), names.count("tool_output"), names.count("message_output_created")) == (7, 7, 1)
    assert ran == [1, 2, 3, 4, 5, 6, 7]
    check_pairs(stream.result.to_input_list())
    assert stream.result.context_wrapper.usage.total_tokens == 4 * 110


async def test_failed_or_abandoned_streamed_run_ends_the_turn() -> None:
    stream = await guarded_run_streamed(agent_of(Script(iter([ConnectionError("down")]))), PROMPT, run_config=QUIET)
    with pytest.raises(ConnectionError):
        _ = [event async for event in stream]
    assert stream.ending is not None
    assert stream.ending.reason is EndReason.MODEL_ERROR
    abandoned = await guarded_run_streamed(agent_of(Script(pages())), PROMPT, run_config=QUIET)
    events = aiter(abandoned)
    await anext(events)
    assert isinstance(events, AsyncGenerator)
    await events.aclose()
    assert abandoned.ending is not None
    assert abandoned.ending.outcome is Outcome.ABORTED


async def test_repeating_model_concludes() -> None:
    same = (asks((f"c{number}", "read_page", {"number": 1})) for number in itertools.count())
    _, *ending = await run(Script(same))
    assert ending == [Outcome.DOOM_LOOP, EndReason.DOOM_LOOP]


async def test_blank_replies_are_repeated_and_a_blank_conclusion_summarized() -> None:
    script = Script(iter([[], next(pages())]), [], asks(("c9", "read_page", {"number": 9})))
    result, *ending = await run(script, Limits(steps=1))
    assert ending == [Outcome.CAP_HIT, EndReason.STEP_CAP]
    assert result.final_output.startswith("Stopped at the step limit (1 of 1).")
    assert len(script.requests) == 4


async def test_failed_conclusion_is_summarized_and_other_failures_are_raised(tmp_path: Path) -> None:
    _, *ending = await run(Script(pages(), ConnectionError("down")), Limits(steps=1))
    assert ending == [Outcome.CAP_HIT, EndReason.STEP_CAP]
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    with pytest.raises(ConnectionError):
        await run(Script(iter([ConnectionError("down")])), journal=address)
    with pytest.raises(ModelBehaviorError):
        await run(Script(iter([asks(("c1", "fly", {}))])), journal=address)
    store = open_store(address)
    assert [row.status.reason for row in await store.turns()] == [EndReason.ENGINE_ERROR, EndReason.MODEL_ERROR]
    await store.aclose()


async def test_result_of_a_tool_may_be_the_answer() -> None:
    result, *ending = await run(Script(pages(2)), fields={"tool_use_behavior": "stop_on_first_tool"})
    assert (result.final_output, ending) == ("page 1", [Outcome.FINISHED, EndReason.ANSWERED])


async def test_run_waiting_for_approval_aborts_the_turn() -> None:
    def delete() -> str:
        """Delete the manual."""
        return "deleted"

    tools = [function_tool(delete, needs_approval=True)]
    script = Script(iter([asks(("c1", "delete", {}))]))
    result, ending = await guarded_run(agent_of(script, tools=tools), PROMPT, run_config=QUIET)
    assert result.interruptions
    assert ending.outcome is Outcome.ABORTED


class Provider(ModelProvider):  # type: ignore[misc]
    """Models by name."""

    def __init__(self, **models: Model) -> None:
        self.models = models

    def get_model(self, name: str | None) -> Model:
        return self.models[str(name)]


async def test_handoff_is_a_call_and_each_agent_uses_the_own_model() -> None:
    second = Script(pages())
    writer = Agent(name="Writer", model="second", tools=[reader()])
    first = Script(iter([asks(("h1", "transfer_to_writer", {}))]))
    agent_names: list[str] = []

    def own_filter(data: Any) -> Any:  # noqa: ANN401
        agent_names.append(data.agent.name)
        return data.model_data

    config = RunConfig(
        tracing_disabled=True, model_provider=Provider(second=second), call_model_input_filter=own_filter
    )
    starting = agent_of(first, handoffs=[handoff(writer)])
    result, ending = await guarded_run(starting, PROMPT, limits=Limits(steps=3), run_config=config)
    assert (result.last_agent.name, ending.reason) == ("Writer", EndReason.STEP_CAP)
    assert (len(first.requests), len(second.requests), agent_names) == (1, 3, ["Reader", "Writer", "Writer", "Writer"])


def asks_reader() -> Iterator[Reply]:
    """Ask the sub-agent three times, and then answer."""
    for step in range(3):
        yield asks((f"h{step}", "ask_reader", {"input": f"Read {step}."}))
    yield [assistant_message("The manual says hello.")]


def two_pages() -> Iterator[Reply]:
    numbers = itertools.count()
    while True:
        yield from ([*asks((f"i{next(numbers)}", "read_page", {"number": 1}))] for _ in range(2))
        yield [assistant_message("I read it.")]


@pytest.mark.parametrize("streamed", [False, True], ids=["run", "streamed"])
@pytest.mark.parametrize("heard", [False, True], ids=["silent", "heard"])
@pytest.mark.parametrize(("steps", "reason"), [(9, EndReason.ANSWERED), (2, EndReason.STEP_CAP)])
async def test_agent_as_a_tool_counts_as_a_single_call(
    steps: int, reason: EndReason, heard: bool, streamed: bool
) -> None:
    """The SDK gives its run the model of the guarded run, which must not count its calls."""
    inner, outer = Script(two_pages()), Script(asks_reader())
    events: list[str] = []
    on_stream = (lambda event: events.append(event["event"].type)) if heard else None
    tool = agent_of(inner).as_tool("ask_reader", "Ask.", on_stream=on_stream)
    lead, limits = agent_of(outer, tools=[tool]), Limits(steps=steps)
    if streamed:
        stream = await guarded_run_streamed(lead, PROMPT, limits=limits, run_config=QUIET)
        _ = [event async for event in stream]
        result, ending = stream.result, stream.ending
    else:
        result, ending = await guarded_run(lead, PROMPT, limits=limits, run_config=QUIET)
    check_pairs(result.to_input_list())
    calls = min(steps, 3)
    assert ending is not None
    assert (ending.reason, len(outer.requests), len(inner.requests)) == (reason, calls + 1, 3 * calls)
    assert bool(events) is heard


async def test_agents_as_tools_run_concurrently_with_own_models() -> None:
    first, second, outer = Script(two_pages()), Script(two_pages()), Script(iter([]))
    tools = [agent_of(script).as_tool(f"ask_{own}", "Ask.") for own, script in {"a": first, "b": second}.items()]
    two_calls = asks(("h1", "ask_a", {"input": "Read."}), ("h2", "ask_b", {"input": "Read."}))
    outer.replies = iter([two_calls, [assistant_message("Done.")]])
    result, ending = await guarded_run(agent_of(outer, tools=tools), PROMPT, limits=Limits(steps=5), run_config=QUIET)
    assert (result.final_output, ending.reason) == ("Done.", EndReason.ANSWERED)
    assert [len(script.requests) for script in (outer, first, second)] == [2, 3, 3]


async def test_run_inside_a_function_tool_is_not_counted() -> None:
    inner = Script(two_pages())

    async def ask_reader(context: ToolContext[Any], input: str) -> str:  # noqa: A002 (the tool's word)
        """Ask the reader."""
        return str((await Runner.run(agent_of(inner), input, run_config=context.run_config)).final_output)

    outer = Script(asks_reader())
    lead = agent_of(outer, tools=[function_tool(ask_reader)])
    _, ending = await guarded_run(lead, PROMPT, limits=Limits(steps=9), run_config=QUIET)
    assert (ending.reason, len(outer.requests), len(inner.requests)) == (EndReason.ANSWERED, 4, 9)


async def test_hooks_of_the_app_are_called() -> None:
    class Noting(RunHooks[Any]):  # type: ignore[misc]
        def __init__(self) -> None:
            self.called: list[str] = []

        async def on_llm_start(self, *_: object) -> None:
            self.called.append("model")

        async def on_tool_start(self, *_: object) -> None:
            self.called.append("tool")

    hooks = Noting()
    replies = [*itertools.islice(pages(), 2), [assistant_message("Done.")]]
    await run(Script(iter(replies)), Limits(steps=9), hooks=hooks)
    assert hooks.called == ["model", "tool", "model", "tool", "model"]


@pytest.mark.parametrize("approve", [True, False])
async def test_approved_call_runs_when_the_run_is_continued(approve: bool) -> None:
    ran = list[int]()
    tool = function_tool(noting(ran), name_override="read_page", needs_approval=True)
    script = Script(iter([asks(("c1", "read_page", {"number": 1})), [assistant_message("Done.")]]))
    reading, limits = agent_of(script, tools=[tool]), Limits(steps=4)
    result, ending = await guarded_run(reading, PROMPT, limits=limits, run_config=QUIET)
    assert ending.reason is EndReason.ABORTED
    state = result.to_state()
    (state.approve if approve else state.reject)(result.interruptions[0])
    result, ending = await guarded_run(reading, state, limits=limits, run_config=QUIET)
    assert (result.final_output, ending.reason, ran) == ("Done.", EndReason.ANSWERED, [1] * approve)


class Manual(BaseModel):
    """The words of the manual."""

    says: str


async def test_agent_with_an_output_type_concludes_with_an_output() -> None:
    script = Script(pages(), [assistant_message('{"says": "hello"}')])
    result, *ending = await run(script, Limits(steps=1), fields={"output_type": Manual})
    assert (result.final_output, ending) == (Manual(says="hello"), [Outcome.CAP_HIT, EndReason.STEP_CAP])


async def test_input_items_and_a_config_dictionary_are_accepted() -> None:
    items = [{"role": "user", "content": [{"type": "input_text", "text": PROMPT}]}]
    script = Script(iter([[assistant_message("Hello.")]]))
    result, ending = await guarded_run(agent_of(script), items, run_config={"tracing_disabled": True})
    assert (result.final_output, ending.reason) == ("Hello.", EndReason.ANSWERED)


def test_code_of_the_page_bounds_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    set_tracing_disabled(disabled=True)
    run_block("bound-your-loop.md", "guarded_run", {"model": Script(pages()), "tools": [reader()]})
    assert capsys.readouterr().out == "I am not done. cap_hit: step_cap\n"


@pytest.mark.parametrize("seed", range(20))
async def test_any_model_ends_within_the_limits(seed: int) -> None:
    random, ran = Random(seed), list[int]()  # noqa: S311 (a script, no secret)
    limits = any_limits(random)
    replies = ([assistant_message(reply.text)] * bool(reply.text) + asks(*reply.calls) for reply in any_replies(random))
    summary = random.choice([[], [assistant_message("done")], asks(("z", "read_page", {"number": 1}))])
    script = Script(replies, *itertools.repeat(summary, 9))
    tools = [reader(noting(ran))]
    result, *_ = await run(script, limits, fields={"tools": tools})
    assert result.final_output
    assert len(script.requests) <= limits.model_calls
    assert len(ran) <= (limits.call_limit or 0)


#: Page 2 is read only after page 1, and an answer needs a page.
RULES = [
    Rule("in-order", before="read_page if args.number == 2", need="read_page if args.number == 1"),
    Rule("read-first", before="@answer", need="read_page"),
]


async def test_rules_refuse_calls_and_answers_of_a_run() -> None:
    """A call that a rule couples with an earlier one of its reply is called again."""
    pages_read: list[int] = []

    def read(number: int) -> str:
        pages_read.append(number)
        return f"page {number}"

    first, second = ("read_page", {"number": 1}), ("read_page", {"number": 2})
    says = assistant_message
    replies = [asks(("c1", *second)), asks(("c2", *first), ("c3", *second)), asks(("c4", *second)), [says("Read.")]]
    script = Script(iter([[says("Done.")], *replies]))
    result, outcome, reason = await run(script, rules=RULES, fields={"tools": [reader(read)]})
    assert (result.final_output, outcome, reason) == ("Read.", Outcome.FINISHED, EndReason.ANSWERED)
    assert pages_read == [1, 2]
    assert "read-first" in texts(script.requests[1])
    assert "in-order" in texts(script.requests[2])
    assert "it comes after read_page" in texts(script.requests[3])


async def test_rule_ends_a_run() -> None:
    script = Script(pages())
    result, outcome, reason = await run(script, rules=[Rule("no", never="read_page", effect="end")])
    assert (outcome, reason, len(script.requests)) == (Outcome.FAILED, EndReason.GUARDRAIL, 1)
    assert result.final_output
