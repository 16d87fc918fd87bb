"""A model of pydantic-ai that does what an exchange says, as its adapters do with what a provider sends."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import anyio
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import (
    FinishReason,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage

from turnwright_testing.exchange import Exchange, Fails, Nonsense, Says, SentCall, SentMessage, SentRequest, Unreachable

FINISHES: Final = MappingProxyType[str, FinishReason](
    {"stop": "stop", "calls": "tool_call", "length": "length", "filter": "content_filter"}
)


class PlayedModel(Model):
    """Plays one exchange with every request. `requests` is what it was sent, `open` how many streams are open."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self.requests: list[SentRequest] = []
        self.open = 0
        self._exchange = exchange

    @property
    def model_name(self) -> str:
        return "played"

    @property
    def system(self) -> str:
        return "stage"

    async def request(
        self,
        messages: list[ModelMessage],  # noqa: ARG002 (the interface's)
        model_settings: ModelSettings | None,  # noqa: ARG002 (the interface's)
        model_request_parameters: ModelRequestParameters,  # noqa: ARG002 (the interface's)
    ) -> ModelResponse:
        raise AssertionError("it streams")

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[object] | None = None,  # noqa: ARG002 (the interface's)
    ) -> AsyncGenerator[StreamedResponse, None]:
        settings, parameters = self.prepare_request(model_settings, model_request_parameters)
        self.requests.append(sent(messages, settings, parameters))
        match self._exchange:
            case Unreachable():
                raise ModelConnectionError("played", "nobody listens there", phase="connect")
            case Nonsense():
                raise UnexpectedModelBehavior("Invalid response", body="<html><p>Log in</p></html>")
            case Fails():
                raise refusal(self._exchange)
            case Says():
                self.open += 1
                try:
                    yield Played(parameters, says=self._exchange)
                finally:
                    self.open -= 1


def refusal(fails: Fails) -> Exception:
    """Return the exception that the adapters raise for a refusal."""
    if fails.about == "filter":
        return ContentFilterError("Content filter triggered", body=json.dumps({"error": {"code": "content_filter"}}))
    return ModelHTTPError.for_category(
        ModelContextWindowExceededError if fails.about == "context" else None,
        status_code=fails.status,
        model_name="played",
        body={"message": "it cannot be done"},
        headers={} if fails.retry_after is None else {"Retry-After": f"{fails.retry_after:g}"},
    )


@dataclass
class Played(StreamedResponse):
    """A reply on its way: the text piece by piece, the arguments in halves, and then the end that was asked for."""

    says: Says = field(default_factory=Says)
    _usage_received: bool | None = field(default=False, init=False)

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        for piece in self.says.pieces:
            for event in self._parts_manager.handle_text_delta(vendor_part_id="text", content=piece):
                yield event
        for number, call in enumerate(self.says.calls):
            half = len(call.arguments) // 2
            for name, arguments in ((call.name, call.arguments[:half]), (None, call.arguments[half:])):
                for event in self._parts_manager.handle_tool_call_delta_events(
                    vendor_part_id=number, tool_name=name, args=arguments, tool_call_id=call.id
                ):
                    yield event
        if self.says.usage is not None:
            usage = RequestUsage(input_tokens=self.says.usage.input_tokens, output_tokens=self.says.usage.output_tokens)
            self._add_usage(usage, reported=True)
        if self.says.then == "breaks":
            raise ModelConnectionError("played", "the peer has gone", phase="read")
        if self.says.then == "hangs":
            await anyio.sleep_forever()
        self.finish_reason = FINISHES[self.says.finish]

    async def close_stream(self) -> None:
        pass

    @property
    def model_name(self) -> str:
        return "played"

    @property
    def provider_name(self) -> str:
        return "stage"

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return datetime.now(UTC)


def sent(
    messages: Sequence[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
) -> SentRequest:
    """A request, as the suite of models wants to see it."""
    options = settings or {}
    choice = options.get("tool_choice")
    return SentRequest(
        messages=(*_instructed(messages), *(sent_message for message in messages for sent_message in _sent(message))),
        tools=tuple(tool.name for tool in parameters.function_tools),
        tool_choice=choice if isinstance(choice, str) else None,
        max_tokens=options.get("max_tokens"),
    )


def _instructed(messages: Sequence[ModelMessage]) -> list[SentMessage]:
    """The instructions, which each request has."""
    instructions = {message.instructions for message in messages if isinstance(message, ModelRequest)}
    assert len(instructions) <= 1
    return [SentMessage("system", text) for text in instructions if text]


def _sent(message: ModelMessage) -> list[SentMessage]:
    if isinstance(message, ModelRequest):
        return [_told(part) for part in message.parts]
    calls = [part for part in message.parts if isinstance(part, ToolCallPart)]
    return [
        SentMessage(
            "assistant",
            "".join(part.content for part in message.parts if isinstance(part, TextPart)),
            tuple(SentCall(call.tool_call_id, call.tool_name, call.args_as_dict()) for call in calls),
        )
    ]


def _told(part: object) -> SentMessage:
    match part:
        case SystemPromptPart(content=text):
            return SentMessage("system", text)
        case UserPromptPart(content=str(text)):
            return SentMessage("user", text)
        case ToolReturnPart(content=str(text)):
            return SentMessage("tool", text, answers=part.tool_call_id)
        case _:
            raise AssertionError(f"nothing else is sent here: {part!r}")


class PlayedWhole(Model):
    """A model that cannot stream: it gives these responses, one a request, or raises them."""

    def __init__(self, *responses: ModelResponse | Exception) -> None:
        super().__init__()
        self.requests: list[tuple[list[ModelMessage], ModelSettings | None]] = []
        self._responses = list(responses)

    @property
    def model_name(self) -> str:
        return "whole"

    @property
    def system(self) -> str:
        return "stage"

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,  # noqa: ARG002 (the interface's)
    ) -> ModelResponse:
        self.requests.append((messages, model_settings))
        response = self._responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response
