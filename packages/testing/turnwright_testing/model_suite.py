"""The contract of every model, as pytest tests.

    class TestMyModel(ModelSuite):
        @pytest.fixture
        def bench(self) -> ModelBench:
            ...

The bench plays the provider: it translates an `Exchange` into what the provider would send. The tests are marked
`anyio` and run on its pytest plugin. Source: docs/rules.md#replies, #retries, and `turnwright.model.Model`.
"""

from collections.abc import Callable
from typing import Final

import anyio
import pytest

from turnwright.message import Message, ToolCallPart
from turnwright.model import Model, ModelError, ModelRequest, ModelResponse, TextDelta, ToolCallDelta, ToolSpec
from turnwright.model.protocol import Delta
from turnwright_states import Cause, Finish, Usage

from .exchange import Exchange, Fails, ModelBench, Nonsense, SaidCall, Says, SentCall, SentMessage, Unreachable

Item = Delta | ModelResponse

HELLO: Final = ModelRequest((Message.user("hello"),))
SEARCH: Final = ToolSpec("search", "Search the project.", {"type": "object", "properties": {"q": {"type": "string"}}})
USED: Final = Usage(input_tokens=11, output_tokens=7)

_LATER: Final = {Cause.SERVER_ERROR, Cause.OVERLOADED}
#: The causes that each status may be reduced to. Those of one status may pass, or may not, alike.
_CAUSES: Final[dict[int, set[Cause]]] = {
    400: {Cause.BAD_REQUEST},
    401: {Cause.AUTHENTICATION},
    403: {Cause.PERMISSION},
    404: {Cause.NOT_FOUND},
    408: {Cause.TIMEOUT},
    409: {Cause.CONFLICT},
    422: {Cause.BAD_REQUEST},
    429: {Cause.RATE_LIMITED, Cause.OVERLOADED},
    500: _LATER,
    502: _LATER,
    503: _LATER,
    529: _LATER,
}


