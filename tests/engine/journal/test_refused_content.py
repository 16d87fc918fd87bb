"""A later turn is not sent what a provider refused: a line says what was left out and why."""

from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from turnwright import Agent, Compact, Engine, FilePart, ToolResult, tool
from turnwright.journal.result import TurnResult
from turnwright.message import Message, ToolResultPart
from turnwright.model.protocol import Model, ModelError, ModelRequest, ModelResponse, ResponseToolCall
from turnwright.store import MemoryStore
from turnwright.transcript.pairing import check_pairing
from turnwright_states import Cause, EndReason, Outcome

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

BAD = FilePart.of(b"BAD", "image/png", "s.png")
AGENT = Agent(name="Looker", steps=3)


@tool(read_only=True)
async def screenshot() -> ToolResult:
    """Take a picture."""
    return ToolResult("taken", files=(BAD,))


@tool
async def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


def files_of(messages: Sequence[Message]) -> list[FilePart]:
    results = [part for message in messages for part in message.parts if isinstance(part, ToolResultPart)]
    return [file for message in messages for file in message.files] + [file for part in results for file in part.files]


def has_picture(request: ModelRequest) -> bool:
    return bool(files_of(request.messages))


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


class Provider:
    """A model whose provider refuses some requests for their content."""

    def __init__(
        self,
        refuses: Callable[[ModelRequest], bool] = has_picture,
        cause: Cause = Cause.BAD_REQUEST,
        message: str = "api.example.com answered 400: Could not process image.",
        name: str = "seeing",
    ) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self.error = ModelError(message, cause=cause)
        self.refuses = refuses

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
        """Refuse the request, call the tools that the last message names, or answer."""
        check_pairing(request.messages)
        self.requests.append(request)
        if self.refuses(request):
            raise self.error
        last = request.messages[-1]
        names = last.text.split() if last.role == "user" and request.tool_choice != "none" else ()
        calls = [
            ResponseToolCall(name, {"text": "x"} if name == "note" else {})
            for name in names
            if name in {"note", "screenshot"}
        ]
        yield ModelResponse(text="" if calls else f"I read {len(request.messages)}.", calls=tuple(calls))


def engine_of(model: Model, store: MemoryStore | None = None, **models: Model) -> Engine:
    return Engine(model=model, models=models.__getitem__, tools=[screenshot, note], store=store or MemoryStore())


@pytest.mark.parametrize("cause", [Cause.BAD_REQUEST, Cause.CONTENT_FILTER, Cause.CONTEXT_OVERFLOW, Cause.REJECTED])
async def test_a_refused_prompt_is_replaced_by_a_line_in_later_turns(cause: Cause) -> None:
    provider = Provider(cause=cause)
    engine = engine_of(provider)
    failed = await engine.run(AGENT, "What is this?", files=[BAD], session="s")
    turns = [await engine.run(AGENT, "hello?", session="s") for _ in range(2)]
    assert failed.outcome is Outcome.FAILED
    assert [turn.outcome for turn in turns] == [Outcome.FINISHED] * 2
    line = texts(provider.requests[1])[0]
    assert line.startswith(f"[Left out here, because the provider refused it ({cause}")
    assert "1 message of the user, 1 file (1 image/png)" in line
    assert "What is this?" not in str(provider.requests[-1].messages)
    assert [file.data for file in files_of(failed.messages)] == [BAD.data]


@pytest.mark.parametrize("cause", [Cause.AUTHENTICATION, Cause.NOT_FOUND, Cause.PERMISSION])
async def test_failure_unrelated_to_content_leaves_nothing_out(cause: Cause) -> None:
    provider = Provider(lambda _: len(provider.requests) == 1, cause)
    engine = engine_of(provider)
    await engine.run(AGENT, "What is this?", files=[BAD], session="s")
    assert (await engine.run(AGENT, "hello?", session="s")).outcome is Outcome.FINISHED
    assert texts(provider.requests[-1]) == ["What is this?", "hello?"]


async def test_omission_line_quotes_the_provider_without_the_address() -> None:
    provider = Provider()
    engine = engine_of(provider)
    await engine.run(AGENT, "What is this?", files=[BAD], session="s")
    await engine.run(AGENT, "hello?", session="s")
    assert "(bad_request: Could not process image)" in texts(provider.requests[-1])[0]
    assert "example.com" not in str(provider.requests[-1].messages)


