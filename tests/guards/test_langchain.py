"""The guard of LangChain's agents, in the graph of `create_agent` with a scripted chat model."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

# Only the environment of `make guards` has them.
from langchain.agents import create_agent  # pyright: ignore[reportMissingImports]
from langchain.agents.middleware import (  # pyright: ignore[reportMissingImports]
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ToolRetryMiddleware,
    hook_config,
)
from langchain.agents.structured_output import ToolStrategy  # pyright: ignore[reportMissingImports]
from langchain_core.language_models import BaseChatModel  # pyright: ignore[reportMissingImports]
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage  # pyright: ignore[reportMissingImports]
from langchain_core.outputs import ChatGeneration, ChatResult  # pyright: ignore[reportMissingImports]
from langchain_core.tools import BaseTool, tool  # pyright: ignore[reportMissingImports]
from langgraph.checkpoint.memory import InMemorySaver  # pyright: ignore[reportMissingImports]
from langgraph.errors import GraphRecursionError  # pyright: ignore[reportMissingImports]
from langgraph.types import Command  # pyright: ignore[reportMissingImports]
from pydantic import BaseModel

from turnwright.journal.turn_journal import JournalFold
from turnwright.rules import Rule
from turnwright.store import open_store
from turnwright_guards import Ending
from turnwright_guards.langchain import GuardState, LoopGuardMiddleware
from turnwright_states import EndReason, Limits, Outcome, Usage
from turnwright_states.replay import replay

from .any_model import any_limits, any_replies, noting
from .page import run_block

pytestmark = pytest.mark.anyio
ASKED = {"messages": [{"role": "user", "content": "What does the manual say?"}]}
USAGE = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
#: A message of the model, or an error that it raises.
Reply = Any


class Scripted(BaseChatModel):  # type: ignore[misc]
    """A model that says its script, and sums up when it has no tools."""

    script: Any
    summary: Any = "I am not done."
    tools: Any = ()
    requests: Any = ()
    kind: str = "scripted"
    bound: Any = ()

    @property
    def _llm_type(self) -> str:
        return self.kind

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> "Scripted":  # noqa: ANN401 (LangChain's)
        self.bound.append(kwargs)
        allowed = tools if kwargs.get("tool_choice") != {"type": "none"} else ()
        bound: Scripted = self.model_copy(update={"tools": allowed})
        return bound

    def _generate(self, messages: list[BaseMessage], *_: object, **__: object) -> ChatResult:
        self.requests.append(messages)
        reply = next(self.script) if self.tools else self.summary
        if isinstance(reply, Exception):
            raise reply
        message = AIMessage(content=reply, usage_metadata=USAGE) if isinstance(reply, str) else reply
        return ChatResult(generations=[ChatGeneration(message=message)])


def asks(*calls: tuple[str, str, dict[str, Any]], text: str = "") -> AIMessage:
    tool_calls = [{"id": own, "name": name, "args": arguments} for own, name, arguments in calls]
    return AIMessage(content=text, tool_calls=tool_calls, usage_metadata=USAGE)


def pages(batch_size: int = 1) -> Iterator[Reply]:
    numbers = itertools.count(1)
    while True:
        yield asks(
            *((f"c{number}", "read_page", {"number": number}) for number in itertools.islice(numbers, batch_size))
        )


def reader(read: Callable[[int], str] = lambda number: f"page {number}", **options: Any) -> BaseTool:  # noqa: ANN401
    def read_page(number: int) -> str:
        """Read a page."""
        return read(number)

    return tool(read_page, **options)


def model(script: Iterator[Reply], **fields: Any) -> Scripted:  # noqa: ANN401
    return Scripted(script=script, requests=[], bound=[], **fields)


def guarded(script: Iterator[Reply] | Scripted, *tools: BaseTool, journal: str | None = None, **limits: object) -> Any:  # noqa: ANN401
    chat = script if isinstance(script, Scripted) else model(script)
    middleware = [LoopGuardMiddleware(Limits.model_validate(limits), journal=journal)]
    return create_agent(chat, list(tools) or [reader()], middleware=middleware)


def check_pairs(messages: Sequence[BaseMessage]) -> None:
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            open_calls.remove(message.tool_call_id)
        else:
            assert not open_calls
            open_calls += [call["id"] for call in getattr(message, "tool_calls", ())]
    assert not open_calls


def ended(state: dict[str, Any]) -> tuple[Outcome, EndReason, str]:
    check_pairs(state["messages"])
    ending = state["ending"]
    assert isinstance(ending, Ending)
    return ending.outcome, ending.reason, state["messages"][-1].text


def test_unguarded_graph_raises_and_guarded_model_concludes() -> None:
    with pytest.raises(GraphRecursionError):
        create_agent(model(pages()), [reader()]).invoke(ASKED, {"recursion_limit": 25})
    state = guarded(pages(), steps=3).invoke(ASKED)
    assert ended(state) == (Outcome.CAP_HIT, EndReason.STEP_CAP, "I am not done.")
    assert len(state["messages"]) == 8


async def test_guard_works_in_an_event_loop_with_a_journal(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'turns.db'}"
    state = await guarded(pages(3), journal=address, tool_calls=7).ainvoke(ASKED)
    assert ended(state) == (Outcome.CAP_HIT, EndReason.BUDGET, "I am not done.")
    refused = [
        message.text for message in state["messages"] if isinstance(message, ToolMessage) and message.status == "error"
    ]
    assert refused == ["not executed: the tool budget is spent"] * 2
    store = open_store(address)
    (row,) = await store.turns()
    fold = await JournalFold.read(store, row.id)
    await store.aclose()
    assert (row.id, row.agent, row.status.outcome) == (state["ending"].turn_id, "langchain", Outcome.CAP_HIT)
    assert replay(fold.facts).fault is None
    assert fold.machine.turn.usage == Usage(input_tokens=400, output_tokens=40)


def test_repeating_model_concludes() -> None:
    same = (asks((f"c{number}", "read_page", {"number": 1})) for number in itertools.count())
    chat = model(same)
    assert ended(guarded(chat, nudges=1).invoke(ASKED))[:2] == (Outcome.DOOM_LOOP, EndReason.DOOM_LOOP)
    assert "several times" in chat.requests[3][-1].text


def test_answer_ends_the_turn_and_each_invocation_is_a_turn() -> None:
    agent = guarded(iter([asks(("c1", "read_page", {"number": 1})), AIMessage("Hello."), AIMessage("Bye.")]), steps=2)
    first = agent.invoke(ASKED)
    assert ended(first) == (Outcome.FINISHED, EndReason.ANSWERED, "Hello.")
    second = agent.invoke(ASKED)
    assert ended(second) == (Outcome.FINISHED, EndReason.ANSWERED, "Bye.")
    assert first["ending"].turn_id != second["ending"].turn_id


def test_calls_of_the_conclusion_are_removed_and_a_blank_is_summarized() -> None:
    chat = model(pages(), summary=asks(("c9", "read_page", {"number": 9}), text="Half of it."))
    assert ended(guarded(chat, steps=1).invoke(ASKED)) == (Outcome.CAP_HIT, EndReason.STEP_CAP, "Half of it.")
    chat = model(pages(), summary="")
    assert ended(guarded(chat, steps=1).invoke(ASKED))[2].startswith("Stopped at the step limit (1 of 1).")
    assert len(chat.requests) == 3


async def test_failed_conclusion_is_summarized_and_other_failures_are_raised() -> None:
    chat = model(pages(), summary=ConnectionError("down"))
    state = await guarded(chat, steps=1).ainvoke(ASKED)
    assert ended(state)[:2] == (Outcome.CAP_HIT, EndReason.STEP_CAP)
    with pytest.raises(ConnectionError):
        guarded(iter([ConnectionError("down")])).invoke(ASKED)


def test_blank_reply_is_repeated() -> None:
    state = guarded(iter([AIMessage(""), AIMessage("Hello.")])).invoke(ASKED)
    assert ended(state) == (Outcome.FINISHED, EndReason.ANSWERED, "Hello.")
    assert len(state["messages"]) == 2
    assert ended(guarded(itertools.repeat(AIMessage(""))).invoke(ASKED))[:2] == (
        Outcome.FAILED,
        EndReason.EMPTY_REPLY,
    )


def test_turn_without_steps_is_a_single_text() -> None:
    chat = model(pages(), summary=asks(("c1", "read_page", {"number": 1}), text="A text."))
    assert ended(guarded(chat, steps=0).invoke(ASKED)) == (Outcome.FINISHED, EndReason.TEXT_ONLY, "A text.")


def test_anthropic_conclusion_keeps_the_tools() -> None:
    chat = model(pages(), kind="anthropic-chat")
    guarded(chat, steps=1).invoke(ASKED)
    assert [bound.get("tool_choice") for bound in chat.bound] == [None, {"type": "none"}]


def test_raising_tool_fails_the_turn_unless_retried_inside(tmp_path: Path) -> None:
    def fails(_: int) -> str:
        raise LookupError("no such page")

    address = f"sqlite:///{tmp_path / 'turns.db'}"
    with pytest.raises(LookupError):
        guarded(pages(), reader(fails), journal=address).invoke(ASKED)
    inside = [LoopGuardMiddleware(Limits(steps=2)), ToolRetryMiddleware(max_retries=1, initial_delay=0.0)]
    state = create_agent(model(pages()), [reader(fails)], middleware=inside).invoke(ASKED)
    assert ended(state)[:2] == (Outcome.CAP_HIT, EndReason.STEP_CAP)


def test_direct_result_of_a_tool_ends_the_turn() -> None:
    state = guarded(pages(), reader(return_direct=True)).invoke(ASKED)
    assert ended(state) == (Outcome.FINISHED, EndReason.ANSWERED, "page 1")
    state = guarded(pages(2), reader(return_direct=True)).invoke(ASKED)
    assert ended(state)[:2] == (Outcome.ABORTED, EndReason.ABORTED)


class Manual(BaseModel):
    """The words of the manual."""

    says: str


def test_structured_answer_ends_the_turn_and_an_invalid_answer_is_a_step() -> None:
    replies = [asks(("c1", "Manual", {"wrong": 1})), asks(("c2", "Manual", {"says": "hello"}))]
    middleware = [LoopGuardMiddleware(Limits(steps=2))]
    agent = create_agent(model(iter(replies)), [reader()], middleware=middleware, response_format=ToolStrategy(Manual))
    state = agent.invoke(ASKED)
    assert state["structured_response"] == Manual(says="hello")
    assert ended(state)[:2] == (Outcome.FINISHED, EndReason.ANSWERED)


class Insists(AgentMiddleware):  # type: ignore[misc]
    """Middleware that does not accept the first answer."""

    def __init__(self) -> None:
        super().__init__()
        self.model_calls = 0

    @hook_config(can_jump_to=["model"])  # type: ignore[untyped-decorator]
    def after_model(self, state: Any, runtime: object) -> dict[str, Any] | None:  # noqa: ANN401
        del state, runtime
        self.model_calls += 1
        return {"jump_to": "model"} if self.model_calls == 1 else None


def test_answer_refused_by_other_middleware_does_not_end_the_turn() -> None:
    replies = iter([AIMessage("Hello."), AIMessage("Hello, again.")])
    chat = create_agent(model(replies), [reader()], middleware=[LoopGuardMiddleware(Limits(steps=3)), Insists()])
    assert ended(chat.invoke(ASKED)) == (Outcome.FINISHED, EndReason.ANSWERED, "Hello, again.")


def test_turn_keeps_the_limits_during_a_question_to_a_person() -> None:
    asking = HumanInTheLoopMiddleware(interrupt_on={"read_page": True})
    agent = create_agent(
        model(pages()),
        [reader()],
        middleware=[LoopGuardMiddleware(Limits(steps=2)), asking],
        checkpointer=InMemorySaver(),
    )
    thread = {"configurable": {"thread_id": "1"}}
    state = agent.invoke(ASKED, thread)
    for _ in range(2):
        assert "__interrupt__" in state
        state = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), thread)
    assert ended(state)[:2] == (Outcome.CAP_HIT, EndReason.STEP_CAP)
    assert "page 2" in str(state["messages"])


def test_turn_keeps_the_limits_while_many_others_begin() -> None:
    guard = LoopGuardMiddleware(Limits(steps=2))

    def read(number: int) -> str:
        for _ in range(300):
            guard.before_agent(GuardState(messages=[]), None)
        return f"page {number}"

    state = create_agent(model(pages()), [reader(read)], middleware=[guard]).invoke(ASKED)
    assert ended(state)[:2] == (Outcome.CAP_HIT, EndReason.STEP_CAP)
    assert sum(isinstance(message, AIMessage) for message in state["messages"]) == 3


def test_call_refused_by_a_person_has_a_result() -> None:
    asking = HumanInTheLoopMiddleware(interrupt_on={"read_page": True})
    guards = [LoopGuardMiddleware(), asking]
    agent = create_agent(
        model(iter([next(pages()), AIMessage("Then not.")])),
        [reader()],
        middleware=guards,
        checkpointer=InMemorySaver(),
    )
    thread = {"configurable": {"thread_id": "1"}}
    agent.invoke(ASKED, thread)
    state = agent.invoke(Command(resume={"decisions": [{"type": "reject", "message": "no"}]}), thread)
    assert ended(state) == (Outcome.FINISHED, EndReason.ANSWERED, "Then not.")


def test_code_of_the_page_bounds_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_block("bound-your-loop.md", "langchain", {"model": model(pages()), "tools": [reader()]})
    assert capsys.readouterr().out == "I am not done. cap_hit: step_cap\n"


@pytest.mark.parametrize("seed", range(20))
def test_any_model_ends_within_the_limits(seed: int) -> None:
    random, ran = Random(seed), list[int]()  # noqa: S311 (a script, no secret)
    limits = any_limits(random)
    replies = (asks(*reply.calls, text=reply.text) for reply in any_replies(random))
    chat = model(replies, summary=random.choice(["", "done", asks(("z", "read_page", {"number": 1}))]))
    agent = guarded(chat, reader(noting(ran)), **limits.model_dump())
    assert ended(agent.invoke(ASKED))[2]
    assert len(chat.requests) <= limits.model_calls
    assert len(ran) <= (limits.call_limit or 0)


#: Page 2 is read only after page 1, and an answer needs a page.
RULES = [
    Rule("in-order", before="read_page if args.number == 2", need="read_page if args.number == 1"),
    Rule("read-first", before="@answer", need="read_page"),
]


def test_rules_refuse_calls_and_answers_of_an_agent() -> None:
    """A call that a rule couples with an earlier one of its reply is called again, unless that has its result."""
    pages_read: list[int] = []

    def read(number: int) -> str:
        pages_read.append(number)
        return f"page {number}"

    first, second = ("read_page", {"number": 1}), ("read_page", {"number": 2})
    replies = ["Done.", asks(("c1", *second)), asks(("c2", *first)), asks(("c4", *second)), "Read."]
    chat = model(iter(replies))
    agent = create_agent(chat, [reader(read)], middleware=[LoopGuardMiddleware(rules=RULES)])
    assert ended(agent.invoke(ASKED)) == (Outcome.FINISHED, EndReason.ANSWERED, "Read.")
    assert pages_read == [1, 2]
    assert "read-first" in str(chat.requests[1])
    assert "in-order" in str(chat.requests[2])
