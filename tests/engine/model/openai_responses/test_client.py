"""The client of the Responses API, with the network replaced by a transport."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest
from pydantic import BaseModel, JsonValue

from turnwright import Agent, Engine, tool
from turnwright.errors import ConfigError
from turnwright.message import Message, ToolSpec
from turnwright.model.capabilities import Capabilities
from turnwright.model.model_settings import ModelSettings
from turnwright.model.openai_responses.client import RESPONSES_API, OpenAIResponses
from turnwright.model.protocol import Delta, Model, ModelError, ModelRequest, ModelResponse, TextDelta
from turnwright.store import MemoryStore
from turnwright_states import Cause

from .events import SEARCH, Event, Item, call, created, failed, message, reasoning, sse, text, whole

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

HELLO = ModelRequest((Message.user("hello"),))
KEY = "sk-secret-1234"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (RESPONSES_API.address_variable, RESPONSES_API.key_variable):
        monkeypatch.delenv(variable, raising=False)


class Server:
    """A server that sends these answers in turn, and keeps what it was sent."""

    def __init__(self, *answers: httpx.Response | Exception | bytes) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.content) for request in self.requests]

    def model(self, name: str = "gpt-5-mini", **options: Any) -> OpenAIResponses:  # noqa: ANN401 (any option)
        options = {"base_url": "http://host/v1", "api_key": KEY, **options}
        return OpenAIResponses(name, transport=httpx.MockTransport(self._answer), **options)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(200, content=answer) if isinstance(answer, bytes) else answer


def says(*items: Item) -> bytes:
    return sse(*whole(*items))


async def ask(model: OpenAIResponses, request: ModelRequest = HELLO) -> list[Delta | ModelResponse]:
    async with model:
        return [item async for item in model.stream(request)]


async def failure(answer: httpx.Response | Exception | bytes, **options: Any) -> ModelError:  # noqa: ANN401 (any option)
    with pytest.raises(ModelError) as caught:
        await ask(Server(answer).model(**options))
    return caught.value


def accepts(model: Model) -> Model:
    return model


async def test_client_is_a_model() -> None:
    assert accepts(Server().model()).name == "gpt-5-mini"


async def test_request_goes_to_the_endpoint_with_key_and_headers() -> None:
    server = Server(says(message("Hi")))
    items = await ask(server.model(headers={"openai-project": "p"}, extra_body={"prompt_cache_key": "a"}))
    assert items[0] == TextDelta("Hi")
    (request,) = server.requests
    assert (request.method, str(request.url)) == ("POST", "http://host/v1/responses")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["openai-project"] == "p"
    assert server.bodies[0]["prompt_cache_key"] == "a"


@pytest.mark.parametrize(
    ("name", "reasons"),
    [("gpt-5-mini", True), ("o4-mini", True), ("grok-4", True), ("gpt-4.1", False), ("openai/gpt-4o", False)],
)
async def test_encrypted_reasoning_is_requested_of_reasoning_models(name: str, reasons: bool) -> None:
    """Others answer 400: "Encrypted content is not supported with this model"."""
    server = Server(says(message("Hi")))
    model = server.model(name)
    await ask(model)
    assert ("include" in server.bodies[0]) is reasons
    assert ("thinking" in model.unsupported_settings(ModelSettings(thinking="low"))) is not reasons


async def test_capabilities_can_be_given() -> None:
    server = Server(says(message("Hi")))
    mine = Capabilities(parallel_tool_calls=False, reasoning_details=False)
    model = server.model(capabilities=mine)
    assert model.capabilities == mine
    await ask(model, ModelRequest(HELLO.messages, (ToolSpec("f", "Do it.", {"type": "object"}),)))
    assert server.bodies[0]["parallel_tool_calls"] is False
    assert "include" not in server.bodies[0]


@tool(read_only=True)
async def look(place: int) -> str:
    """Look there."""
    return f"nothing at {place}"


async def test_reply_items_go_back_in_the_turn_and_the_session() -> None:
    sealed, second_item = reasoning("Hm."), reasoning(item_id="rs_2", sealed="gBBBB")
    calls = [call("look", '{"place": 1}'), call("look", '{"place": 2}', "call_2", "fc_2")]
    first = says(sealed, message("I look.", phase="commentary"), SEARCH, *calls)
    server = Server(first, says(second_item, message("Nothing.", item_id="msg_2")), says(message("As I said.")))
    async with Engine(model=server.model(), tools=[look], store=MemoryStore()) as engine:
        agent = Agent(name="A")
        result = await engine.run(agent, "Look.", session="s")
        assert result.text == "Nothing."
        await engine.run(agent, "Sure?", session="s")
    items = server.bodies[1]["input"]
    assert [item.get("type", item.get("role")) for item in items] == [
        "user",
        "reasoning",
        "message",
        "web_search_call",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]
    assert (items[1], items[3]) == (sealed, SEARCH)
    assert items[2]["phase"] == "commentary"
    assert [item["call_id"] for item in items[4:6]] == [item["call_id"] for item in items[6:]]
    later = server.bodies[2]["input"]
    assert later[:4] == items[:4]
    assert later[len(items)] == second_item


class Weather(BaseModel):
    """A typed answer."""

    city: str
    degrees: int


async def test_typed_answer_is_held_to_the_schema() -> None:
    server = Server(says(message('{"city": "Paris", "degrees": 20}')))
    model = server.model(capabilities=Capabilities(json_schema_output=True))
    async with Engine(model=model) as engine:
        result = await engine.run(Agent(name="A", output_type=Weather), "How warm is it?")
    assert result.output == Weather(city="Paris", degrees=20)
    wire = server.bodies[0]["text"]["format"]
    assert (wire["type"], wire["strict"]) == ("json_schema", True)
    assert wire["schema"]["required"] == ["city", "degrees"]


async def test_failed_response_is_retried_and_a_refused_prompt_is_not() -> None:
    limited: Event = failed({"code": "rate_limit_exceeded", "message": "Please try again in 0.001s."})
    server = Server(sse(created(), limited), says(message("Hi")))
    async with Engine(model=server.model()) as engine:
        result = await engine.run(Agent(name="A"), "hello")
    assert (result.text, len(server.requests)) == ("Hi", 2)
    flagged: Event = failed({"code": "invalid_prompt", "message": "flagged as violating our usage policy"})
    server = Server(sse(created(), flagged), says(message("Hi")))
    async with Engine(model=server.model()) as engine:
        result = await engine.run(Agent(name="A"), "hello")
    assert (str(result.reason), len(server.requests)) == ("content_filter", 1)


class TestFailures:
    @pytest.mark.parametrize(
        ("status", "code", "words", "cause"),
        [
            (400, None, "Item 'rs_1' of type 'reasoning' was provided without its required item", Cause.BAD_REQUEST),
            (400, "invalid_encrypted_content", "The encrypted content could not be verified.", Cause.BAD_REQUEST),
            (400, "context_length_exceeded", "Your input exceeds the context window.", Cause.CONTEXT_OVERFLOW),
            (404, None, "Item with id 'rs_1' not found.", Cause.NOT_FOUND),
            (401, "invalid_api_key", "Incorrect API key provided", Cause.AUTHENTICATION),
            (429, "insufficient_quota", "You exceeded your current quota", Cause.PERMISSION),
            (429, "rate_limit_exceeded", "Rate limit reached", Cause.RATE_LIMITED),
            (503, "server_is_overloaded", "Slow down", Cause.OVERLOADED),
        ],
    )
    async def test_each_error_has_a_cause(self, status: int, code: str | None, words: str, cause: Cause) -> None:
        body: JsonValue = {"error": {"message": words, "type": "invalid_request_error", "code": code}}
        error = await failure(httpx.Response(status, json=body))
        assert (error.cause, error.status) == (cause, status)
        assert f"http://host/v1 answered {status}: {words.rstrip('.')}" in str(error)

    async def test_broken_connection_is_an_interruption_with_the_partial_reply(self) -> None:
        error = await failure(sse(created(), text(0, "Hi")))
        assert error.cause is Cause.INTERRUPTED
        assert error.partial is not None
        assert error.partial.text == "Hi"

    @pytest.mark.parametrize(
        "answer",
        [
            httpx.Response(401, json={"error": {"message": f"Incorrect API key provided: {KEY}"}}),
            sse({"type": "error", "code": "x", "message": KEY}),
            sse(failed({"code": "server_error", "message": KEY})),
            httpx.Response(302, headers={"location": f"https://host/?key={KEY}"}),
            httpx.ConnectError(f"cannot send {KEY}"),
        ],
    )
    async def test_the_key_is_in_no_error(self, answer: httpx.Response | Exception | bytes) -> None:
        assert "sk-" not in str(await failure(answer))

    async def test_a_web_page_is_no_reply(self) -> None:
        error = await failure(httpx.Response(200, html="<html><title>Log in</title>"))
        assert (error.cause, "Log in" in str(error)) == (Cause.REJECTED, True)


def test_model_outlives_the_event_loop() -> None:
    responses_model = Server(says(message("Hi")), says(message("Hi"))).model()

    async def once() -> list[Delta | ModelResponse]:
        return [item async for item in responses_model.stream(HELLO)]

    assert anyio.run(once) == anyio.run(once)


class TestConstruction:
    def test_openais_own_address_needs_a_key(self) -> None:
        with pytest.raises(ConfigError, match="set OPENAI_API_KEY"):
            OpenAIResponses("m")

    def test_the_address_and_the_key_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://there/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert repr(OpenAIResponses("m")) == "OpenAIResponses('m', base_url='http://there/v1')"

    def test_repr_and_vars_show_no_secret(self) -> None:
        responses_model = OpenAIResponses(
            "m", base_url="http://me:hush@host/v1?key=hush", headers={"x-key": "hush"}, api_key=KEY
        )
        assert "hush" not in repr(responses_model) + repr(vars(responses_model))
        assert KEY not in repr(responses_model) + repr(vars(responses_model))

    @pytest.mark.parametrize(
        "make",
        [
            lambda: OpenAIResponses("", api_key=KEY),
            lambda: OpenAIResponses("m", api_key="a\nb"),
            lambda: OpenAIResponses("m", api_key=KEY, idle_timeout=0),
            lambda: OpenAIResponses("m", api_key=KEY, extra_body={"store": True}),
            lambda: OpenAIResponses("m", api_key=KEY, hosted_tools=[{"type": "function"}]),
        ],
    )
    def test_unusable_option_is_refused(self, make: Callable[[], OpenAIResponses]) -> None:
        with pytest.raises(ConfigError):
            make()