async def test_omission_line_does_not_quote_the_refused_content() -> None:
    """A provider that repeats the refused words would refuse the line too."""
    provider = Provider(
        lambda request: "forbidden words" in str(request.messages), message="Remove 'forbidden words' from the prompt."
    )
    engine = engine_of(provider)
    await engine.run(AGENT, "Say forbidden words now.", session="s")
    assert (await engine.run(AGENT, "hello?", session="s")).outcome is Outcome.FINISHED
    assert "(bad_request)" in texts(provider.requests[-1])[0]


async def test_content_since_the_last_accepted_request_is_left_out() -> None:
    """Earlier steps stay. The line names the tools that ran, so that nothing is repeated by mistake."""
    provider = Provider()
    engine = engine_of(provider)
    await engine.run(AGENT, "note", session="s")
    failed = await engine.run(AGENT, "note screenshot", session="s")
    assert (failed.outcome, failed.reason) == (Outcome.FAILED, EndReason.MODEL_ERROR)
    assert (await engine.run(AGENT, "hello?", session="s")).outcome is Outcome.FINISHED
    messages = provider.requests[-1].messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant", "user", "user", "user"]
    assert "1 reply, 2 tool results, 1 file (1 image/png)" in messages[-2].text
    assert "Calls that ran: note (1), screenshot (1)" in messages[-2].text


async def test_a_refused_conclusion_is_left_out_of_later_turns() -> None:
    """The turn ends at its limit. Its last results are what the provider refused."""
    provider = Provider()
    engine = engine_of(provider)
    capped = await engine.run(Agent(name="Looker", steps=1), "screenshot", session="s")
    assert (capped.outcome, capped.reason) == (Outcome.CAP_HIT, EndReason.STEP_CAP)
    assert (await engine.run(AGENT, "hello?", session="s")).outcome is Outcome.FINISHED
    request_texts = texts(provider.requests[-1])
    assert [text[:20] for text in request_texts] == ["screenshot", "[Left out here, beca", capped.text[:20], "hello?"]


async def test_unaccepted_prompt_is_left_out_with_the_refused_prompt() -> None:
    """The first turn failed for another reason, so nothing says that its picture is fine."""
    provider = Provider(cause=Cause.AUTHENTICATION)
    engine = engine_of(provider)
    await engine.run(AGENT, "What is this?", files=[BAD], session="s")
    provider.error = ModelError("no pictures", cause=Cause.BAD_REQUEST)
    assert (await engine.run(AGENT, "hello?", session="s")).outcome is Outcome.FAILED
    assert (await engine.run(AGENT, "hello?", session="s")).outcome is Outcome.FINISHED
    assert "2 messages of the user" in texts(provider.requests[-1])[0]


async def test_turn_continuing_a_refused_turn_leaves_the_content_out() -> None:
    provider = Provider()
    engine = engine_of(provider)
    failed = await engine.run(AGENT, "What is this?", files=[BAD])
    turn = await engine.run(AGENT, "Go on.", continue_from=failed.id)
    assert turn.outcome is Outcome.FINISHED


@pytest.mark.parametrize(
    "history",
    [
        lambda turn: turn.messages,
        lambda turn: turn.new_messages(),
        lambda turn: turn.new_messages(form="chat"),
        lambda turn: [*turn.messages, *turn.messages],
    ],
    ids=["messages", "new", "chat", "twice"],
)
@pytest.mark.parametrize("prompt", ["What is this?", "screenshot"])
async def test_imported_messages_of_a_refused_turn_leave_the_content_out(
    history: Callable[[TurnResult], Sequence[Message]], prompt: str
) -> None:
    provider = Provider()
    engine = engine_of(provider)
    failed = await engine.run(AGENT, prompt, files=[] if prompt == "screenshot" else [BAD])
    assert failed.outcome is Outcome.FAILED
    turn = await engine.run(AGENT, "hello?", message_history=history(failed))
    assert turn.outcome is Outcome.FINISHED


