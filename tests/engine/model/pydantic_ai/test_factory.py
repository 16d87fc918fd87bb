"""Models of pydantic-ai: the suite of models over one, what is sent, what comes back, and whole turns."""

import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Self

import anyio
import pytest
from pydantic import JsonValue
from pydantic_ai.messages import (
    ModelMessage,
    NativeToolCallPart,
    PartStartEvent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.messages import (
    ModelRequest as PydanticRequest,
)
from pydantic_ai.messages import (
    ModelResponse as PydanticResponse,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage
from tests.engine.model.jumping import LOOPS, Loop, run
from tests.engine.model.played_model import PlayedModel, PlayedWhole

from turnwright import Agent, ConfigError, Engine, tool
from turnwright.message import Message
from turnwright.model import (
    Capabilities,
    Model,
    ModelError,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    ResponseToolCall,
    TextDelta,
    ToolCallDelta,
    ToolSpec,
    pydantic_ai_model,
)
from turnwright.model.http.text_buffer import MAX_ARGUMENTS, MAX_CALLS
from turnwright.model.protocol import Delta
from turnwright.model.pydantic_ai.reply import PartListener
from turnwright.store import SqliteStore
from turnwright.tools.builtin import builtin_tools
from turnwright_states import Cause, EndReason, Finish, Limits, Outcome, Usage
from turnwright_testing.exchange import Exchange, ModelBench, Says, SentRequest
from turnwright_testing.model_suite import ModelSuite

pytestmark = pytest.mark.anyio

HELLO = ModelRequest((Message.user("hello"),))
SEARCH = ToolSpec("search", "Search.", {"type": "object", "properties": {"q": {"type": "string"}}})
Said = str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]


class PlayedBench:
    """A provider behind an adapter of pydantic-ai."""

    def __init__(self) -> None:
        self._models: list[PlayedModel] = []

    @property
    def requests(self) -> list[SentRequest]:
        return [request for model in self._models for request in model.requests]

    @property
    def closed(self) -> bool:
        return not any(model.open for model in self._models)

    def model(self, exchange: Exchange) -> Model:
        self._models.append(PlayedModel(exchange))
        return pydantic_ai_model(self._models[-1])


class TestPydanticAI(ModelSuite):
    @pytest.fixture
    def bench(self) -> ModelBench:
        return PlayedBench()


class Script:
    """Streams one line a request, for a `FunctionModel`; the last is repeated. `heard` is what it was asked."""

    def __init__(self, *lines: tuple[Said, ...]) -> None:
        self.heard: list[tuple[list[ModelMessage], AgentInfo]] = []
        self._lines = lines

    async def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Said]:
        self.heard.append((messages, info))
        for line in self._lines[min(len(self.heard), len(self._lines)) - 1]:
            yield line

    def model(self) -> FunctionModel:
        return FunctionModel(stream_function=self, model_name="script")


def called(name: str, arguments: str, number: int = 0) -> dict[int, DeltaToolCall]:
    return {number: DeltaToolCall(name, arguments, tool_call_id=f"theirs-{number}")}


async def items(model: Model, request: ModelRequest = HELLO) -> list[Delta | ModelResponse]:
    return [item async for item in model.stream(request)]


async def reply(model: Model, request: ModelRequest = HELLO) -> ModelResponse:
    last = (await items(model, request))[-1]
    assert isinstance(last, ModelResponse)
    return last


async def failure(model: Model, request: ModelRequest = HELLO) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await items(model, request)
    return caught.value


# How one is made.


def test_a_name_is_made_into_a_model_by_pydantic_ai() -> None:
    model = pydantic_ai_model("test")
    assert (model.name, repr(model)) == ("test", "PydanticAIModel('test')")


def test_model_is_named_by_the_id_unless_a_name_is_given() -> None:
    assert pydantic_ai_model(TestModel(model_name="t")).name == "test:t"
    assert pydantic_ai_model(TestModel(), name="mine").name == "mine"