@pytest.mark.anyio
class ModelSuite:
    """Subclass it, and define a fixture `bench` that gives a `ModelBench`."""

    #: The seconds that a test waits for an event that should come at once.
    patience = 5.0

    async def test_model_has_a_name(self, bench: ModelBench) -> None:
        assert bench.model(Says(("hi",))).name

    async def test_deltas_come_first_and_then_one_complete_reply(self, bench: ModelBench) -> None:
        """Nothing follows the reply. The text of the deltas is the text of the reply."""
        pieces = ("Hé", "llo", " 漢", " 🙂\n", '"\\')
        *deltas, reply = await self.ask(bench, Says(pieces))
        assert isinstance(reply, ModelResponse)
        assert not [item for item in deltas if isinstance(item, ModelResponse)]
        assert "".join(item.text for item in deltas if isinstance(item, TextDelta)) == reply.text == "".join(pieces)

    async def test_a_delta_comes_while_the_provider_still_talks(self, bench: ModelBench) -> None:
        """A model that waits for the complete reply makes people wait too."""
        model, items = bench.model(Says(("first",), then="hangs")), list[Item]()
        await self.listen(model, items, lambda: bool(items), "no delta has come")
        assert [item.text for item in items if isinstance(item, TextDelta)] == ["first"]

    async def test_parallel_calls_come_in_their_order_with_all_that_was_said(self, bench: ModelBench) -> None:
        """Calls keep their text, ids, names and arguments, also calls of the same tool."""
        said_calls = (
            SaidCall("id-1", "search", '{"q": "é", "deep": {"n": [1, null]}}'),
            SaidCall("id-2", "read", '{"path": "a.py"}'),
            SaidCall("id-3", "search", '{"q": "b"}'),
        )
        reply = await self.reply(bench, Says(("I look.",), said_calls, finish="calls"))
        assert reply.text == "I look."
        assert [(call.id, call.name) for call in reply.calls] == [(call.id, call.name) for call in said_calls]
        assert [call.arguments for call in reply.calls] == [
            {"q": "é", "deep": {"n": [1, None]}},
            {"path": "a.py"},
            {"q": "b"},
        ]

    async def test_deltas_of_a_call_are_the_beginning_of_its_arguments(self, bench: ModelBench) -> None:
        """A model need not stream arguments. If it does, each call has its number in the reply, and its tool."""
        said_calls = (SaidCall("id-1", "search", '{"q": "é"}'), SaidCall("id-2", "read", '{"path": "a.py"}'))
        *deltas, reply = await self.ask(bench, Says(calls=said_calls, finish="calls"))
        assert isinstance(reply, ModelResponse)
        texts_by_call: dict[int, str] = {}
        for delta in deltas:
            if isinstance(delta, ToolCallDelta):
                assert delta.tool == reply.calls[delta.call_index].name
                texts_by_call[delta.call_index] = texts_by_call.get(delta.call_index, "") + delta.arguments_delta
        assert all(reply.calls[number].raw.startswith(text) for number, text in texts_by_call.items())

    async def test_repeated_ids_of_calls_are_kept(self, bench: ModelBench) -> None:
        """Some providers give every call the same id: the calls are still two."""
        said_calls = (SaidCall("call_0", "search", '{"q": "a"}'), SaidCall("call_0", "read", '{"path": "b"}'))
        reply = await self.reply(bench, Says(calls=said_calls, finish="calls"))
        assert [(call.id, call.name, call.arguments) for call in reply.calls] == [
            ("call_0", "search", {"q": "a"}),
            ("call_0", "read", {"path": "b"}),
        ]

    @pytest.mark.parametrize("raw", ['{"q": "a', "search for a", '["a"]'])
    async def test_arguments_that_are_no_json_object_are_kept_as_text(self, bench: ModelBench, raw: str) -> None:
        """`arguments` is None then, and `raw` is what the model wrote. The call is not lost, and nothing is raised."""
        reply = await self.reply(bench, Says(calls=(SaidCall("id-1", "search", raw),), finish="calls"))
        assert [(call.name, call.arguments, call.raw) for call in reply.calls] == [("search", None, raw)]

    async def test_no_arguments_are_an_empty_object(self, bench: ModelBench) -> None:
        """An empty text, as some providers write a call without arguments, is not broken JSON."""
        said_calls = (SaidCall("id-1", "list", ""), SaidCall("id-2", "list", "{}"))
        reply = await self.reply(bench, Says(calls=said_calls, finish="calls"))
        assert [call.arguments for call in reply.calls] == [{}, {}]

    async def test_the_finish_reason_is_returned(self, bench: ModelBench) -> None:
        """The reply says that its length or the content filter ended it; calls need no announcement."""
        assert (await self.reply(bench, Says(("a",), finish="stop"))).finish is Finish.STOP
        assert (await self.reply(bench, Says(("a",), finish="length"))).finish is Finish.LENGTH
        assert (await self.reply(bench, Says(("a",), finish="filter"))).finish is Finish.CONTENT_FILTER
        reply = await self.reply(bench, Says(calls=(SaidCall("id-1", "search"),), finish="calls"))
        assert reply.finish is Finish.STOP

    async def test_usage_is_the_providers_or_unknown(self, bench: ModelBench) -> None:
        """The usage is never a guess, and never zero for an unknown count."""
        usage = (await self.reply(bench, Says(("a",), usage=USED))).usage
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens) == (USED.input_tokens, USED.output_tokens)
        assert (await self.reply(bench, Says(("a",)))).usage is None

    async def test_an_empty_reply_is_recognized(self, bench: ModelBench) -> None:
        """It is an empty reply, or a failure with that cause: the chart counts both as an attempt."""
        try:
            reply = await self.reply(bench, Says())
        except ModelError as error:
            assert error.cause is Cause.EMPTY_REPLY  # noqa: PT017 (one of two right answers)
        else:
            assert (reply.text, reply.calls) == ("", ())
        assert len(bench.requests) == 1

    @pytest.mark.parametrize("status", _CAUSES)
    async def test_a_failure_has_its_cause(self, bench: ModelBench, status: int) -> None:
        """The cause decides whether the chart retries. The error has a text, and counts one attempt."""
        error = await self.failure(bench, Fails(status))
        assert error.cause in _CAUSES[status]
        assert error.status == status
        assert error.retry_after is None

    @pytest.mark.parametrize("about", ["context", "filter"])
    async def test_a_failure_that_no_retry_helps_is_distinguished(self, bench: ModelBench, about: str) -> None:
        """A conversation that is too long and a content filter both come as a bad request."""
        if about == "context":
            error = await self.failure(bench, Fails(400, about="context"))
            assert error.cause is Cause.CONTEXT_OVERFLOW
        else:
            error = await self.failure(bench, Fails(400, about="filter"))
            assert error.cause is Cause.CONTENT_FILTER

    async def test_the_wait_that_the_provider_asks_for_is_returned(self, bench: ModelBench) -> None:
        """The error carries the wait in seconds. The model itself does not wait."""
        error = await self.failure(bench, Fails(429, retry_after=7.0))
        assert error.retry_after == pytest.approx(7.0)

    async def test_a_provider_that_cannot_be_reached_may_be_there_later(self, bench: ModelBench) -> None:
        """The error is a `ModelError`, not one of a library."""
        error = await self.failure(bench, Unreachable())
        assert error.cause in {Cause.CONNECTION, Cause.TIMEOUT}

    async def test_broken_stream_is_a_failure_with_the_text_so_far(self, bench: ModelBench) -> None:
        """A partial reply is not a short reply."""
        error = await self.failure(bench, Says(("half ", "an ans"), then="breaks"))
        assert error.cause in {Cause.INTERRUPTED, Cause.CONNECTION}
        assert error.partial is not None
        assert error.partial.text == "half an ans"

    async def test_malformed_reply_is_a_failure(self, bench: ModelBench) -> None:
        """A page of HTML with the status 200 is not the model's text, and no parser's error is raised."""
        await self.failure(bench, Nonsense())

    async def test_cancellation_closes_the_connection(self, bench: ModelBench) -> None:
        """An aborted call must not cost more tokens."""
        model = bench.model(Says(("first",), then="hangs"))
        await self.listen(model, [], lambda: bool(bench.requests), "the model has sent no request")
        await self.until(lambda: bench.closed, "the connection is still open")

    async def test_a_complete_reply_leaves_no_connection_in_use(self, bench: ModelBench) -> None:
        """A failure leaves none either."""
        await self.ask(bench, Says(("a",)))
        assert bench.closed
        await self.failure(bench, Fails(500))
        assert bench.closed

    async def test_a_model_can_be_asked_again(self, bench: ModelBench) -> None:
        """Each call of `stream` is one request."""
        model = bench.model(Says(("a",)))
        for count in (1, 2):
            assert [item.text for item in await self.take(model, HELLO) if isinstance(item, ModelResponse)] == ["a"]
            assert len(bench.requests) == count

    async def test_messages_are_sent_in_order_with_their_results_paired(self, bench: ModelBench) -> None:
        """Pairs are made by the request's ids, which are ours: the provider's own are not unique."""
        calls = (
            ToolCallPart(id="call00001", name="search", arguments={"q": "é"}),
            ToolCallPart(id="call00002", name="search", arguments={}),
        )
        await self.take(
            bench.model(Says(("a",))),
            ModelRequest(
                (
                    Message.system("Be short."),
                    Message.user("Tidy."),
                    Message.assistant("I look.", calls),
                    Message.result("call00001", "search", "one"),
                    Message.result("call00002", "search", "two"),
                    Message.user("And now?"),
                ),
                tools=(SEARCH,),
            ),
        )
        (request,) = bench.requests
        assert request.messages == (
            SentMessage("system", "Be short."),
            SentMessage("user", "Tidy."),
            SentMessage(
                "assistant",
                "I look.",
                (SentCall("call00001", "search", {"q": "é"}), SentCall("call00002", "search", {})),
            ),
            SentMessage("tool", "one", answers="call00001"),
            SentMessage("tool", "two", answers="call00002"),
            SentMessage("user", "And now?"),
        )
        assert request.tools == ("search",)
        assert request.tool_choice in {None, "auto"}

    async def test_tools_that_are_disabled_are_still_sent(self, bench: ModelBench) -> None:
        """They are sent with the choice `none`: providers refuse a conversation with calls whose tools are missing."""
        await self.take(bench.model(Says(("a",))), ModelRequest(HELLO.messages, tools=(SEARCH,), tool_choice="none"))
        (request,) = bench.requests
        assert (request.tools, request.tool_choice) == (("search",), "none")

    async def test_output_limit_is_sent(self, bench: ModelBench) -> None:
        """A step may write no more tokens than the token budget has left."""
        await self.take(bench.model(Says(("a",))), ModelRequest(HELLO.messages, max_tokens=17))
        assert [request.max_tokens for request in bench.requests] == [17]

    # What the tests share.

    async def take(self, model: Model, request: ModelRequest) -> list[Item]:
        """Return everything that the model streams."""
        with anyio.fail_after(self.patience):
            return [item async for item in model.stream(request)]

    async def ask(self, bench: ModelBench, exchange: Exchange) -> list[Item]:
        """Return everything that a model streams for this exchange."""
        return await self.take(bench.model(exchange), HELLO)

    async def reply(self, bench: ModelBench, exchange: Exchange) -> ModelResponse:
        """Return the reply, which comes last."""
        reply = (await self.ask(bench, exchange))[-1]
        assert isinstance(reply, ModelResponse)
        return reply

    async def failure(self, bench: ModelBench, exchange: Exchange) -> ModelError:
        """Return the failure: a `ModelError` with a text, after one attempt. Retries belong to the chart."""
        before = len(bench.requests)
        with pytest.raises(ModelError) as error_info:
            await self.ask(bench, exchange)
        assert str(error_info.value)
        assert len(bench.requests) - before <= 1
        return error_info.value

    async def listen(self, model: Model, items: list[Item], enough: Callable[[], bool], why: str) -> None:
        """Put the model's stream into `items` until there is enough, and cancel it then."""

        async def take() -> None:
            async for item in model.stream(HELLO):
                items.append(item)  # noqa: PERF401 (a waiting test reads it meanwhile)

        async with anyio.create_task_group() as group:
            group.start_soon(take)
            await self.until(enough, why)
            group.cancel_scope.cancel()

    async def until(self, holds: Callable[[], bool], why: str) -> None:
        """Wait until a condition holds."""
        with anyio.move_on_after(self.patience):
            while not holds():  # noqa: ASYNC110 (what it waits for is in somebody else's hands)
                await anyio.sleep(0.01)
        assert holds(), why
