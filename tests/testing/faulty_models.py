"""Models with one planted fault each, for `test_model_suite.py`, which runs this file and reads what failed."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import anyio
import pytest
from msgspec import structs
from pydantic import JsonValue

from turnwright.message import Message, ToolResultPart
from turnwright.model import Model, ModelError, ModelRequest, ModelResponse, ResponseToolCall, TextDelta, ToolCallDelta
from turnwright.model.protocol import Delta
from turnwright_states import Cause, Finish, Usage
from turnwright_testing.exchange import (
    Exchange,
    Fails,
    ModelBench,
    Nonsense,
    SaidCall,
    Says,
    SentCall,
    SentMessage,
    SentRequest,
    Unreachable,
)
from turnwright_testing.model_suite import ModelSuite

Item = Delta | ModelResponse

_STATUS = {
    400: Cause.BAD_REQUEST,
    401: Cause.AUTHENTICATION,
    403: Cause.PERMISSION,
    404: Cause.NOT_FOUND,
    408: Cause.TIMEOUT,
    409: Cause.CONFLICT,
    422: Cause.BAD_REQUEST,
    429: Cause.RATE_LIMITED,
}
_ABOUT = {"context": Cause.CONTEXT_OVERFLOW, "filter": Cause.CONTENT_FILTER}
_FINISH = {"length": Finish.LENGTH, "filter": Finish.CONTENT_FILTER}


class Bench:
    """A provider that is a value: its models look at the exchange itself."""

    kind: "type[Honest]"

    def __init__(self, kind: "type[Honest]") -> None:
        self.kind = kind
        self.requests: list[SentRequest] = []
        self.closed = True

    def model(self, exchange: Exchange) -> Model:
        return self.kind(self, exchange)


class Honest:
    """A model without a fault. Each fault replaces one of its parts."""

    name = "honest"

    def __init__(self, bench: Bench, exchange: Exchange) -> None:
        self.bench = bench
        self.exchange = exchange

    async def stream(self, request: ModelRequest) -> AsyncIterator[Item]:
        self.send(request)
        self.bench.closed = False
        try:
            async for item in self.replied():
                yield item
        finally:
            self.close()

    def send(self, request: ModelRequest) -> None:
        self.bench.requests.append(
            SentRequest(
                tuple(_sent(message) for message in request.messages),
                tuple(tool.name for tool in request.tools),
                request.tool_choice,
                request.max_tokens,
            )
        )

    def close(self) -> None:
        self.bench.closed = True

    async def replied(self) -> AsyncIterator[Item]:
        says = self.exchange
        if not isinstance(says, Says):
            raise self.failure()
        for piece in says.pieces:
            yield TextDelta(piece)
        if says.then == "hangs":
            await anyio.sleep_forever()
        if says.then == "breaks":
            raise ModelError("it broke", cause=Cause.INTERRUPTED, partial=self.whole(says))
        yield self.whole(says)

    def whole(self, says: Says) -> ModelResponse:
        calls = tuple(map(self.call, says.calls))
        finish = _FINISH.get(says.finish, Finish.STOP)
        return ModelResponse(text="".join(says.pieces), calls=calls, finish=finish, usage=says.usage)

    def call(self, said_call: SaidCall) -> ResponseToolCall:
        return ResponseToolCall(said_call.name, _arguments(said_call.arguments), said_call.arguments, said_call.id)

    def failure(self) -> Exception:
        match self.exchange:
            case Fails(status=status, retry_after=retry_after, about=about):
                cause = _ABOUT.get(about) or _STATUS.get(status, Cause.SERVER_ERROR)
                return ModelError("it failed", cause=cause, status=status, retry_after=retry_after)
            case Unreachable():
                return ModelError("nobody is there", cause=Cause.CONNECTION)
            case Nonsense() | Says():
                return ModelError("that is not a reply", cause=Cause.REJECTED)


def _sent(message: Message) -> SentMessage:
    calls = tuple(SentCall(call.id, call.name, call.arguments) for call in message.calls)
    for part in message.parts:
        if isinstance(part, ToolResultPart):
            return SentMessage(message.role, part.text, answers=part.call)
    return SentMessage(message.role, message.text, calls)


def _arguments(text: str) -> dict[str, JsonValue] | None:
    try:
        read = json.loads(text or "{}")
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


class Suite(ModelSuite):
    """The suite over the models of `kind`."""

    __test__ = False
    patience = 0.3
    kind: type[Honest] = Honest

    @pytest.fixture
    def bench(self) -> ModelBench:
        return Bench(self.kind)


class TestHonest(Suite):
    __test__ = True


class SwallowsErrors(Honest):
    async def replied(self) -> AsyncIterator[Item]:
        try:
            async for item in super().replied():
                yield item
        except ModelError as error:
            yield TextDelta("sorry")
            yield ModelResponse(text=f"sorry: {error}")


class MixesUpCalls(Honest):
    async def replied(self) -> AsyncIterator[Item]:
        async for item in super().replied():
            if isinstance(item, ModelResponse):
                for number, call in enumerate(item.calls):
                    yield ToolCallDelta(len(item.calls) - 1 - number, call.name, call.raw)
            yield item


class TestMixesUpCalls(Suite):
    __test__ = True
    kind = MixesUpCalls


class TestSwallowsErrors(Suite):
    __test__ = True
    kind = SwallowsErrors


class Retries(Honest):
    async def stream(self, request: ModelRequest) -> AsyncIterator[Item]:
        if not isinstance(self.exchange, Says):
            self.send(request)
        async for item in super().stream(request):
            yield item


class TestRetries(Suite):
    __test__ = True
    kind = Retries


class LosesACall(Honest):
    def whole(self, says: Says) -> ModelResponse:
        return super().whole(replace(says, calls=says.calls[-1:]))


class TestLosesACall(Suite):
    __test__ = True
    kind = LosesACall


class YieldsTwoReplies(Honest):
    async def replied(self) -> AsyncIterator[Item]:
        async for item in super().replied():
            yield item
            if isinstance(item, ModelResponse):
                yield item


class TestYieldsTwoReplies(Suite):
    __test__ = True
    kind = YieldsTwoReplies


class TakesHalfForWhole(Honest):
    def __init__(self, bench: Bench, exchange: Exchange) -> None:
        broken = isinstance(exchange, Says) and exchange.then == "breaks"
        super().__init__(bench, replace(exchange, then="ends") if broken and isinstance(exchange, Says) else exchange)


class TestTakesHalfForWhole(Suite):
    __test__ = True
    kind = TakesHalfForWhole


class LetsForeignErrorsOut(Honest):
    def failure(self) -> Exception:
        return ConnectionRefusedError("refused")


class TestLetsForeignErrorsOut(Suite):
    __test__ = True
    kind = LetsForeignErrorsOut


class Buffers(Honest):
    async def replied(self) -> AsyncIterator[Item]:
        items = [item async for item in super().replied()]
        for item in items:
            yield item


class TestBuffers(Suite):
    __test__ = True
    kind = Buffers


class LeavesConnectionsOpen(Honest):
    def close(self) -> None:
        pass


class TestLeavesConnectionsOpen(Suite):
    __test__ = True
    kind = LeavesConnectionsOpen


class MakesIdsUnique(Honest):
    def whole(self, says: Says) -> ModelResponse:
        calls = tuple(replace(call, id=f"unique-{number}") for number, call in enumerate(says.calls))
        return super().whole(replace(says, calls=calls))


class TestMakesIdsUnique(Suite):
    __test__ = True
    kind = MakesIdsUnique


class EmptiesBadArguments(Honest):
    def call(self, said_call: SaidCall) -> ResponseToolCall:
        return structs.replace(super().call(said_call), arguments=_arguments(said_call.arguments) or {})


class TestEmptiesBadArguments(Suite):
    __test__ = True
    kind = EmptiesBadArguments


class TakesNoArgumentsForBad(Honest):
    def call(self, said_call: SaidCall) -> ResponseToolCall:
        return structs.replace(
            super().call(said_call), arguments=_arguments(said_call.arguments) if said_call.arguments else None
        )


class TestTakesNoArgumentsForBad(Suite):
    __test__ = True
    kind = TakesNoArgumentsForBad


class GuessesUsage(Honest):
    def whole(self, says: Says) -> ModelResponse:
        return structs.replace(super().whole(says), usage=says.usage or Usage())


class TestGuessesUsage(Suite):
    __test__ = True
    kind = GuessesUsage


class ForgetsTheFinish(Honest):
    def whole(self, says: Says) -> ModelResponse:
        return structs.replace(super().whole(says), finish=Finish.STOP)


class TestForgetsTheFinish(Suite):
    __test__ = True
    kind = ForgetsTheFinish


class DropsDisabledTools(Honest):
    def send(self, request: ModelRequest) -> None:
        super().send(structs.replace(request, tools=()) if request.tool_choice == "none" else request)


class TestDropsDisabledTools(Suite):
    __test__ = True
    kind = DropsDisabledTools


class ReordersMessages(Honest):
    def send(self, request: ModelRequest) -> None:
        results = [message for message in request.messages if message.role == "tool"]
        other_messages = [message for message in request.messages if message.role != "tool"]
        super().send(structs.replace(request, messages=(*other_messages, *results)))


class TestReordersMessages(Suite):
    __test__ = True
    kind = ReordersMessages


class ForgetsHowLongToWait(Honest):
    def failure(self) -> Exception:
        error = super().failure()
        if isinstance(error, ModelError):
            error.retry_after = None
        return error


class TestForgetsHowLongToWait(Suite):
    __test__ = True
    kind = ForgetsHowLongToWait


class FailsOnNothing(Honest):
    def whole(self, says: Says) -> ModelResponse:
        if not says.pieces and not says.calls:
            raise ModelError("there was nothing", cause=Cause.REJECTED)
        return super().whole(says)


class TestFailsOnNothing(Suite):
    __test__ = True
    kind = FailsOnNothing


class ForgetsTheBound(Honest):
    def send(self, request: ModelRequest) -> None:
        super().send(structs.replace(request, max_tokens=None))


class TestForgetsTheBound(Suite):
    __test__ = True
    kind = ForgetsTheBound


class HasNoName(Honest):
    name = ""


class TestHasNoName(Suite):
    __test__ = True
    kind = HasNoName


class WorksOnce(Honest):
    async def stream(self, request: ModelRequest) -> AsyncIterator[Item]:
        if self.bench.requests:
            raise ModelError("the client is closed", cause=Cause.REJECTED)
        async for item in super().stream(request):
            yield item


class TestWorksOnce(Suite):
    __test__ = True
    kind = WorksOnce