@pytest.mark.parametrize("name", ["gpt-5", "nobody:gpt-5", ""])
def test_name_unknown_to_pydantic_ai_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="Unknown model"):
        pydantic_ai_model(name)


@pytest.mark.slow
def test_a_missing_key_or_a_missing_client_is_refused_at_once() -> None:
    """In a process of its own, without the keys of this one."""
    code = (
        "from turnwright.model import pydantic_ai_model\n"
        "from turnwright import ConfigError\n"
        "try: pydantic_ai_model('cohere:command-a')\n"
        "except ConfigError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={})
    assert ran.stdout.startswith("model 'cohere:command-a': ")
    assert "key" in ran.stdout.lower() or "install" in ran.stdout


@pytest.mark.slow
def test_function_is_not_shadowed_by_a_submodule() -> None:
    """In a process of its own: a submodule of the same name would have taken its place in the package."""
    code = (
        "from turnwright.model import pydantic_ai_model\n"
        "pydantic_ai_model('test')\n"
        "from turnwright.model import pydantic_ai_model\n"
        "print(callable(pydantic_ai_model))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"


def test_wrong_model_object_is_refused() -> None:
    with pytest.raises(ConfigError, match="not int"):
        pydantic_ai_model(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"tool_choice": "none"}, {"max_retries": 2}])
def test_settings_controlled_by_the_engine_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        pydantic_ai_model("test", settings=settings)


