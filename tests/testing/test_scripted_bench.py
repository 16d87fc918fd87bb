"""The shortest bench for `ModelSuite`: it has no provider. `docs/how-to/test-a-store-or-model.md` names it."""

import json

import pytest

from turnwright.message import Message, ToolResultPart
from turnwright.model import Model, ModelRequest, ModelResponse, ResponseToolCall, ScriptedModel
from turnwright_states import Finish
from turnwright_testing import exchange as ex
from turnwright_testing.model_suite import ModelSuite


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class MyBench:
    closed = True  # it holds no connection

    def __init__(self) -> None:
        self.models: list[ScriptedModel] = []

    def model(self, exchange: ex.Exchange) -> Model:
        if not isinstance(exchange, ex.Says) or exchange.then != "ends":
            pytest.skip("a script cannot fail")
        reasons = {"length": Finish.LENGTH, "filter": Finish.CONTENT_FILTER}
        reply = ModelResponse(
            text="".join(exchange.pieces),
            calls=tuple(map(as_scripted, exchange.calls)),
            finish=reasons.get(exchange.finish, Finish.STOP),
            usage=exchange.usage,
        )
        self.models.append(ScriptedModel(reply, repeat=True))
        return self.models[-1]

    @property
    def requests(self) -> list[ex.SentRequest]:
        return [sent_request(request) for model in self.models for request in model.requests]


def as_scripted(call: ex.SaidCall) -> ResponseToolCall:
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        arguments = None
    values = arguments if isinstance(arguments, dict) else None
    return ResponseToolCall(call.name, values, call.arguments, call.id)


def sent_request(model_request: ModelRequest) -> ex.SentRequest:
    tools = tuple(tool.name for tool in model_request.tools)
    messages = tuple(map(sent_message, model_request.messages))
    return ex.SentRequest(messages, tools, model_request.tool_choice, model_request.max_tokens)


def sent_message(message: Message) -> ex.SentMessage:
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            return ex.SentMessage(message.role, part.text, answers=part.call)
    calls = (ex.SentCall(call.id, call.name, call.arguments) for call in message.calls)
    return ex.SentMessage(message.role, message.text, tuple(calls))


class TestMyModel(ModelSuite):
    @pytest.fixture
    def bench(self) -> ex.ModelBench:
        return MyBench()