async def test_the_messages_of_a_session_can_be_imported() -> None:
    provider = Provider()
    engine = engine_of(provider)
    await engine.run(AGENT, "note", session="s")
    await engine.run(AGENT, "What is this?", files=[BAD], session="s")
    await engine.run(AGENT, "note", session="s")
    turn = await engine.run(AGENT, "hello?", message_history=await engine.messages("s"))
    assert turn.outcome is Outcome.FINISHED


async def test_a_refused_imported_history_is_left_out_of_the_session() -> None:
    provider = Provider()
    engine = engine_of(provider)
    history = [Message.user("Look.", [BAD]), Message.assistant("Nice.")]
    failed = await engine.run(AGENT, "And now?", session="s", message_history=history)
    assert failed.outcome is Outcome.FAILED
    assert (await engine.run(AGENT, "hello?", session="s")).outcome is Outcome.FINISHED


async def test_another_process_leaves_the_same_content_out() -> None:
    provider, store = Provider(), MemoryStore()
    await engine_of(provider, store).run(AGENT, "note", session="s")
    await engine_of(provider, store).run(AGENT, "screenshot", session="s")
    await engine_of(provider, store).run(AGENT, "hello?", session="s")
    other_provider, other_store = Provider(), MemoryStore()
    engine = engine_of(other_provider, other_store)
    for prompt in ("note", "screenshot", "hello?"):
        await engine.run(AGENT, prompt, session="s")
    assert texts(other_provider.requests[-1]) == texts(provider.requests[-1])


async def test_model_refusing_accepted_content_gets_the_text_without_files() -> None:
    """The first model keeps its own history."""
    seeing, blind = Provider(lambda _: False), Provider(name="blind")
    engine = engine_of(seeing, seeing=seeing, blind=blind)
    seeing_agent, blind_agent = Agent(name="One", model="seeing"), Agent(name="Other", model="blind")
    await engine.run(seeing_agent, "What is this?", files=[BAD], session="s")
    assert (await engine.run(blind_agent, "hello?", session="s")).outcome is Outcome.FAILED
    assert (await engine.run(blind_agent, "hello?", session="s")).outcome is Outcome.FINISHED
    assert "[A file was left out: image/png.]" in texts(blind.requests[-1])[0]
    await engine.run(seeing_agent, "Still there?", session="s")
    assert has_picture(seeing.requests[-1])


async def test_each_further_refusal_halves_the_accepted_content() -> None:
    """A session is never refused for ever, also where a provider no longer accepts what it accepted before."""
    provider = Provider(lambda _: False)
    engine = engine_of(provider)
    for number in range(8):
        await engine.run(AGENT, f"note {number}", session="s")
    provider.refuses = lambda request: "note 3" in str(request.messages)
    outcomes = [(await engine.run(AGENT, "hello?", session="s")).outcome for _ in range(5)]
    assert outcomes == [Outcome.FAILED] * 3 + [Outcome.FINISHED] * 2
    assert texts(provider.requests[-1])[0] == "[The 16 oldest messages were left out: requests with them were refused.]"


def is_long(request: ModelRequest) -> bool:
    return sum(len(str(message.parts)) for message in request.messages) > 20_000


@tool(read_only=True)
async def read() -> str:
    """Read a long text."""
    return "word " * 8_000


@pytest.mark.parametrize("mode", ["summarize", "clear_tool_results", None])
async def test_results_exceeding_the_window_leave_the_session(mode: str | None) -> None:
    class Reader(Provider):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelResponse]:
            if request.messages[-1].text == "read":
                yield ModelResponse(calls=(ResponseToolCall("read", {}), ResponseToolCall("read", {})))
                return
            async for reply in super().stream(request):
                yield reply

    provider = Reader(is_long, Cause.CONTEXT_OVERFLOW, "too long")
    engine = Engine(model=provider, tools=[read])
    compaction = None if mode is None else Compact.model_validate({"at_tokens": 10**6, "mode": mode})
    agent = Agent(name="Reader", compaction=compaction)
    turns = [await engine.run(agent, prompt, session="s") for prompt in ("read", "hello?", "read", "hello?")]
    outcomes = [turn.outcome for turn in turns]
    failed = Outcome.FAILED if mode is None else Outcome.FINISHED
    assert outcomes == [failed, Outcome.FINISHED, failed, Outcome.FINISHED]