def test_missing_pydantic_ai_error_tells_the_package_to_install() -> None:
    code = (
        "import sys; sys.modules['pydantic_ai'] = None\n"
        "from turnwright.model import pydantic_ai_model\n"
        "from turnwright import ConfigError\n"
        "try: pydantic_ai_model('test')\n"
        "except ConfigError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'turnwright[pydantic-ai]'" in ran.stdout


def test_importing_our_models_does_not_import_pydantic_ai() -> None:
    code = "import sys, turnwright.model; print('pydantic_ai' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


class Stubborn(TestModel):
    """An adapter that cannot switch off its client's retries, as Bedrock's."""

    unsupported_settings = frozenset({"max_retries"})


# What is sent beside the messages.


async def test_settings_are_sent_and_retries_are_switched_off() -> None:
    script = Script(("hi",))
    await reply(pydantic_ai_model(script.model(), settings={"temperature": 0.5}))
    assert script.heard[0][1].model_settings == {"temperature": 0.5, "max_retries": 0, "tool_choice": "auto"}


@pytest.mark.parametrize(
    ("own", "requested", "expected"), [(None, 17, 17), (100, 17, 17), (10, 17, 10), (10, None, 10)]
)
async def test_smaller_bound_on_max_tokens_holds(own: int | None, requested: int | None, expected: int) -> None:
    script = Script(("hi",))
    model = pydantic_ai_model(script.model(), settings={} if own is None else {"max_tokens": own})
    await reply(model, ModelRequest(HELLO.messages, max_tokens=requested))
    settings = script.heard[0][1].model_settings
    assert settings is not None
    assert settings.get("max_tokens") == expected


async def test_a_choice_between_no_tools_is_not_sent() -> None:
    script = Script(("hi",))
    await reply(pydantic_ai_model(script.model()), ModelRequest(HELLO.messages, tool_choice="required"))
    settings = script.heard[0][1].model_settings
    assert settings is not None
    assert settings.get("tool_choice") == "auto"


async def test_tool_definition_is_sent_unchanged() -> None:
    script = Script(("hi",))
    await reply(
        pydantic_ai_model(script.model()), ModelRequest(HELLO.messages, tools=(SEARCH,), tool_choice="required")
    )
    (definition,) = script.heard[0][1].function_tools
    assert (definition.name, definition.description, definition.parameters_json_schema) == (
        "search",
        "Search.",
        dict(SEARCH.parameters),
    )
    settings = script.heard[0][1].model_settings
    assert settings is not None
    assert settings.get("tool_choice") == "required"


async def test_request_is_fitted_to_the_capabilities() -> None:
    script = Script(("hi",))
    model = pydantic_ai_model(script.model(), capabilities=Capabilities(supports_tool_choice_none=False))
    await reply(model, ModelRequest(HELLO.messages, tools=(SEARCH,), tool_choice="none"))
    assert script.heard[0][1].function_tools == []
    assert not model.capabilities.supports_tool_choice_none


@pytest.mark.parametrize("wrapped", [False, True])
async def test_client_with_unstoppable_retries_is_warned_of(caplog: pytest.LogCaptureFixture, wrapped: bool) -> None:
    """Once, wherever it stands; and the setting is not sent, of which pydantic-ai would warn with each request."""
    inner = Stubborn()
    outer = FallbackModel(TestModel(), WrapperModel(inner)) if wrapped else inner
    with caplog.at_level(logging.WARNING, "turnwright"):
        await reply(pydantic_ai_model(outer, name="m"))
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["model m"]


# What comes back.


async def test_thinking_text_and_the_arguments_of_calls_stream() -> None:
    script = Script(({0: DeltaThinkingPart(content="hm")}, "I ", "look.", called("search", '{"q": "a"}', 1)))
    *deltas, last = await items(pydantic_ai_model(script.model()))
    assert deltas == [
        ReasoningDelta("hm"),
        TextDelta("I "),
        TextDelta("look."),
        ToolCallDelta(0, "search", '{"q": "a"}'),
    ]
    assert isinstance(last, ModelResponse)
    assert (last.text, last.reasoning) == ("I look.", "hm")
    assert last.calls == (ResponseToolCall("search", {"q": "a"}, '{"q": "a"}', "theirs-1"),)


async def test_model_without_streams_is_asked_once_for_a_whole_reply() -> None:
    response = PydanticResponse(
        parts=[ThinkingPart("hm"), TextPart("hi"), ToolCallPart("search", {"q": "é"}, tool_call_id="c")],
        usage=RequestUsage(input_tokens=3, output_tokens=2),
        finish_reason="tool_call",
    )
    model = PlayedWhole(response)
    *deltas, last = await items(pydantic_ai_model(model))
    assert deltas == [ReasoningDelta("hm"), TextDelta("hi")]
    assert isinstance(last, ModelResponse)
    assert last.calls == (ResponseToolCall("search", {"q": "é"}, '{"q": "é"}', "c"),)
    assert (last.usage, last.finish_reason) == (Usage(input_tokens=3, output_tokens=2), "tool_call")
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("arguments", "read", "raw"),
    [
        ({"q": [1, None]}, {"q": [1, None]}, '{"q": [1, null]}'),
        ('{"q": 1}', {"q": 1}, '{"q": 1}'),
        ("", {}, ""),
        (None, {}, ""),
        ({"q": float("nan")}, None, '{"q": NaN}'),
        ({"q": {1}}, None, "{'q': {1}}"),
    ],
)
async def test_arguments_may_be_an_object_a_text_or_nothing(
    arguments: str | dict[str, object] | None, read: dict[str, JsonValue] | None, raw: str
) -> None:
    """Arguments that are not JSON are kept as text, and cannot be run."""
    model = PlayedWhole(PydanticResponse(parts=[ToolCallPart("search", arguments, tool_call_id="c")]))
    assert (await reply(pydantic_ai_model(model))).calls == (ResponseToolCall("search", read, raw, "c"),)


async def test_hosted_tools_are_no_calls_of_ours() -> None:
    model = PlayedWhole(PydanticResponse(parts=[NativeToolCallPart("web_search", {"query": "x"}), TextPart("found")]))
    last = await reply(pydantic_ai_model(model))
    assert (last.text, last.calls) == ("found", ())


