"""The loop guard with the clients of OpenAI and Anthropic, and a scripted server behind their transport."""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# Only the environment of `make guards` has them.
from anthropic import Anthropic  # pyright: ignore[reportMissingImports]
from httpx2 import Client, MockTransport, Request, Response  # pyright: ignore[reportMissingImports]
from openai import OpenAI  # pyright: ignore[reportMissingImports]

from turnwright_guards import GuardedLoop
from turnwright_guards.client_formats import FORMATS, ClientApi
from turnwright_states import EndReason, Limits, Outcome

from .clients import NO_TOOLS, PROMPT, WRITERS, Json, check_pairs

APIS = pytest.mark.parametrize("api", WRITERS)
#: Requests after which a loop that does not end is stopped.
PLUG = 40
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}}
TOOLS: dict[ClientApi, Json] = {
    "chat": {"type": "function", "function": {"name": "read_page", "parameters": SCHEMA}},
    "responses": {"type": "function", "name": "read_page", "parameters": SCHEMA, "strict": False},
    "anthropic": {"name": "read_page", "input_schema": SCHEMA},
}


class PluggedOutError(BaseException):
    """The loop made too many requests."""


class Server:
    """A model that always wants two more pages, and sums up when calls are forbidden."""

    def __init__(self, api: ClientApi) -> None:
        self.api: ClientApi = api
        self.requests = list[Json]()
        self.numbers = itertools.count(1)

    def answer(self, request: Request) -> Response:
        """One reply."""
        body = json.loads(request.content)
        self.requests.append(body)
        if len(self.requests) > PLUG:
            raise PluggedOutError
        check_pairs(body[FORMATS[self.api].messages])
        if body.get("tool_choice") == NO_TOOLS[self.api]:
            return Response(200, json=WRITERS[self.api]("I am not done."))
        calls = [(f"call_{number}", "read_page", {"number": number}) for number in itertools.islice(self.numbers, 2)]
        return Response(200, json=WRITERS[self.api]("", calls))

    def method(self) -> Callable[..., Any]:
        """Return the method of the client that sends a request."""
        http = Client(transport=MockTransport(self.answer))
        if self.api == "anthropic":
            create: Callable[..., Any] = Anthropic(api_key="k", http_client=http).messages.create
            return lambda **request: create(max_tokens=100, **request)
        client = OpenAI(api_key="k", http_client=http)
        create_reply: Callable[..., Any] = (
            client.chat.completions.create if self.api == "chat" else client.responses.create
        )
        return create_reply


@pytest.fixture
def server(api: ClientApi) -> Iterator[Server]:
    yield (server := Server(api))
    assert all(request["model"] == "m" for request in server.requests)


@APIS
def test_unguarded_loop_runs_away(server: Server, api: ClientApi) -> None:
    create, form = server.method(), FORMATS[api]
    messages: list[Any] = [{"role": "user", "content": PROMPT}]

    def loop() -> None:
        while (read := form.reply(create(model="m", tools=[TOOLS[api]], **{form.messages: messages}))).calls:
            messages.extend(read.messages)
            for call in read.calls:
                form.add_result(messages, call.provider_id, "a page", error=False)

    with pytest.raises(PluggedOutError):
        loop()


@APIS
def test_guarded_loop_concludes(server: Server, api: ClientApi) -> None:
    create, messages = server.method(), [{"role": "user", "content": PROMPT}]
    with GuardedLoop(messages, Limits(tool_calls=5), api=api) as loop:
        while loop.running:
            reply = create(**loop.request(model="m", tools=[TOOLS[api]]))
            for call in loop.reply(reply):
                loop.result(call, f"page {call.arguments['number']}")
    assert loop.ending is not None
    assert (loop.ending.outcome, loop.ending.reason) == (Outcome.CAP_HIT, EndReason.BUDGET)
    assert loop.text == "I am not done."
    assert len(server.requests) == 4
    check_pairs(messages)
    assert "not executed: the tool budget is spent" in json.dumps(messages)
