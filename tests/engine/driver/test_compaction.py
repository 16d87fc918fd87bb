"""A long conversation is made shorter before a model call, and every part of it stays paired."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from turnwright import Agent, Engine, tool
from turnwright.agent import Compact
from turnwright.driver.compaction import summary_settings
from turnwright.message import Message, ToolResultPart
from turnwright.model.model_settings import Effort, ModelSettings
from turnwright.model.protocol import Delta, ModelError, ModelRequest, ModelResponse
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.transcript.compaction import CLEARED, cut_before, oldest_steps
from turnwright.transcript.pairing import check_pairing
from turnwright_states import Cause, EndReason, Outcome, Usage
from turnwright_states.facts import Compacted, CompactionStarted

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

SMALL = Compact(at_tokens=100, keep_steps=1)


@tool
async def read(page: int) -> str:
    """Read a page."""
    return f"page {page}: " + "word " * 60


def reads(page: int, tokens: int = 0) -> ModelResponse:
    reply = asks_for(("read", {"page": page}))
    return ModelResponse(calls=reply.calls, usage=Usage(input_tokens=tokens, output_tokens=1))


def engine_of(*lines: Line, store: MemoryStore | None = None) -> tuple[Engine, ScriptedModel]:
    model = ScriptedModel(*lines)
    return Engine(model=model, tools=[read], store=store or MemoryStore()), model


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


async def test_older_steps_are_summarized_before_an_oversized_request() -> None:
    engine, model = engine_of(reads(1, 20), reads(2, 90), "Page 1 was about words.", "Done.")
    turn = await engine.run(Agent(name="Reader", compaction=SMALL), "Read two pages.")
    assert (turn.outcome, turn.text) == (Outcome.FINISHED, "Done.")
    summary, last = model.requests[2:]
    assert summary.tool_choice == "none"
    assert "only your summary of it will remain" in texts(summary)[-1]
    assert texts(last)[:2] == ["Summary of the conversation so far:\n\nPage 1 was about words.", "Read two pages."]
    assert [message.role for message in last.messages] == ["user", "user", "assistant", "tool"]
    for request in model.requests:
        check_pairing(request.messages)
    assert turn.usage.output_tokens == 4
    assert "page 1" in str(turn.messages)  # the transcript keeps everything


async def test_a_turn_without_a_compaction_sends_everything() -> None:
    engine, model = engine_of(reads(1, 200), "Done.")
    await engine.run(Agent(name="Reader"), "Read.")
    assert len(model.requests[-1].messages) == 3


async def test_request_refused_as_too_long_is_compacted() -> None:
    overflow = ModelError("too long", cause=Cause.CONTEXT_OVERFLOW)
    engine, model = engine_of(reads(1), reads(2), overflow, "A summary.", "Done.")
    turn = await engine.run(Agent(name="Reader", compaction=Compact(at_tokens=10**6, keep_steps=1)), "Read.")
    assert turn.text == "Done."
    facts = [fact for _, fact in await engine.store.facts(turn.id)]
    assert [type(fact) for fact in facts if isinstance(fact, CompactionStarted | Compacted)] == [
        CompactionStarted,
        Compacted,
    ]
    assert "A summary." in texts(model.requests[-1])[0]


async def test_overflow_without_a_compaction_ends_the_turn() -> None:
    engine, _ = engine_of(ModelError("too long", cause=Cause.CONTEXT_OVERFLOW))
    turn = await engine.run(Agent(name="Reader"), "Read.")
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.CONTEXT_OVERFLOW)


async def test_cancellation_raised_by_the_summary_model_itself_is_tried_again() -> None:
    failures: list[ModelRequest] = []

    class Summaries(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
            if not failures:
                failures.append(request)
                raise asyncio.CancelledError
            async for item in super().stream(request):
                yield item

    writer = Summaries("A summary.", name="cheap")
    model = ScriptedModel(reads(1, 20), reads(2, 90), "Done.")
    engine = Engine(model=model, models={"cheap": writer}.__getitem__, tools=[read])
    agent = Agent(name="Reader", compaction=SMALL.model_copy(update={"model": "cheap"}))
    assert (await engine.run(agent, "Read.")).text == "Done."
    assert "A summary." in texts(model.requests[-1])[0]


@pytest.mark.parametrize("most", [1, 3])
async def test_failed_summary_never_fails_the_turn(most: int) -> None:
    """The model call follows it, also if another compaction is left."""
    gone = ModelError("no", cause=Cause.AUTHENTICATION)
    engine, model = engine_of(reads(1, 20), reads(2, 90), gone, "Done.")
    agent = Agent(name="Reader", compaction=Compact(at_tokens=100, keep_steps=1, max_compactions=most))
    turn = await engine.run(agent, "Read two pages.")
    assert turn.text == "Done."
    assert "page 1" in str(model.requests[-1].messages)


@pytest.mark.parametrize("cause", [Cause.BAD_REQUEST, Cause.CONTENT_FILTER, Cause.CONTEXT_OVERFLOW, Cause.REJECTED])
async def test_a_refused_summary_is_replaced_by_clearing_results(cause: Cause) -> None:
    engine, model = engine_of(reads(1, 20), reads(2, 90), ModelError("no", cause=cause), "Done.")
    turn = await engine.run(Agent(name="Reader", compaction=SMALL), "Read two pages.")
    assert turn.text == "Done."
    parts = [part for message in model.requests[-1].messages for part in message.parts]
    results = [part.text for part in parts if isinstance(part, ToolResultPart)]
    assert results[0] == CLEARED
    assert results[1].startswith("page 2")
    check_pairing(model.requests[-1].messages)


async def test_oversized_results_of_a_single_step_are_cleared() -> None:
    """The summary's request holds the same text, and is refused like the step's."""
    overflow = ModelError("too long", cause=Cause.CONTEXT_OVERFLOW)
    engine, model = engine_of(reads(1), overflow, overflow, "Done.")
    turn = await engine.run(Agent(name="Reader", compaction=Compact(at_tokens=10**6)), "Read.")
    assert turn.text == "Done."
    parts = [part for message in model.requests[-1].messages for part in message.parts]
    assert [part.text for part in parts if isinstance(part, ToolResultPart)] == [CLEARED]


async def test_conversation_without_results_loses_the_oldest_steps() -> None:
    refused = ModelError("too long", cause=Cause.CONTEXT_OVERFLOW)
    engine, model = engine_of("one " * 50, "two " * 50, refused, refused, "Done.")
    agent = Agent(name="Talker", compaction=Compact(at_tokens=10**6, keep_steps=1))
    for prompt in ("first", "second", "third"):
        turn = await engine.run(agent, prompt, session="s")
    assert turn.text == "Done."
    request_texts = texts(model.requests[-1])
    assert request_texts[0].endswith("[The 2 oldest messages were left out, because they could not be summarized.]")
    assert request_texts[1:] == ["second", "two " * 50, "third"]


async def test_clearing_without_clearable_results_drops_the_oldest_steps() -> None:
    refused = ModelError("too long", cause=Cause.CONTEXT_OVERFLOW)
    engine, model = engine_of("one " * 50, "two " * 50, refused, "Done.")
    agent = Agent(name="Talker", compaction=Compact(at_tokens=10**6, mode="clear_tool_results"))
    for prompt in ("first", "second", "third"):
        turn = await engine.run(agent, prompt, session="s")
    assert turn.text == "Done."
    assert texts(model.requests[-1])[1:] == ["second", "two " * 50, "third"]


async def test_oversized_prompt_alone_cannot_be_compacted() -> None:
    refused = ModelError("too long", cause=Cause.CONTEXT_OVERFLOW)
    engine, _ = engine_of(*[refused] * 4)
    turn = await engine.run(Agent(name="Talker", compaction=SMALL), "word " * 100)
    assert (turn.outcome, turn.reason) == (Outcome.FAILED, EndReason.CONTEXT_OVERFLOW)


async def test_summary_has_turn_settings_unrelated_to_answers() -> None:
    settings = ModelSettings(
        temperature=0.5, seed=7, max_tokens=50, stop_sequences=(".",), thinking="high", parallel_tool_calls=False
    )
    engine, model = engine_of(reads(1, 20), reads(2, 90), "A summary.", "Done.")
    await engine.run(Agent(name="Reader", compaction=SMALL), "Read.", model_settings=settings)
    summary, last = model.requests[2:]
    assert (summary.settings, summary.max_tokens) == (ModelSettings(temperature=0.5, seed=7), 2048)
    assert (last.settings, last.max_tokens) == (settings, 50)


@pytest.mark.parametrize(
    ("thinking", "expected"), [(False, False), ("low", "low"), ("high", None), (True, None), (4000, None)]
)
def test_summary_request_lowers_the_thinking_effort(
    thinking: bool | Effort | int, expected: bool | Effort | None
) -> None:
    settings = summary_settings(ModelSettings(thinking=thinking))
    assert settings is not None
    assert settings.thinking == expected


async def test_another_model_of_summaries_gets_no_settings_of_the_turn() -> None:
    writer = ScriptedModel("A summary.", name="cheap")
    model = ScriptedModel(reads(1, 20), reads(2, 90), "Done.")
    engine = Engine(model=model, models={"cheap": writer}.__getitem__, tools=[read])
    agent = Agent(name="Reader", compaction=SMALL.model_copy(update={"model": "cheap"}))
    await engine.run(agent, "Read.", model_settings=ModelSettings(temperature=0.5))
    assert [request.settings for request in writer.requests] == [None]


async def test_old_tool_results_are_cleared_without_a_model_call() -> None:
    engine, model = engine_of(reads(1, 20), reads(2, 90), "Done.")
    agent = Agent(name="Reader", compaction=Compact(at_tokens=100, keep_steps=1, mode="clear_tool_results"))
    turn = await engine.run(agent, "Read two pages.")
    assert turn.text == "Done."
    parts = [part for message in model.requests[-1].messages for part in message.parts]
    results = [part.text for part in parts if isinstance(part, ToolResultPart)]
    assert results[0] == CLEARED
    assert results[1].startswith("page 2")


async def test_the_same_request_is_built_after_a_resume() -> None:
    """Another process folds the journal."""
    store = MemoryStore()

    @tool(needs_approval=True)
    async def erase(path: str) -> str:
        """Erase a file."""
        return f"erased {path}"

    agent = Agent(name="Reader", compaction=SMALL)
    lines: list[Line] = [reads(1, 20), reads(2, 90), "A summary.", asks_for(("erase", {"path": "x"}))]
    first = ScriptedModel(*lines)
    paused = await Engine(model=first, tools=[read, erase], store=store).run(agent, "Read.")
    second = ScriptedModel("Done.")
    turn = await Engine(model=second, tools=[read, erase], store=store).resume(
        paused.id, {paused.interrupts[0].id: True}
    )
    assert turn.text == "Done."
    assert second.requests[0].messages[: len(first.requests[-1].messages)] == first.requests[-1].messages


async def test_later_turns_of_a_session_begin_with_the_latest_summary() -> None:
    """Turns before it are not even read."""
    store = MemoryStore()
    agent = Agent(name="Talker", compaction=Compact(at_tokens=30, keep_steps=1))
    engine, _ = engine_of(
        *(f"answer {number} " + "word " * 12 for number in range(2)), "They greeted.", "hi", store=store
    )
    for number in range(3):
        await engine.run(agent, f"question {number}", session="s")
    last, model = engine_of("again", store=store)
    await last.run(Agent(name="Talker"), "question 3", session="s")
    request_texts = texts(model.requests[0])
    assert request_texts[0] == "Summary of the conversation so far:\n\nThey greeted."
    assert "question 0" not in request_texts
    assert request_texts[-3:] == ["question 2", "hi", "question 3"]


def test_the_oldest_steps_are_the_least_with_half_of_the_content() -> None:
    short = [Message.user("a"), Message.assistant("b"), Message.user("c"), Message.assistant("d")]
    assert oldest_steps(short) == 2
    assert oldest_steps([*short, Message.user("e"), Message.assistant("long " * 10)]) == 6
    assert oldest_steps([Message.user("a")]) == 0


def test_user_messages_stay_with_the_answering_step() -> None:
    messages = [Message.user("a"), Message.assistant("b"), Message.user("c"), Message.assistant("d")]
    assert [cut_before(messages, keep) for keep in (0, 1, 2, 3)] == [4, 2, 0, 0]