@pytest.mark.parametrize(
    ("response", "cause"),
    [
        (PydanticResponse(parts=[TextPart("half")], state="suspended"), Cause.REJECTED),
        (PydanticResponse(parts=[TextPart("half")], state="incomplete"), Cause.INTERRUPTED),
        (PydanticResponse(parts=[TextPart("half")], finish_reason="error"), Cause.SERVER_ERROR),
    ],
)
async def test_incomplete_reply_is_a_failure_with_the_partial_reply(response: PydanticResponse, cause: Cause) -> None:
    error = await failure(pydantic_ai_model(PlayedWhole(response)))
    assert error.cause is cause
    assert error.partial is not None
    assert error.partial.text == "half"


async def test_the_providers_own_word_for_the_finish_is_kept() -> None:
    response = PydanticResponse(
        parts=[TextPart("hi")], finish_reason="length", provider_details={"finish_reason": "MAX_TOKENS"}
    )
    last = await reply(pydantic_ai_model(PlayedWhole(response)))
    assert (last.finish, last.finish_reason) == (Finish.LENGTH, "MAX_TOKENS")


async def test_half_an_emoji_never_comes_out() -> None:
    script = Script(("a\ud83d", "\ude00b\ud83d"))
    *deltas, last = await items(pydantic_ai_model(script.model()))
    assert isinstance(last, ModelResponse)
    assert last.text == "a😀b\ufffd"
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) in {"a😀b", "a😀b\ufffd"}


async def test_endless_reply_is_cut_off() -> None:
    """Before it fills the memory."""

    async def endless(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str]:
        while True:
            yield "x" * 1_000_000

    error = await failure(pydantic_ai_model(FunctionModel(stream_function=endless)))
    assert (error.cause, "longer than" in str(error)) == (Cause.REJECTED, True)


async def test_endless_arguments_are_cut_off() -> None:
    piece = '{"q": "' + "x" * MAX_ARGUMENTS
    script = Script(({0: DeltaToolCall("search", piece[:9], tool_call_id="c")}, {0: DeltaToolCall(None, piece[9:])}))
    error = await failure(pydantic_ai_model(script.model()))
    assert (error.cause, "arguments of a call are longer than" in str(error)) == (Cause.REJECTED, True)


async def test_endless_calls_are_cut_off() -> None:
    """At the call at which those of our own clients are, and not after the million chunks that a response may have."""
    call_count = 0

    async def endless(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[dict[int, DeltaToolCall]]:
        nonlocal call_count
        while True:
            call_count += 1
            yield called("search", "{}", call_count)

    error = await failure(pydantic_ai_model(FunctionModel(stream_function=endless)))
    assert (error.cause, "more than 512 calls" in str(error)) == (Cause.REJECTED, True)
    assert call_count == MAX_CALLS + 1


@pytest.mark.parametrize(("calls", "refused"), [(MAX_CALLS, False), (MAX_CALLS + 1, True)])
async def test_a_whole_reply_may_ask_for_as_many_calls_as_any(calls: int, refused: bool) -> None:
    parts = [ToolCallPart("search", {}, tool_call_id=str(number)) for number in range(calls)]
    model = pydantic_ai_model(PlayedWhole(PydanticResponse(parts=parts)))
    if refused:
        error = await failure(model)
        assert (error.cause, "more than 512 calls" in str(error)) == (Cause.REJECTED, True)
    else:
        assert len((await reply(model)).calls) == calls


def test_part_restarted_at_the_same_index_is_no_progress() -> None:
    listener = PartListener()
    search = PartStartEvent(index=0, part=NativeToolCallPart("web_search", {}, tool_call_id="a"))
    list(listener.take(search))
    before = listener.progress
    list(listener.take(search))
    assert listener.progress == before
    list(listener.take(PartStartEvent(index=1, part=search.part)))
    assert listener.progress > before


async def _silent(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Said]:
    await anyio.sleep(10_000)
    yield "late"


async def _stuck(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Said]:
    yield "ha"
    while True:
        await anyio.sleep(10)
        yield ""


@pytest.mark.parametrize(("script", "heard"), [(_silent, None), (_stuck, "ha")])
@LOOPS
def test_stalled_reply_is_a_timeout_with_the_partial_reply(
    loop: Loop, script: Callable[[list[ModelMessage], AgentInfo], AsyncIterator[Said]], heard: str | None
) -> None:
    async def asked() -> tuple[ModelError, float]:
        model = pydantic_ai_model(FunctionModel(stream_function=script), idle_timeout=100)
        return await failure(model), anyio.current_time()

    error, now = run(loop, asked)
    assert error.cause is Cause.TIMEOUT
    assert (error.partial and error.partial.text, now % 1000 // 100) == (heard, 1)


def test_zero_timeout_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be above 0 seconds"):
        pydantic_ai_model(TestModel(), idle_timeout=0)


async def test_sent_headers_are_not_quoted() -> None:
    """They may hold a key."""
    model = PlayedWhole(RuntimeError("the gateway refused Bearer s3cret"))
    error = await failure(pydantic_ai_model(model, settings={"extra_headers": {"Authorization": "Bearer s3cret"}}))
    assert "s3cret" not in str(error)


async def test_abandoned_stream_is_closed() -> None:
    played = PlayedModel(Says(("first", "second"), then="hangs"))
    stream = pydantic_ai_model(played).stream(HELLO)
    assert await anext(stream) == TextDelta("first")
    await stream.aclose()
    assert played.open == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], indirect=False)
def test_model_runs_on_trio(anyio_backend: str) -> None:
    """As far as the client does: pydantic-ai itself is anyio's."""
    answer = anyio.run(reply, pydantic_ai_model(Script(("hi",)).model()), HELLO, backend=anyio_backend)
    assert answer.text == "hi"


def test_model_outlives_the_event_loop() -> None:
    model = pydantic_ai_model("test")
    assert anyio.run(reply, model).text == anyio.run(reply, model).text


async def test_model_can_be_entered_and_left() -> None:
    async with pydantic_ai_model("test") as model:
        assert (await reply(model)).text == "success (no tool calls)"


class Connected(WrapperModel):
    """A model that counts its entries and exits, as a provider's client does."""

    inside = 0
    exit_count = 0

    async def __aenter__(self) -> Self:
        self.inside += 1
        await super().__aenter__()
        return self

    async def __aexit__(self, *failed: object) -> None:
        self.inside -= 1
        self.exit_count += self.inside == 0


async def test_engine_closes_the_connections_of_opened_models() -> None:
    model = Connected(TestModel())
    async with Engine(model=pydantic_ai_model(model)) as engine:
        await engine.run(Agent(name="Caller"), "hi")
        assert (model.inside, model.exit_count) == (0, 0)
    assert (model.inside, model.exit_count) == (0, 1)


async def test_connections_of_the_caller_stay_open() -> None:
    model = Connected(TestModel())
    async with model:
        await pydantic_ai_model(model).aclose()
        assert (model.inside, model.exit_count) == (1, 0)


# Whole turns.


@tool
async def look(path: str) -> str:
    """Look at a file."""
    return f"{path} is empty"


def engine(script: Script, **limits: object) -> Engine:
    return Engine(
        model=pydantic_ai_model(script.model()), tools=[look], limits=Limits.model_validate(limits), poll_interval=0.01
    )


async def test_a_turn_runs_the_tools_and_ends_with_the_answer() -> None:
    script = Script((called("look", '{"path": "a.py"}'),), ("It is ", "empty."))
    turn = await engine(script).run(Agent(name="A", instructions="Be short."), "What is in a.py?")
    assert (turn.outcome, turn.reason, turn.text, turn.steps) == (
        Outcome.FINISHED,
        EndReason.ANSWERED,
        "It is empty.",
        2,
    )


async def test_a_test_model_calls_the_tools_and_answers() -> None:
    model = TestModel()
    turn = await Engine(model=pydantic_ai_model(model), tools=[look]).run(Agent(name="A", tools=("look",)), "Go.")
    assert turn.outcome is Outcome.FINISHED
    assert turn.text == '{"look":"a is empty"}'


async def test_cap_ends_with_a_conclusion_without_calls() -> None:
    """The tools stay defined: some providers refuse a conversation with calls whose tools are missing."""
    script = Script((called("look", '{"path": "a"}'),), (called("look", '{"path": "b"}'),), ("Looked at two files.",))
    turn = await engine(script, steps=2).run(Agent(name="A"), "Look.")
    assert (turn.outcome, turn.text) == (Outcome.CAP_HIT, "Looked at two files.")
    _, last = script.heard[-1]
    assert last.model_settings is not None
    assert last.model_settings.get("tool_choice") == "none"
    assert "look" in [tool.name for tool in last.function_tools]


async def test_a_doom_loop_is_noticed() -> None:
    script = Script(*[(called("look", '{"path": "a"}'),)] * 3, ("I was going in circles.",))
    turn = await engine(script).run(Agent(name="A"), "Look.")
    assert (turn.outcome, turn.text, turn.steps) == (Outcome.DOOM_LOOP, "I was going in circles.", 3)


async def test_model_failure_without_retries_makes_a_single_request() -> None:
    played = PlayedModel(Says(("half",), then="breaks"))
    limits = Limits(max_retries=0)
    turn = await Engine(model=pydantic_ai_model(played), limits=limits).run(Agent(name="A"), "Go.")
    assert (turn.outcome, turn.reason, len(played.requests)) == (Outcome.FAILED, EndReason.MODEL_ERROR, 1)


async def test_signatures_go_back_at_their_place_after_a_restart(tmp_path: Path) -> None:
    """Through the journal, to another engine, which takes the turn up where a person was asked."""
    first = Script(
        (
            {0: DeltaThinkingPart(content="I must ask.", signature="sig-1")},
            called("ask_user_input", '{"question": "Which file?"}', 1),
        )
    )
    second = Script(("Thanks.",))
    store = tmp_path / "turns.db"
    tools = builtin_tools(tmp_path)
    async with Engine(model=pydantic_ai_model(first.model()), tools=tools, store=SqliteStore(store)) as before:
        paused = await before.run(Agent(name="A", tools=("ask_user_input",)), "Look.")
    assert paused.outcome is None
    (interrupt,) = paused.interrupts
    async with Engine(model=pydantic_ai_model(second.model()), tools=tools, store=SqliteStore(store)) as after:
        turn = await after.resume(paused.id, {interrupt.id: "a.py"})
    assert turn.text == "Thanks."
    messages, _ = second.heard[0]
    (response,) = [message for message in messages if isinstance(message, PydanticResponse)]
    thinking, call = response.parts
    assert thinking == ThinkingPart("I must ask.", signature="sig-1", provider_name="function")
    assert isinstance(call, ToolCallPart)
    (answer,) = messages[-1].parts
    assert isinstance(messages[-1], PydanticRequest)
    assert getattr(answer, "tool_call_id", None) == call.tool_call_id
    assert call.tool_call_id != "theirs-1"


async def test_repeated_ids_are_sent_as_our_ids() -> None:
    """And each result stands with its own call."""
    script = Script(
        (
            {0: DeltaToolCall("look", '{"path": "a"}', tool_call_id="same")},
            {1: DeltaToolCall("look", '{"path": "b"}', tool_call_id="same")},
        ),
        ("Done.",),
    )
    turn = await engine(script).run(Agent(name="A"), "Look.")
    assert turn.text == "Done."
    messages, _ = script.heard[-1]
    response, request = messages[-2:]
    calls = [part.tool_call_id for part in response.parts if isinstance(part, ToolCallPart)]
    assert len(set(calls)) == 2
    assert [getattr(part, "tool_call_id", None) for part in request.parts] == calls
    assert [getattr(part, "content", None) for part in request.parts] == ["a is empty", "b is empty"]
